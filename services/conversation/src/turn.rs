//! Turn-taking: who speaks when, what was said, what was heard. One pure machine for one session.
//!
//! `Machine::handle(input, now, &mut out)` takes everything that can happen to a session (a client's event, a piece of
//! a reply, an acknowledgement of the store, time) and answers with what is to be done. It knows no socket, no clock, no
//! task, no SQL and no model.
//!
//! Invariants:
//! - What a client is told about an item, the store holds: such an event waits in the outbox until its operation is
//!   acknowledged, and everything said later waits behind it, so the order never changes.
//! - The store never holds more of a reply than was sent: a piece is given to it after it left for the clients.
//! - Every `response.created` has exactly one `response.done`.

mod buffer;
mod clients;
mod conversation;
mod events;
mod input;
mod machine;
mod outbox;
mod output;
mod prompt;
mod recall;
mod replies;
mod responses;
mod storing;
#[cfg(test)]
mod tests;

pub use input::{
    BackendFailure, ConnId, Context, Finish, Found, GenerationId, Input, Millis, Notice, Piece, Replay, Report,
};
pub use machine::{Machine, Start, TurnLimits};
pub use output::{CloseReason, Generate, OpId, Output, Priority, Purpose, StoreOp};
pub use prompt::{LaidOut, Prompt, SystemNotes, Wording, lay_out, leading, messages};
pub use recall::{RECALL, RECALL_CALL_ID, has_recall, query_of, recall_tool};
