//! What kernels run on.

use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytemuck::NoUninit;

use crate::buffer::Buffer;
use crate::check::check_rounded;
use crate::cuda::Cuda;
use crate::emulated::Emulated;
use crate::error::Error;

/// A GPU, or what stands in for it. A clone is the same device.
#[derive(Clone)]
pub struct Device(Arc<Backend>);

enum Backend {
    Cuda(Cuda),
    Emulated(Emulated),
}

/// An emulated device has so much memory.
pub(crate) const EMULATED_BYTES: usize = 1 << 30;

/// How a kernel is spread over the device.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub grid: (u32, u32, u32),
    /// Of a block: whole warps.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: usize,
}

/// What the GPU is, for people and for plans.
#[derive(Clone, Debug)]
pub struct Properties {
    pub name: String,
    /// Compute capability, as 90 for 9.0.
    pub target: u32,
    pub processors: u32,
    pub memory_bytes: usize,
    pub free_bytes: usize,
}

/// What runs blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processors {
    pub count: u32,
    /// The most that a block may have.
    pub shared_bytes: usize,
}

/// Kernels that were recorded once and are started again together.
pub struct Graph {
    device: Device,
    recorded: Recorded,
}

enum Recorded {
    Cuda(crate::cuda::CudaGraph),
    Emulated(Vec<crate::emulated::Started>),
}

impl Device {
    /// The GPU with this number. Its kernels are compiled the first time, into `cache`; `progress` hears of it.
    pub fn cuda(ordinal: usize, cache: Option<&Path>, progress: &mut dyn FnMut(&str)) -> Result<Device, Error> {
        let mut open = || Cuda::open(ordinal, cache, progress).map(|cuda| Device(Arc::new(Backend::Cuda(cuda))));
        let device = open()?;
        if !device.has_groups() {
            return Ok(device);
        }
        // What only some GPUs have is tried before it is relied on: there is another way for all of it.
        let why = match check_rounded(&device) {
            Ok(checked) if checked.is_right => return Ok(device),
            Ok(checked) => format!("it was wrong by {}", checked.distance),
            Err(error) => error.to_string(),
        };
        drop(device);
        let device = open()?;
        device.use_groups(false);
        device.overlap_kernels(false);
        progress(&format!("this GPU goes without what is its own: {why}"));
        Ok(device)
    }

    /// Runs kernels on the CPU, exactly and slowly. `folder` keeps what was compiled.
    pub fn emulated(folder: &Path) -> Result<Device, Error> {
        Ok(Device(Arc::new(Backend::Emulated(Emulated::open(folder, kernels::cuda::PROGRAMS)?))))
    }

    /// For tests: an emulated device starts so many more kernels and is lost then. A real one does not hear of it.
    pub fn break_after(&self, kernels: u64) {
        if let Backend::Emulated(emulated) = &*self.0 {
            emulated.break_after(kernels);
        }
    }

    pub fn is_emulated(&self) -> bool {
        matches!(&*self.0, Backend::Emulated(_))
    }

    pub fn properties(&self) -> Result<Properties, Error> {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.properties(),
            Backend::Emulated(emulated) => Ok(Properties {
                name: "an emulated GPU".to_string(),
                target: 80,
                processors: 4,
                memory_bytes: EMULATED_BYTES,
                free_bytes: EMULATED_BYTES.saturating_sub(emulated.held_bytes()),
            }),
        }
    }

    pub fn processors(&self) -> Processors {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.processors,
            // As small as those that there are.
            Backend::Emulated(_) => Processors { count: 4, shared_bytes: 99 << 10 },
        }
    }

    /// Bytes that buffers take. What was freed is not among them, though no other program has it.
    pub fn used_bytes(&self) -> Result<usize, Error> {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.used_bytes(),
            Backend::Emulated(emulated) => Ok(emulated.held_bytes()),
        }
    }

    /// Takes so much memory from the system for what will be asked of it, so that no other program has it then.
    pub fn hold(&self, bytes: usize) -> Result<(), Error> {
        match &*self.0 {
            // What was freed stays with us.
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
        let arguments = bytemuck::bytes_of(arguments);
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.launch(program, kernel, how, arguments),
            Backend::Emulated(emulated) => emulated.launch(program, kernel, how, arguments),
        }
    }

    /// Whether four warps multiply together here (`groups.cu`).
    pub fn has_groups(&self) -> bool {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.groups.load(Ordering::Relaxed),
            Backend::Emulated(emulated) => emulated.groups.load(Ordering::Relaxed),
        }
    }

    /// Whether they may, where they can: to compare, and for tests.
    pub fn use_groups(&self, wanted: bool) {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.groups.store(wanted && cuda.can_group(), Ordering::Relaxed),
            Backend::Emulated(emulated) => emulated.groups.store(wanted, Ordering::Relaxed),
        }
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
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.profile(work),
            Backend::Emulated(emulated) => emulated.profile(work),
        }
    }

    /// Whether somebody does so: then nothing should be started by a graph.
    pub fn is_profiled(&self) -> bool {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.is_profiled(),
            Backend::Emulated(emulated) => emulated.is_profiled(),
        }
    }

    /// Waits until everything that was asked for is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.synchronize(),
            Backend::Emulated(emulated) => emulated.check_memory(),
        }
    }

    /// Milliseconds that the device takes for what `work` asks of it, by its own clock.
    pub fn time(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f32, Error> {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.time(work),
            Backend::Emulated(_) => work().map(|()| f32::NAN),
        }
    }

    /// Bytes that this memory reads and writes a second, in billions, copying so many; the median. NaN where there is no clock.
    pub fn copy_gb_per_s(&self, bytes: usize, rounds: usize) -> Result<f64, Error> {
        let (from, to) = (Buffer::<u8>::zeroed(self, bytes)?, Buffer::<u8>::new(self, bytes)?);
        let once = |_| self.time(|| to.copy_from(0, &from, 0, bytes));
        let mut ms: Vec<f32> = (0..rounds.max(3)).map(once).collect::<Result<_, _>>()?;
        ms.sort_by(f32::total_cmp);
        Ok(2.0 * bytes as f64 / f64::from(ms[ms.len() / 2]) / 1e6)
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
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.allocate(bytes),
            Backend::Emulated(emulated) => emulated.allocate(bytes),
        }
    }

    pub(crate) fn free(&self, address: u64) {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.free(address),
            Backend::Emulated(emulated) => emulated.free(address),
        }
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
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.copy_in(to, from),
            Backend::Emulated(emulated) => emulated.copy_in(to, from),
        }
    }

    pub(crate) fn copy_out(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.copy_out(to, from),
            Backend::Emulated(emulated) => emulated.copy_out(to, from),
        }
    }

    pub(crate) fn copy_out_beside(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.copy_out_beside(to, from),
            Backend::Emulated(emulated) => emulated.copy_out(to, from),
        }
    }

    pub(crate) fn copy_within(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.copy_within(to, from, bytes),
            Backend::Emulated(emulated) => emulated.copy_within(to, from, bytes),
        }
    }

    pub(crate) fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<(), Error> {
        match &*self.0 {
            Backend::Cuda(cuda) => cuda.fill(at, byte, bytes),
            Backend::Emulated(emulated) => emulated.fill(at, byte, bytes),
        }
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
