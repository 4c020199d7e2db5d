//! The sections as plain structs, each with the function that reads it. Only `config/default.toml` says what a key means
//! and why it has its default.

mod engine;
mod remote_servers;

pub use engine::{DeviceChoice, EngineSettings, MemorySettings, MemoryTotal, PrecisionChoice, SnapshotFormat};
pub use remote_servers::{CountTokens, HubSettings, UpstreamSettings};

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::error::Error;
use crate::experiment::Experiment;
use crate::nearest::hint;
use crate::preset::Preset;
use crate::reader::{SectionReader, WordSet};
use crate::units::TimeUnit;
use crate::value::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub server: ServerSettings,
    pub auth: AuthSettings,
    pub limits: LimitSettings,
    pub store: StoreSettings,
    pub engine: EngineSettings,
    pub memory: MemorySettings,
    pub model: ModelSettings,
    pub upstream: UpstreamSettings,
    pub hub: HubSettings,
    pub conversation: ConversationSettings,
    pub speech: SpeechSettings,
    pub logging: LoggingSettings,
    pub shutdown: ShutdownSettings,
    /// None: every session gets the chosen preset.
    pub experiment: Option<Experiment>,
    /// Every preset by name, ready to use. "default" is always there.
    pub presets: BTreeMap<String, Preset>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    pub host: IpAddr,
    pub port: u16,
    pub public: bool,
    pub allowed_origins: Vec<String>,
    pub allowed_hosts: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AuthSettings {
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
pub struct LimitSettings {
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
pub struct StoreSettings {
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
pub struct ModelSettings {
    pub preset: String,
    /// Already in the chosen preset's `source.path`.
    pub path: Option<PathBuf>,
    /// Already in the chosen preset's `ctx_size`.
    pub ctx_size: Option<u32>,
    pub models_dir: PathBuf,
    pub presets_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ConversationSettings {
    pub instructions: String,
    pub notes_as: NotesAs,
    pub note_before: String,
    pub note_after: String,
    pub opening: String,
    pub speculate_ms: u64,
    pub recall_hits: u32,
    pub recall_excerpt_words: u32,
}

/// The role that a system message gets which is not at the head of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotesAs {
    User,
    System,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpeechSettings {
    pub words_per_minute: u32,
    pub first_clause_chars: usize,
    pub max_sentence_chars: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LoggingSettings {
    pub format: LogFormat,
    pub level: LogLevel,
    pub user_text: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Human,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ShutdownSettings {
    pub drain_s: u64,
}

impl Settings {
    /// The preset that a session or a request names.
    pub fn preset(&self, name: &str) -> Result<&Preset, Error> {
        self.presets.get(name).ok_or_else(|| Error::NoSuchPreset {
            name: name.to_string(),
            hint: hint(name, self.presets.keys().map(String::as_str)),
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

    /// Tells a preset the window of the model file that was opened for it. A default window that is too large gives way, with
    /// a line to print; a window that the user wrote is an error when the model has less.
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

    /// Everything but the presets.
    pub(crate) fn read(root: &SectionReader<'_>) -> Settings {
        Settings {
            server: root.section("server", ServerSettings::read),
            auth: root.section("auth", AuthSettings::read),
            limits: root.section("limits", LimitSettings::read),
            store: root.section("store", StoreSettings::read),
            engine: root.section("engine", EngineSettings::read),
            memory: root.section("memory", MemorySettings::read),
            model: root.section("model", ModelSettings::read),
            upstream: root.section("upstream", UpstreamSettings::read),
            hub: root.section("hub", HubSettings::read),
            conversation: root.section("conversation", ConversationSettings::read),
            speech: root.section("speech", SpeechSettings::read),
            logging: root.section("logging", LoggingSettings::read),
            shutdown: root.section("shutdown", ShutdownSettings::read),
            experiment: root.section("experiment", Experiment::read),
            presets: BTreeMap::new(),
        }
    }
}

const ANY: u64 = u64::MAX;

impl ServerSettings {
    fn read(r: &SectionReader<'_>) -> ServerSettings {
        ServerSettings {
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

impl AuthSettings {
    fn read(r: &SectionReader<'_>) -> AuthSettings {
        AuthSettings {
            required: r.choice("required"),
            client_secret_s: r.time("client_secret_s", TimeUnit::Seconds, 1..=86_400),
            failures_per_minute: r.whole("failures_per_minute", 1..=1_000_000),
        }
    }
}

impl LimitSettings {
    fn read(r: &SectionReader<'_>) -> LimitSettings {
        LimitSettings {
            frame_bytes: r.bytes("frame_bytes", 1024..=1 << 30),
            message_bytes: r.bytes("message_bytes", 1024..=1 << 30),
            header_bytes: r.bytes("header_bytes", 1024..=1 << 20),
            body_bytes: r.bytes("body_bytes", 1024..=1 << 30),
            handshake_ms: r.time("handshake_ms", TimeUnit::Milliseconds, 1..=600_000),
            first_message_ms: r.time("first_message_ms", TimeUnit::Milliseconds, 1..=86_400_000),
            idle_s: r.time("idle_s", TimeUnit::Seconds, 1..=ANY),
            ping_s: r.time("ping_s", TimeUnit::Seconds, 1..=3600),
            outgoing_events: r.whole("outgoing_events", 16..=1 << 20),
            outgoing_bytes: r.bytes("outgoing_bytes", 1024..=1 << 30),
            connections: r.whole("connections", 1..=1 << 20),
            connections_per_key: r.whole("connections_per_key", 1..=1 << 20),
            connections_per_address: r.whole("connections_per_address", 1..=1 << 20),
            requests_per_minute_per_key: r.whole("requests_per_minute_per_key", 1..=1 << 30),
            requests_per_minute_per_address: r.whole("requests_per_minute_per_address", 1..=1 << 30),
            live_sessions: r.whole("live_sessions", 1..=1 << 20),
            live_session_idle_s: r.time("live_session_idle_s", TimeUnit::Seconds, 1..=ANY),
            session_items: r.whole("session_items", 16..=ANY),
            item_bytes: r.bytes("item_bytes", 1024..=1 << 30),
            tools: r.whole("tools", 0..=4096),
            page_rows: r.whole("page_rows", 1..=10_000),
            stop_strings: r.whole("stop_strings", 0..=1024),
            comment_ms: r.time("comment_ms", TimeUnit::Milliseconds, 10..=60_000),
            id_chars: r.whole("id_chars", 64..=4096),
            responses_beside: r.whole("responses_beside", 0..=1024),
            waiting_events: r.whole("waiting_events", 1..=1 << 20),
            waiting_steps: r.whole("waiting_steps", 64..=1 << 20),
        }
    }
}

impl StoreSettings {
    fn read(r: &SectionReader<'_>) -> StoreSettings {
        StoreSettings {
            path: path(r, "path"),
            busy_timeout_ms: r.time("busy_timeout_ms", TimeUnit::Milliseconds, 0..=600_000),
            readers: r.whole("readers", 1..=64),
            retention_days: r.time("retention_days", TimeUnit::Days, 0..=36_500),
            write_queue: r.whole("write_queue", 1..=1 << 20),
            commit_group: r.whole("commit_group", 1..=100_000),
            wal_limit_bytes: r.bytes("wal_limit_bytes", 100_000..=1 << 40),
            check_at_start: r.bool("check_at_start"),
        }
    }
}

impl ModelSettings {
    fn read(r: &SectionReader<'_>) -> ModelSettings {
        let ctx_size: u32 =
            r.number_or_text("ctx_size", 0, "0, or a number of tokens of at least 128", |value| match value {
                Value::Integer(number) if *number == 0 || *number >= 128 => u32::try_from(*number).map_err(|_| None),
                _ => Err(None),
            });
        ModelSettings {
            preset: r.text("preset"),
            path: unless_empty(r.text("path")).map(PathBuf::from),
            ctx_size: (ctx_size > 0).then_some(ctx_size),
            models_dir: path(r, "models_dir"),
            presets_dir: unless_empty(r.text("presets_dir")).map(PathBuf::from),
        }
    }
}

impl ConversationSettings {
    fn read(r: &SectionReader<'_>) -> ConversationSettings {
        ConversationSettings {
            instructions: r.text("instructions"),
            notes_as: r.choice("notes_as"),
            note_before: r.text("note_before"),
            note_after: r.text("note_after"),
            opening: r.text("opening"),
            speculate_ms: r.time("speculate_ms", TimeUnit::Milliseconds, 0..=600_000),
            recall_hits: r.whole("recall_hits", 1..=100),
            recall_excerpt_words: r.whole("recall_excerpt_words", 1..=64),
        }
    }
}

impl SpeechSettings {
    fn read(r: &SectionReader<'_>) -> SpeechSettings {
        SpeechSettings {
            words_per_minute: r.whole("words_per_minute", 30..=600),
            first_clause_chars: r.whole("first_clause_chars", 1..=1000),
            max_sentence_chars: r.whole("max_sentence_chars", 40..=10_000),
        }
    }
}

impl LoggingSettings {
    fn read(r: &SectionReader<'_>) -> LoggingSettings {
        LoggingSettings { format: r.choice("format"), level: r.choice("level"), user_text: r.bool("user_text") }
    }
}

impl ShutdownSettings {
    fn read(r: &SectionReader<'_>) -> ShutdownSettings {
        ShutdownSettings { drain_s: r.time("drain_s", TimeUnit::Seconds, 0..=3600) }
    }
}

fn path(r: &SectionReader<'_>, key: &'static str) -> PathBuf {
    r.text_as(key, PathBuf::new(), "a path", |text| if text.is_empty() { Err(None) } else { Ok(PathBuf::from(text)) })
}

fn unless_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl WordSet for KeysRequired {
    const ALL: &'static [(&'static str, Self)] = &[("auto", KeysRequired::Auto), ("always", KeysRequired::Always)];
}

impl WordSet for NotesAs {
    const ALL: &'static [(&'static str, Self)] = &[("user", NotesAs::User), ("system", NotesAs::System)];
}

impl WordSet for LogFormat {
    const ALL: &'static [(&'static str, Self)] = &[("human", LogFormat::Human), ("json", LogFormat::Json)];
}

impl WordSet for LogLevel {
    const ALL: &'static [(&'static str, Self)] = &[
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
}

impl LogLevel {
    /// As the log filter writes it.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, level)| *level == self).map_or("info", |(name, _)| name)
    }
}
