//! Interface that every kind of GPU implements: CUDA here, an emulator for tests in the crate `testing`.

use std::any::Any;
use std::ptr::NonNull;

use kernels::cuda::Program;

use crate::error::Error;
use crate::hardware::{Capabilities, GpuApi, Launch, Properties};

pub type GpuWork<'w> = &'w mut dyn FnMut() -> Result<(), Error>;

pub type Recording = Box<dyn Any + Send + Sync>;

/// Returns the programs that GPUs of an interface run. Empty: no kernel is written for it yet.
pub fn programs(api: GpuApi) -> &'static [Program] {
    match api {
        GpuApi::Cuda => kernels::cuda::PROGRAMS,
        GpuApi::Vulkan => &[],
    }
}

/// A GPU behind one interface. It does everything in the order in which it is asked.
pub trait Backend: Send + Sync {
    fn capabilities(&self) -> &Capabilities;

    fn properties(&self) -> Result<Properties, Error>;

    /// Returns the bytes that allocations take, without freed memory that the backend keeps.
    fn used_bytes(&self) -> Result<usize, Error>;

    /// Reserves memory of the system for later allocations, so that no other program takes it.
    fn hold(&self, bytes: usize) -> Result<(), Error>;

    /// Starts a kernel. `arguments` is the structure that the kernel's source declares.
    fn launch(
        &self,
        program: &'static str,
        kernel: &str,
        how: Launch,
        arguments: &[u8],
        overlap: bool,
    ) -> Result<(), Error>;

    /// Returns each kernel that `work` starts, with its milliseconds; NaN without a clock.
    fn profile(&self, work: GpuWork) -> Result<Vec<(String, f32)>, Error>;

    fn is_profiled(&self) -> bool;

    fn synchronize(&self) -> Result<(), Error>;

    fn time(&self, work: GpuWork) -> Result<f32, Error>;

    /// Records the kernels that `work` starts, without running them.
    fn record(&self, work: GpuWork) -> Result<Recording, Error>;

    /// Returns whether this thread records: then it may only start kernels.
    fn is_recording(&self) -> bool;

    fn replay(&self, recording: &Recording) -> Result<(), Error>;

    fn allocate(&self, bytes: usize) -> Result<u64, Error>;

    /// # Safety
    /// `address` came from `allocate`, and is freed once.
    unsafe fn free(&self, address: u64);

    /// Allocates host memory that the GPU copies into without a detour. None: any host memory serves as well.
    fn allocate_host(&self, bytes: usize) -> Result<Option<NonNull<u8>>, Error>;

    /// # Safety
    /// `address` came from `allocate_host`, is freed once, and no copy into it is under way.
    unsafe fn free_host(&self, address: NonNull<u8>);

    /// # Safety
    /// The bytes at `to` lie in one allocation.
    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<(), Error>;

    /// Waits for all work before, and copies.
    ///
    /// # Safety
    /// The bytes at `from` lie in one allocation.
    unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<(), Error>;

    /// Copies as `copy_out`; work that is asked for meanwhile does not wait for the copy.
    ///
    /// # Safety
    /// The bytes at `from` lie in one allocation, which outlives the call.
    unsafe fn copy_out_beside(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.copy_out(to, from) }
    }

    /// # Safety
    /// Both ranges lie in allocations.
    unsafe fn copy_within(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error>;

    /// # Safety
    /// The bytes at `at` lie in one allocation.
    unsafe fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<(), Error>;
}
