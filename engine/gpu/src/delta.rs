//! The gated delta rule: few tokens one by one, many in chunks.

use bytemuck::{Pod, Zeroable};

use crate::buffer::Buffer;
use crate::device::{Device, Launch};
use crate::error::Error;

const CHUNK: usize = 64;
/// T', P and G of a chunk of one head.
const OF_CHUNK: usize = 2 * CHUNK * CHUNK + CHUNK;
/// Up to so many tokens of a lane go one by one: for them the state is read and written once as well.
pub const WORTH_CHUNKS: usize = 32;

/// `Delta` in `delta.cu`.
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

/// Values that `chunks` needs room for.
pub fn scratch(lanes: usize, longest: usize, value_heads: usize) -> usize {
    if longest <= WORTH_CHUNKS { 0 } else { lanes * longest.div_ceil(CHUNK) * value_heads * OF_CHUNK }
}

/// Whether there are kernels for heads of this size.
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
        let launch = Launch { grid, threads: 128, shared_bytes: 0 };
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

#[cfg(test)]
mod tests {
    use crate::values::{assert_close, random};
    use kernels::delta::{DeltaHeads, DeltaRows};
    use proptest::prelude::*;

    use super::*;
    use crate::lanes::LaneArguments;
    use crate::reference::{self, l2_norm};
    use crate::testing::{cases, device_of_tests};

    proptest! {
        #![proptest_config(cases(16))]
        #[test]
        fn steps_and_chunks_are_the_reference(
            counts in prop::collection::vec(prop_oneof![1usize..40, 60usize..200], 1..3),
            key_dim in prop::sample::select(vec![32usize, 64, 128]),
            value_dim in prop::sample::select(vec![32usize, 36, 64, 128]),
            (key_heads, values_a_key) in (1usize..3, 1usize..4),
            tiled: bool,
            seed: u64,
        ) {
            let Some(device) = device_of_tests() else { return Ok(()) };
            let heads = DeltaHeads { key_heads, value_heads: key_heads * values_a_key, key_dim, value_dim, tiled };
            let rows = counts.iter().sum::<usize>();
            let mut qkv = random(rows * heads.channels(), seed);
            for row in qkv.chunks_exact_mut(heads.channels()) {
                let unit = l2_norm(&row[..2 * heads.keys()], key_dim, 1e-6, 1.0);
                row[..2 * heads.keys()].copy_from_slice(&unit);
            }
            let many = rows * heads.value_heads;
            let decay: Vec<f32> = random(many, seed + 1).iter().map(|x| -1.5 * (x + 1.0).powi(3)).collect();
            let beta: Vec<f32> = random(many, seed + 2).iter().map(|x| (x + 1.0) / 2.0).collect();
            let states: Vec<Vec<f32>> = (0..counts.len()).map(|i| random(heads.state(), seed + 3 + i as u64)).collect();
            let before = [7.0f32; 4];
            let there: Vec<Buffer<f32>> =
                states.iter().map(|s| Buffer::of(&device, &[&before[..], s].concat()).unwrap()).collect();
            let mut first = 0;
            let lanes: Vec<LaneArguments> = counts.iter().zip(&there).map(|(count, state)| {
                let lane = LaneArguments { recurrent: state.address(), first, count: *count as u32, ..LaneArguments::default() };
                first += *count as u32;
                lane
            }).collect();
            let lanes_there = Buffer::of(&device, &lanes).unwrap();
            let [qkv_there, decay_there, beta_there] = [&qkv, &decay, &beta].map(|v| Buffer::of(&device, v).unwrap());
            let out = Buffer::<f32>::new(&device, rows * heads.values()).unwrap();
            let longest = *counts.iter().max().unwrap();
            let chunks = Buffer::<f32>::new(&device, scratch(lanes.len(), longest, heads.value_heads)).unwrap();
            advance(&device, lanes.len(), longest, &chunks, DeltaArguments {
                qkv: qkv_there.address(),
                decay: decay_there.address(),
                beta: beta_there.address(),
                out: out.address(),
                lanes: lanes_there.address(),
                chunks: 0,
                state: 4,
                key_heads: key_heads as u32,
                value_heads: heads.value_heads as u32,
                key_dim: key_dim as u32,
                value_dim: heads.value_dim as u32,
                tiled: tiled.into(),
                most_chunks: 0,
            }).unwrap();
            let ours = out.to_vec().unwrap();
            for (i, lane) in lanes.iter().enumerate() {
                let (first, last) = (lane.first as usize, (lane.first + lane.count) as usize);
                let mut state = states[i].clone();
                let of = |values: &'_ [f32], width: usize| values[first * width..last * width].to_vec();
                let (qkv, decay, beta) =
                    (of(&qkv, heads.channels()), of(&decay, heads.value_heads), of(&beta, heads.value_heads));
                let expected = reference::delta(heads, DeltaRows { qkv: &qkv, decay: &decay, beta: &beta, drafts: 0 }, &mut state);
                assert_close(&ours[first * heads.values()..last * heads.values()], &expected, 1e-5);
                let kept = there[i].to_vec().unwrap();
                assert_eq!(&kept[..4], &before[..]);
                assert_close(&kept[4..], &state, 1e-5);
            }
        }
    }
}
