use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch};
use crate::error::Error;
use crate::rows::{GROUP, RowsArguments};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct NormRowsArguments {
    pub x: u64,
    /// 0: the rows as they are.
    pub weight: u64,
    /// 0: all rows.
    pub chosen: u64,
    pub to: RowsArguments,
    pub eps: f32,
    pub unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct NormHeadsArguments {
    pub x: u64,
    pub weight: u64,
    pub gate: u64,
    pub to: RowsArguments,
    pub dim: u32,
    pub eps: f32,
    pub heads_of_block: u32,
    pub in_fours: u32,
}

pub fn norm_rows(device: &Device, rows: usize, arguments: &NormRowsArguments) -> Result<(), Error> {
    // A row and its weights.
    let shared_bytes = 2 * arguments.to.padded() * size_of::<f32>();
    device.launch("norm", "norm_rows", Launch { grid: (rows as u32, 1, 1), threads: 512, shared_bytes }, arguments)
}

const HEADS_OF_BLOCK: u32 = 8;

/// Sets `heads_of_block` and `in_fours` itself.
pub fn norm_heads_gated(device: &Device, rows: usize, arguments: NormHeadsArguments) -> Result<(), Error> {
    let (to, dim) = (arguments.to, arguments.dim as usize);
    let heads = (to.cols() / dim) as u32;
    let in_fours = dim.is_multiple_of(GROUP) && dim <= 256 && to.cols() == to.padded();
    let heads_of_block = if in_fours && !to.has_halves() { HEADS_OF_BLOCK } else { heads };
    let arguments = NormHeadsArguments { heads_of_block, in_fours: in_fours.into(), ..arguments };
    let grid = (rows as u32, heads.div_ceil(heads_of_block), 1);
    let shared_bytes = if in_fours && !to.has_halves() { 0 } else { to.padded() * size_of::<f32>() };
    device.launch("norm", "norm_heads_gated", Launch { grid, threads: 256, shared_bytes }, &arguments)
}
