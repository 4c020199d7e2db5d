//! The vocabulary inside the service, and the pure part of a session.
//!
//! `vocabulary` is the one page of words: a door parses to its `Input` and renders its `Event`, a model takes a
//! `Prompt` and gives `Delta`s, the store keeps `Item`s. The crate knows no protocol, JSON, clock, socket, task or SQL.

mod config;
mod context;
mod delta;
mod event;
mod ids;
mod item;
pub mod machine;
mod response;
pub mod sentences;
mod speaker;
pub mod speech;
mod vocabulary;

pub use context::Context;
pub use ids::{HIDDEN, Ids, NOTE_OF_PAST, is_hidden_id};
pub use vocabulary::*;
