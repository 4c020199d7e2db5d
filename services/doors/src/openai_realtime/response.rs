//! Responses: what a client may ask of one, and the object it is told about.

use super::session::{MaxTokens, Tool, ToolChoice};
use super::{Item, NewItem};
use crate::manner::Manner;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

/// The `response` of a `response.create`: the fields that were there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseParams {
    pub conversation: ConversationChoice,
    /// In place of the conversation so far.
    pub input: Option<Vec<InputItem>>,
    pub instructions: Option<String>,
    pub tools: Option<Vec<Tool>>,
    pub tool_choice: Option<ToolChoice>,
    pub max_output_tokens: Option<MaxTokens>,
    pub temperature: Option<f64>,
    pub reasoning_effort: Option<String>,
    pub parallel_tool_calls: Option<bool>,
    /// What has no place on this wire, and chat completions ask for.
    pub manner: Manner,
    /// Echoed as it came.
    pub metadata: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConversationChoice {
    #[default]
    Auto,
    /// Beside the conversation: nothing of it is kept.
    None,
    Named(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputItem {
    Item(NewItem),
    /// An item of the conversation.
    Reference(String),
}

/// The `response` of `response.created` and `response.done`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    object: &'static str,
    pub id: String,
    pub status: ResponseStatus,
    /// Must be there even as null.
    pub status_details: Option<StatusDetails>,
    pub output: Vec<Item>,
    /// Null for a response beside the conversation.
    pub conversation_id: Option<String>,
    output_modalities: [&'static str; 1],
    pub max_output_tokens: MaxTokens,
    pub usage: Option<Usage>,
    pub metadata: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    InProgress,
    Completed,
    Cancelled,
    Incomplete,
    Failed,
}

/// Why a response did not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusDetails {
    Cancelled,
    MaxOutputTokens,
    Failed(ResponseError),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResponseError {
    #[serde(rename = "type")]
    pub kind: String,
    pub code: String,
    pub message: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u64,
    /// Of the input, those that were in the cache.
    pub cached_tokens: u64,
    pub output_tokens: u64,
}

impl Response {
    pub fn new(id: &str, status: ResponseStatus) -> Response {
        Response {
            object: "realtime.response",
            id: id.to_owned(),
            status,
            status_details: None,
            output: Vec::new(),
            conversation_id: None,
            output_modalities: ["text"],
            max_output_tokens: MaxTokens::Unlimited,
            usage: None,
            metadata: None,
        }
    }
}

impl Serialize for StatusDetails {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            StatusDetails::Cancelled => json!({ "type": "cancelled", "reason": "client_cancelled" }),
            StatusDetails::MaxOutputTokens => json!({ "type": "incomplete", "reason": "max_output_tokens" }),
            StatusDetails::Failed(error) => json!({ "type": "failed", "error": error }),
        }
        .serialize(serializer)
    }
}

impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({
            "total_tokens": self.input_tokens + self.output_tokens,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "input_token_details": {
                "text_tokens": self.input_tokens,
                "audio_tokens": 0,
                "image_tokens": 0,
                "cached_tokens": self.cached_tokens,
                "cached_tokens_details": { "text_tokens": self.cached_tokens, "audio_tokens": 0, "image_tokens": 0 },
            },
            "output_token_details": { "text_tokens": self.output_tokens, "audio_tokens": 0 },
        })
        .serialize(serializer)
    }
}
