//! Attention over pages: heads made ready, parts of the past, parts put together.

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch};
use crate::error::Error;
use crate::rows::RowsArguments;

/// `Heads` in `attention.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Heads {
    pub lanes: u64,
    pub lane_of_row: u64,
    pub q: u64,
    pub q_heads: u32,
    pub kv_heads: u32,
    pub dim: u32,
    pub layer: u32,
}

/// `Prepare` in `attention.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Prepare {
    pub heads: Heads,
    pub k: u64,
    pub v: u64,
    pub q_norm: u64,
    pub k_norm: u64,
    pub turns: u64,
    pub pairs: u32,
    pub eps: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Attend {
    heads: Heads,
    partial: u64,
    stats: u64,
    rows: u32,
    splits: u32,
    row_tiles: u32,
    unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Combine {
    heads: Heads,
    partial: u64,
    stats: u64,
    to: RowsArguments,
    rows: u32,
    splits: u32,
    heads_of_block: u32,
    unused: u32,
}

/// Where parts of the past are kept until they are put together: [splits, rows, q heads, dim] and two numbers for each.
#[derive(Clone, Copy)]
pub struct Parts {
    pub partial: u64,
    pub stats: u64,
    pub splits: usize,
}

/// Whether there are kernels for such heads.
pub fn check(q_heads: usize, kv_heads: usize, dim: usize) -> Result<(), Error> {
    if ![32, 64, 128, 256].contains(&dim) {
        return Err(Error::Shape { what: format!("attention heads have {dim} values"), wanted: "32, 64, 128 or 256" });
    }
    if q_heads / kv_heads.max(1) > 16 {
        let what = format!("{q_heads} query heads share {kv_heads} key heads");
        return Err(Error::Shape { what, wanted: "16 or fewer for each" });
    }
    Ok(())
}

/// `MOST_SPLITS` in `attention.cu`.
const MOST_SPLITS: usize = 128;

/// Into how many parts the past is cut, so that a few rows keep all processors at work. It depends on nothing that
/// changes from token to token: a recorded step can be repeated.
pub fn splits(processors: u32, lanes: usize, longest: usize, q_heads: usize, kv_heads: usize) -> usize {
    let (_, tiles) = row_tiles(longest, q_heads / kv_heads);
    let blocks = lanes * kv_heads * tiles;
    (3 * processors as usize).div_ceil(blocks).clamp(1, if longest == 1 { MOST_SPLITS } else { 16 })
}

pub fn prepare(device: &Device, rows: usize, arguments: &Prepare) -> Result<(), Error> {
    let heads = arguments.heads;
    let grid = (rows as u32, heads.q_heads + 2 * heads.kv_heads, 1);
    let launch = Launch { grid, threads: 32, shared_bytes: heads.dim as usize * size_of::<f32>() };
    device.launch("attention", "prepare_heads", launch, arguments)
}

/// `longest`: rows of the lane with the most.
pub fn attend(
    device: &Device,
    heads: Heads,
    lanes: usize,
    longest: usize,
    rows: usize,
    parts: Parts,
) -> Result<(), Error> {
    let (down, row_tiles) = row_tiles(longest, (heads.q_heads / heads.kv_heads) as usize);
    let arguments = Attend {
        heads,
        partial: parts.partial,
        stats: parts.stats,
        rows: rows as u32,
        splits: parts.splits as u32,
        row_tiles: row_tiles as u32,
        unused: 0,
    };
    let grid = (heads.kv_heads * row_tiles as u32, parts.splits as u32, lanes as u32);
    let (dim, rows_of_tile) = (heads.dim as usize, 16 * down);
    // Queries, a tile of keys or values, weights: halves; scores and three numbers a row: floats.
    let halves = (rows_of_tile + 64) * (dim + 8) + rows_of_tile * 72;
    let shared_bytes = halves * size_of::<u16>() + rows_of_tile * (68 + 3) * size_of::<f32>();
    let kernel = format!("attend_{dim}_{down}");
    device.launch("attention", &kernel, Launch { grid, threads: 128, shared_bytes }, &arguments)
}

/// Puts the parts together and multiplies with the gates, in the forms of `to`.
pub fn combine(device: &Device, heads: Heads, rows: usize, parts: Parts, to: RowsArguments) -> Result<(), Error> {
    let Parts { partial, stats, splits } = parts;
    // Halves share a scale over a whole row. Where there are none a row's heads are done side by side.
    let heads_of_block = if to.has_halves() { heads.q_heads } else { 1 };
    let arguments =
        Combine { heads, partial, stats, to, rows: rows as u32, splits: splits as u32, heads_of_block, unused: 0 };
    let grid = (rows as u32, heads.q_heads / heads_of_block, 1);
    let shared_bytes = (heads_of_block * heads.dim) as usize * size_of::<f32>();
    device.launch("attention", "combine", Launch { grid, threads: 256, shared_bytes }, &arguments)
}

/// Sixteens of rows in a block, and blocks for the rows of a lane.
fn row_tiles(longest: usize, group: usize) -> (usize, usize) {
    let down = if longest * group <= 16 { 1 } else { 4 };
    (down, longest.div_ceil(16 * down / group))
}

#[cfg(test)]
mod tests;
