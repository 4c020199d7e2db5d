//! What can happen to a session.

use super::output::OpId;
use crate::manner::TokenLogprob;
use crate::realtime::{ErrorBody, Item, RateLimit, Received, Usage};
use serde_json::Value;
use std::collections::HashSet;

/// Milliseconds since any fixed moment; never runs backwards.
pub type Millis = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// One request to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GenerationId(pub u64);

#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A connection was let in. It is greeted and told what it missed.
    Attached {
        conn: ConnId,
        extensions: bool,
        replay: Replay,
    },
    Detached {
        conn: ConnId,
    },
    /// A client's event.
    Client {
        conn: ConnId,
        received: Received,
    },
    /// A client's message that could not be read, or may not be: it becomes an `error` event.
    Refused {
        conn: ConnId,
        error: ErrorBody,
    },
    /// The backend answers. Pieces of a generation that is over are ignored.
    Backend {
        generation: GenerationId,
        piece: Piece,
    },
    StoreAcked {
        op: OpId,
    },
    StoreFailed {
        op: OpId,
        message: String,
    },
    /// What stands in the prompt besides the items has changed: from the next reply on.
    Context(Context),
    /// Items that were not in memory because a summary told them, in order: they stand before all others.
    Recovered(Vec<Item>),
    /// What was found, of each query.
    Recalled {
        generation: GenerationId,
        results: Vec<Found>,
    },
    /// Something to tell the clients that concerns no item and no reply.
    Notice(Notice),
    /// The service stops: replies in flight are marked cut off, then the connections are closed.
    Drain,
    /// Time passed: due at `Machine::next_deadline`.
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    Nothing,
    All,
    /// Items after this one; all of them if it is unknown.
    After(String),
}

/// A piece of a reply, in the order the model makes them.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// How long the prompt is and how much of it was in the cache, as soon as that is known.
    Prompt {
        input_tokens: u64,
        cached_tokens: u64,
    },
    /// The model thinks. What it thinks is neither sent nor kept.
    Reasoning {
        tokens: u64,
    },
    Content {
        text: String,
        tokens: u64,
        /// Empty unless asked for.
        logprobs: Vec<TokenLogprob>,
    },
    /// A function call begins; the one before is complete. None: the machine makes an id.
    CallStarted {
        name: String,
        call_id: Option<String>,
    },
    CallArguments {
        json: String,
        tokens: u64,
    },
    /// The last piece, also of a generation that was cancelled. None: as counted from the pieces.
    Done {
        finish: Finish,
        usage: Option<Usage>,
        report: Option<Report>,
    },
    /// The last piece of a generation that went wrong.
    Failed(BackendFailure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model is done, with an answer or with function calls.
    Stop,
    MaxTokens,
    /// Somebody other than a client stopped it, or the machine did.
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendFailure {
    /// Whose fault it is: `invalid_request_error` or `server_error`.
    pub kind: &'static str,
    /// A word for programs: `backend_failed`, `prompt_too_long`.
    pub code: String,
    pub message: String,
}

/// What a search of the past found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// As the model reads it.
    pub text: String,
    pub places: usize,
}

/// What the backend measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub reused_tokens: u64,
    pub computed_tokens: u64,
    /// Why tokens that were known had to be computed again.
    pub reason: Option<String>,
    pub queue_ms: f64,
    pub prefill_ms: f64,
    /// From the model's first token to its last, thinking included.
    pub decode_ms: f64,
    /// Bytes by kind that are held of this session, as far as the backend knows.
    pub memory_bytes: Vec<(&'static str, u64)>,
}

/// What stands in the prompt besides the items.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// What stands for the items that are not in the prompt: a summary and pins, in one message of the role `tool`,
    /// because it is material and no order.
    pub preface: Vec<Value>,
    /// Items up to this one stand in no prompt. None: all do.
    pub covered_through: Option<String>,
    /// Results of tools whose words left the prompt because they are stale. Their calls stay.
    pub trimmed: HashSet<String>,
    /// The model has the tool `recall`, with which it finds what is not in the prompt.
    pub recall: bool,
    /// What changes from turn to turn (the time, the room), placed as late as possible.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    RateLimits {
        conn: ConnId,
        rate_limits: Vec<RateLimit>,
    },
    ContextUpdated {
        tokens: u64,
        margin_tokens: u64,
        ctx_size: u64,
        fill: f64,
        arm: Option<String>,
    },
    CompactionStarted {
        summary_id: String,
        version: u64,
        tokens_before: u64,
    },
    CompactionCompleted {
        summary_id: String,
        version: u64,
        tokens_before: u64,
        tokens_after: u64,
    },
    /// Oldest turns left the prompt without a summary.
    CompactionDropped {
        summary_id: String,
        version: u64,
        tokens_before: u64,
        tokens_after: u64,
    },
    CompactionFailed {
        summary_id: String,
        version: u64,
        tokens_before: u64,
        message: String,
    },
    /// What the user asked to be kept word for word found no room beside the other pins.
    PinRefused {
        item_id: String,
        text: String,
        limit_tokens: u32,
    },
}
