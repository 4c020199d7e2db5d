//! The OpenAI Realtime protocol (GA) in text, and our extensions: what may be said on the websocket, as types.
//!
//! What comes in is read tolerantly: unknown fields are ignored, `null` is the same as absent, and whatever cannot be
//! understood becomes an `error` event that names the field. What goes out is exactly what stock clients expect; no
//! event type beyond theirs unless a connection opted in to the extensions.

mod client;
mod error;
mod fields;
mod item;
mod response;
mod schema;
mod server;
mod session;
#[cfg(test)]
pub(crate) mod tests;

pub use ::session::Ids;
pub use client::{ClientEvent, NewItem, Received, TruncateAt, parse};
pub use error::{ErrorBody, ErrorCode};
pub use item::{Item, ItemBody, ItemStatus, Part, PartKind, Role};
pub use response::{
    ConversationChoice, InputItem, Response, ResponseError, ResponseParams, ResponseStatus, StatusDetails, Usage,
};
pub use schema::schema;
pub use server::{ContentPart, EventKind, RateLimit, ServerEvent, TurnMs};
pub use session::{MaxTokens, SessionConfig, SessionUpdate, SessionView, Tool, ToolChoice};

/// The name of our extensions in `?extensions=` and `session.extensions`.
pub const EXTENSION: &str = "reprise";

/// How large the parts of an event may be; the values come from the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Text of one item, of instructions, of a partial transcript, of metadata, of one tool.
    pub item_bytes: usize,
    pub tools: usize,
    /// Length of an id that a client chooses.
    pub id_chars: usize,
}
