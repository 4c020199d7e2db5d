//! The frames that the server sends, as they are written. `render` makes them from events.

use super::ErrorBody;
use super::events::{Effort, MaxTokensView};
use crate::json::LogprobView;
use crate::tools::ToolChoiceView;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Serialize, JsonSchema)]
pub struct Frame<'a, B> {
    pub event_id: &'a str,
    #[serde(flatten)]
    pub body: B,
}

#[derive(Serialize, JsonSchema)]
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
    #[serde(rename = "input_audio_buffer.committed")]
    InputAudioBufferCommitted { item_id: &'a str, previous_item_id: Option<&'a str> },
    #[serde(rename = "input_audio_buffer.speech_started")]
    SpeechStarted { audio_start_ms: u64, item_id: &'a str },
    #[serde(rename = "input_audio_buffer.speech_stopped")]
    SpeechStopped { audio_end_ms: u64, item_id: &'a str },
    #[serde(rename = "input_audio_buffer.timeout_triggered")]
    TimeoutTriggered { audio_start_ms: u64, audio_end_ms: u64, item_id: &'a str },
    /// Words of a turn that the user still says: the next piece of them.
    #[serde(rename = "conversation.item.input_audio_transcription.delta")]
    TranscriptionDelta { item_id: &'a str, content_index: usize, delta: &'a str },
    #[serde(rename = "conversation.item.input_audio_transcription.completed")]
    TranscriptionCompleted { item_id: &'a str, content_index: usize, transcript: &'a str, usage: TranscriptionUsage },
    #[serde(rename = "conversation.item.input_audio_transcription.failed")]
    TranscriptionFailed { item_id: &'a str, content_index: usize, error: TranscriptionError<'a> },
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
    #[serde(rename = "response.output_audio.delta")]
    AudioDelta { response_id: &'a str, item_id: &'a str, output_index: usize, content_index: usize, delta: &'a str },
    #[serde(rename = "response.output_audio.done")]
    AudioDone { response_id: &'a str, item_id: &'a str, output_index: usize, content_index: usize },
    #[serde(rename = "response.output_audio_transcript.delta")]
    AudioTranscriptDelta {
        response_id: &'a str,
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        delta: &'a str,
        /// Seconds of the item's audio before these words, if the voice says them.
        #[serde(skip_serializing_if = "Option::is_none")]
        start_time: Option<f64>,
    },
    #[serde(rename = "response.output_audio_transcript.done")]
    AudioTranscriptDone {
        response_id: &'a str,
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        transcript: &'a str,
    },
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
}

/// Only for connections that opted in.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Extension<'a> {
    /// Log probabilities of the next delta's tokens, for a client that asked for them.
    #[serde(rename = "response.output_text.logprobs")]
    TextLogprobs {
        response_id: &'a str,
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        logprobs: Vec<LogprobView<'a>>,
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
    /// A piece of what the model thinks before its words. It is told and not kept.
    #[serde(rename = "response.reasoning.delta")]
    ReasoningDelta { response_id: &'a str, delta: &'a str },
    /// The model was told to answer with what it has thought so far.
    #[serde(rename = "response.thinking_stopped")]
    ThinkingStopped { response_id: &'a str },
    #[serde(rename = "response.recall.done")]
    RecallDone {
        response_id: &'a str,
        query: &'a str,
        places: usize,
        /// Text that the service put before the question, if the service searched by itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<&'a str>,
    },
    #[serde(rename = "context.updated")]
    ContextUpdated { tokens: u64, margin_tokens: u64, ctx_size: u64, fill: f64, arm: Option<&'a str> },
    #[serde(rename = "compaction.started")]
    CompactionStarted(CompactionView),
    #[serde(rename = "compaction.completed")]
    CompactionCompleted {
        #[serde(flatten)]
        compaction: CompactionView,
        /// Version that `compaction.started` told. A `compaction.dropped` since may have taken it.
        started_version: u64,
    },
    #[serde(rename = "compaction.dropped")]
    CompactionDropped(CompactionView),
    #[serde(rename = "compaction.failed")]
    CompactionFailed {
        #[serde(flatten)]
        compaction: CompactionView,
        message: &'a str,
    },
    #[serde(rename = "pin.refused")]
    PinRefused { item_id: &'a str, text: &'a str, limit_tokens: u32 },
    /// A fact that was learned in this conversation, once. `DELETE /v1/memories/{id}` forgets it.
    #[serde(rename = "memory.learned")]
    MemoryLearned {
        memory: MemoryView<'a>,
        /// Ids of the memories in whose place it is.
        replaces: &'a [String],
    },
    /// A correction or a wish to forget that may mean more than one memory: all of them stay.
    #[serde(rename = "memory.unsure")]
    MemoryUnsure {
        /// The correction's own memory; null for a wish to forget.
        memory_id: Option<&'a str>,
        /// Ids of the memories that it may mean, the likeliest first.
        near: &'a [String],
    },
    #[serde(rename = "turn.report")]
    TurnReport {
        response_id: &'a str,
        reused_tokens: u64,
        computed_tokens: u64,
        reason: Option<&'a str>,
        /// The reply was begun before it was asked for, and had so many tokens then.
        begun_early: Option<u64>,
        /// The reply is whole and ends in a question to the user: the microphone is wanted again.
        expects_answer: bool,
        ms: TurnMs,
    },
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub struct MemoryView<'a> {
    pub id: &'a str,
    /// Person whose memory it is; empty for the home's.
    pub person: &'a str,
    pub text: &'a str,
    /// The person asked for it: 'remember that ...'.
    pub asked: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub struct CompactionView {
    pub summary_id: String,
    pub version: u64,
    pub tokens_before: u64,
    pub tokens_after: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub struct ItemView<'a> {
    pub id: &'a str,
    #[schemars(extend("const" = "realtime.item"))]
    pub object: &'static str,
    #[serde(flatten)]
    pub body: BodyView<'a>,
    #[schemars(extend("enum" = ["in_progress", "completed", "incomplete"]))]
    pub status: &'static str,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BodyView<'a> {
    Message {
        #[schemars(extend("enum" = ["system", "user", "assistant"]))]
        role: &'static str,
        content: Vec<ItemPart<'a>>,
        /// Name of the speaker, if the client gave one.
        #[serde(skip_serializing_if = "Option::is_none")]
        speaker: Option<&'a str>,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: &'a str,
    },
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ItemPart<'a> {
    InputText {
        text: &'a str,
    },
    OutputText {
        text: &'a str,
    },
    /// Speech of a user. The transcript is null until a client retrieves the item.
    InputAudio {
        transcript: Option<&'a str>,
    },
    OutputAudio {
        transcript: &'a str,
    },
}

/// Part in `response.content_part.*` events, which call its type `text` or `audio`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart<'a> {
    Text { text: &'a str },
    Audio { transcript: &'a str },
}

#[derive(Serialize, JsonSchema)]
pub struct ResponseView<'a> {
    #[schemars(extend("const" = "realtime.response"))]
    pub object: &'static str,
    pub id: &'a str,
    #[schemars(extend("enum" = ["in_progress", "completed", "cancelled", "incomplete", "failed"]))]
    pub status: &'static str,
    /// Must be there even as null.
    pub status_details: Option<DetailsView<'a>>,
    pub output: Vec<ItemView<'a>>,
    /// Null for a response beside the conversation.
    pub conversation_id: Option<&'a str>,
    pub output_modalities: [Modality; 1],
    pub max_output_tokens: MaxTokensView,
    pub usage: Option<UsageView>,
    #[schemars(with = "Option<BTreeMap<String, Option<String>>>")]
    pub metadata: Option<Value>,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DetailsView<'a> {
    Cancelled {
        #[schemars(extend("enum" = ["client_cancelled", "turn_detected"]))]
        reason: &'static str,
    },
    Incomplete {
        #[schemars(extend("const" = "max_output_tokens"))]
        reason: &'static str,
    },
    Failed {
        error: FailureView<'a>,
    },
}

#[derive(Serialize, JsonSchema)]
pub struct FailureView<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub code: &'static str,
    pub message: &'a str,
}

#[derive(Serialize, JsonSchema)]
pub struct UsageView {
    pub total_tokens: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub input_token_details: InputTokens,
    pub output_token_details: OutputTokens,
}

#[derive(Serialize, JsonSchema)]
pub struct InputTokens {
    pub text_tokens: u64,
    pub audio_tokens: u64,
    pub image_tokens: u64,
    pub cached_tokens: u64,
    pub cached_tokens_details: CachedTokens,
}

#[derive(Serialize, JsonSchema)]
pub struct CachedTokens {
    pub text_tokens: u64,
    pub audio_tokens: u64,
    pub image_tokens: u64,
}

#[derive(Serialize, JsonSchema)]
pub struct OutputTokens {
    pub text_tokens: u64,
    pub audio_tokens: u64,
}

/// The full effective session, every field that the typed clients know.
#[derive(Serialize, JsonSchema)]
pub struct SessionView<'a> {
    #[serde(rename = "type")]
    #[schemars(extend("const" = "realtime"))]
    pub kind: &'static str,
    #[schemars(extend("const" = "realtime.session"))]
    pub object: &'static str,
    pub id: &'a str,
    pub model: &'a str,
    /// Modality of the answers: text if the service has no voice, even if the client asked for audio.
    pub output_modalities: [Modality; 1],
    pub instructions: &'a str,
    pub tools: Vec<ToolView<'a>>,
    pub tool_choice: ToolChoiceView<'a>,
    pub max_output_tokens: MaxTokensView,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub temperature: Option<f64>,
    pub parallel_tool_calls: bool,
    pub reasoning: Option<ReasoningView<'a>>,
    /// Audio settings in effect. Without ears and a voice all of them are null.
    pub audio: AudioView<'a>,
    #[schemars(extend("const" = "auto"))]
    pub truncation: &'static str,
    pub tracing: (),
    pub prompt: (),
    pub include: (),
    pub expires_at: (),
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<&'static str>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Modality {
    Text,
    Audio,
}

#[derive(Serialize, JsonSchema)]
pub struct ToolView<'a> {
    #[serde(rename = "type")]
    #[schemars(extend("const" = "function"))]
    pub kind: &'static str,
    pub name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub description: Option<&'a str>,
    /// A JSON schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    pub parameters: Option<Value>,
}

#[derive(Serialize, JsonSchema)]
pub struct ReasoningView<'a> {
    #[schemars(with = "Effort")]
    pub effort: &'a str,
}

#[derive(Default, Serialize, JsonSchema)]
pub struct AudioView<'a> {
    pub input: AudioInput<'a>,
    pub output: AudioOutput<'a>,
}

#[derive(Default, Serialize, JsonSchema)]
pub struct AudioInput<'a> {
    pub format: Option<FormatView>,
    pub noise_reduction: Option<NoiseReductionView<'a>>,
    pub transcription: Option<TranscriptionView<'a>>,
    pub turn_detection: Option<TurnDetectionView>,
}

#[derive(Default, Serialize, JsonSchema)]
pub struct AudioOutput<'a> {
    pub format: Option<FormatView>,
    pub voice: Option<&'a str>,
    pub speed: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
pub struct FormatView {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["audio/pcm", "audio/pcmu", "audio/pcma"]))]
    pub kind: &'static str,
    /// Samples a second, of `audio/pcm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub struct NoiseReductionView<'a> {
    #[serde(rename = "type")]
    pub kind: &'a str,
}

#[derive(Serialize, JsonSchema)]
pub struct TranscriptionView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
pub struct TurnDetectionView {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["server_vad", "semantic_vad"]))]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_padding_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_duration_ms: Option<u64>,
    pub create_response: bool,
    pub interrupt_response: bool,
    pub idle_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["auto", "low", "medium", "high"]))]
    pub eagerness: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TranscriptionUsage {
    Duration { seconds: f64 },
    Tokens { input_tokens: u64, output_tokens: u64, total_tokens: u64 },
}

#[derive(Serialize, JsonSchema)]
pub struct TranscriptionError<'a> {
    #[serde(rename = "type")]
    #[schemars(extend("const" = "server_error"))]
    pub kind: &'static str,
    pub code: &'static str,
    pub message: &'a str,
    pub param: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RateLimit {
    #[schemars(extend("enum" = ["requests", "tokens"]))]
    pub name: &'static str,
    pub limit: u64,
    pub remaining: u64,
    pub reset_seconds: f64,
}

/// Times of a turn. The model measures `queue` and `prefill`. The others count from `response.create` on.
#[derive(Serialize, JsonSchema)]
pub struct TurnMs {
    pub queue: f64,
    pub prefill: f64,
    pub first_token: Option<f64>,
    pub first_sentence: Option<f64>,
    pub total: f64,
}
