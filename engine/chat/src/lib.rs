//! Messages, tools and options of a request to a model: plain data that services fill in and the engine reads.
//!
//! A protocol's JSON ends at its door, and a chat template's begins in `text`. Between the two a conversation is a
//! [`Prompt`], whichever client sent it. Its [`Message`]s stand in the order in which the model reads them.
//!
//! ```
//! use chat::{Message, MessageRole, Part, Prompt, ToolCall};
//!
//! let call = ToolCall { id: Some("call_1".into()), name: "light".into(), arguments: r#"{"on":true}"#.into() };
//! let prompt = Prompt {
//!     messages: vec![
//!         Message::new(MessageRole::System, "Be brief."),
//!         Message::new(MessageRole::User, "Light on, please."),
//!         Message { calls: vec![call], ..Message::new(MessageRole::Assistant, "One moment.") },
//!         Message::result("call_1", "on"),
//!     ],
//!     ..Prompt::default()
//! };
//! assert_eq!(prompt.messages[2].text_bytes(), "One moment.".len() + "light".len() + r#"{"on":true}"#.len());
//!
//! // An image travels as its client wrote it: no part of the service reads it.
//! let image = Part::Image(r#"{"type":"image_url","image_url":{"url":"https://example.org/cat"}}"#.into());
//! let shown = Message { parts: vec![Part::Text("What is this?".into()), image], ..prompt.messages[1].clone() };
//! assert_eq!((shown.text().as_str(), shown.images()), ("What is this?", 1));
//! ```
//!
//! The crate knows no protocol, template, token or file, and reads no JSON.

mod message;
mod options;
mod tool;

pub use message::{Message, MessageRole, NO_RESULT, Part, Prompt, ToolCall, text_bytes};
pub use options::{Priority, TemplateOptions};
pub use tool::Tool;

use std::sync::Arc;

/// JSON that is passed on and not read: a schema, an image, a client's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct JsonText(pub Arc<str>);

impl From<&str> for JsonText {
    fn from(text: &str) -> JsonText {
        JsonText(text.into())
    }
}

impl From<String> for JsonText {
    fn from(text: String) -> JsonText {
        JsonText(text.into())
    }
}
