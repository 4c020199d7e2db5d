use proptest::prelude::*;
use reference::{assert_close, random};

use gpu::buffer::Buffer;
use gpu::convolution::*;
use gpu::lanes::LaneArguments;
use testing::{cases, device_of_tests, is_emulated};

proptest! {
    #![proptest_config(cases(30))]
    #[test]
    fn lanes_as_each_alone(
        counts in prop::collection::vec(1usize..80, 1..4),
        key_dim in prop::sample::select(vec![32usize, 64, 128]),
        (key_heads, more, heads) in (1usize..3, (0usize..75).prop_map(|fours| 4 * fours), 1usize..40),
        past in 1usize..5,
        seed: u64,
    ) {
        let Some(device) = device_of_tests() else { return Ok(()) };
        let keys = key_heads * key_dim;
        let (channels, rows) = (2 * keys + more, counts.iter().sum::<usize>());
        let width = channels + 2 * heads;
        let (x, taps) = (random(rows * channels, seed), random((past + 1) * channels, seed + 1));
        let memories: Vec<Vec<f32>> = (0..counts.len()).map(|i| random(past * channels, seed + 2 + i as u64)).collect();
        // A layer of another's lies before ours, and must stay.
        let before = [7.0f32; 8];
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
        let [decay, beta, a_log_neg, dt_bias] =
            [(rows, 10), (rows, 11), (1, 12), (1, 13)].map(|(of, own)| random(of * heads, seed + own));
        let [x_there, taps_there] = [&x, &taps].map(|v| Buffer::of(&device, v).unwrap());
        let gates_there = [&decay, &beta, &a_log_neg, &dt_bias].map(|v| Buffer::of(&device, v).unwrap());
        let lanes_there = Buffer::of(&device, &lanes).unwrap();
        let out = Buffer::<f32>::new(&device, x.len()).unwrap();
        convolve(&device, lanes.len(), *counts.iter().max().unwrap(), past, ConvolveArguments {
            x: x_there.address(),
            out: out.address(),
            taps: taps_there.address(),
            lanes: lanes_there.address(),
            log_rows: log_rows.address(),
            memory: 8,
            layer: width as u64,
            decay: gates_there[0].address(),
            beta: gates_there[1].address(),
            a_log_neg: gates_there[2].address(),
            dt_bias: gates_there[3].address(),
            channels: channels as u32,
            heads: heads as u32,
            keys: keys as u32,
            key_dim: key_dim as u32,
            rows_of_block: 0,
            unused: 0,
        }).unwrap();
        let ours = out.to_vec().unwrap();
        let decays: Vec<f32> = decay
            .iter()
            .enumerate()
            .map(|(i, x)| a_log_neg[i % heads] * (x + dt_bias[i % heads]).exp().ln_1p())
            .collect();
        let betas: Vec<f32> = beta.iter().map(|x| kernels::activation::sigmoid(*x)).collect();
        let gates = [&gates_there[0], &gates_there[1]].map(|buffer| buffer.to_vec().unwrap());
        assert_close(&gates[0], &decays, 1e-6);
        assert_close(&gates[1], &betas, 1e-6);
        for (i, lane) in lanes.iter().enumerate() {
            let range = lane.first as usize * channels..(lane.first + lane.count) as usize * channels;
            let mut expected =
                reference::convolution(&x[range.clone()], channels, &taps, &memories[i]);
            for row in expected.chunks_mut(channels) {
                let scale = 1.0 / (key_dim as f32).sqrt();
                let q = reference::l2_norm(&row[..keys], key_dim, 1e-6, scale);
                let k = reference::l2_norm(&row[keys..2 * keys], key_dim, 1e-6, 1.0);
                row[..2 * keys].copy_from_slice(&[q, k].concat());
            }
            assert_close(&ours[range.clone()], &expected, 1e-5);
            let all = [&memories[i][..], &x[range.clone()]].concat();
            let kept = convs[i].to_vec().unwrap();
            assert_eq!(&kept[..8], &before[..]);
            assert_eq!(&kept[8..], &all[all.len() - past * channels..]);
            for row in lane.first as usize..(lane.first + lane.count) as usize {
                let Some(kept) = &rows_kept[row] else { continue };
                let kept = kept.to_vec().unwrap();
                assert_eq!(&kept[width..][..channels], &x[row * channels..][..channels]);
                for (number, gates) in gates.iter().enumerate() {
                    let from = width + channels + number * heads;
                    assert_eq!(&kept[from..][..heads], &gates[row * heads..][..heads]);
                }
                assert!(kept[..width].iter().all(|value| value.is_nan() || !is_emulated(&device)));
            }
        }
    }
}
