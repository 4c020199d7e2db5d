//! The gated delta rule: few tokens one by one, many in chunks.

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Launch};
use crate::error::Error;
use crate::lanes::LaneArguments;

const CHUNK: usize = 64;
/// T', P and G of a chunk of one head.
const OF_CHUNK: usize = 2 * CHUNK * CHUNK + CHUNK;
/// Most tokens of a lane that go one by one: for them too the state is read and written once.
pub const WORTH_CHUNKS: usize = 32;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct DeltaArguments {
    pub qkv: u64,
    pub decay: u64,
    pub beta: u64,
    pub out: u64,
    pub lanes: u64,
    pub chunks: u64,
    pub state: u64,
    pub key_heads: u32,
    pub value_heads: u32,
    pub key_dim: u32,
    pub value_dim: u32,
    pub tiled: u32,
    pub most_chunks: u32,
}

/// Values that `advance` needs for `lanes` lanes with `rows` rows together. A few lanes at a time, so that one long lane beside short
/// ones does not take room for as many long ones.
pub fn scratch(rows: usize, lanes: usize, longest: usize, value_heads: usize) -> usize {
    if longest <= WORTH_CHUNKS {
        return 0;
    }
    let chunks = longest.div_ceil(CHUNK);
    let at_once = (3 * rows.div_ceil(CHUNK) / 2 / chunks).clamp(1, lanes);
    at_once * chunks * value_heads * OF_CHUNK
}

pub fn check(key_dim: usize, value_dim: usize) -> Result<(), Error> {
    if ![32, 64, 128].contains(&key_dim) {
        return Err(Error::Shape {
            what: format!("keys of linear layers have {key_dim} values"),
            wanted: "32, 64 or 128",
        });
    }
    // Rows of them are read four numbers at a time.
    if !value_dim.is_multiple_of(4) {
        let what = format!("values of linear layers have {value_dim} numbers");
        return Err(Error::Shape { what, wanted: "a multiple of 4" });
    }
    Ok(())
}

/// Advances the state of each lane over its rows. `longest`: rows of the lane with the most; `room`: values at `arguments.chunks`, as
/// many as `scratch` says.
pub fn advance(
    device: &Device,
    lanes: usize,
    longest: usize,
    room: usize,
    arguments: DeltaArguments,
) -> Result<(), Error> {
    let (key_dim, heads) = (arguments.key_dim as usize, arguments.value_heads);
    check(key_dim, arguments.value_dim as usize)?;
    let most_chunks = longest.div_ceil(CHUNK) as u32;
    let arguments = DeltaArguments { most_chunks, ..arguments };
    let grid = (arguments.value_dim.div_ceil(32), heads, lanes as u32);
    if longest <= WORTH_CHUNKS {
        // Each token's query and key, and 32 of its values.
        let shared_bytes = longest * (2 * key_dim + 32) * size_of::<f32>();
        let launch = Launch { grid, threads: 128, shared_bytes };
        return device.launch("delta", &format!("delta_steps_{key_dim}"), launch, &arguments);
    }
    let at_once = room / (most_chunks * heads) as usize / OF_CHUNK;
    assert!(at_once > 0, "no room for what the chunks of a lane need");
    // A chunk's keys and queries. What comes of the queries takes their place: two squares, where keys are short more than they.
    let rows = CHUNK * (key_dim + 4);
    let prepare_bytes = (rows + rows.max(2 * CHUNK * (CHUNK + 1))) * size_of::<f32>();
    let scan_bytes = ((key_dim + 2 * CHUNK) * 32 + 2 * rows) * size_of::<f32>();
    for first in (0..lanes).step_by(at_once) {
        let count = at_once.min(lanes - first) as u32;
        let lanes = arguments.lanes + (first * size_of::<LaneArguments>()) as u64;
        let arguments = DeltaArguments { lanes, ..arguments };
        let prepare = Launch { grid: (most_chunks, heads, count), threads: 256, shared_bytes: prepare_bytes };
        device.launch("delta", &format!("delta_prepare_{key_dim}"), prepare, &arguments)?;
        let scan = Launch { grid: (grid.0, heads, count), threads: 256, shared_bytes: scan_bytes };
        device.launch("delta", &format!("delta_scan_{key_dim}"), scan, &arguments)?;
    }
    Ok(())
}
