//! Convolution with its memory, norms of queries and keys, gates.

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch};
use crate::error::Error;

const MOST_PAST: usize = 4;
const THREADS: u32 = 64;
const CHANNELS: u32 = 4;
const GATES: u32 = 4;

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
    /// Address of the projections that become gates; 0: gates are there already.
    pub decay: u64,
    pub beta: u64,
    pub a_log_neg: u64,
    pub dt_bias: u64,
    pub channels: u32,
    pub heads: u32,
    pub keys: u32,
    pub key_dim: u32,
    pub rows_of_block: u32,
    pub unused: u32,
}

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

pub fn read_log(device: &Device, rows: usize, arguments: &ReadLogArguments) -> Result<(), Error> {
    let launch = Launch { grid: (rows as u32, 1, 1), threads: 256, shared_bytes: 0 };
    device.launch("convolution", "read_log", launch, arguments)
}

pub fn check(past: usize, channels: usize) -> Result<(), Error> {
    if !(1..=MOST_PAST).contains(&past) {
        return Err(Error::Shape { what: format!("convolutions look back at {past} inputs"), wanted: "1 to 4" });
    }
    if !channels.is_multiple_of(CHANNELS as usize) {
        let what = format!("convolutions have {channels} channels");
        return Err(Error::Shape { what, wanted: "a multiple of 4" });
    }
    Ok(())
}

/// Convolves all lanes with taps for `past` inputs and the row itself, and makes the gates of their rows; `longest` is the
/// rows of the largest lane. Sets `rows_of_block` itself.
pub fn convolve(
    device: &Device,
    lanes: usize,
    longest: usize,
    past: usize,
    arguments: ConvolveArguments,
) -> Result<(), Error> {
    check(past, arguments.channels as usize)?;
    // Few rows are spread over more blocks.
    let rows_of_block: u32 = if longest <= 64 { 8 } else { 32 };
    let arguments = ConvolveArguments { rows_of_block, ..arguments };
    let rows = rows_of_block.min(longest as u32);
    let of_gates = if arguments.decay == 0 { 0 } else { (rows * arguments.heads).div_ceil(THREADS * GATES) };
    let across = arguments.channels.div_ceil(THREADS * CHANNELS) + of_gates;
    let grid = (across, lanes as u32, (longest as u32).div_ceil(rows_of_block));
    device.launch(
        "convolution",
        &format!("convolve_{past}"),
        Launch { grid, threads: THREADS, shared_bytes: 0 },
        &arguments,
    )
}
