//! Admission of requests: names and pages that may address this server, keys, and the allowance of each.

mod bodies;
mod entry;
mod gate;
mod policy;
mod revoked;

pub use entry::{KEY_PROTOCOL, LOCAL_USER, PathBefore, Peer, caller, guard, require};
pub use gate::{ConnectionPlace, Gate, Left};
pub use policy::{Policy, check_access};
pub use replies::Caller;
pub use revoked::RevokedKeys;
