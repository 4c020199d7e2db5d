//! Facts about a GPU, and the shape of a launch.

/// Interface through which a GPU is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuApi {
    Cuda,
    Vulkan,
}

/// Grid of blocks that run one kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub grid: (u32, u32, u32),
    /// Threads of a block: whole multiples of `Capabilities::lanes`.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: usize,
}

/// Name and memory of a GPU as they are now.
#[derive(Clone, Debug)]
pub struct Properties {
    pub name: String,
    /// Generation of the hardware in the words of its interface, such as "compute capability 9.0".
    pub generation: String,
    pub memory_bytes: usize,
    pub free_bytes: usize,
}

/// Abilities of a GPU that never change while it is open.
#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    pub api: GpuApi,
    pub processors: Processors,
    /// Threads that step together: a warp or a subgroup.
    pub lanes: u32,
    /// True if one instruction multiplies four pairs of 8-bit integers.
    pub integer_dot: bool,
    pub matrix_units: MatrixUnits,
    /// True if the GPU puts a kernel in place while the one before is still at work.
    pub overlapping_launches: bool,
    /// True if the GPU has a clock that times kernels.
    pub events: bool,
    pub memory: GpuMemory,
}

/// Processors that run blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processors {
    pub count: u32,
    /// Largest shared memory of a block.
    pub shared_bytes: usize,
}

/// Hardware that multiplies small matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixUnits {
    Missing,
    /// Each warp multiplies alone.
    OfWarps,
    /// Four warps multiply together as well (`groups.cu`).
    OfGroups,
}

/// Place of a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuMemory {
    /// Memory of its own, behind a bus.
    Separate,
    /// Memory of the host.
    Shared,
}

/// Ability that kernels can go without: it is tried when a GPU is opened, and benchmarks compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuFeature {
    GroupProducts,
    OverlappingLaunches,
}

impl GpuFeature {
    pub(crate) const COUNT: usize = 2;

    pub(crate) fn is_in(self, capabilities: &Capabilities) -> bool {
        match self {
            GpuFeature::GroupProducts => capabilities.matrix_units == MatrixUnits::OfGroups,
            GpuFeature::OverlappingLaunches => capabilities.overlapping_launches,
        }
    }
}
