//! The sections as plain structs, each with the function that reads it. What a key means and why it has its default
//! stands in `config/default.toml` and only there.

mod elsewhere;

pub use elsewhere::{CountTokens, Hub, Upstream};

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::Error;
use crate::experiment::Experiment;
use crate::nearest::nearest;
use crate::preset::Preset;
use crate::reader::{Choice, Reader};
use crate::tree::Value;
use crate::units::Time;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub server: Server,
    pub auth: Auth,
    pub limits: Limits,
    pub store: Store,
    pub engine: Engine,
    pub memory: Memory,
    pub model: Model,
    pub upstream: Upstream,
    pub hub: Hub,
    pub conversation: Conversation,
    pub speech: Speech,
    pub logging: Logging,
    pub shutdown: Shutdown,
    /// None: every session gets the chosen preset.
    pub experiment: Option<Experiment>,
    /// Every preset by name, ready to use. "default" is always there.
    pub presets: BTreeMap<String, Preset>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    pub host: IpAddr,
    pub port: u16,
    pub public: bool,
    pub allowed_origins: Vec<String>,
    pub allowed_hosts: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Auth {
    pub required: KeysRequired,
    pub client_secret_s: u64,
    pub failures_per_minute: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysRequired {
    Auto,
    Always,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    pub frame_bytes: usize,
    pub message_bytes: usize,
    pub header_bytes: usize,
    pub body_bytes: usize,
    pub handshake_ms: u64,
    pub first_message_ms: u64,
    pub idle_s: u64,
    pub ping_s: u64,
    pub outgoing_events: usize,
    pub outgoing_bytes: usize,
    pub connections: usize,
    pub connections_per_key: usize,
    pub connections_per_address: usize,
    pub requests_per_minute_per_key: u32,
    pub requests_per_minute_per_address: u32,
    pub live_sessions: usize,
    pub live_session_idle_s: u64,
    pub session_items: u64,
    pub item_bytes: usize,
    pub tools: usize,
    pub page_rows: usize,
    pub stop_strings: usize,
    pub comment_ms: u64,
    pub id_chars: usize,
    pub responses_beside: usize,
    pub waiting_events: usize,
    pub waiting_steps: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    pub path: PathBuf,
    pub busy_timeout_ms: u64,
    pub readers: u32,
    /// 0: for ever.
    pub retention_days: u64,
    pub write_queue: usize,
    pub commit_group: usize,
    pub wal_limit_bytes: u64,
    pub check_at_start: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    pub device: Device,
    /// None: kernels are compiled at each start.
    pub kernels_path: Option<PathBuf>,
    pub gpu_prefill_chunk_tokens: usize,
    /// None: as many as have room.
    pub gpu_layers: Option<usize>,
    pub reopen_s: u64,
    pub reopen_tries: u32,
    /// 0: all cores.
    pub threads: usize,
    pub pin_threads: bool,
    pub prefill_chunk_tokens: usize,
    pub mmap: bool,
    /// None: each start packs.
    pub packed_path: Option<PathBuf>,
    pub packed_bytes: u64,
    pub packed_min_bytes: u64,
    pub precision: Precision,
    pub max_sequences: usize,
    pub max_waiting: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Auto,
    Cpu,
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    Default,
    F32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    pub total: MemoryTotal,
    /// None: what is free when the service starts, but for a tenth.
    pub gpu_total: Option<u64>,
    pub snapshots: SnapshotFormat,
    /// None: the memory plan chooses.
    pub snapshot_spacing_tokens: Option<usize>,
    pub trail_tokens: usize,
    pub token_cache_bytes: usize,
    /// None: nothing is kept on disk.
    pub disk_path: Option<PathBuf>,
    pub disk_bytes: u64,
    pub disk_min_tokens: usize,
    pub disk_idle_s: u64,
    pub disk_busy_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotFormat {
    F32,
    Bf16,
    Q8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryTotal {
    /// Three quarters of the machine's memory.
    Auto,
    Bytes(u64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub preset: String,
    /// Already in the chosen preset's `source.path`.
    pub path: Option<PathBuf>,
    /// Already in the chosen preset's `ctx_size`.
    pub ctx_size: Option<u32>,
    pub models_dir: PathBuf,
    pub presets_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    pub instructions: String,
    pub notes_as: NotesAs,
    pub note_before: String,
    pub note_after: String,
    pub opening: String,
    pub speculate_ms: u64,
    pub recall_hits: u32,
    pub recall_excerpt_words: u32,
}

/// The role in which a system message stands that is not at the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotesAs {
    User,
    System,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Speech {
    pub words_per_minute: u32,
    pub first_clause_chars: usize,
    pub max_sentence_chars: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Logging {
    pub format: LogFormat,
    pub level: Level,
    pub user_text: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Human,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Shutdown {
    pub drain_s: u64,
}

impl Settings {
    /// The preset of that name, as a session stored it or a request asked for it.
    pub fn preset(&self, name: &str) -> Result<&Preset, Error> {
        self.presets.get(name).ok_or_else(|| Error::NoSuchPreset {
            name: name.to_string(),
            hint: self.nearest_preset(name),
            there_are: self.preset_names(),
        })
    }

    /// The only answer to 'what is the window of this preset'.
    pub fn ctx_size(&self, preset: &str) -> Result<u32, Error> {
        Ok(self.preset(preset)?.ctx_size)
    }

    /// The preset that `[model] preset` chose. Loading made sure that it exists.
    pub fn chosen(&self) -> Result<&Preset, Error> {
        self.preset(&self.model.preset)
    }

    /// Tells a preset the window of the model file that was opened for it. A window nobody asked for gives way, with a
    /// line to print; one that somebody wrote down is an error when the model cannot have it.
    pub fn fit_to_model(&mut self, preset: &str, native_ctx: u32) -> Result<Option<String>, Error> {
        let (fitted, notice) = self.preset(preset)?.fit(native_ctx)?;
        self.presets.insert(preset.to_string(), fitted);
        Ok(notice)
    }
}

impl Settings {
    pub(crate) fn preset_names(&self) -> String {
        self.presets.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn nearest_preset(&self, name: &str) -> Option<String> {
        nearest(name, self.presets.keys().map(String::as_str)).map(|near| format!("did you mean {near:?}"))
    }

    /// Everything but the presets.
    pub(crate) fn read(root: &Reader<'_>) -> Settings {
        Settings {
            server: root.section("server", Server::read),
            auth: root.section("auth", Auth::read),
            limits: root.section("limits", Limits::read),
            store: root.section("store", Store::read),
            engine: root.section("engine", Engine::read),
            memory: root.section("memory", Memory::read),
            model: root.section("model", Model::read),
            upstream: root.section("upstream", Upstream::read),
            hub: root.section("hub", Hub::read),
            conversation: root.section("conversation", Conversation::read),
            speech: root.section("speech", Speech::read),
            logging: root.section("logging", Logging::read),
            shutdown: root.section("shutdown", Shutdown::read),
            experiment: root.section("experiment", Experiment::read),
            presets: BTreeMap::new(),
        }
    }
}

const ANY: u64 = u64::MAX;

impl Server {
    fn read(r: &Reader<'_>) -> Server {
        Server {
            host: r.text_as(
                "host",
                IpAddr::from([127, 0, 0, 1]),
                "an IP address such as \"127.0.0.1\", \"0.0.0.0\" or \"::1\"",
                |text| match text {
                    "localhost" => Err(Some("did you mean \"127.0.0.1\"".to_string())),
                    text => text.parse().map_err(|_| None),
                },
            ),
            port: r.whole("port", 0..=65535),
            public: r.bool("public"),
            allowed_origins: r.list("allowed_origins"),
            allowed_hosts: r.list("allowed_hosts"),
        }
    }
}

impl Auth {
    fn read(r: &Reader<'_>) -> Auth {
        Auth {
            required: r.choice("required"),
            client_secret_s: r.time("client_secret_s", Time::Seconds, 1..=86_400),
            failures_per_minute: r.whole("failures_per_minute", 1..=1_000_000),
        }
    }
}

impl Limits {
    fn read(r: &Reader<'_>) -> Limits {
        Limits {
            frame_bytes: r.bytes("frame_bytes", 1024..=1 << 30),
            message_bytes: r.bytes("message_bytes", 1024..=1 << 30),
            header_bytes: r.bytes("header_bytes", 1024..=1 << 20),
            body_bytes: r.bytes("body_bytes", 1024..=1 << 30),
            handshake_ms: r.time("handshake_ms", Time::Milliseconds, 1..=600_000),
            first_message_ms: r.time("first_message_ms", Time::Milliseconds, 1..=86_400_000),
            idle_s: r.time("idle_s", Time::Seconds, 1..=ANY),
            ping_s: r.time("ping_s", Time::Seconds, 1..=3600),
            outgoing_events: r.whole("outgoing_events", 16..=1 << 20),
            outgoing_bytes: r.bytes("outgoing_bytes", 1024..=1 << 30),
            connections: r.whole("connections", 1..=1 << 20),
            connections_per_key: r.whole("connections_per_key", 1..=1 << 20),
            connections_per_address: r.whole("connections_per_address", 1..=1 << 20),
            requests_per_minute_per_key: r.whole("requests_per_minute_per_key", 1..=1 << 30),
            requests_per_minute_per_address: r.whole("requests_per_minute_per_address", 1..=1 << 30),
            live_sessions: r.whole("live_sessions", 1..=1 << 20),
            live_session_idle_s: r.time("live_session_idle_s", Time::Seconds, 1..=ANY),
            session_items: r.whole("session_items", 16..=ANY),
            item_bytes: r.bytes("item_bytes", 1024..=1 << 30),
            tools: r.whole("tools", 0..=4096),
            page_rows: r.whole("page_rows", 1..=10_000),
            stop_strings: r.whole("stop_strings", 0..=1024),
            comment_ms: r.time("comment_ms", Time::Milliseconds, 10..=60_000),
            id_chars: r.whole("id_chars", 64..=4096),
            responses_beside: r.whole("responses_beside", 0..=1024),
            waiting_events: r.whole("waiting_events", 1..=1 << 20),
            waiting_steps: r.whole("waiting_steps", 64..=1 << 20),
        }
    }
}

impl Store {
    fn read(r: &Reader<'_>) -> Store {
        Store {
            path: path(r, "path"),
            busy_timeout_ms: r.time("busy_timeout_ms", Time::Milliseconds, 0..=600_000),
            readers: r.whole("readers", 1..=64),
            retention_days: r.time("retention_days", Time::Days, 0..=36_500),
            write_queue: r.whole("write_queue", 1..=1 << 20),
            commit_group: r.whole("commit_group", 1..=100_000),
            wal_limit_bytes: r.bytes("wal_limit_bytes", 100_000..=1 << 40),
            check_at_start: r.bool("check_at_start"),
        }
    }
}

impl Engine {
    /// Tokens of a prompt that are computed together, on a GPU or on the host.
    pub fn chunk_tokens(&self, on_device: bool) -> usize {
        if on_device { self.gpu_prefill_chunk_tokens } else { self.prefill_chunk_tokens }
    }

    fn read(r: &Reader<'_>) -> Engine {
        Engine {
            device: r.choice("device"),
            kernels_path: unless_empty(r.text("kernels_path")).map(PathBuf::from),
            gpu_prefill_chunk_tokens: r.whole("gpu_prefill_chunk_tokens", 64..=8192),
            gpu_layers: r.whole_or_auto("gpu_layers", 0..=1000),
            reopen_s: r.time("reopen_s", Time::Seconds, 0..=86_400),
            reopen_tries: r.whole("reopen_tries", 0..=1000),
            threads: r.whole("threads", 0..=1024),
            pin_threads: r.bool("pin_threads"),
            prefill_chunk_tokens: r.whole("prefill_chunk_tokens", 64..=8192),
            mmap: r.bool("mmap"),
            packed_path: unless_empty(r.text("packed_path")).map(PathBuf::from),
            packed_bytes: r.bytes("packed_bytes", 0..=ANY),
            packed_min_bytes: r.bytes("packed_min_bytes", 0..=ANY),
            precision: r.choice("precision"),
            max_sequences: r.whole("max_sequences", 1..=1024),
            max_waiting: r.whole("max_waiting", 1..=1 << 20),
        }
    }
}

impl Memory {
    fn read(r: &Reader<'_>) -> Memory {
        let total = r.bytes_or_auto("total", 64 << 20..=ANY);
        Memory {
            total: total.map_or(MemoryTotal::Auto, MemoryTotal::Bytes),
            gpu_total: r.bytes_or_auto("gpu_total", 64 << 20..=ANY),
            snapshots: r.choice("snapshots"),
            snapshot_spacing_tokens: r.whole_or_auto("snapshot_spacing_tokens", 16..=1 << 20),
            trail_tokens: r.whole("trail_tokens", 0..=1 << 20),
            token_cache_bytes: r.bytes("token_cache_bytes", 0..=1 << 40),
            disk_path: unless_empty(r.text("disk_path")).map(PathBuf::from),
            disk_bytes: r.bytes("disk_bytes", 1 << 20..=ANY),
            disk_min_tokens: r.whole("disk_min_tokens", 1..=1 << 20),
            disk_idle_s: r.time("disk_idle_s", Time::Seconds, 0..=86_400),
            disk_busy_s: r.time("disk_busy_s", Time::Seconds, 0..=86_400),
        }
    }
}

impl Model {
    fn read(r: &Reader<'_>) -> Model {
        let ctx_size: u32 =
            r.number_or_text("ctx_size", 0, "0, or a number of tokens of at least 128", |value| match value {
                Value::Integer(number) if *number == 0 || *number >= 128 => u32::try_from(*number).map_err(|_| None),
                _ => Err(None),
            });
        Model {
            preset: r.text("preset"),
            path: unless_empty(r.text("path")).map(PathBuf::from),
            ctx_size: (ctx_size > 0).then_some(ctx_size),
            models_dir: path(r, "models_dir"),
            presets_dir: unless_empty(r.text("presets_dir")).map(PathBuf::from),
        }
    }
}

impl Conversation {
    fn read(r: &Reader<'_>) -> Conversation {
        Conversation {
            instructions: r.text("instructions"),
            notes_as: r.choice("notes_as"),
            note_before: r.text("note_before"),
            note_after: r.text("note_after"),
            opening: r.text("opening"),
            speculate_ms: r.time("speculate_ms", Time::Milliseconds, 0..=600_000),
            recall_hits: r.whole("recall_hits", 1..=100),
            recall_excerpt_words: r.whole("recall_excerpt_words", 1..=64),
        }
    }
}

impl Speech {
    fn read(r: &Reader<'_>) -> Speech {
        Speech {
            words_per_minute: r.whole("words_per_minute", 30..=600),
            first_clause_chars: r.whole("first_clause_chars", 1..=1000),
            max_sentence_chars: r.whole("max_sentence_chars", 40..=10_000),
        }
    }
}

impl Logging {
    fn read(r: &Reader<'_>) -> Logging {
        Logging { format: r.choice("format"), level: r.choice("level"), user_text: r.bool("user_text") }
    }
}

impl Shutdown {
    fn read(r: &Reader<'_>) -> Shutdown {
        Shutdown { drain_s: r.time("drain_s", Time::Seconds, 0..=3600) }
    }
}

fn path(r: &Reader<'_>, key: &'static str) -> PathBuf {
    r.text_as(key, PathBuf::new(), "a path", |text| if text.is_empty() { Err(None) } else { Ok(PathBuf::from(text)) })
}

fn unless_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl Choice for KeysRequired {
    const ALL: &'static [(&'static str, Self)] = &[("auto", KeysRequired::Auto), ("always", KeysRequired::Always)];
}

impl SnapshotFormat {
    pub fn name(self) -> &'static str {
        <Self as Choice>::ALL.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }
}

impl Choice for SnapshotFormat {
    const ALL: &'static [(&'static str, Self)] =
        &[("f32", SnapshotFormat::F32), ("bf16", SnapshotFormat::Bf16), ("q8", SnapshotFormat::Q8)];
}

impl Choice for Device {
    const ALL: &'static [(&'static str, Device)] =
        &[("auto", Device::Auto), ("cpu", Device::Cpu), ("cuda", Device::Cuda)];
}

impl Choice for Precision {
    const ALL: &'static [(&'static str, Self)] = &[("default", Precision::Default), ("f32", Precision::F32)];
}

impl Choice for NotesAs {
    const ALL: &'static [(&'static str, Self)] = &[("user", NotesAs::User), ("system", NotesAs::System)];
}

impl Choice for LogFormat {
    const ALL: &'static [(&'static str, Self)] = &[("human", LogFormat::Human), ("json", LogFormat::Json)];
}

impl Choice for Level {
    const ALL: &'static [(&'static str, Self)] = &[
        ("error", Level::Error),
        ("warn", Level::Warn),
        ("info", Level::Info),
        ("debug", Level::Debug),
        ("trace", Level::Trace),
    ];
}

impl Level {
    /// As it is written, for the log filter.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, level)| *level == self).map_or("info", |(name, _)| name)
    }
}
