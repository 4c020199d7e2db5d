//! Convolution with its memory, norms of queries and keys, gates.

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch};
use crate::error::Error;

/// Rows that a block goes through where lanes have many.
const ROWS_OF_BLOCK: usize = 32;

/// `Convolve` in `convolution.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct ConvolveArguments {
    pub x: u64,
    pub out: u64,
    pub taps: u64,
    pub lanes: u64,
    /// Addresses, one for each row; 0: no recurrence log is kept.
    pub log_rows: u64,
    pub memory: u64,
    pub layer: u64,
    pub channels: u32,
    pub past: u32,
    pub keys: u32,
    pub key_dim: u32,
    pub rows_of_block: u32,
    pub unused: u32,
}

/// `Gates` in `convolution.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct GatesArguments {
    pub decay: u64,
    pub beta: u64,
    pub a_log_neg: u64,
    pub dt_bias: u64,
    pub log_rows: u64,
    pub layer: u64,
    pub rows: u32,
    pub heads: u32,
    pub channels: u32,
    pub unused: u32,
}

/// `ReadLog` in `convolution.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct ReadLogArguments {
    pub log_rows: u64,
    pub x: u64,
    pub decay: u64,
    pub beta: u64,
    pub layer: u64,
    pub channels: u32,
    pub heads: u32,
}

/// Copies rows of the recurrence log for some tokens of a layer.
pub fn read_log(device: &Device, rows: usize, arguments: &ReadLogArguments) -> Result<(), Error> {
    let launch = Launch { grid: (rows as u32, 1, 1), threads: 256, shared_bytes: 0 };
    device.launch("convolution", "read_log", launch, arguments)
}

/// Convolves all lanes; `longest` is the rows of the largest lane. Sets `rows_of_block` itself.
pub fn convolve(device: &Device, lanes: usize, longest: usize, arguments: ConvolveArguments) -> Result<(), Error> {
    let rows_of_block = if longest <= ROWS_OF_BLOCK { longest + 1 } else { ROWS_OF_BLOCK };
    let arguments = ConvolveArguments { rows_of_block: rows_of_block as u32, ..arguments };
    let across = (arguments.channels as usize).div_ceil(256) as u32;
    let grid = (across, lanes as u32, longest.div_ceil(rows_of_block) as u32);
    device.launch("convolution", "convolve", Launch { grid, threads: 256, shared_bytes: 0 }, &arguments)?;
    if longest < rows_of_block {
        return Ok(());
    }
    let grid = (across, lanes as u32, 1);
    device.launch("convolution", "replace_inputs", Launch { grid, threads: 256, shared_bytes: 0 }, &arguments)
}

pub fn gates(device: &Device, arguments: &GatesArguments) -> Result<(), Error> {
    let grid = ((arguments.rows * arguments.heads).div_ceil(256), 1, 1);
    device.launch("convolution", "gates", Launch { grid, threads: 256, shared_bytes: 0 }, arguments)
}
