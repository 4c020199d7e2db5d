//! Turn-taking: the turns of user and assistant, the words said and heard. One pure machine for one session.
//!
//! `Machine::handle(input, now, &mut out)` takes everything that can happen to a session (a client's input, a delta
//! of a reply, an acknowledgement of the store, time) and appends the outputs that the caller carries out. It knows no
//! protocol, socket, clock, task, SQL or model.
//!
//! Invariants:
//! - Clients know only what the store holds: an event waits in the outbox until the store acknowledges its operation,
//!   and all later events wait behind it, so the order never changes.
//! - The store never holds more of a reply than was sent: the machine stores words after they left for the clients.
//! - Every `ResponseStarted` has exactly one `ResponseDone`.

mod conversation;
mod core;
mod held;
mod input;
mod ledger;
mod one_shot;
mod outbox;
mod output;
mod recall;
mod replies;
mod reply;
mod warming;

pub use conversation::Entry;
pub use core::{Machine, MachineLimits, Start};
pub use input::{ConnId, GenerationId, MachineInput, Millis, OpId, RecallResult, Replay};
pub use one_shot::OneShot;
pub use output::{CloseReason, Generate, Output, Resume, StoreOp};
pub use recall::{RECALL, RECALL_CALL_ID, has_recall, is_hidden, recall_tool};
