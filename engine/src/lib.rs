//! From bytes on disk to tokens out. Synchronous. Knows no tokio, socket, clock, SQL, environment or user.

mod cache;
mod disk;
mod engine;
pub mod error;
pub mod gpu_network;
pub mod memory;
pub mod network;
pub mod open;
mod place;
pub mod request;
pub mod sampling;
mod sequence;
pub mod snapshot;
pub mod state;
pub mod trail;
pub mod vocabulary;

pub use disk::{DiskLimits, forget_files};
pub use engine::{Engine, Limits};
pub use error::Error;
pub use gpu::Device;
pub use gpu::check::{Checked, check as check_device};
pub use kernels::cpu::Cpu;
pub use kernels::peak;
pub use kernels::product::Precision;
pub use place::{Card, DeviceLimits, DeviceMemory, Longest, Place};
pub use request::{Event, Finish, OwnerId, Priority, Reason, Report, Request, SeqId, Thinking, Token};
