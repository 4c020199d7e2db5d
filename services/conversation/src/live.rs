//! Live sessions: each is one task that owns a turn-taking machine, and does what the machine says.
//!
//! Connections, the backend and the store only send messages to that task; nobody shares its state. A session that nobody
//! uses leaves memory, and comes back from the store when somebody connects.
//!
//! Invariants:
//! - One task a session: whoever connects to it, from wherever, finds the same one.
//! - Operations of a session reach the store in the order in which the machine gave them.
//! - Words of a reply are given to the store after they were written to a connection's socket.

mod actor;
mod changes;
mod compaction;
mod error;
mod experiment;
mod keeper;
mod load;
mod outgoing;
mod presets;
mod records;
mod registry;

pub use actor::wall_ms;
pub use error::Error;
pub use experiment::check as check_experiment;
pub use outgoing::{End, Frame, Outgoing, OutgoingLimits, ToWrite, Written, outgoing};
pub use presets::Presets;
pub use registry::{Attach, Connected, Live, Parts};
