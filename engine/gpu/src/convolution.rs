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

/// What was put aside for some tokens of a layer.
pub fn read_log(device: &Device, rows: usize, arguments: &ReadLogArguments) -> Result<(), Error> {
    let launch = Launch { grid: (rows as u32, 1, 1), threads: 256, shared_bytes: 0 };
    device.launch("convolution", "read_log", launch, arguments)
}

/// `longest`: rows of the lane with the most. Sets `rows_of_block` itself.
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

#[cfg(test)]
mod tests {
    use crate::values::{assert_close, random};
    use proptest::prelude::*;

    use super::*;
    use crate::buffer::Buffer;
    use crate::lanes::LaneArguments;
    use crate::testing::{cases, device_of_tests};

    proptest! {
        #![proptest_config(cases(30))]
        #[test]
        fn lanes_as_each_alone(
            counts in prop::collection::vec(1usize..80, 1..4),
            key_dim in prop::sample::select(vec![32usize, 64, 128]),
            (key_heads, more) in (1usize..3, 0usize..300),
            past in 1usize..5,
            seed: u64,
        ) {
            let Some(device) = device_of_tests() else { return Ok(()) };
            let keys = key_heads * key_dim;
            let (channels, rows) = (2 * keys + more, counts.iter().sum::<usize>());
            let width = channels + 2;
            let (x, taps) = (random(rows * channels, seed), random((past + 1) * channels, seed + 1));
            let memories: Vec<Vec<f32>> = (0..counts.len()).map(|i| random(past * channels, seed + 2 + i as u64)).collect();
            // A layer of another's lies before ours, and must stay.
            let before = [7.0f32; 5];
            let convs: Vec<Buffer<f32>> =
                memories.iter().map(|m| Buffer::of(&device, &[&before[..], m].concat()).unwrap()).collect();
            // Of each lane the last rows are kept, those of this layer behind those of another one, in pieces.
            let rows_kept: Vec<Option<Buffer<f32>>> = counts.iter().flat_map(|count| {
                (0..*count).map(|own| (own + 8 >= *count).then(|| Buffer::new(&device, 2 * width).unwrap()))
            }).collect();
            let log_rows: Vec<u64> = rows_kept.iter().map(|row| row.as_ref().map_or(0, Buffer::address)).collect();
            let log_rows = Buffer::of(&device, &log_rows).unwrap();
            let mut first = 0;
            let lanes: Vec<LaneArguments> = counts.iter().zip(&convs).map(|(count, conv)| {
                let lane = LaneArguments {
                    conv: conv.address(),
                    first,
                    count: *count as u32,
                    position: 3,
                    ..LaneArguments::default()
                };
                first += *count as u32;
                lane
            }).collect();
            let [x_there, taps_there] = [&x, &taps].map(|v| Buffer::of(&device, v).unwrap());
            let lanes_there = Buffer::of(&device, &lanes).unwrap();
            let out = Buffer::<f32>::new(&device, x.len()).unwrap();
            convolve(&device, lanes.len(), *counts.iter().max().unwrap(), ConvolveArguments {
                x: x_there.address(),
                out: out.address(),
                taps: taps_there.address(),
                lanes: lanes_there.address(),
                log_rows: log_rows.address(),
                memory: 5,
                layer: width as u64,
                channels: channels as u32,
                past: past as u32,
                keys: keys as u32,
                key_dim: key_dim as u32,
                rows_of_block: 0,
                unused: 0,
            }).unwrap();
            let ours = out.to_vec().unwrap();
            for (i, lane) in lanes.iter().enumerate() {
                let range = lane.first as usize * channels..(lane.first + lane.count) as usize * channels;
                let mut expected =
                    crate::reference::convolution(&x[range.clone()], channels, &taps, &memories[i]);
                for row in expected.chunks_mut(channels) {
                    let scale = 1.0 / (key_dim as f32).sqrt();
                    let q = crate::reference::l2_norm(&row[..keys], key_dim, 1e-6, scale);
                    let k = crate::reference::l2_norm(&row[keys..2 * keys], key_dim, 1e-6, 1.0);
                    row[..2 * keys].copy_from_slice(&[q, k].concat());
                }
                assert_close(&ours[range.clone()], &expected, 1e-5);
                let all = [&memories[i][..], &x[range.clone()]].concat();
                let kept = convs[i].to_vec().unwrap();
                assert_eq!(&kept[..5], &before[..]);
                assert_eq!(&kept[5..], &all[all.len() - past * channels..]);
                for row in lane.first as usize..(lane.first + lane.count) as usize {
                    let Some(kept) = &rows_kept[row] else { continue };
                    let kept = kept.to_vec().unwrap();
                    assert_eq!(&kept[width..][..channels], &x[row * channels..][..channels]);
                    assert!(kept[..width].iter().all(|value| value.is_nan() || !device.is_emulated()));
                }
            }
        }
    }
}
