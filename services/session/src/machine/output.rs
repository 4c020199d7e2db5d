//! Outputs: the work that the machine asks for.

use super::input::{ConnId, GenerationId, OpId};
use crate::context::Context;
use crate::vocabulary::{
    Delta, Event, Finish, GenerationOptions, GenerationPurpose, Item, JsonText, NoteSource, Priority, RequestDigest,
    RequestPart, ResponseStatus, SessionConfig, StatusDetails, TurnReport, Usage,
};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// An event for every connection in `to`, which is never empty. The order of sends is the order on every wire.
    Send {
        to: Vec<ConnId>,
        event: Event,
    },
    /// Words that are about to be sent for the first time; the journal gets them before. Answered with `WordsWritten`
    /// or `WordsNotWritten` before any other input.
    Words {
        item_id: String,
        text: String,
    },
    /// An operation; answered with `StoreAcked` or `StoreFailed`. Operations of a session take effect in this order.
    Store {
        id: OpId,
        op: StoreOp,
    },
    Generate(Box<Generate>),
    Resume(Box<Resume>),
    /// A search of the past for each of these calls; answered with `MachineInput::Recalled`. Results may leave out the
    /// items in `shown`.
    Recall {
        generation: GenerationId,
        arguments: Vec<String>,
        shown: Vec<Arc<Item>>,
    },
    /// A cancel. The model answers with a last `Delta::Done`, which has the cost, and says whether the reply can
    /// resume.
    CancelGenerate {
        generation: GenerationId,
    },
    StopThinking {
        generation: GenerationId,
    },
    /// The end of a connection, after everything sent to it before. A `Detached` may follow.
    Close {
        conn: ConnId,
        reason: CloseReason,
    },
}

/// A change in the store. `after`: the item before the new one; `None` is the head of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreOp {
    ConfigChanged {
        config: SessionConfig,
    },
    /// An item of a client or of the service. Its id may be that of a deleted item. `sources`: the items and facts that
    /// a hidden item copies.
    ItemAdded {
        item: Item,
        after: Option<String>,
        sources: Vec<NoteSource>,
        of_request: Option<RequestPart>,
    },
    /// A cut at `heard_chars` characters of that part; `item` is the rest that the user heard.
    ItemTruncated {
        item: Item,
        part: usize,
        heard_chars: usize,
    },
    ItemDeleted {
        item_id: String,
    },
    ResponseStarted {
        response_id: String,
        in_conversation: bool,
        metadata: Option<JsonText>,
        of_request: Option<RequestDigest>,
    },
    /// An item of a reply, empty and in progress, which reserves its place.
    ReplyBegun {
        response_id: String,
        item: Item,
        after: Option<String>,
    },
    ReplyResumed {
        response_id: String,
        item: Item,
    },
    ReplyExtended {
        item_id: String,
        text: String,
    },
    ReplyFinished {
        item: Item,
    },
    ReplyWithdrawn {
        item_id: String,
    },
    ResponseFinished {
        response_id: String,
        status: ResponseStatus,
        details: Option<StatusDetails>,
        usage: Usage,
    },
    ResponseReported {
        response_id: String,
        report: TurnReport,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Generate {
    pub generation: GenerationId,
    pub response_id: Option<String>,
    pub purpose: GenerationPurpose,
    /// True beside the conversation: the response must neither evict nor delay a reply.
    pub is_beside: bool,
    /// User's words so far that are warmed, which may continue.
    pub partial: Option<String>,
    pub items: Vec<Arc<Item>>,
    pub context: Arc<Context>,
    /// Instructions, tools and sampling: the session's, with the response's changes.
    pub config: Arc<SessionConfig>,
    pub options: Arc<GenerationOptions>,
    /// Token limit. `None`: the window and the preset decide. 0: only warms the cache.
    pub max_tokens: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Resume {
    pub generation: GenerationId,
    pub of: GenerationId,
    /// Deltas that no client heard; they come first.
    pub made: Vec<Delta>,
    pub in_message: bool,
    /// End of the model's text. `None`: it continues.
    pub ended: Option<Finish>,
    pub is_speech: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    Draining,
    StoreStalled,
}

impl Generate {
    pub fn is_reply(&self) -> bool {
        self.purpose == GenerationPurpose::Reply && !self.is_beside
    }

    pub fn priority(&self) -> Priority {
        match self.purpose {
            _ if self.is_beside => Priority::Background,
            GenerationPurpose::Reply => Priority::Talk,
            _ => Priority::Speculate,
        }
    }
}

impl StoreOp {
    pub fn reply_item(&self) -> Option<&str> {
        match self {
            StoreOp::ReplyBegun { item, .. } | StoreOp::ReplyResumed { item, .. } | StoreOp::ReplyFinished { item } => {
                Some(&item.id)
            }
            StoreOp::ReplyExtended { item_id, .. } | StoreOp::ReplyWithdrawn { item_id } => Some(item_id),
            _ => None,
        }
    }
}
