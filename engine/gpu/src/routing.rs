//! Experts: which tokens visit which, sorted by expert, and the answers put together.

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch};
use crate::error::Error;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct RouteArguments {
    pub scores: u64,
    pub experts: u64,
    pub shares: u64,
    /// Address as in `Arrange`, for pairs that are not arranged; 0: not wanted.
    pub source: u64,
    pub place: u64,
    pub count: u32,
    pub used: u32,
    pub renormalise: u32,
    pub unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct ArrangeArguments {
    pub experts: u64,
    pub source: u64,
    pub of_row: u64,
    pub place: u64,
    pub tiles: u64,
    pub pairs: u32,
    pub used: u32,
    pub count: u32,
    pub tile_rows: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct GatherArguments {
    pub answers: u64,
    pub place: u64,
    pub shares: u64,
    /// 0: no expert is visited by all.
    pub shared_answers: u64,
    pub shared_score: u64,
    pub out: u64,
    pub rows: u32,
    pub cols: u32,
    pub used: u32,
    pub unused: u32,
}

pub fn route(device: &Device, rows: usize, arguments: &RouteArguments) -> Result<(), Error> {
    let shared_bytes = arguments.count as usize * size_of::<f32>();
    device.launch("routing", "route", Launch { grid: (rows as u32, 1, 1), threads: 32, shared_bytes }, arguments)
}

/// Returns the most tiles that a number of pairs makes: each expert's last tile may be cut.
pub fn most_tiles(pairs: usize, experts: usize, tile_rows: usize) -> usize {
    pairs / tile_rows + experts.min(pairs)
}

const ARRANGE_THREADS: usize = 256;

pub fn arrange(device: &Device, arguments: &ArrangeArguments) -> Result<(), Error> {
    // A number for each expert, and three for each warp.
    let shared_bytes = (arguments.count as usize + 3 * ARRANGE_THREADS / 32) * size_of::<u32>();
    let threads = ARRANGE_THREADS as u32;
    device.launch("routing", "arrange", Launch { grid: (arguments.count, 1, 1), threads, shared_bytes }, arguments)
}

pub fn gather(device: &Device, arguments: &GatherArguments) -> Result<(), Error> {
    let grid = (arguments.rows, arguments.cols.div_ceil(256), 1);
    device.launch("routing", "gather", Launch { grid, threads: 256, shared_bytes: 0 }, arguments)
}
