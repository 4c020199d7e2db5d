//! The language that the service speaks inside, and what is pure about a session.
//!
//! `vocabulary` is the one page of words: a door parses to its `Input` and renders its `Event`, a model takes a `Prompt`
//! and gives `Delta`s, the store keeps `Item`s. Here is no protocol, no JSON, no clock, no socket, no task and no SQL.

pub mod changed_head;
mod config;
mod delta;
mod event;
mod ids;
mod item;
pub mod machine;
pub mod prompt;
mod response;
pub mod sentences;
mod speaker;
pub mod speech;
mod vocabulary;

pub use ids::{HIDDEN, Ids, NOTE_OF_PAST, is_hidden_id};
pub use vocabulary::*;
