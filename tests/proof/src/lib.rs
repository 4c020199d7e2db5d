//! Proof that the house stands. Each command breaks something on purpose and measures the result.

pub mod all;
pub mod crash;
pub mod deletion;
pub mod explore;
pub mod hostile;
pub mod load;
pub mod same;
pub mod stall;
pub mod summary;
pub mod websocket;
