use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch};
use crate::error::Error;
use crate::rows::RowsArguments;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SiluTimes {
    gate: u64,
    up: u64,
    to: RowsArguments,
    columns: u32,
    unused: u32,
}

/// Columns of a block where a row may be cut: a few rows alone would leave most of the device idle.
const COLUMNS: usize = 1024;

pub fn silu_times(device: &Device, rows: usize, gate: u64, up: u64, to: RowsArguments) -> Result<(), Error> {
    let columns = if to.has_halves() { to.padded() } else { COLUMNS.min(to.padded()) };
    let grid = (rows as u32, to.padded().div_ceil(columns) as u32, 1);
    let shared_bytes = if to.has_halves() { columns * size_of::<f32>() } else { 0 };
    let launch = Launch { grid, threads: 256, shared_bytes };
    device.launch("activation", "silu_times", launch, &SiluTimes { gate, up, to, columns: columns as u32, unused: 0 })
}
