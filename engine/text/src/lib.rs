//! The way between text and tokens. Takes plain data, knows no weights, file, clock or socket.
//!
//! A prompt goes [`Template::render`] -> [`encode_prompt`]; a reply comes back [`Decoder`] -> [`StopMatcher`] ->
//! [`ReplyParser`], with [`ThinkingBudget`] beside it. Grammars keep a reply to calls of its tools, or to a schema.
//!
//! ```
//! use chat::{Message, MessageRole, Prompt, Tool};
//! use text::{ReplyParser, ReplyPart, Template, TemplateInput, ToolSchema};
//!
//! let parameters = r#"{"type":"object","properties":{"on":{"type":"boolean"}}}"#;
//! let light = Tool { name: "light".into(), parameters: Some(parameters.into()), ..Tool::default() };
//! let prompt = Prompt {
//!     messages: vec![Message::new(MessageRole::System, "Be brief."), Message::new(MessageRole::User, "Light on!")],
//!     tools: vec![light],
//!     ..Prompt::default()
//! };
//! let rendered = Template::family()?.render(&TemplateInput::of(&prompt))?;
//! assert!(rendered.text.ends_with("<|im_start|>user\nLight on!<|im_end|>\n<|im_start|>assistant\n<think>\n"));
//!
//! // The reply comes in pieces, cut anywhere. The tool's schema gives the arguments their types.
//! let mut reply = ReplyParser::new(false, &ToolSchema::of_all(&prompt.tools));
//! let mut parts = Vec::new();
//! for piece in ["<tool_c", "all>\n<function=light>\n<parameter=on>\ntrue\n</parameter>\n</func", "tion>\n</tool_call>"] {
//!     reply.push(piece, &mut parts);
//! }
//! let call = ReplyPart::Call { index: 0, name: "light".into() };
//! assert_eq!(parts, [call, ReplyPart::Arguments { index: 0, json: r#"{"on":true}"#.into() }]);
//! # Ok::<(), text::Error>(())
//! ```

pub mod budget;
pub mod decoder;
pub mod error;
pub mod grammar;
pub mod prompt;
pub mod reply;
pub mod stop;
pub mod template;
pub mod tokenizer;
mod tool_schema;

pub use budget::{ThinkingBudget, opens_thinking};
pub use decoder::Decoder;
pub use error::Error;
pub use prompt::{EncodedPrompt, encode_prompt};
pub use reply::{ReplyParser, ReplyPart};
pub use stop::StopMatcher;
pub use template::{Rendered, Template, TemplateInput};
pub use tokenizer::{GgufVocabulary, Tokenizer};
pub use tool_schema::ToolSchema;
