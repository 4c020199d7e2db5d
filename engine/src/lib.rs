//! From bytes on disk to tokens out. Synchronous. Knows no tokio, socket, clock, SQL, environment or user.

mod active_request;
mod cache;
mod cached_sequence;
mod device_memory;
mod disk;
mod draft;
mod engine;
pub mod error;
mod executor;
pub mod gpu_network;
mod limits;
pub mod memory;
pub mod model_bytes;
pub mod network;
pub mod open;
pub mod recurrence_log;
pub mod request;
pub mod sampling;
mod self_check;
pub mod snapshot;
pub mod state;
pub mod vocabulary;

pub use device_memory::{DeviceFacts, DeviceLimits, DeviceMemoryPlan, LongestConversation};
#[cfg(feature = "hostile")]
pub use disk::hostile as hostile_disk;
pub use disk::{DiskLimits, forget_files, forget_unowned_files};
pub use draft::DraftLimits;
pub use engine::Engine;
pub use error::Error;
pub use executor::Executor;
pub use gpu::check::check as check_device;
pub use gpu::{Device, GpuApi};
pub use kernels::cpu::Cpu;
pub use kernels::format::Format;
pub use kernels::peak;
pub use kernels::product::Precision;
pub use limits::EngineLimits;
pub use request::{
    EngineEvent, EngineRequest, OwnerId, PrefillReason, ReplyToken, RequestClass, RequestId, RequestReport, ReuseScope,
    StopReason, ThinkingOptions,
};
