//! States at places to come back to: packed into blocks of a format, and back.

use bytemuck::{Pod, Zeroable};
use kernels::format::Format;

use crate::device::{Device, Launch};
use crate::error::Error;
use crate::matrix::DeviceFormat;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Pack {
    from: u64,
    to: u64,
    groups: u64,
    kind: u32,
    unused: u32,
}

const GROUP: usize = 32;
const GROUPS_OF_BLOCK: usize = 64;

pub fn pack(device: &Device, format: Format, values: usize, from: u64, to: u64) -> Result<(), Error> {
    start(device, "pack_state", format, values, from, to)
}

pub fn unpack(device: &Device, format: Format, values: usize, from: u64, to: u64) -> Result<(), Error> {
    start(device, "unpack_state", format, values, from, to)
}

pub fn copy(device: &Device, values: usize, from: u64, to: u64) -> Result<(), Error> {
    // SAFETY: the engine gives addresses of states, which have so many values.
    unsafe { device.copy_within(to, from, values * size_of::<f32>()) }
}

fn start(device: &Device, kernel: &str, format: Format, values: usize, from: u64, to: u64) -> Result<(), Error> {
    let refused = |what: String| Err(Error::Shape { what, wanted: "whole groups of 32 as f32, bf16 or q8_0" });
    if ![Format::F32, Format::BF16, Format::Q8_0].contains(&format) {
        return refused(format!("states as {}", format.name()));
    }
    if !values.is_multiple_of(GROUP) {
        return refused(format!("a state of {values} values"));
    }
    let groups = values / GROUP;
    let arguments = Pack { from, to, groups: groups as u64, kind: DeviceFormat::of(format) as u32, unused: 0 };
    let grid = (groups.div_ceil(GROUPS_OF_BLOCK) as u32, 1, 1);
    device.launch("snapshot", kernel, Launch { grid, threads: 256, shared_bytes: 0 }, &arguments)
}
