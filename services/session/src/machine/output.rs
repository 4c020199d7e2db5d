//! What is to be done.

use super::happening::{ConnId, GenerationId, OpId};
use crate::prompt::Context;
use crate::vocabulary::{
    Delta, Event, Finish, GenerationOptions, Item, JsonText, NoteSource, Priority, ResponseStatus, SessionConfig,
    StatusDetails, TurnReport, Usage,
};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// To every connection in `to`, which is never empty. The order of sends is the order on every wire.
    Send {
        to: Vec<ConnId>,
        event: Event,
    },
    /// Words of a reply that is kept are about to be sent for the first time: they are written down before. Answered with
    /// `WordsWritten` or `WordsNotWritten`, before anything else happens.
    Words {
        item_id: String,
        text: String,
    },
    /// Must be answered with `StoreAcked` or `StoreFailed`. Operations of a session take effect in this order.
    Store {
        id: OpId,
        op: StoreOp,
    },
    Generate(Box<Generate>),
    /// A reply that was stopped goes on.
    Resume(Box<Resume>),
    /// Search the past for what each of these calls asks for; answered with `Happening::Recalled`. What is in `shown` need
    /// not be found.
    Recall {
        generation: GenerationId,
        arguments: Vec<String>,
        shown: Vec<Arc<Item>>,
    },
    /// The model answers with a last `Delta::Done`, which tells what the generation cost, and whether it can go on.
    CancelGenerate {
        generation: GenerationId,
    },
    /// The model is to answer now, where it still thinks.
    StopThinking {
        generation: GenerationId,
    },
    /// After everything sent to it before. Answered with `Detached`, or not.
    Close {
        conn: ConnId,
        reason: CloseReason,
    },
}

/// A change of what is kept. `after` names the item it stands behind; None is the head of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreOp {
    ConfigChanged {
        config: SessionConfig,
    },
    /// An item of a client or of the service. The id may be that of an item that was deleted. `sources`: the items and facts that a
    /// hidden item has copied.
    ItemAdded {
        item: Item,
        after: Option<String>,
        sources: Vec<NoteSource>,
    },
    /// What the user heard ends at `heard_chars` characters of that part; `item` is what is left.
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
    },
    /// An item of a reply, empty and in progress: its place is taken.
    ReplyBegun {
        response_id: String,
        item: Item,
        after: Option<String>,
    },
    /// A reply that was stopped goes on: its item is in progress again, with what was heard of it.
    ReplyResumed {
        response_id: String,
        item: Item,
    },
    /// This was sent, after all that was sent before.
    ReplyExtended {
        item_id: String,
        text: String,
    },
    /// All of it, as it was sent.
    ReplyFinished {
        item: Item,
    },
    /// It was begun and did not come to be: no word of it was said, or it is half a call.
    ReplyWithdrawn {
        item_id: String,
    },
    ResponseFinished {
        response_id: String,
        status: ResponseStatus,
        details: Option<StatusDetails>,
        usage: Usage,
    },
    /// What the reply cost. No client waits for this one.
    ResponseReported {
        response_id: String,
        report: TurnReport,
    },
}

/// A request to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Generate {
    pub generation: GenerationId,
    /// None for a speculation.
    pub response_id: Option<String>,
    pub purpose: GenerationPurpose,
    /// In order; nothing that is still being said.
    pub items: Vec<Arc<Item>>,
    pub context: Arc<Context>,
    /// Instructions, tools and sampling, with those of the response in place of the session's.
    pub config: Arc<SessionConfig>,
    pub options: Arc<GenerationOptions>,
    /// None: what the window and the preset allow. 0: only warms the cache.
    pub max_tokens: Option<u32>,
}

/// A reply that goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Resume {
    pub generation: GenerationId,
    /// Under which it was stopped.
    pub of: GenerationId,
    /// What was made and not heard: it comes first.
    pub made: Vec<Delta>,
    /// It goes on in the middle of a message.
    pub in_message: bool,
    /// The model was done. None: it goes on.
    pub ended: Option<Finish>,
    /// It is speech, and not of a form that was asked for.
    pub is_speech: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GenerationPurpose {
    /// The user waits.
    Reply,
    /// A response beside the conversation: must neither evict nor delay a reply.
    BesideConversation,
    /// What the user says stands still, as the last item: the reply to it is begun and held back, because the user may be done.
    EarlyReply,
    /// The user still speaks: warms the prompt up to the end of these words, which may go on.
    WarmPartial(String),
    /// Silence: warms the conversation as the next prompt will have it, up to the place of the next message.
    WarmHistory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The service stops.
    Draining,
    /// The store has not answered for so long that no more may wait for it.
    StoreStalled,
}

impl Generate {
    pub fn priority(&self) -> Priority {
        match self.purpose {
            GenerationPurpose::Reply => Priority::Talk,
            GenerationPurpose::BesideConversation => Priority::Background,
            GenerationPurpose::EarlyReply | GenerationPurpose::WarmPartial(_) | GenerationPurpose::WarmHistory => {
                Priority::Speculate
            }
        }
    }
}

impl StoreOp {
    /// The reply's item that the operation is about.
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
