//! The way between text and tokens. Takes plain data (bytes, JSON values), knows no weights, file, clock or socket.
//!
//! A prompt goes `chat::normalise` -> `Template::render` -> `encode_prompt`; a reply comes back
//! `Decoder` -> `StopMatcher` -> `ReplyParser`, with `ThinkingBudget` beside it.

pub mod budget;
pub mod chat;
pub mod decoder;
pub mod error;
pub mod grammar;
pub mod prompt;
pub mod reply;
pub mod stop;
pub mod template;
pub mod tokenizer;

pub use budget::{ThinkingBudget, opens_thinking};
pub use decoder::Decoder;
pub use error::Error;
pub use prompt::{EncodedPrompt, encode_prompt};
pub use reply::{ReplyParser, ReplyPart};
pub use stop::StopMatcher;
pub use template::{Rendered, Template, TemplateInput};
pub use tokenizer::Tokenizer;
