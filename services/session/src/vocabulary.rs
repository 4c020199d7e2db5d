//! The words of the service: plain data with public fields. Their methods are in the files named after them.
//!
//! Over 600 lines because a newcomer finds every word of the service on this one page.

use crate::ids::{HIDDEN, is_hidden_id};
use crate::sentences::Sentence;
pub use chat::{
    JsonText, Message, MessageRole, NO_RESULT, Part, Priority, Prompt, TemplateOptions, Tool, ToolCall, text_bytes,
};

// ---- What is said: the items of a conversation. Clients see them, the store keeps them.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub id: String,
    pub body: ItemBody,
    pub status: ItemStatus,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemBody {
    Message { role: Role, parts: Vec<String>, speaker: Option<NamedSpeaker> },
    FunctionCall { call_id: String, name: String, arguments: String },
    FunctionCallOutput { call_id: String, output: String },
}

/// Speaker of a message, if a client names one. For the assistant: the speaker that it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSpeaker {
    /// Name that the client writes. Empty if it names no speaker, and `person` is that of its connection.
    pub name: String,
    /// Person by the rules of the configuration. `None`: no rule names one, and the words are those of the session's
    /// person.
    pub person: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteSource {
    Item { session_id: String, item_id: String },
    Fact(String),
}

/// Item that a client adds. `id: None`: the session makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    pub id: Option<String>,
    pub body: ItemBody,
}

// ---- What a session is set to.

#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// Instructions of the persona that the session began with. They come before the client's, and no client changes
    /// them.
    pub persona: String,
    pub instructions: String,
    pub tools: Vec<Tool>,
    pub tool_choice: ToolChoice,
    pub max_output_tokens: MaxTokens,
    pub temperature: Option<f64>,
    /// Effort of thinking. `None`, as for `temperature`: the preset's.
    pub reasoning_effort: Option<String>,
    pub parallel_tool_calls: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigUpdate {
    pub instructions: Option<String>,
    pub tools: Option<Vec<Tool>>,
    pub tool_choice: Option<ToolChoice>,
    pub max_output_tokens: Option<MaxTokens>,
    pub temperature: Option<Option<f64>>,
    pub reasoning_effort: Option<Option<String>>,
    pub parallel_tool_calls: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    None,
    Required,
    Function(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxTokens {
    #[default]
    Unlimited,
    Tokens(u32),
}

// ---- What a model is asked, with a prompt, tools and a priority of the crate `chat`.

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationOptions {
    pub sampling: SamplingOverrides,
    pub seed: Option<u64>,
    pub stop: Vec<String>,
    pub response_format: ResponseFormat,
    /// Number of likeliest tokens with log probabilities, besides the chosen ones.
    pub logprobs: Option<usize>,
    pub ignore_eos: bool,
}

/// Purpose of a generation. Its word is the metrics' label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum GenerationPurpose {
    Reply,
    /// Begins the reply to a partial transcript, the last message, up to `speculation.tokens` of the preset, and holds
    /// it for a `Reply` that wants the same. Answers `Done` only.
    EarlyReply,
    /// Warms the prompt up to the end of a partial transcript, the last message, less its unstable end. Answers
    /// `Prompt` and `Done` only.
    WarmPartial,
    /// Warms the prompt up to the place of the next message, as the next prompt will have it. Answers `Prompt` and
    /// `Done` only.
    WarmHistory,
}

/// Part of the data computed for deleted words that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastStays {
    /// No part: the conversation is gone.
    Nothing,
    /// Replies that are being said. The next prompt has other words.
    Replies,
    /// All that is in memory: the conversation goes on without what was deleted.
    Memory,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingOverrides {
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<u32>,
    pub min_p: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub logit_bias: Vec<(u32, f32)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    #[default]
    Text,
    JsonObject,
    JsonSchema {
        name: String,
        schema: JsonText,
    },
}

// ---- What a model gives.

#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// Length of the prompt and its cached part: the model begins its work.
    Prompt {
        input_tokens: u64,
        cached_tokens: u64,
    },
    /// Next tokens of a prompt, if the request wants their log probabilities.
    PromptTokens(Vec<PromptToken>),
    /// Thoughts of the model. The store does not keep them.
    Reasoning {
        text: String,
        tokens: u64,
    },
    Text {
        text: String,
        tokens: u64,
        sentences: Vec<Sentence>,
        logprobs: Vec<TokenLogprob>,
    },
    /// Begin of a function call; the one before is complete. `call_id`: `None` if the model gives none.
    CallStarted {
        name: String,
        call_id: Option<String>,
    },
    CallArguments {
        json: String,
        tokens: u64,
    },
    /// Last delta, also of a cancelled generation. `usage: None`: the caller counts the deltas.
    Done {
        finish: Finish,
        usage: Option<Usage>,
        report: Option<TurnReport>,
    },
    Failed(Failure),
}

/// End of a generation. Its word is the metrics' label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Finish {
    Stop,
    ToolCalls,
    Length,
    Cancelled,
    /// Cancelled, and the model keeps its state for a while: the reply can resume.
    Held,
    Warm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub reasoning_tokens: u64,
}

/// Cost of a reply: tokens as the model counted them, times as the model and then the session measured them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnReport {
    pub reused_tokens: u64,
    pub computed_tokens: u64,
    /// Reason why the rest was computed: `cold`, `new_text`, `edited`, `evicted`, `other_model`; `resumed` if a resumed
    /// reply computed nothing. `None`: only the upstream knows.
    pub reason: Option<&'static str>,
    /// Tokens that an early reply had when the request came. Its token counts and their reason are those of its early
    /// begin.
    pub begun_early: Option<u64>,
    /// Tokens that the engine drafted before the token before them was chosen; `accepted_tokens` of them were right.
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
    /// Time from the request to the begin of the work: template, tokens, waiting for a place.
    pub queue_ms: f64,
    pub prefill_ms: f64,
    pub decode_ms: f64,
    /// Time from the request on, as the next two.
    pub first_token_ms: Option<f64>,
    pub first_sentence_ms: Option<f64>,
    pub total_ms: f64,
    /// True for a whole reply that ends in a question to the user.
    pub expects_answer: bool,
    /// Bytes in memory for this session, by kind. Empty: only the upstream knows.
    pub memory_bytes: Vec<(&'static str, u64)>,
    pub notes: Option<Box<PromptNotes>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptNotes {
    pub recall: Option<String>,
    pub changed_head: Option<String>,
    pub changed_lines: u64,
    /// Estimate of the tokens that a note would have saved. Set if the prompt has the changed instructions instead.
    pub notes_would_save_tokens: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub bytes: Vec<u8>,
    pub logprob: f32,
    pub top: Vec<(Vec<u8>, f32)>,
}

/// Token of a prompt. `logprob`: `None` for the first, which nothing precedes.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptToken {
    pub bytes: Vec<u8>,
    pub logprob: Option<f32>,
    pub top: Vec<(Vec<u8>, f32)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: FailureCode,
    pub message: String,
}

/// Code of a failure. Programs know it by its name in small letters, or by the usual word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum FailureCode {
    #[strum(serialize = "context_length_exceeded")]
    PromptTooLong,
    InvalidRequest,
    #[strum(serialize = "conversation_already_has_active_response")]
    Conflict,
    Busy,
    #[strum(serialize = "model_unavailable")]
    Unavailable,
    EngineFailed,
    UpstreamFailed,
    UpstreamTimeout,
    StoreFailed,
    SessionDeleted,
}

// ---- What a client says.

#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    Configure(Box<ConfigUpdate>),
    AddItem {
        item: NewItem,
        place: ItemPlace,
    },
    ReadItem {
        item_id: String,
    },
    TruncateItem {
        item_id: String,
        part: usize,
        heard: Heard,
    },
    DeleteItem {
        item_id: String,
    },
    Respond(Box<ResponseRequest>),
    /// Items and a response; all or nothing.
    TakeTurn(Box<NewTurn>),
    Resume(ResumeRequest),
    /// Cancel of a response; `None`: the conversation's.
    CancelResponse {
        response_id: Option<String>,
    },
    /// Request to answer now, with the thoughts so far. `None`: the conversation's response.
    StopThinking {
        response_id: Option<String>,
    },
    /// Transcript of the user's speech so far, which replaces the one before.
    Hear {
        text: String,
    },
    /// End of the user's speech. `text: None`: the last transcript.
    HeardAll {
        text: Option<String>,
        item_id: Option<String>,
        speaker: Option<NamedSpeaker>,
        respond: bool,
    },
    DropSpeech,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ItemPlace {
    Head,
    #[default]
    End,
    After(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    Ms(u64),
    /// Characters (Unicode scalar values).
    Chars(usize),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumeRequest {
    /// Item to resume. `None`: the last stopped one.
    pub item_id: Option<String>,
    /// Part of the text that the user heard. `None`: the item's present text.
    pub heard: Option<Heard>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewTurn {
    /// Last item that the client knows: later ones are not part of its conversation. `None` accepts any.
    pub behind: Option<String>,
    /// True if the user talks over a reply: cancels the conversation's response.
    pub interrupts: bool,
    pub items: Vec<NewItem>,
    pub request: ResponseRequest,
}

/// Response that a client wants. Fields that it leaves out are the session's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseRequest {
    pub conversation: ConversationChoice,
    pub input: Option<Vec<InputItem>>,
    pub config: ConfigUpdate,
    pub options: GenerationOptions,
    pub metadata: Option<JsonText>,
    /// Digest of the client's request. `None`: its client sends nothing again by itself.
    pub of_request: Option<RequestDigest>,
}

/// Digest by which a client's retry of a request is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDigest(pub [u8; 16]);

/// Place of an item among those that a request adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPart {
    pub digest: RequestDigest,
    pub is_last: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConversationChoice {
    #[default]
    Auto,
    /// No conversation: the response keeps nothing there.
    None,
    Named(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputItem {
    Item(NewItem),
    Reference(String),
}

// ---- What a session tells its clients.

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Opened(Box<SessionState>),
    Configured(Box<SessionState>),
    /// Refusal of an input. `input_id`: the client's own id of it.
    Refused {
        input_id: Option<String>,
        refusal: Refusal,
    },
    ItemAdded {
        item: Item,
        previous_item_id: Option<String>,
        is_new: bool,
    },
    ItemRead {
        item: Item,
    },
    ItemTruncated {
        item_id: String,
        part: usize,
        heard_ms: u64,
        heard_chars: usize,
    },
    ItemDeleted {
        item_id: String,
    },
    SpeechDropped,
    /// Mark that a connection asked for: the session has told it all that came before. The connection keeps `bytes` until
    /// then.
    Reached {
        mark: u64,
        bytes: usize,
    },
    ResponseStarted {
        response: Box<Response>,
    },
    /// An empty item of a response, or a resumed one with the heard text. `place`: its place in the conversation;
    /// `None` beside it, or if clients know it.
    ReplyStarted {
        response_id: String,
        output_index: usize,
        item: Item,
        place: Option<Placed>,
    },
    ReasoningDelta {
        response_id: String,
        text: String,
    },
    ThinkingStopped {
        response_id: String,
    },
    PromptTokens {
        response_id: String,
        tokens: Vec<PromptToken>,
    },
    TextDelta {
        response_id: String,
        item_id: String,
        output_index: usize,
        text: String,
        logprobs: Vec<TokenLogprob>,
    },
    ArgumentsDelta {
        response_id: String,
        item_id: String,
        output_index: usize,
        call_id: String,
        json: String,
    },
    SentenceDone {
        response_id: String,
        item_id: String,
        sentence: Sentence,
    },
    TextDone {
        response_id: String,
        item_id: String,
        output_index: usize,
        text: String,
    },
    /// Complete and stored item. The client makes a function call now.
    ReplyDone {
        response_id: String,
        output_index: usize,
        item: Item,
        place: Option<Placed>,
    },
    /// Search of the past with `places` results, by the model, or by the service with a note before the question.
    RecallDone {
        response_id: String,
        query: String,
        places: usize,
        note: Option<String>,
    },
    ResponseDone {
        response: Box<Response>,
    },
    Reported {
        response_id: String,
        report: TurnReport,
    },
    /// Fill of the window. `margin_tokens`: safety margin for estimated counts.
    ContextUpdated {
        tokens: u64,
        margin_tokens: u64,
        ctx_size: u64,
        fill: f64,
        arm: Option<String>,
    },
    Compaction(Compaction),
    PinRefused {
        item_id: String,
        text: String,
        limit_tokens: u32,
    },
    /// Fact that was learned in this conversation, in the place of the facts `replaces`.
    FactLearned {
        fact: LearnedFact,
        replaces: Vec<String>,
    },
    /// Correction, kept as `fact_id`, or wish to forget, that may mean each of the facts `near`: all of them stay. No words of theirs,
    /// which were said elsewhere.
    FactUnsure {
        fact_id: Option<String>,
        near: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedFact {
    pub id: String,
    /// Person whose fact it is. Empty: the home's.
    pub person: String,
    pub text: String,
    pub asked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub previous_item_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SessionState {
    pub session_id: String,
    pub model: String,
    pub config: SessionConfig,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub id: String,
    pub status: ResponseStatus,
    pub details: Option<StatusDetails>,
    pub output: Vec<Item>,
    pub conversation_id: Option<String>,
    pub max_output_tokens: MaxTokens,
    pub usage: Option<Usage>,
    pub metadata: Option<JsonText>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum ResponseStatus {
    InProgress,
    Completed,
    Cancelled,
    Incomplete,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusDetails {
    Cancelled,
    MaxOutputTokens,
    Failed(Failure),
}

pub type Ending = (ResponseStatus, Option<StatusDetails>);

#[derive(Clone, Debug, PartialEq)]
pub struct Compaction {
    pub stage: CompactionStage,
    pub version: u64,
    pub tokens_before: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CompactionStage {
    Started,
    /// `started_version`: the version that `Started` announced. Turns that left the prompt since took it.
    Completed {
        tokens_after: u64,
        started_version: u64,
    },
    /// Oldest turns left the prompt, because it was full and no summary was ready. A later compaction summarises them.
    Dropped {
        tokens_after: u64,
    },
    Failed {
        message: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("a session holds at most {limit} items: delete some")]
    TooManyItems { limit: usize },
    #[error(
        "{limit} bytes were added to the session since it came into memory (limits.session_bytes): close its connections \
         and connect again"
    )]
    TooMuchText { limit: usize },
    #[error(
        "sessions and connections hold all the text that there is memory for (memory.text_bytes): close some of them, or \
         try again in a moment"
    )]
    NoRoom,
    #[error("there is no item '{item_id}' to place the new one after")]
    NoSuchPlace { item_id: String },
    #[error("{}", taken(item_id))]
    ItemExists { item_id: String },
    #[error("there is no item '{item_id}'")]
    NoSuchItem { item_id: String, wanted: ItemUse },
    #[error("only a message of the assistant can be truncated")]
    NotTruncatable,
    #[error("the item has {parts} content parts")]
    NoSuchPart { parts: usize },
    #[error("there is no item '{item_id}' that is complete")]
    NoSuchReference { item_id: String, index: usize },
    #[error("there is no conversation '{conversation_id}' here")]
    NoSuchConversation { conversation_id: String },
    #[error("the conversation already has an active response ({response_id}): wait for its end, or cancel it")]
    ResponseActive { response_id: String },
    #[error("at most {limit} responses may run beside the conversation")]
    TooManyResponses { limit: usize },
    #[error("no active response found")]
    NoActiveResponse,
    #[error("no response is being made: there is no thinking to end")]
    NothingThinks,
    #[error(
        "there is no reply to resume: none was stopped a moment ago, or something else was said since; ask for a new \
         response"
    )]
    NothingToResume,
    #[error("something else was said since: go on from there, or try again")]
    SaidSince,
    #[error("nothing was said: say something first")]
    NothingSaid,
    #[error("this could not be stored and did not happen: {cause}")]
    StoreFailed { cause: String },
    #[error("the service is stopping: connect again in a moment")]
    Stopping,
}

fn taken(item_id: &str) -> String {
    match is_hidden_id(item_id) {
        true => format!("ids that begin with '{HIDDEN}_' are the service's own: give item '{item_id}' another id"),
        false => format!("there is an item '{item_id}' already: delete it first"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemUse {
    Read,
    Truncate,
    Delete,
}
