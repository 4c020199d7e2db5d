//! What the server says. Which of these a connection may hear is decided by `EventKind::is_extension`.

use super::{ErrorBody, Item, Response, SessionView};
use crate::manner::TokenLogprob;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerEvent {
    pub event_id: String,
    #[serde(flatten)]
    pub kind: EventKind,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum EventKind {
    #[serde(rename = "error")]
    Error { error: ErrorBody },
    #[serde(rename = "session.created")]
    SessionCreated { session: Box<SessionView> },
    #[serde(rename = "session.updated")]
    SessionUpdated { session: Box<SessionView> },
    #[serde(rename = "conversation.item.added")]
    ItemAdded { previous_item_id: Option<String>, item: Item },
    #[serde(rename = "conversation.item.done")]
    ItemDone { previous_item_id: Option<String>, item: Item },
    #[serde(rename = "conversation.item.retrieved")]
    ItemRetrieved { item: Item },
    #[serde(rename = "conversation.item.truncated")]
    ItemTruncated { item_id: String, content_index: usize, audio_end_ms: u64, text_end: usize },
    #[serde(rename = "conversation.item.deleted")]
    ItemDeleted { item_id: String },
    #[serde(rename = "input_audio_buffer.cleared")]
    InputAudioBufferCleared {},
    #[serde(rename = "response.created")]
    ResponseCreated { response: Box<Response> },
    #[serde(rename = "response.done")]
    ResponseDone { response: Box<Response> },
    #[serde(rename = "response.output_item.added")]
    OutputItemAdded { response_id: String, output_index: usize, item: Item },
    #[serde(rename = "response.output_item.done")]
    OutputItemDone { response_id: String, output_index: usize, item: Item },
    #[serde(rename = "response.content_part.added")]
    ContentPartAdded {
        response_id: String,
        item_id: String,
        output_index: usize,
        content_index: usize,
        part: ContentPart,
    },
    #[serde(rename = "response.content_part.done")]
    ContentPartDone {
        response_id: String,
        item_id: String,
        output_index: usize,
        content_index: usize,
        part: ContentPart,
    },
    #[serde(rename = "response.output_text.delta")]
    TextDelta { response_id: String, item_id: String, output_index: usize, content_index: usize, delta: String },
    #[serde(rename = "response.output_text.done")]
    TextDone { response_id: String, item_id: String, output_index: usize, content_index: usize, text: String },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta { response_id: String, item_id: String, output_index: usize, call_id: String, delta: String },
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone {
        response_id: String,
        item_id: String,
        output_index: usize,
        call_id: String,
        name: String,
        arguments: String,
    },
    #[serde(rename = "rate_limits.updated")]
    RateLimitsUpdated { rate_limits: Vec<RateLimit> },

    // The extensions.
    /// How sure the model was of the tokens of the next delta, where somebody asked for that.
    #[serde(rename = "response.output_text.logprobs")]
    TextLogprobs {
        response_id: String,
        item_id: String,
        output_index: usize,
        content_index: usize,
        logprobs: Vec<TokenLogprob>,
    },
    /// A sentence is complete. Offsets count Unicode scalar values.
    #[serde(rename = "response.sentence.done")]
    SentenceDone {
        response_id: String,
        item_id: String,
        index: usize,
        text: String,
        text_start: usize,
        text_end: usize,
    },
    /// The model searched what is no longer in its prompt, in so many places it found something.
    #[serde(rename = "response.recall.done")]
    RecallDone { response_id: String, query: String, places: usize },
    /// How full the window is. Where the model's tokens are not known, `margin_tokens` of them are there to be sure.
    #[serde(rename = "context.updated")]
    ContextUpdated { tokens: u64, margin_tokens: u64, ctx_size: u64, fill: f64, arm: Option<String> },
    #[serde(rename = "compaction.started")]
    CompactionStarted { summary_id: String, version: u64, tokens_before: u64, tokens_after: Option<u64> },
    #[serde(rename = "compaction.completed")]
    CompactionCompleted { summary_id: String, version: u64, tokens_before: u64, tokens_after: Option<u64> },
    /// Oldest turns left the prompt, because it was full and no summary was ready. One is made up for them.
    #[serde(rename = "compaction.dropped")]
    CompactionDropped { summary_id: String, version: u64, tokens_before: u64, tokens_after: Option<u64> },
    #[serde(rename = "compaction.failed")]
    CompactionFailed {
        summary_id: String,
        version: u64,
        tokens_before: u64,
        tokens_after: Option<u64>,
        message: String,
    },
    /// What the user asked to be kept word for word found no room: all pins together have so many tokens. A summary is
    /// asked to hold it.
    #[serde(rename = "pin.refused")]
    PinRefused { item_id: String, text: String, limit_tokens: u32 },
    /// What a reply cost and why.
    #[serde(rename = "turn.report")]
    TurnReport { response_id: String, reused_tokens: u64, computed_tokens: u64, reason: Option<String>, ms: TurnMs },
}

/// The part of `response.content_part.*`: there its type is `text`, in an item it is `output_text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContentPart {
    #[serde(rename = "type")]
    kind: &'static str,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateLimit {
    /// `requests` or `tokens`.
    pub name: &'static str,
    pub limit: u64,
    pub remaining: u64,
    pub reset_seconds: f64,
}

/// Where a turn's time went. The first two as the backend measured them, the others from `response.create` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TurnMs {
    pub queue: f64,
    pub prefill: f64,
    pub first_token: Option<f64>,
    pub first_sentence: Option<f64>,
    pub total: f64,
}

impl ContentPart {
    pub fn text(text: impl Into<String>) -> ContentPart {
        ContentPart { kind: "text", text: text.into() }
    }
}

impl EventKind {
    /// Whether only a connection that opted in may hear this.
    pub fn is_extension(&self) -> bool {
        matches!(
            self,
            EventKind::TextLogprobs { .. }
                | EventKind::SentenceDone { .. }
                | EventKind::RecallDone { .. }
                | EventKind::ContextUpdated { .. }
                | EventKind::CompactionStarted { .. }
                | EventKind::CompactionCompleted { .. }
                | EventKind::CompactionDropped { .. }
                | EventKind::CompactionFailed { .. }
                | EventKind::PinRefused { .. }
                | EventKind::TurnReport { .. }
        )
    }

    /// Whether the event says something about this item.
    pub fn is_about(&self, id: &str) -> bool {
        match self {
            EventKind::ItemAdded { item, .. }
            | EventKind::ItemDone { item, .. }
            | EventKind::ItemRetrieved { item }
            | EventKind::OutputItemAdded { item, .. }
            | EventKind::OutputItemDone { item, .. } => item.id == id,
            EventKind::ItemTruncated { item_id, .. }
            | EventKind::ItemDeleted { item_id }
            | EventKind::ContentPartAdded { item_id, .. }
            | EventKind::ContentPartDone { item_id, .. }
            | EventKind::TextDelta { item_id, .. }
            | EventKind::TextLogprobs { item_id, .. }
            | EventKind::TextDone { item_id, .. }
            | EventKind::ArgumentsDelta { item_id, .. }
            | EventKind::ArgumentsDone { item_id, .. }
            | EventKind::SentenceDone { item_id, .. }
            | EventKind::PinRefused { item_id, .. } => item_id == id,
            EventKind::Error { .. }
            | EventKind::SessionCreated { .. }
            | EventKind::SessionUpdated { .. }
            | EventKind::InputAudioBufferCleared {}
            | EventKind::ResponseCreated { .. }
            | EventKind::ResponseDone { .. }
            | EventKind::RateLimitsUpdated { .. }
            | EventKind::RecallDone { .. }
            | EventKind::ContextUpdated { .. }
            | EventKind::CompactionStarted { .. }
            | EventKind::CompactionCompleted { .. }
            | EventKind::CompactionDropped { .. }
            | EventKind::CompactionFailed { .. }
            | EventKind::TurnReport { .. } => false,
        }
    }
}
