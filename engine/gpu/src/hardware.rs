//! What a device is, and how a kernel is spread over it.

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
