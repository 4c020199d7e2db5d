//! From bytes on disk to tokens out. Synchronous. Knows no tokio, socket, clock, SQL, environment or user.

pub mod error;
pub mod network;
pub mod sampling;
pub mod state;

pub use error::Error;
