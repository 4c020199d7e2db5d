//! Connections of all protocols: requests from a port, and websockets in the place of a request.

mod accept;
mod upgrade;

pub use accept::{run, tell_starting};
pub use upgrade::{admit, upgrade};
