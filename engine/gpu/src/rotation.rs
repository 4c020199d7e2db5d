//! Cosines and sines of the rows of a step.

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch};
use crate::error::Error;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct TurnsArguments {
    /// f64, angle per position.
    pub frequencies: u64,
    pub lanes: u64,
    pub lane_of_row: u64,
    pub out: u64,
    pub pairs: u32,
    pub magnitude: f32,
}

pub fn turns(device: &Device, rows: usize, arguments: &TurnsArguments) -> Result<(), Error> {
    let launch = Launch { grid: (rows as u32, 1, 1), threads: 128, shared_bytes: 0 };
    device.launch("rotation", "turns", launch, arguments)
}
