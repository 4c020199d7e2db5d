//! The words of the service: plain data with public fields. What they can do stands in the files named after them.
//!
//! Over 600 lines because a newcomer finds every word of the service on this one page.

use crate::ids::{HIDDEN, is_hidden_id};
use crate::sentences::Sentence;
use std::sync::Arc;

/// JSON that the service hands on and does not read: a schema, a client's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct JsonText(pub Arc<str>);

// ---- What is said: the items of a conversation. Clients see them, the store keeps them.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub id: String,
    pub body: ItemBody,
    pub status: ItemStatus,
}

/// Speech comes as its transcript and is kept as that text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemBody {
    Message { role: Role, parts: Vec<String>, speaker: Option<NamedSpeaker> },
    FunctionCall { call_id: String, name: String, arguments: String },
    FunctionCallOutput { call_id: String, output: String },
}

/// The speaker of a message, where a client names one. Of the assistant: the speaker that it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSpeaker {
    /// As the client writes it. Empty: the client names no speaker, and `person` is that of its connection.
    pub name: String,
    /// By the rules of the configuration. None: no rule names one, and the words are those of the session's person.
    pub person: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemStatus {
    InProgress,
    Completed,
    /// Cut off: by a barge-in, a limit, a failure or a crash.
    Incomplete,
}

/// A source of words that a hidden item has copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteSource {
    /// An item of any session of the same user.
    Item { session_id: String, item_id: String },
    /// A fact, by its id.
    Fact(String),
}

/// An item that a client adds. `id: None`: the session makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    pub id: Option<String>,
    pub body: ItemBody,
}

// ---- What a session is set to.

/// Kept with the session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// Instructions of the persona that the session began with. They stand before the client's, and no client changes them.
    pub persona: String,
    pub instructions: String,
    pub tools: Vec<Tool>,
    pub tool_choice: ToolChoice,
    pub max_output_tokens: MaxTokens,
    /// None: the preset's.
    pub temperature: Option<f64>,
    /// None: the preset's.
    pub reasoning_effort: Option<String>,
    pub parallel_tool_calls: bool,
}

/// The fields of a configuration that a client wants changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigUpdate {
    pub instructions: Option<String>,
    pub tools: Option<Vec<Tool>>,
    pub tool_choice: Option<ToolChoice>,
    pub max_output_tokens: Option<MaxTokens>,
    /// `Some(None)`: back to the preset's.
    pub temperature: Option<Option<f64>>,
    pub reasoning_effort: Option<Option<String>>,
    pub parallel_tool_calls: Option<bool>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    /// A JSON schema.
    pub parameters: Option<JsonText>,
    /// The tool as the client wrote it, where the fields above do not say all of it: templates print this instead.
    pub verbatim: Option<JsonText>,
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
    /// As many as the window and the preset allow.
    #[default]
    Unlimited,
    Tokens(u32),
}

// ---- What a model is asked.

/// A whole prompt, before any template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
    pub options: TemplateOptions,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub role: MessageRole,
    pub parts: Vec<Part>,
    /// What an assistant thought before it spoke.
    pub reasoning: Option<String>,
    pub calls: Vec<ToolCall>,
    /// The call that a tool's message answers.
    pub call_id: Option<String>,
    pub name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageRole {
    System,
    User,
    Assistant,
    Tool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    /// An image, as the client sent it. Only an upstream can read one.
    Image(JsonText),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    pub id: Option<String>,
    pub name: String,
    /// The text of a JSON object.
    pub arguments: String,
}

/// What a client says to the template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateOptions {
    pub enable_thinking: Option<bool>,
    pub reasoning_effort: Option<String>,
    /// A JSON object with whatever else the template knows.
    pub more: Option<JsonText>,
}

/// How a reply is to be written, where a request says it; the rest is the preset's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationOptions {
    pub sampling: SamplingOverrides,
    pub seed: Option<u64>,
    pub stop: Vec<String>,
    pub response_format: ResponseFormat,
    /// Log probabilities of the chosen tokens and of this many likeliest ones.
    pub logprobs: Option<usize>,
    pub ignore_eos: bool,
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
    /// Token and what is added to its logit.
    pub logit_bias: Vec<(u32, f32)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON of this schema.
    JsonSchema { name: String, schema: JsonText },
}

/// More urgent first. Its word is the metrics' label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Priority {
    /// A user waits for it.
    Talk,
    /// A user will most likely want it next.
    Speculate,
    Background,
}

// ---- What a model gives.

/// A piece of a reply, in the order in which the model makes them.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// How long the prompt is and how much of it was in the cache: work on it begins.
    Prompt {
        input_tokens: u64,
        cached_tokens: u64,
    },
    /// What the model thinks. It is not kept.
    Reasoning {
        text: String,
        tokens: u64,
    },
    /// `sentences`: those that this text completes. `logprobs`: empty unless asked for.
    Text {
        text: String,
        tokens: u64,
        sentences: Vec<Sentence>,
        logprobs: Vec<TokenLogprob>,
    },
    /// A function call begins; the one before is complete. `call_id` is None where the model gives none.
    CallStarted {
        name: String,
        call_id: Option<String>,
    },
    CallArguments {
        json: String,
        tokens: u64,
    },
    /// The last delta, also of a generation that was cancelled. None: as counted from the deltas.
    Done {
        finish: Finish,
        usage: Option<Usage>,
        report: Option<TurnReport>,
    },
    /// The last delta of a generation that went wrong.
    Failed(Failure),
}

/// Its word is the metrics' label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Finish {
    /// The model is done, or a stop string came.
    Stop,
    /// The model made calls and is done.
    ToolCalls,
    /// The limit of the reply or the end of the window.
    Length,
    Cancelled,
    /// Cancelled, and what was computed is kept for a while: the reply can go on.
    Held,
    /// The cache was warmed, as asked.
    Warm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u64,
    /// Of the input, those that were in the cache.
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// Of the output.
    pub reasoning_tokens: u64,
}

/// What a reply cost: tokens as the model counted them, times as the model and then the session measured them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnReport {
    pub reused_tokens: u64,
    pub computed_tokens: u64,
    /// Why the rest was computed: `cold`, `new_text`, `edited`, `evicted`, `other_model`; `resumed` where
    /// nothing was, because a reply went on. None: only the upstream knows.
    pub reason: Option<&'static str>,
    /// The reply was begun before it was asked for, and then had so many tokens. Its tokens and why they were computed are told as if
    /// it had been begun then.
    pub begun_early: Option<u64>,
    /// Tokens of the reply that were computed before the token before them was chosen, and those of them that came.
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
    /// From the request to the begin of the work: template, tokens, waiting for a place.
    pub queue_ms: f64,
    /// From there to the first token.
    pub prefill_ms: f64,
    /// From the model's first token to its last, thinking included.
    pub decode_ms: f64,
    /// From the request on, as the next two.
    pub first_token_ms: Option<f64>,
    pub first_sentence_ms: Option<f64>,
    pub total_ms: f64,
    /// It is whole and ends in a question to the user.
    pub expects_answer: bool,
    /// Bytes by kind that are held of this session. Empty: only the upstream knows.
    pub memory_bytes: Vec<(&'static str, u64)>,
    /// None: nothing was put in.
    pub notes: Option<Box<PromptNotes>>,
}

/// What the service put before the question of a client that sends its whole conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptNotes {
    /// What the user once said of it.
    pub recall: Option<String>,
    /// What changed in the instructions since those that stand in the prompt.
    pub changed_head: Option<String>,
    /// Lines that were taken away or added since.
    pub changed_lines: u64,
    /// The changed instructions stand in the prompt: about so many tokens less would have been computed with a note.
    pub notes_would_save_tokens: Option<u64>,
}

/// How sure the model was of a token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub bytes: Vec<u8>,
    pub logprob: f32,
    /// The likeliest tokens in its place, best first.
    pub top: Vec<(Vec<u8>, f32)>,
}

/// Why there is no reply, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: FailureCode,
    pub message: String,
}

/// Each is known to programs by its name in small letters, but where another word is usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum FailureCode {
    /// The prompt leaves no room in the window.
    #[strum(serialize = "context_length_exceeded")]
    PromptTooLong,
    /// Something else in the request cannot be done.
    InvalidRequest,
    /// The conversation is being answered already.
    #[strum(serialize = "conversation_already_has_active_response")]
    Conflict,
    /// Too many requests wait already.
    Busy,
    /// The model is not there (yet, or any more).
    #[strum(serialize = "model_unavailable")]
    Unavailable,
    /// The engine failed in the middle of it.
    EngineFailed,
    /// The upstream refused, broke off or spoke nonsense.
    UpstreamFailed,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The store could not keep the reply.
    StoreFailed,
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
    /// The user heard only so much of a message of the assistant.
    TruncateItem {
        item_id: String,
        part: usize,
        heard: Heard,
    },
    DeleteItem {
        item_id: String,
    },
    Respond(Box<ResponseRequest>),
    /// All of it is done, or nothing.
    TakeTurn(Box<NewTurn>),
    /// The reply that was stopped goes on: nothing interrupted it.
    Resume(ResumeRequest),
    /// None: the response of the conversation.
    CancelResponse {
        response_id: Option<String>,
    },
    /// The model is to answer now, with what it has thought so far. None: the response of the conversation.
    StopThinking {
        response_id: Option<String>,
    },
    /// The transcript of what the user is saying so far, in place of the one before.
    Hear {
        text: String,
    },
    /// The user has spoken. `text: None`: as heard so far.
    HeardAll {
        text: Option<String>,
        item_id: Option<String>,
        speaker: Option<NamedSpeaker>,
        respond: bool,
    },
    /// The client has thrown away speech that it had not sent on.
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
    /// Milliseconds of speech that were played; the text is estimated.
    Ms(u64),
    /// Characters (Unicode scalar values).
    Chars(usize),
}

/// Which reply is to go on, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumeRequest {
    /// None: the one that was stopped last.
    pub item_id: Option<String>,
    /// The user heard so much of all that was said. None: as much as the item has now.
    pub heard: Option<Heard>,
}

/// What a client says, and the response to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewTurn {
    /// The last item as the client knows it: what was said since is no part of its conversation. None: whatever was said.
    pub behind: Option<String>,
    /// The user talks over what is being said: a response of the conversation that is under way is cancelled.
    pub interrupts: bool,
    pub items: Vec<NewItem>,
    /// The next turn will most likely have the same configuration.
    pub request: ResponseRequest,
}

/// A response that a client wants. What it leaves out is as the session has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseRequest {
    pub conversation: ConversationChoice,
    /// In place of the conversation so far.
    pub input: Option<Vec<InputItem>>,
    pub config: ConfigUpdate,
    pub options: GenerationOptions,
    /// Echoed as it came.
    pub metadata: Option<JsonText>,
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

// ---- What a session tells its clients.

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first event of every connection.
    Opened(Box<SessionState>),
    /// To the client that changed it and to all others.
    Configured(Box<SessionState>),
    /// What a client said was not done. `input_id` is the client's own id of that.
    Refused {
        input_id: Option<String>,
        refusal: Refusal,
    },
    /// `is_new`: added now; otherwise it was there before the connection came.
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
    /// A frame of a door's own, for one of its connections, behind all that the session has told it.
    DoorFrame(String),
    ResponseStarted {
        response: Box<Response>,
    },
    /// An item of a response, with nothing in it yet, or with what was heard of it where a reply goes on. `place`: where it
    /// stands in the conversation; None: beside it, or clients know.
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
    /// The model was told to answer now.
    ThinkingStopped {
        response_id: String,
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
    /// All of a message's text was told.
    TextDone {
        response_id: String,
        item_id: String,
        output_index: usize,
        text: String,
    },
    /// The item is complete, and kept. A function call is to be made now.
    ReplyDone {
        response_id: String,
        output_index: usize,
        item: Item,
        place: Option<Placed>,
    },
    /// What is no longer in the prompt was searched, and something was found in so many places. By the model, or by the
    /// service, which put the note before the question.
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
    /// How full the window is. `margin_tokens` of the tokens are there to be sure where the model's are not known.
    ContextUpdated {
        tokens: u64,
        margin_tokens: u64,
        ctx_size: u64,
        fill: f64,
        arm: Option<String>,
    },
    Compaction(Compaction),
    /// What the user asked to be kept word for word found no room: all pins together have so many tokens.
    PinRefused {
        item_id: String,
        text: String,
        limit_tokens: u32,
    },
}

/// Where an item of a reply stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub previous_item_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SessionState {
    pub session_id: String,
    /// The model's name as clients see it.
    pub model: String,
    pub config: SessionConfig,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub id: String,
    pub status: ResponseStatus,
    /// Why it did not complete.
    pub details: Option<StatusDetails>,
    /// Items that are complete.
    pub output: Vec<Item>,
    /// None: beside the conversation.
    pub conversation_id: Option<String>,
    pub max_output_tokens: MaxTokens,
    pub usage: Option<Usage>,
    pub metadata: Option<JsonText>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// How a response ended, and why it did not complete.
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
    Completed {
        tokens_after: u64,
    },
    /// Oldest turns left the prompt, because it was full and no summary was ready. One is made up for them.
    Dropped {
        tokens_after: u64,
    },
    Failed {
        message: String,
    },
}

/// Why an input was not done.
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
    #[error("there is no conversation '{conversation_id}' here: use auto or none")]
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

/// What a client wanted of an item that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemUse {
    Read,
    Truncate,
    Delete,
}
