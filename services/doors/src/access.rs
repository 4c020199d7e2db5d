//! Which requests are let in: names and pages that may address this server, keys, and how much each may ask for.

mod entry;
mod gate;
mod own;
mod policy;
mod revoked;

pub use entry::{Caller, KEY_PROTOCOL, LOCAL_USER, Peer, caller, guard, require};
pub use gate::{ConnectionPlace, Gate, Left};
pub use policy::{Policy, check_access};
pub use revoked::RevokedKeys;
