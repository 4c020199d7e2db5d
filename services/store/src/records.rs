//! The words of the store: plain data, as it is written, read, exported and handed to the rest of the service.

use crate::{Error, export::hex};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub id: String,
    pub name: String,
    pub created_at_ms: i64,
}

/// One user's session, as proof that it is theirs: made by the store only, after it looked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionRef {
    pub(crate) key: i64,
    pub(crate) user: Arc<str>,
    pub(crate) id: Arc<str>,
}

impl SessionRef {
    pub fn user(&self) -> &str {
        &self.user
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// By which what was computed of this session is known, in memory and on disk, so that it can go with the session.
    pub fn past_owner(&self) -> u64 {
        let digest = Sha256::new().chain_update(&*self.user).chain_update([0]).chain_update(&*self.id).finalize();
        digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub(crate) fn missing(&self) -> Error {
        Error::NoSession { session: self.id.to_string() }
    }
}

/// What a session is made with. The preset and its window are kept: a later configuration does not move a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewSession {
    /// None: the store finds one.
    pub id: Option<String>,
    pub preset: String,
    pub ctx_size: u64,
    pub experiment: Option<String>,
    pub arm: Option<String>,
    pub title: String,
    pub instructions: String,
    pub tools: Value,
    pub settings: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub id: String,
    pub user: String,
    pub preset: String,
    pub ctx_size: u64,
    pub experiment: Option<String>,
    pub arm: Option<String>,
    pub title: String,
    pub instructions: String,
    pub tools: Value,
    pub settings: Value,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
}

/// What `session.update` may change; None leaves it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionChange {
    pub title: Option<String>,
    pub instructions: Option<String>,
    pub tools: Option<Value>,
    pub settings: Option<Value>,
    pub placement: Option<Placement>,
}

/// Another window for a running session: only when somebody asks for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    pub preset: String,
    pub ctx_size: u64,
    pub experiment: Option<String>,
    pub arm: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionLine {
    #[serde(flatten)]
    pub session: Session,
    /// Items that stand in the conversation today.
    pub items: u64,
    /// Tokens the newest measured turn had in its window.
    pub fill_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    System,
    User,
    Assistant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    InputText,
    OutputText,
    Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    #[serde(rename = "type")]
    pub kind: PartKind,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    Message { role: Role, parts: Vec<Part> },
    FunctionCall { call_id: String, name: String, arguments: String },
    FunctionCallOutput { call_id: String, output: String },
    Reasoning { text: String },
}

impl Body {
    pub fn kind(&self) -> &'static str {
        match self {
            Body::Message { .. } => "message",
            Body::FunctionCall { .. } => "function_call",
            Body::FunctionCallOutput { .. } => "function_call_output",
            Body::Reasoning { .. } => "reasoning",
        }
    }

    pub fn role(&self) -> Option<Role> {
        match self {
            Body::Message { role, .. } => Some(*role),
            _ => None,
        }
    }

    /// What search sees. Reasoning was thought, not said.
    pub fn said(&self) -> String {
        match self {
            Body::Message { parts, .. } => parts
                .iter()
                .map(|part| part.text.as_str())
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("\n"),
            Body::FunctionCall { name, arguments, .. } => format!("{name} {arguments}"),
            Body::FunctionCallOutput { output, .. } => output.clone(),
            Body::Reasoning { .. } => String::new(),
        }
    }

    /// Adds what was sent next: to the last part of a message, to the arguments of a call.
    pub fn extend(&mut self, piece: &str) {
        match self {
            Body::Message { parts, .. } => match parts.last_mut() {
                Some(part) => part.text.push_str(piece),
                None => parts.push(Part { kind: PartKind::OutputText, text: piece.to_owned() }),
            },
            Body::FunctionCall { arguments, .. } => arguments.push_str(piece),
            Body::FunctionCallOutput { output, .. } => output.push_str(piece),
            Body::Reasoning { text } => text.push_str(piece),
        }
    }

    /// Characters (Unicode scalar values) of everything in it.
    pub fn chars(&self) -> u64 {
        let count = |text: &str| text.chars().count() as u64;
        match self {
            Body::Message { parts, .. } => parts.iter().map(|part| count(&part.text)).sum(),
            Body::FunctionCall { arguments, .. } => count(arguments),
            Body::FunctionCallOutput { output, .. } => count(output),
            Body::Reasoning { text } => count(text),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    InProgress,
    Completed,
    Interrupted,
    Cancelled,
}

/// How a version came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Created,
    Begun,
    Finished,
    Edited,
    Truncated,
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    End,
    Start,
    After(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewItem {
    /// None: the store finds one.
    pub item_id: Option<String>,
    pub position: Position,
    pub body: Body,
    pub response: Option<String>,
    pub created_at_ms: i64,
}

/// One version of an item. An item's newest version is what counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    pub seq: u64,
    pub item_id: String,
    pub version: u64,
    pub change: Change,
    #[serde(with = "hex")]
    pub place: Vec<u8>,
    pub body: Body,
    pub status: Status,
    pub sent_chars: Option<u64>,
    pub heard_chars: Option<u64>,
    pub response: Option<String>,
    pub created_at_ms: i64,
}

/// The acknowledgement of a change: it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub item_id: String,
    pub seq: u64,
    pub version: u64,
    /// The item it now stands after; None at the head.
    pub previous_item_id: Option<String>,
}

/// A closed set of words, kept in the database as its snake_case name.
macro_rules! words {
    ($($kind:ident { $($variant:ident = $word:literal),+ $(,)? })+) => { $(
        impl $kind {
            pub fn word(self) -> &'static str {
                match self { $($kind::$variant => $word),+ }
            }

            pub fn from_word(word: &str) -> Option<$kind> {
                match word { $($word => Some($kind::$variant),)+ _ => None }
            }
        }
    )+ };
}
pub(crate) use words;

words! {
    Role { System = "system", User = "user", Assistant = "assistant" }
    Status {
        InProgress = "in_progress", Completed = "completed", Interrupted = "interrupted", Cancelled = "cancelled",
    }
    Change {
        Created = "created", Begun = "begun", Finished = "finished", Edited = "edited", Truncated = "truncated",
        Deleted = "deleted",
    }
}
