//! Commands of the registry to a session's task.

use crate::Error;
use crate::connections::Connection;
use session::Input;
use session::machine::{ConnId, Replay};
use telemetry::TraceParent;
use tokio::sync::oneshot;
use tokio::time::Instant;

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
    Trace {
        conn: ConnId,
        trace_parent: TraceParent,
    },
    /// Request for `Event::Reached` behind all that the session has told this connection.
    Mark {
        conn: ConnId,
        mark: u64,
        bytes: usize,
    },
    /// Shutdown: replies in progress may end until `by`, then the connections close.
    Drain {
        by: Instant,
    },
    Leave,
    /// Reload after another process changed summaries or pins. `done` is answered when the prompt shows them.
    Reload {
        done: oneshot::Sender<()>,
    },
    Deleted,
}
