//! The door of the OpenAI Realtime protocol (GA) in text and in audio, with our extensions.
//!
//! What comes in is read tolerantly: the log names unknown fields once, `null` is the same as absent, and whatever cannot be
//! understood becomes an `error` event that names the field. What goes out is exactly what stock clients expect; no
//! event type beyond theirs unless a connection opted in to the extensions.

mod audio;
pub mod client_secrets;
pub mod connect;
mod error;
mod events;
mod frames;
mod parse;
mod render;
mod schema;
mod speaking_client;
mod spoken_items;
mod talk;
#[cfg(test)]
mod tests;
mod websocket;

pub use audio::AudioConfig;
pub use error::ErrorBody;
pub use events::{ResponseFields, SessionFields};
pub use frames::SessionView;
pub use parse::{Limits, Received, event_limits, parse, session_update};
pub use render::{Renderer, item_value, session_view};
pub use schema::schema;

/// The name of our extensions in `?extensions=` and `session.extensions`.
pub const EXTENSION: &str = "reprise";
