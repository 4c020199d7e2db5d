//! Memory and kernels of a GPU: buffers in, buffers out. Knows no model and no file.
//!
//! The kernels are in `kernels/src/*.cu`, beside their twins for CPUs. A `Backend` runs them, and one file a stem starts
//! them. A structure `X` or `XArguments` here is laid out as `X` in the kernel file of the same stem.

pub mod activation;
pub mod attention;
pub mod backend;
pub mod buffer;
pub mod check;
pub mod convolution;
mod cuda;
pub mod delta;
pub mod device;
pub mod error;
mod hardware;
pub mod lanes;
pub mod matrix;
pub mod norm;
pub mod nvrtc;
mod open;
pub mod product;
pub mod rotation;
pub mod routing;
pub mod rows;
pub mod snapshot;

pub use backend::{Backend, programs};
pub use buffer::{Buffer, HostBuffer};
pub use cuda::compile_ahead;
pub use device::{Device, GpuApi, GpuFeature, Launch};
pub use error::Error;
pub use open::{open, open_behind};
