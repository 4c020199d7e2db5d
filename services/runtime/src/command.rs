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
    /// A door's own frame for one of its connections, behind what the session has told it.
    Relay {
        conn: ConnId,
        frame: String,
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
