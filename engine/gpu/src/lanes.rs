use bytemuck::{Pod, Zeroable};

/// `Lane` in `lanes.cuh`. Addresses of what the sequence owns, and which rows of the step are its tokens.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct LaneArguments {
    /// Addresses of pages, one for each 256 positions.
    pub pages: u64,
    pub recurrent: u64,
    pub conv: u64,
    pub first: u32,
    pub count: u32,
    pub position: u32,
    pub key_kind: u32,
    pub value_kind: u32,
    // `TURNED_KEYS` and `TURNED_VALUES` of `attention`.
    pub turned: u32,
}
