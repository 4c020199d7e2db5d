//! What can happen to a session.

use crate::prompt::Context;
use crate::vocabulary::{Delta, Event, Input, Item, NoteSource};

/// Milliseconds since any fixed moment; never runs backwards.
pub type Millis = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// One request to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GenerationId(pub u64);

/// One operation of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// A connection was let in. It is told how the session is set and what it missed.
    Attached {
        conn: ConnId,
        replay: Replay,
    },
    Detached {
        conn: ConnId,
    },
    /// A client says something. `input_id` is the client's own id of it.
    Said {
        conn: ConnId,
        input_id: Option<String>,
        input: Input,
    },
    /// The model answers. Deltas of a generation that is over are ignored.
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
    /// The words of `Output::Words` are written down.
    WordsWritten,
    /// They could not be.
    WordsNotWritten {
        message: String,
    },
    /// What stands in the prompt besides the items has changed: from the next reply on.
    Context(Context),
    /// What stands in the prompt after another summary has come into use, in order, and behind which item of the store. The
    /// context of that summary follows.
    Recovered {
        items: Vec<Item>,
        behind: Option<String>,
    },
    /// What was found, of each query.
    Recalled {
        generation: GenerationId,
        results: Vec<RecallResult>,
    },
    /// Hidden items lost their words in the store, because what they copied is gone.
    NotesGone {
        item_ids: Vec<String>,
    },
    /// What was said once about the question that comes now: it stands before this item, or before the next one.
    Noted {
        before: Option<String>,
        note: NoteOfPast,
    },
    /// Something that all clients are to be told.
    Tell(Event),
    /// Something that one client is to be told.
    TellOne {
        conn: ConnId,
        event: Event,
    },
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

/// What the service looked up by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteOfPast {
    /// What the question is about.
    pub query: String,
    /// As the model reads it.
    pub text: String,
    pub places: usize,
    pub sources: Vec<NoteSource>,
}

/// What a search of the past found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecallResult {
    /// The words that were searched for.
    pub query: String,
    /// As the model reads it.
    pub text: String,
    pub places: usize,
    pub sources: Vec<NoteSource>,
}
