//! The one configuration: defaults, presets, the user's file, environment and flags, each value with where it came from.
//!
//! Floor 0. Knows no engine, no socket and no store: it turns text into typed, checked numbers. It reads no process
//! environment either; the binary passes in what it wants heard ([`Sources`]), so a test is as good as the real thing.
//!
//! The file `config/default.toml` is the documentation of every key; a test holds the two together.

mod built_in;
mod check;
mod error;
mod experiment;
mod load;
mod nearest;
mod origin;
mod preset;
mod presets;
mod print;
mod reader;
mod settings;
mod sources;
mod tree;
mod units;

pub use error::{Error, Mistake};
pub use experiment::{DrawnBy, Experiment, ExperimentArm};
pub use load::{Effective, Loaded};
pub use origin::Origin;
pub use preset::{Compaction, Kv, KvFormat, Preset, Sampling, Source, Thinking};
pub use print::print_config;
pub use settings::{
    Auth, Conversation, CountTokens, Device, Engine, Hub, KeysRequired, Level, Limits, LogFormat, Logging, Memory,
    MemoryTotal, Model, NotesAs, Precision, Server, Settings, Shutdown, SnapshotFormat, Speech, Store, Upstream,
};
pub use sources::{Flag, Sources};
pub use units::bytes;
