//! The frames that the server sends, as they are written. `render` makes them from events.

use super::ErrorBody;
use serde::Serialize;
use serde_json::Value;

#[derive(Serialize)]
pub struct Frame<'a> {
    pub event_id: &'a str,
    #[serde(flatten)]
    pub body: Body<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type")]
pub enum Body<'a> {
    #[serde(rename = "error")]
    Error { error: &'a ErrorBody },
    #[serde(rename = "session.created")]
    SessionCreated { session: Box<SessionView<'a>> },
    #[serde(rename = "session.updated")]
    SessionUpdated { session: Box<SessionView<'a>> },
    #[serde(rename = "conversation.item.added")]
    ItemAdded { previous_item_id: Option<&'a str>, item: ItemView<'a> },
    #[serde(rename = "conversation.item.done")]
    ItemDone { previous_item_id: Option<&'a str>, item: ItemView<'a> },
    #[serde(rename = "conversation.item.retrieved")]
    ItemRetrieved { item: ItemView<'a> },
    #[serde(rename = "conversation.item.truncated")]
    ItemTruncated { item_id: &'a str, content_index: usize, audio_end_ms: u64, text_end: usize },
    #[serde(rename = "conversation.item.deleted")]
    ItemDeleted { item_id: &'a str },
    #[serde(rename = "input_audio_buffer.cleared")]
    InputAudioBufferCleared {},
    #[serde(rename = "response.created")]
    ResponseCreated { response: ResponseView<'a> },
    #[serde(rename = "response.done")]
    ResponseDone { response: ResponseView<'a> },
    #[serde(rename = "response.output_item.added")]
    OutputItemAdded { response_id: &'a str, output_index: usize, item: ItemView<'a> },
    #[serde(rename = "response.output_item.done")]
    OutputItemDone { response_id: &'a str, output_index: usize, item: ItemView<'a> },
    #[serde(rename = "response.content_part.added")]
    ContentPartAdded {
        response_id: &'a str,
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        part: ContentPart<'a>,
    },
    #[serde(rename = "response.content_part.done")]
    ContentPartDone {
        response_id: &'a str,
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        part: ContentPart<'a>,
    },
    #[serde(rename = "response.output_text.delta")]
    TextDelta { response_id: &'a str, item_id: &'a str, output_index: usize, content_index: usize, delta: &'a str },
    #[serde(rename = "response.output_text.done")]
    TextDone { response_id: &'a str, item_id: &'a str, output_index: usize, content_index: usize, text: &'a str },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta { response_id: &'a str, item_id: &'a str, output_index: usize, call_id: &'a str, delta: &'a str },
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone {
        response_id: &'a str,
        item_id: &'a str,
        output_index: usize,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    #[serde(rename = "rate_limits.updated")]
    RateLimitsUpdated { rate_limits: Vec<RateLimit> },

    // The extensions.
    /// How sure the model was of the tokens of the next delta, where the client asked for that.
    #[serde(rename = "response.output_text.logprobs")]
    TextLogprobs {
        response_id: &'a str,
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        logprobs: Vec<Value>,
    },
    /// A sentence is complete. Offsets count Unicode scalar values.
    #[serde(rename = "response.sentence.done")]
    SentenceDone {
        response_id: &'a str,
        item_id: &'a str,
        index: usize,
        text: &'a str,
        text_start: usize,
        text_end: usize,
    },
    #[serde(rename = "response.recall.done")]
    RecallDone { response_id: &'a str, query: &'a str, places: usize },
    #[serde(rename = "context.updated")]
    ContextUpdated { tokens: u64, margin_tokens: u64, ctx_size: u64, fill: f64, arm: Option<&'a str> },
    #[serde(rename = "compaction.started")]
    CompactionStarted(CompactionView<'a>),
    #[serde(rename = "compaction.completed")]
    CompactionCompleted(CompactionView<'a>),
    #[serde(rename = "compaction.dropped")]
    CompactionDropped(CompactionView<'a>),
    #[serde(rename = "compaction.failed")]
    CompactionFailed(CompactionView<'a>),
    #[serde(rename = "pin.refused")]
    PinRefused { item_id: &'a str, text: &'a str, limit_tokens: u32 },
    #[serde(rename = "turn.report")]
    TurnReport { response_id: &'a str, reused_tokens: u64, computed_tokens: u64, reason: Option<&'a str>, ms: TurnMs },
}

#[derive(Serialize)]
pub struct CompactionView<'a> {
    pub summary_id: &'a str,
    pub version: u64,
    pub tokens_before: u64,
    pub tokens_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a str>,
}

#[derive(Serialize)]
pub struct ItemView<'a> {
    pub id: &'a str,
    pub object: &'static str,
    #[serde(flatten)]
    pub body: BodyView<'a>,
    pub status: &'static str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BodyView<'a> {
    Message { role: &'static str, content: Vec<ContentPart<'a>> },
    FunctionCall { call_id: &'a str, name: &'a str, arguments: &'a str },
    FunctionCallOutput { call_id: &'a str, output: &'a str },
}

/// In an item its type is `input_text` or `output_text`, in `response.content_part.*` it is `text`.
#[derive(Serialize)]
pub struct ContentPart<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub text: &'a str,
}

#[derive(Serialize)]
pub struct ResponseView<'a> {
    pub object: &'static str,
    pub id: &'a str,
    pub status: &'static str,
    /// Must be there even as null.
    pub status_details: Option<Value>,
    pub output: Vec<ItemView<'a>>,
    /// Null for a response beside the conversation.
    pub conversation_id: Option<&'a str>,
    pub output_modalities: [&'static str; 1],
    pub max_output_tokens: Value,
    pub usage: Option<Value>,
    pub metadata: Option<Value>,
}

/// The full effective session, every field that the typed clients know.
#[derive(Serialize)]
pub struct SessionView<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub object: &'static str,
    pub id: &'a str,
    pub model: &'a str,
    /// Always text: a client that asked for audio is answered in text.
    pub output_modalities: [&'static str; 1],
    pub instructions: &'a str,
    pub tools: Vec<Value>,
    pub tool_choice: Value,
    pub max_output_tokens: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    pub parallel_tool_calls: bool,
    pub reasoning: Option<Value>,
    /// There is no audio here: no formats, no voice, no detection of the end of a turn.
    pub audio: Value,
    pub truncation: &'static str,
    pub tracing: Option<Value>,
    pub prompt: Option<Value>,
    pub include: Option<Value>,
    pub expires_at: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateLimit {
    /// `requests` or `tokens`.
    pub name: &'static str,
    pub limit: u64,
    pub remaining: u64,
    pub reset_seconds: f64,
}

/// Where a turn's time went. The first two as the model measured them, the others from `response.create` on.
#[derive(Serialize)]
pub struct TurnMs {
    pub queue: f64,
    pub prefill: f64,
    pub first_token: Option<f64>,
    pub first_sentence: Option<f64>,
    pub total: f64,
}

impl Body<'_> {
    /// Whether only a connection that opted in may hear this.
    pub fn is_extension(&self) -> bool {
        matches!(
            self,
            Body::TextLogprobs { .. }
                | Body::SentenceDone { .. }
                | Body::RecallDone { .. }
                | Body::ContextUpdated { .. }
                | Body::CompactionStarted(_)
                | Body::CompactionCompleted(_)
                | Body::CompactionDropped(_)
                | Body::CompactionFailed(_)
                | Body::PinRefused { .. }
                | Body::TurnReport { .. }
        )
    }
}
