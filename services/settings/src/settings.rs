//! The sections as plain structs: each field with the read that fills it, whose key is the field's name. Only
//! `config/default.toml` says what a key means and why it has its default.

mod adapters;
mod engine;
mod prompt;
mod remember;
mod remote_servers;
mod server;
mod speech;
mod wyoming;

pub use adapters::AdapterChoice;
pub use engine::{DeviceChoice, EngineSettings, MemorySettings, PrecisionChoice, SnapshotFormat};
pub use prompt::{ChangedHead, ChangedHeadChoice, ChangedHeadRule, PromptSettings};
pub use remember::{
    KeptConversations, PersonRule, RememberSettings, RuleClue, RuleCondition, RuleName, WantedText, person_name,
};
pub use remote_servers::{CountTokens, HubSettings, TelemetrySettings, UpstreamSettings};
pub use server::{ProxyHeader, ServerSettings};
pub use speech::{SpeechServer, SpeechSettings};
pub use wyoming::{WYOMING_PORT, WyomingSettings};

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use strum::{IntoStaticStr, VariantArray};

use crate::error::Error;
use crate::experiment::Experiment;
use crate::nearest::hint;
use crate::personas::Persona;
use crate::preset::{ModelSource, Preset};
use crate::reader::{ANY, SectionReader, sections};
use crate::value::Value;

sections! {
    pub struct Settings {
        /// Presets by name, ready to use. "default" always exists.
        pub presets: BTreeMap<String, Preset> = filled_later(),
        pub personas: BTreeMap<String, Persona> = filled_later(),
        pub server: ServerSettings = section(ServerSettings::read),
        pub auth: AuthSettings = section(AuthSettings::read),
        pub limits: LimitSettings = section(LimitSettings::read),
        pub store: StoreSettings = section(StoreSettings::read),
        pub engine: EngineSettings = section(EngineSettings::read),
        pub memory: MemorySettings = section(MemorySettings::read),
        pub model: ModelSettings = section(ModelSettings::read),
        pub upstream: UpstreamSettings = section(UpstreamSettings::read),
        pub hub: HubSettings = section(HubSettings::read),
        pub draft: DraftSettings = section(DraftSettings::read),
        pub ollama: OllamaSettings = section(OllamaSettings::read),
        pub conversation: ConversationSettings = section(ConversationSettings::read),
        pub prompt: PromptSettings = section(PromptSettings::read),
        pub speech: SpeechSettings = section(SpeechSettings::read),
        pub logging: LoggingSettings = section(LoggingSettings::read),
        pub telemetry: TelemetrySettings = section(TelemetrySettings::read),
        pub shutdown: ShutdownSettings = section(ShutdownSettings::read),
        pub wyoming: WyomingSettings = section(WyomingSettings::read),
        pub remember: RememberSettings = section(RememberSettings::read),
        pub experiment: Option<Experiment> = section(Experiment::read),
    }

    pub struct AuthSettings {
        pub required: KeysRequired = choice(),
        pub client_secret_s: u64 = time(1..=86_400),
        pub failures_per_minute: u32 = whole(1..=1_000_000),
    }

    pub struct LimitSettings {
        pub frame_bytes: usize = bytes(1024..=1 << 30),
        pub message_bytes: usize = bytes(1024..=1 << 30),
        pub header_bytes: usize = bytes(1024..=1 << 20),
        pub body_bytes: usize = bytes(1024..=1 << 30),
        pub prepare_wait_ms: u64 = time(0..=600_000),
        pub body_bytes_per_address: usize = bytes(1024..=1 << 40),
        pub body_ms: u64 = time(1..=3_600_000),
        pub write_ms: u64 = time(1..=3_600_000),
        pub handshake_ms: u64 = time(1..=600_000),
        pub first_message_ms: u64 = time(1..=86_400_000),
        pub idle_s: u64 = time(1..=LONGEST_S),
        pub ping_s: u64 = time(1..=3600),
        pub outgoing_events: usize = whole(16..=1 << 20),
        pub outgoing_bytes: usize = bytes(1024..=1 << 30),
        pub connections: usize = whole(1..=1 << 20),
        pub goodbyes: usize = whole(1..=4096),
        pub spare_files: usize = whole(16..=1_000_000),
        pub connections_per_key: usize = whole(1..=1 << 20),
        pub connections_per_address: usize = whole(1..=1 << 20),
        pub requests_per_minute_per_key: u32 = whole(1..=1 << 30),
        pub requests_per_minute_per_address: u32 = whole(1..=1 << 30),
        pub live_sessions: usize = whole(1..=1 << 20),
        pub live_sessions_per_user: usize = whole(1..=1 << 20),
        pub live_session_idle_s: u64 = time(1..=LONGEST_S),
        pub session_items: u64 = whole(16..=ANY),
        pub item_bytes: usize = bytes(1024..=1 << 30),
        pub request_items: usize = whole(16..=1 << 20),
        pub user_bytes: u64 = bytes(0..=1 << 50),
        pub user_bytes_per_minute: u64 = bytes(0..=1 << 40),
        pub session_bytes: usize = bytes(1 << 20..=1 << 40),
        pub told_items: usize = whole(1..=1 << 20),
        pub tools: usize = whole(0..=4096),
        pub page_rows: usize = whole(1..=10_000),
        pub search_words: usize = whole(1..=1024),
        pub stop_strings: usize = whole(0..=1024),
        pub stop_bytes: usize = whole(1..=1 << 20),
        pub prompts: usize = whole(1..=4096),
        pub prompt_logprobs: usize = whole(1..=1 << 28),
        pub choices: usize = whole(1..=64),
        pub retry_s: u64 = time(0..=3600),
        pub retry_turns: usize = whole(1..=1 << 20),
        pub comment_ms: u64 = time(10..=60_000),
        pub id_chars: usize = whole(64..=4096),
        pub keys_per_user: usize = whole(1..=100_000),
        pub title_chars: usize = whole(16..=4096),
        pub status_ms: u64 = time(100..=60_000),
        pub status_s: u64 = time(1..=86_400),
        pub status_streams: usize = whole(1..=100_000),
        pub responses_beside: usize = whole(0..=1024),
        pub waiting_events: usize = whole(1..=1 << 20),
        pub waiting_steps: usize = whole(64..=1 << 20),
    }

    pub struct StoreSettings {
        pub path: PathBuf = path(),
        pub busy_timeout_ms: u64 = time(0..=600_000),
        pub readers: u32 = whole(1..=64),
        pub read_limit_ms: u64 = time(0..=600_000),
        pub sync_ms: u64 = time(1..=3_600_000),
        pub retention_days: u64 = time(0..=36_500),
        pub write_queue: usize = whole(1..=1 << 20),
        pub commit_group: usize = whole(1..=100_000),
        pub wal_limit_bytes: u64 = bytes(100_000..=1 << 40),
        pub check_at_start: bool = bool(),
    }

    pub struct ModelSettings {
        pub preset: String = text(),
        /// Path of the model, already in the chosen preset's `source.path`.
        pub path: Option<PathBuf> = optional_path(),
        /// Window, already in the chosen preset's `ctx_size`.
        pub ctx_size: Option<u32> = window(),
        pub unknown: UnknownModel = choice(),
        pub lora: Vec<AdapterChoice> = adapters(),
        pub models_dir: PathBuf = path(),
        pub presets_dir: Option<PathBuf> = optional_path(),
        pub thinking_ctx_size: u32 = whole(0..=1 << 24),
    }

    pub struct DraftSettings {
        pub ngram: usize = whole(0..=16),
        pub tokens: usize = whole(0..=7),
        pub mtp: usize = whole(0..=4),
        pub mtp_vocab: usize = whole(1..=1 << 20),
    }

    pub struct OllamaSettings {
        pub port: u16 = whole(0..=65535),
        pub pull: bool = bool(),
    }

    pub struct ConversationSettings {
        pub instructions: String = text(),
        pub tool_order: ToolOrder = choice(),
        pub notes_as: NotesAs = choice(),
        pub note_before: String = text(),
        pub note_after: String = text(),
        pub opening: String = text(),
        pub no_question: String = text(),
        pub speculate_ms: u64 = time(0..=600_000),
        pub resume_s: u64 = time(0..=600),
        pub backchannels: Vec<String> = list(),
        pub recall_hits: u32 = whole(1..=100),
        pub recall_excerpt_words: u32 = whole(1..=64),
        pub recall_note: String = text(),
        pub recall_note_words: u32 = whole(8..=256),
        pub recall_wait_ms: u64 = time(0..=10_000),
        pub continue_minutes: u64 = whole(0..=10_080),
    }

    pub struct LoggingSettings {
        pub format: LogFormat = choice(),
        pub level: LogLevel = choice(),
        pub waiting_lines: usize = whole(16..=1_000_000),
        pub user_text: bool = bool(),
    }

    pub struct ShutdownSettings {
        pub drain_s: u64 = time(0..=3600),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum KeysRequired {
    Auto,
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum UnknownModel {
    Error,
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum NotesAs {
    User,
    System,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ToolOrder {
    Client,
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum LogFormat {
    Human,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// A hundred years: a moment that a clock can still tell.
const LONGEST_S: u64 = 100 * 365 * 86_400;

/// Least useful number of connections: a browser alone opens six.
const LEAST_CONNECTIONS: usize = 8;

impl Settings {
    pub fn preset(&self, name: &str) -> Result<&Preset, Error> {
        self.presets.get(name).ok_or_else(|| Error::NoSuchPreset {
            name: name.to_string(),
            hint: hint(name, self.presets.keys().map(String::as_str)),
            there_are: self.preset_names(),
        })
    }

    pub fn chosen(&self) -> Result<&Preset, Error> {
        self.preset(&self.model.preset)
    }

    /// Fits a preset to the window of its model file. A default window that is too large gives way, with a line to
    /// print; a larger one that the user wrote is an error.
    pub fn fit_to_model(&mut self, preset: &str, native_ctx: u32) -> Result<Option<String>, Error> {
        let (fitted, notice) = self.preset(preset)?.fit(native_ctx)?;
        self.presets.insert(preset.to_string(), fitted);
        Ok(notice)
    }

    /// Fits the connections to the files that the process may open. Each of their limits gives way by as much, with a
    /// line to print; too few files for any service are an error.
    pub fn fit_to_files(&mut self, files: u64) -> Result<Option<String>, Error> {
        let limits = &mut self.limits;
        let kept = limits.spare_files + limits.goodbyes;
        let room = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(kept);
        let wanted = limits.connections;
        if wanted <= room {
            return Ok(None);
        }
        if room < LEAST_CONNECTIONS {
            return Err(Error::TooFewFiles { files, needed: kept + LEAST_CONNECTIONS });
        }
        let share = |limit: usize| (limit * room / wanted).max(1);
        limits.connections_per_address = share(limits.connections_per_address);
        limits.connections_per_key = share(limits.connections_per_key);
        limits.connections = room;
        Ok(Some(format!(
            "{room} connections at most, {} from one address: the system lets this process have {files} open files, and \
             limits.connections = {wanted} needs {}; allow more with `ulimit -n` or LimitNOFILE=",
            limits.connections_per_address,
            wanted + kept
        )))
    }

    /// Warns of a `memory.total` above the machine's memory. It may be meant for a part that the system keeps for
    /// itself, so it is no mistake.
    pub fn beyond_memory(&self, machine_bytes: u64) -> Option<String> {
        let total = self.memory.total.filter(|total| *total > machine_bytes)?;
        let [total, machine] = [total, machine_bytes].map(|bytes| bytes >> 20);
        Some(format!("memory.total is {total} MiB and the machine has {machine} MiB: the system may end the process"))
    }

    pub fn used_in_place_of(&self, repo: &str, pulled: &Path) -> Option<PathBuf> {
        let folder = &self.model.models_dir;
        let is_wanted = |source: &ModelSource| {
            let is_fetched = source.path.is_none() && source.repo.as_deref() == Some(repo);
            is_fetched && source.file.as_ref().is_some_and(|file| folder.join(repo).join(file) == pulled)
        };
        let wanted = self.presets.values().filter(|preset| is_wanted(&preset.source));
        wanted.filter_map(|preset| preset.model_path(folder)).find(|path| path != pulled)
    }

    pub fn wyoming_host(&self) -> IpAddr {
        self.wyoming.host.unwrap_or(self.server.host)
    }

    /// True if programs outside this machine could talk without a key, or if all others need one, and the user did not
    /// allow it.
    pub fn wyoming_needs_leave(&self) -> bool {
        let is_open = !self.wyoming_host().is_loopback() || self.server.public;
        (is_open || self.auth.required == KeysRequired::Always) && !self.wyoming.without_key
    }

    pub(crate) fn preset_names(&self) -> String {
        self.presets.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl SectionReader<'_> {
    fn window(&self, key: &'static str) -> Option<u32> {
        let allowed = "0, or a number of tokens of at least 128";
        let tokens = self.read(key, Value::as_number, 0, allowed, |value| match value {
            Value::Integer(number) if *number == 0 || *number >= 128 => u32::try_from(*number).map_err(|_| None),
            _ => Err(None),
        });
        Some(tokens).filter(|tokens| *tokens > 0)
    }
}
