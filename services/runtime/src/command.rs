//! The orders that the registry gives to a session's task.

use crate::Error;
use crate::connections::Connection;
use session::Input;
use session::machine::{ConnId, Replay};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Order of the service to a session's task.
pub enum Command {
    Attach {
        conn: ConnId,
        connection: Connection,
        replay: Replay,
        answer: oneshot::Sender<Result<(), Error>>,
    },
    Said {
        conn: ConnId,
        input_id: Option<String>,
        input: Input,
    },
    /// Mark of a connection behind all that the session has told it: see `Event::Reached`.
    Mark {
        conn: ConnId,
        mark: u64,
        bytes: usize,
    },
    /// Finish what is under way, no later than this; then close.
    Drain {
        by: Instant,
    },
    /// Leave memory if no client needs the session.
    Leave,
    /// Its summaries or pins were changed: answered when the prompt shows it.
    Reload {
        done: oneshot::Sender<()>,
    },
    /// The session is deleted: close at once.
    Deleted,
}
