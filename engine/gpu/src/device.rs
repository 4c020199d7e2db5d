//! A GPU as the engine uses it, behind any interface.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::NoUninit;

use crate::backend::{Backend, Recording};
use crate::error::Error;
pub use crate::hardware::{Capabilities, GpuApi, GpuFeature, GpuMemory, Launch, MatrixUnits, Processors, Properties};

#[derive(Clone)]
pub struct Device(Arc<OpenDevice>);

struct OpenDevice {
    backend: Arc<dyn Backend>,
    wanted: [AtomicBool; GpuFeature::COUNT],
}

pub struct Graph {
    device: Device,
    recording: Recording,
}

impl Device {
    pub fn new(backend: Arc<dyn Backend>) -> Device {
        Device(Arc::new(OpenDevice { backend, wanted: [const { AtomicBool::new(true) }; GpuFeature::COUNT] }))
    }

    fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    pub fn capabilities(&self) -> &Capabilities {
        self.backend().capabilities()
    }

    pub fn processors(&self) -> Processors {
        self.capabilities().processors
    }

    pub fn properties(&self) -> Result<Properties, Error> {
        self.backend().properties()
    }

    pub fn uses(&self, feature: GpuFeature) -> bool {
        self.0.wanted[feature as usize].load(Ordering::Relaxed) && feature.is_in(self.capabilities())
    }

    /// Switches a feature on or off. Graphs stay as they were recorded.
    pub fn set_feature(&self, feature: GpuFeature, wanted: bool) {
        self.0.wanted[feature as usize].store(wanted, Ordering::Relaxed);
    }

    pub fn used_bytes(&self) -> Result<usize, Error> {
        self.backend().used_bytes()
    }

    pub fn hold(&self, bytes: usize) -> Result<(), Error> {
        self.backend().hold(bytes)
    }

    pub fn launch<A: NoUninit>(
        &self,
        program: &'static str,
        kernel: &str,
        how: Launch,
        arguments: &A,
    ) -> Result<(), Error> {
        if how.grid.0 == 0 || how.grid.1 == 0 || how.grid.2 == 0 {
            return Ok(());
        }
        let overlap = self.uses(GpuFeature::OverlappingLaunches);
        self.backend().launch(program, kernel, how, bytemuck::bytes_of(arguments), overlap)
    }

    /// Returns each kernel that `work` starts, with its milliseconds; NaN without a clock. Kernels of graphs are left out.
    pub fn profile(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Vec<(String, f32)>, Error> {
        self.backend().profile(&mut once(work))
    }

    /// Returns whether `profile` is at work: then no caller should start a graph.
    pub fn is_profiled(&self) -> bool {
        self.backend().is_profiled()
    }

    pub fn synchronize(&self) -> Result<(), Error> {
        self.outside_of_recordings("waiting for the GPU")?.synchronize()
    }

    pub fn time(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f32, Error> {
        self.backend().time(&mut once(work))
    }

    /// Records the kernels that `work` starts, without running them. Everything else that `work` asks for is refused: it would be done
    /// once, and missing each time that the graph runs.
    pub fn record(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        Ok(Graph { device: self.clone(), recording: self.backend().record(&mut once(work))? })
    }

    fn outside_of_recordings(&self, action: &'static str) -> Result<&dyn Backend, Error> {
        if self.backend().is_recording() {
            return Err(Error::Recording { action });
        }
        Ok(self.backend())
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, Error> {
        self.outside_of_recordings("taking memory")?.allocate(bytes)
    }

    pub(crate) unsafe fn free(&self, address: u64) {
        // SAFETY: the caller's promise is the backend's.
        unsafe { self.backend().free(address) }
    }

    pub(crate) fn allocate_host(&self, bytes: usize) -> Result<Option<NonNull<u8>>, Error> {
        self.backend().allocate_host(bytes)
    }

    pub(crate) unsafe fn free_host(&self, address: NonNull<u8>) {
        // SAFETY: as above.
        unsafe { self.backend().free_host(address) }
    }

    pub(crate) unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<(), Error> {
        // SAFETY: as above.
        unsafe { self.outside_of_recordings("copying to the GPU")?.copy_in(to, from) }
    }

    pub(crate) unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        // SAFETY: as above.
        unsafe { self.outside_of_recordings("copying from the GPU")?.copy_out(to, from) }
    }

    pub(crate) unsafe fn copy_out_beside(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        // SAFETY: as above.
        unsafe { self.outside_of_recordings("copying from the GPU")?.copy_out_beside(to, from) }
    }

    pub(crate) unsafe fn copy_within(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        // SAFETY: as above.
        unsafe { self.outside_of_recordings("copying on the GPU")?.copy_within(to, from, bytes) }
    }

    pub(crate) unsafe fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<(), Error> {
        // SAFETY: as above.
        unsafe { self.outside_of_recordings("filling memory")?.fill(at, byte, bytes) }
    }
}

/// Makes work that runs at most once, for backends, which cannot take a value of any type.
fn once(work: impl FnOnce() -> Result<(), Error>) -> impl FnMut() -> Result<(), Error> {
    let mut work = Some(work);
    move || work.take().map_or(Ok(()), |work| work())
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a GPU of {:?}", self.capabilities().api)
    }
}

impl Graph {
    pub fn launch(&self) -> Result<(), Error> {
        self.device.backend().replay(&self.recording)
    }
}
