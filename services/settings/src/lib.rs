//! The one configuration: defaults, presets, the user's file, environment and flags, each value with its origin.
//!
//! Floor 0. Knows no engine, no socket and no store: it turns text into typed, checked numbers. It reads no process
//! environment either: the binary hands it over in [`Sources`], and a test hands over a map.
//!
//! `config/default.toml` documents every key; a test compares it with the keys that the code reads.
//!
//! ```
//! use settings::{Flag, Settings, Sources};
//!
//! let port = |value: &str| {
//!     let flags = vec![Flag::new("--port", "server.port", value)];
//!     Settings::load(&Sources { flags, ..Sources::default() })
//! };
//! assert_eq!(port("9000").unwrap().settings.server.port, 9000);
//!
//! // A mistake names its place, and all mistakes come at once.
//! assert!(port("many").unwrap_err().to_string().contains("flag --port"));
//! ```

mod built_in;
mod check;
mod error;
mod experiment;
mod explained;
mod findings;
mod layers;
mod load;
mod nearest;
mod origin;
mod password;
mod personas;
mod preset;
mod presets;
mod print;
mod reader;
mod renamed;
mod settings;
mod sources;
mod units;
mod value;

pub use error::{Error, Mistake};
pub use experiment::{Experiment, ExperimentArm, ExperimentUnit};
pub use explained::{ExplainedValue, explained};
pub use findings::Effective;
pub use load::LoadedSettings;
pub use origin::{Origin, SettingsLayer};
pub use personas::Persona;
pub use preset::{
    CompactionSettings, Kv, KvFormat, KvRotation, Learn, MadeFor, ModelSource, Preset, PresetPrompt, Questions, Recall,
    RememberedSettings, SamplingSettings, ShownSpeakers, SpeculationSettings, Thinking,
};
pub use print::print_config;
pub use settings::{
    AdapterChoice, AuthSettings, ChangedHead, ChangedHeadChoice, ChangedHeadRule, ConversationSettings, CountTokens,
    DeviceChoice, EngineSettings, HubSettings, KeptConversations, KeysRequired, LimitSettings, LogFormat, LogLevel,
    LoggingSettings, MemorySettings, ModelSettings, NotesAs, OllamaSettings, PersonRule, PrecisionChoice,
    PromptSettings, ProxyHeader, RememberSettings, RuleClue, RuleCondition, RuleName, ServerSettings, Settings,
    ShutdownSettings, SnapshotFormat, SpeechServer, SpeechSettings, StoreSettings, TelemetrySettings, ToolOrder,
    UnknownModel, UpstreamSettings, WYOMING_PORT, WantedText, WyomingSettings, person_name,
};
pub use sources::{Flag, Sources};
pub use units::bytes;
