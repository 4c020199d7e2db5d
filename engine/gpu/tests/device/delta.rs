use kernels::delta::DeltaHeads;
use proptest::prelude::*;
use reference::{DeltaShape, assert_close, l2_norm, random};

use gpu::buffer::Buffer;
use gpu::delta::*;
use gpu::lanes::LaneArguments;
use testing::{cases, device_of_tests};

proptest! {
    #![proptest_config(cases(16))]
    #[test]
    fn steps_and_chunks_are_the_reference(
        counts in prop::collection::vec(prop_oneof![1usize..40, 60usize..200], 1..4),
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
        let chunks = Buffer::<f32>::new(&device, scratch(rows, lanes.len(), longest, heads.value_heads)).unwrap();
        advance(&device, lanes.len(), longest, chunks.len(), DeltaArguments {
            qkv: qkv_there.address(),
            decay: decay_there.address(),
            beta: beta_there.address(),
            out: out.address(),
            lanes: lanes_there.address(),
            chunks: chunks.address(),
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
            let shape = DeltaShape { key_heads, value_heads: heads.value_heads, key_dim, value_dim, tiled };
            let expected = reference::delta(shape, &qkv, &decay, &beta, &mut state);
            // Chunks go by tensor cores, whose sums a H200 cuts where f32 rounds: 1.6e-5 was the most in 64 problems.
            let most = if longest > WORTH_CHUNKS { 4e-5 } else { 1e-5 };
            assert_close(&ours[first * heads.values()..last * heads.values()], &expected, most);
            let kept = there[i].to_vec().unwrap();
            assert_eq!(&kept[..4], &before[..]);
            assert_close(&kept[4..], &state, most);
        }
    }
}
