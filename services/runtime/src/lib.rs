//! Live sessions: each is one task that owns a machine, and does what the machine says; beside it a compactor.
//!
//! Connections, the model and the store only send messages to that task; nothing else sees its state. A session that no
//! client uses leaves memory, and comes back from the store when one connects.
//!
//! Invariants:
//! - One task a session: every client that connects to it, from wherever, finds the same one.
//! - Operations of a session reach the store in the order in which the machine gave them.
//! - Words of a reply are given to the store after they were written to a connection's socket.

mod changes;
mod clock;
mod command;
mod compactor;
mod connections;
mod error;
mod fact_block;
mod facts;
mod generations;
pub mod heavy;
mod held;
mod load;
mod look_back;
mod looking;
mod memories;
pub mod metrics;
mod once;
mod outgoing;
mod placement;
mod presets;
mod prompts;
mod recall;
mod registry;
mod remember;
mod say;
mod shared;
mod store_queue;
mod task;
mod told_facts;
mod turn_log;

pub use clock::wall_ms;
pub use connections::Interest;
pub use error::Error;
pub use fact_block::BlockFacts;
pub use facts::{fact_lines, facts_about, index_facts, write_fact};
pub use held::{HeldShare, HeldText};
pub use load::{random, wording};
pub use once::first_time;
pub use outgoing::{End, Outgoing, OutgoingLimits, ToWrite, Written, outgoing};
pub use placement::check as check_experiment;
pub use presets::{ModelChoice, Presets};
pub use prompts::limits_of;
pub use registry::{Attach, Connected, NewSession, Runtime, RuntimeParts};
pub use say::SessionAnswer;
