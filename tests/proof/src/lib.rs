//! What shows that the house stands. Each command breaks something on purpose and measures what becomes of it.

pub mod all;
pub mod crash;
pub mod explore;
pub mod hostile;
pub mod load;
pub mod same;
pub mod stall;
pub mod summary;
pub mod websocket;
