//! Conversations as a service: the protocol a voice frontend speaks, the turn-taking behind it, what is kept.
//!
//! `sentences`, `speech`, `realtime` and `turn` are pure: no socket, no clock, no task, no SQL.

pub mod backend;
pub mod chat;
pub mod live;
pub mod manner;
pub mod metrics;
pub mod realtime;
pub mod server;
pub mod turn;

pub use session::{sentences, speech};
