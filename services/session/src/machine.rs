//! Turn-taking: when the user and the assistant speak, what was said, what was heard. One pure machine for one session.
//!
//! `Machine::handle(happening, now, &mut out)` takes everything that can happen to a session (a client's input, a delta of a
//! reply, an acknowledgement of the store, time) and answers with what is to be done. It knows no protocol, no socket, no
//! clock, no task, no SQL and no model.
//!
//! Invariants:
//! - What a client is told about an item, the store holds: such an event waits in the outbox until its operation is
//!   acknowledged, and everything said later waits behind it, so the order never changes.
//! - The store never holds more of a reply than was sent: words are given to it after they left for the clients.
//! - Every `ResponseStarted` has exactly one `ResponseDone`.

mod conversation;
mod core;
mod happening;
mod held;
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
pub use happening::{ConnId, GenerationId, Happening, Millis, NoteOfPast, OpId, RecallResult, Replay};
pub use one_shot::OneShot;
pub use output::{CloseReason, Generate, GenerationPurpose, Output, Resume, StoreOp};
pub use recall::{RECALL, RECALL_CALL_ID, has_recall, is_hidden, recall_tool};
