//! The doors: each protocol parses what its clients say and renders what sessions tell. `routes` is the table of all that
//! can be asked over HTTP; `entry` stands before every one of them, `socket` carries them. No door uses another.
//!
//! ```
//! use serde_json::json;
//!
//! let body = json!({ "messages": [{ "role": "user", "content": "Light on!" }], "reasoning_effort": "low" });
//! let prompt = doors::chat_prompt(&body).unwrap();
//! assert_eq!((prompt.messages[0].text().as_str(), prompt.options.thinks()), ("Light on!", Some(true)));
//!
//! let wrong = doors::chat_prompt(&json!({ "messages": [5] })).unwrap_err();
//! assert_eq!(wrong.message, "the request is not valid: messages[0] is a number, but must be an object");
//! ```

mod admin;
mod api_error;
mod app;
mod clues;
mod entry;
mod error;
mod extract;
mod headers;
mod json;
mod ollama;
mod openai_audio;
mod openai_chat;
mod openai_completions;
pub mod openai_realtime;
mod openai_responses;
mod options;
mod routes;
mod serve;
mod socket;
mod thinking;
mod tools;
mod unread;
pub mod wyoming;

/// Parsers of all protocols, for programs without a socket.
pub mod parsers {
    pub use crate::admin::context::{NewPin, SummaryEdit, SummaryVersion};
    pub use crate::admin::experiments::{Feedback, PlacementRequest};
    pub use crate::admin::memories::NewMemory;
    pub use crate::json::read_body;
    pub use crate::ollama::{NamedModel, parse_chat as parse_ollama_chat, parse_generate as parse_ollama_generate};
    pub use crate::openai_audio::parse_form as parse_speech_form;
    pub use crate::openai_chat::parse as parse_chat;
    pub use crate::openai_completions::parse as parse_completions;
    pub use crate::openai_realtime::client_secrets::ClientSecretRequest;
    pub use crate::openai_realtime::{event_limits, parse as parse_realtime};
    pub use crate::openai_responses::conversations::{ConversationUpdate, parse_new as parse_conversation};
    pub use crate::openai_responses::{parse as parse_responses, parse_frame as parse_responses_frame};
    pub use crate::wyoming::{FrameLimits, FrameReader, parse as parse_wyoming};
    pub use fields::read;
}

pub use api_error::ApiError;
pub use app::{App, StartFacts};
pub use clues::{RequestClues, clues_of};
pub use error::Error;
pub use openai_chat::prompt_of as chat_prompt;
pub use routes::paths_before;
pub use serve::{Listeners, listen, serve, while_starting};
