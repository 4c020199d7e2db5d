//! What kernels run on.

use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytemuck::NoUninit;

use crate::cuda::{Cuda, CudaGraph};
use crate::emulated::{Emulated, Started};
use crate::error::Error;
pub use crate::hardware::{Launch, Processors, Properties};

/// A GPU, or what stands in for it. A clone is the same device.
#[derive(Clone)]
pub struct Device(Arc<Backend>);

enum Backend {
    Cuda(Cuda),
    Emulated(Emulated),
}

/// Calls the function of this name of whatever stands behind a device.
macro_rules! behind {
    ($device:expr, $function:ident ( $($argument:expr),* )) => {
        match &*$device.0 {
            Backend::Cuda(cuda) => cuda.$function($($argument),*),
            Backend::Emulated(emulated) => emulated.$function($($argument),*),
        }
    };
}

/// Kernels that were recorded once and are started again together.
pub struct Graph {
    device: Device,
    recorded: Recorded,
}

enum Recorded {
    Cuda(CudaGraph),
    Emulated(Vec<Started>),
}

impl Device {
    /// The GPU with this number, as it says it is: `open` tries what it can do.
    pub(crate) fn cuda(ordinal: usize, cache: Option<&Path>, progress: &mut dyn FnMut(&str)) -> Result<Device, Error> {
        Cuda::open(ordinal, cache, progress).map(|cuda| Device(Arc::new(Backend::Cuda(cuda))))
    }

    /// Runs kernels on the CPU, exactly and slowly. `folder` keeps what was compiled.
    pub fn emulated(folder: &Path) -> Result<Device, Error> {
        Ok(Device(Arc::new(Backend::Emulated(Emulated::open(folder, kernels::cuda::PROGRAMS)?))))
    }

    /// For tests: an emulated device starts so many more kernels and is lost then. A real one ignores it.
    pub fn break_after(&self, kernels: u64) {
        if let Backend::Emulated(emulated) = &*self.0 {
            emulated.break_after(kernels);
        }
    }

    pub fn is_emulated(&self) -> bool {
        matches!(&*self.0, Backend::Emulated(_))
    }

    pub fn properties(&self) -> Result<Properties, Error> {
        behind!(self, properties())
    }

    pub fn processors(&self) -> Processors {
        behind!(self, processors())
    }

    /// Bytes that buffers take. What was freed is not among them, though no other program has it.
    pub fn used_bytes(&self) -> Result<usize, Error> {
        behind!(self, used_bytes())
    }

    /// Takes so much memory from the system for what will be asked of it, so that no other program has it then.
    pub fn hold(&self, bytes: usize) -> Result<(), Error> {
        match &*self.0 {
            // What was freed stays with the device.
            Backend::Cuda(cuda) => cuda.allocate(bytes).map(|address| cuda.free(address)),
            Backend::Emulated(_) => Ok(()),
        }
    }

    /// Starts a kernel. `arguments` is the structure that the kernel's source declares.
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
        behind!(self, launch(program, kernel, how, bytemuck::bytes_of(arguments)))
    }

    /// Whether four warps multiply together here (`groups.cu`).
    pub fn has_groups(&self) -> bool {
        behind!(self, groups()).load(Ordering::Relaxed)
    }

    /// Whether they may, where they can: to compare, and for tests.
    pub fn use_groups(&self, wanted: bool) {
        behind!(self, groups()).store(wanted && behind!(self, can_group()), Ordering::Relaxed);
    }

    /// Whether a kernel is put in place while the one before is still at work.
    pub fn overlaps(&self) -> bool {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.overlaps.load(Ordering::Relaxed),
            Backend::Emulated(_) => false,
        }
    }

    /// Whether it may, where the GPU can: to compare. Graphs stay as they were recorded.
    pub fn overlap_kernels(&self, wanted: bool) {
        if let Backend::Cuda(cuda) = &*self.0 {
            cuda.overlap(wanted);
        }
    }

    /// Each kernel that `work` starts, with the milliseconds it took; graphs are not looked into. NaN where there is no clock.
    pub fn profile(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Vec<(String, f32)>, Error> {
        behind!(self, profile(work))
    }

    /// Whether `profile` is at work: then nothing should be started by a graph.
    pub fn is_profiled(&self) -> bool {
        behind!(self, is_profiled())
    }

    /// Waits until everything that was asked for is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        behind!(self, synchronize())
    }

    /// Milliseconds that the device takes for what `work` asks of it, by its own clock. NaN where there is none.
    pub fn time(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f32, Error> {
        behind!(self, time(work))
    }

    /// Records the kernels that `work` starts, without running them. It must neither allocate nor wait.
    pub fn record(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        let recorded = match &*self.0 {
            Backend::Cuda(cuda) => Recorded::Cuda(cuda.record(work)?),
            Backend::Emulated(emulated) => Recorded::Emulated(emulated.record(work)?),
        };
        Ok(Graph { device: self.clone(), recorded })
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, Error> {
        behind!(self, allocate(bytes))
    }

    pub(crate) fn free(&self, address: u64) {
        behind!(self, free(address))
    }

    /// Memory of the host that the device knows; none where any is as good.
    pub(crate) fn allocate_host(&self, bytes: usize) -> Result<Option<NonNull<u8>>, Error> {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.allocate_host(bytes).map(Some),
            Backend::Emulated(_) => Ok(None),
        }
    }

    pub(crate) fn free_host(&self, address: NonNull<u8>) {
        if let Backend::Cuda(cuda) = &*self.0 {
            cuda.free_host(address);
        }
    }

    pub(crate) fn copy_in(&self, to: u64, from: &[u8]) -> Result<(), Error> {
        behind!(self, copy_in(to, from))
    }

    pub(crate) fn copy_out(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        behind!(self, copy_out(to, from))
    }

    /// As `copy_out`, and what is asked for meanwhile does not wait for it.
    pub(crate) fn copy_out_beside(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.copy_out_beside(to, from),
            Backend::Emulated(emulated) => emulated.copy_out(to, from),
        }
    }

    pub(crate) fn copy_within(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        behind!(self, copy_within(to, from, bytes))
    }

    pub(crate) fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<(), Error> {
        behind!(self, fill(at, byte, bytes))
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_emulated() { "an emulated GPU" } else { "a GPU" })
    }
}

impl Graph {
    pub fn launch(&self) -> Result<(), Error> {
        match (&self.recorded, &*self.device.0) {
            (Recorded::Cuda(graph), Backend::Cuda(cuda)) => cuda.launch_graph(graph),
            (Recorded::Emulated(started), Backend::Emulated(emulated)) => emulated.replay(started),
            _ => unreachable!("a graph stays with the device that recorded it"),
        }
    }
}
