//! The gated delta rule: few tokens one by one, many in chunks.

use bytemuck::{Pod, Zeroable};

use crate::buffer::Buffer;
use crate::device::{Device, Launch};
use crate::error::Error;

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

pub fn scratch(lanes: usize, longest: usize, value_heads: usize) -> usize {
    if longest <= WORTH_CHUNKS { 0 } else { lanes * longest.div_ceil(CHUNK) * value_heads * OF_CHUNK }
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

/// Advances the state of each lane over its rows. `longest`: rows of the lane with the most; `chunks` has room for
/// `scratch` values.
pub fn advance(
    device: &Device,
    lanes: usize,
    longest: usize,
    chunks: &Buffer<f32>,
    arguments: DeltaArguments,
) -> Result<(), Error> {
    let (key_dim, heads) = (arguments.key_dim as usize, arguments.value_heads);
    check(key_dim, arguments.value_dim as usize)?;
    let most_chunks = longest.div_ceil(CHUNK) as u32;
    let arguments = DeltaArguments { chunks: chunks.address(), most_chunks, ..arguments };
    let grid = (arguments.value_dim.div_ceil(32), heads, lanes as u32);
    if longest <= WORTH_CHUNKS {
        // Each token's query and key, and 32 of its values.
        let shared_bytes = longest * (2 * key_dim + 32) * size_of::<f32>();
        let launch = Launch { grid, threads: 128, shared_bytes };
        return device.launch("delta", &format!("delta_steps_{key_dim}"), launch, &arguments);
    }
    assert!(chunks.len() >= scratch(lanes, longest, heads as usize), "no room for what chunks need");
    // A chunk's keys and queries. What comes of the queries takes their place: two squares, where keys are short more than they.
    let rows = CHUNK * (key_dim + 4);
    let prepare = Launch {
        grid: (most_chunks, heads, lanes as u32),
        threads: 256,
        shared_bytes: (rows + rows.max(2 * CHUNK * (CHUNK + 1))) * size_of::<f32>(),
    };
    device.launch("delta", &format!("delta_prepare_{key_dim}"), prepare, &arguments)?;
    let shared_bytes = ((key_dim + 2 * CHUNK) * 32 + 2 * rows) * size_of::<f32>();
    device.launch("delta", &format!("delta_scan_{key_dim}"), Launch { grid, threads: 256, shared_bytes }, &arguments)
}
