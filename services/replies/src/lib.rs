//! Replies to requests that hold their own conversation, whatever protocol brings them.
//!
//! A client may send its whole conversation with each request, or what is new in a durable session. Either way this crate
//! decides what a door must not: whose the request is ([`Scope`]), whether it came before ([`RequestAttempt`]), what the
//! service remembers of its conversation, what stands in the prompt besides it, and what the model reads ahead afterwards.
//! A door parses to a [`CompletionRequest`], asks [`Completions::ask`], and gives a [`Render`] that makes frames of events.

mod begun;
mod completion;
mod deleting;
mod error;
pub mod identity;
mod maintenance;

pub use begun::BegunBySecrets;
pub use completion::{
    Completion, CompletionRequest, Completions, ConversationKeeping, GoesOnFrom, MARK, PastOwners, RawRequest,
    RecentTurns, Render, ReplyProgress, RequestAttempt, StandingPrompts, StoredTurn, bodies, kept_alive, streamed,
    whole,
};
pub use error::Error;
pub use identity::{BodyClues, Persons, Scope};
