//! Facts about a GPU, and the shape of a launch.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuApi {
    Cuda,
    Vulkan,
}

#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub grid: (u32, u32, u32),
    /// Threads of a block: whole multiples of `Capabilities::lanes`.
    pub threads: u32,
    pub shared_bytes: usize,
}

#[derive(Clone, Debug)]
pub struct Properties {
    pub name: String,
    /// Generation of the hardware in the words of its interface, such as "compute capability 9.0".
    pub generation: String,
    pub memory_bytes: usize,
    pub free_bytes: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    pub api: GpuApi,
    pub processors: Processors,
    /// Threads that step together: a warp or a subgroup.
    pub lanes: u32,
    /// True if one instruction multiplies four pairs of 8-bit integers.
    pub integer_dot: bool,
    pub matrix_units: MatrixUnits,
    pub overlapping_launches: bool,
    pub events: bool,
    pub memory: GpuMemory,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processors {
    pub count: u32,
    pub shared_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixUnits {
    Missing,
    OfWarps,
    /// Four warps multiply together as well (`groups.cu`).
    OfGroups,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuMemory {
    Separate,
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
