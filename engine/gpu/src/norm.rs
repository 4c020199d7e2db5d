//! Norms of rows.

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch};
use crate::error::Error;
use crate::rows::RowsArguments;

/// `NormRows` in `norm.cu`.
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

/// `NormHeads` in `norm.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct NormHeadsArguments {
    pub x: u64,
    pub weight: u64,
    pub gate: u64,
    pub to: RowsArguments,
    pub dim: u32,
    pub eps: f32,
}

pub fn norm_rows(device: &Device, rows: usize, arguments: &NormRowsArguments) -> Result<(), Error> {
    device.launch("norm", "norm_rows", a_block_a_row(rows, arguments.to.cols()), arguments)
}

pub fn norm_heads_gated(device: &Device, rows: usize, arguments: &NormHeadsArguments) -> Result<(), Error> {
    device.launch("norm", "norm_heads_gated", a_block_a_row(rows, arguments.to.cols()), arguments)
}

fn a_block_a_row(rows: usize, cols: usize) -> Launch {
    Launch { grid: (rows as u32, 1, 1), threads: 512, shared_bytes: cols * size_of::<f32>() }
}
