use crate::context::Context;
use crate::vocabulary::{Delta, Event, Input, Item, NoteSource};

/// Milliseconds since any fixed moment; never runs backwards.
pub type Millis = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GenerationId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

#[derive(Clone, Debug, PartialEq)]
pub enum MachineInput {
    /// An admitted connection. It receives the session's configuration and the events that it missed.
    Attached {
        conn: ConnId,
        replay: Replay,
    },
    Detached {
        conn: ConnId,
    },
    Said {
        conn: ConnId,
        input_id: Option<String>,
        input: Input,
    },
    Delta {
        generation: GenerationId,
        delta: Delta,
    },
    StoreAcked {
        op: OpId,
    },
    StoreFailed {
        op: OpId,
        message: String,
    },
    WordsWritten,
    WordsNotWritten {
        message: String,
    },
    Context(Context),
    /// Items of the prompt after another summary came into use, in order, and the item of the store before them. The
    /// context of that summary follows.
    Recovered {
        items: Vec<Item>,
        behind: Option<String>,
    },
    Recalled {
        generation: GenerationId,
        results: Vec<RecallResult>,
    },
    /// Items that another conversation's change has deleted in the store: hidden ones whose sources are gone, and copies
    /// of an item that was deleted in a fork.
    ItemsGone {
        item_ids: Vec<String>,
    },
    /// Past words about the current question, to insert before this item, or before the next one.
    Noted {
        before: Option<String>,
        note: RecallResult,
    },
    Tell(Event),
    TellOne {
        conn: ConnId,
        event: Event,
    },
    /// Shutdown: replies in progress become cut off, then the connections close.
    Drain,
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    Nothing,
    All,
    After(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecallResult {
    pub query: String,
    pub text: String,
    pub places: usize,
    pub sources: Vec<NoteSource>,
}
