//! Memory and kernels of a GPU: buffers in, buffers out. Knows no model and no file.
//!
//! The kernels themselves are in `kernels/src/*.cu`, beside their twins for CPUs. Here is what runs them: a real GPU, or
//! an emulator for tests, and for each stem what starts its kernels.

pub mod activation;
pub mod attention;
pub mod buffer;
pub mod check;
pub mod convolution;
mod cuda;
pub mod delta;
pub mod device;
pub mod emulated;
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

pub use buffer::{Buffer, HostBuffer};
pub use device::{Device, Launch};
pub use error::Error;
pub use open::open;

#[cfg(test)]
extern crate self as gpu;
#[cfg(test)]
#[path = "../../kernels/tests/support/reference.rs"]
mod reference;
#[cfg(test)]
#[path = "../tests/support/stand_in.rs"]
mod stand_in;
#[cfg(test)]
mod stand_in_tests;
#[cfg(test)]
#[path = "../tests/support/devices.rs"]
mod testing;
#[cfg(test)]
#[path = "../../kernels/tests/support/values.rs"]
mod values;
