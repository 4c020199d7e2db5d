use proptest::prelude::*;
use reference::{assert_close, random};

use gpu::buffer::Buffer;
use gpu::norm::*;
use gpu::rows::{DeviceRows, Forms, GROUP, Halves};
use testing::{cases, device_of_tests};

const ALL: Forms = Forms { values: true, integers: true, halves: Halves::Two };

pub fn read(rows: &DeviceRows, count: usize) -> [Vec<f32>; 3] {
    let (codes, scales, sums) =
        (rows.codes.to_vec().unwrap(), rows.scales.to_vec().unwrap(), rows.sums.to_vec().unwrap());
    let (high, low) = (rows.high.to_vec().unwrap(), rows.low.to_vec().unwrap());
    let values = rows.values.to_vec().unwrap();
    let row_scales = rows.row_scales.to_vec().unwrap();
    let half = |bits: u16| half::f16::from_bits(bits).to_f32();
    for (group, sum) in sums[..count * rows.padded / GROUP].iter().enumerate() {
        let total: i32 = codes[group * GROUP..][..GROUP].iter().map(|code| i32::from(*code)).sum();
        assert_eq!(*sum, total as f32 * scales[group]);
    }
    let place = |i: usize| i / rows.cols * rows.padded + i % rows.cols;
    for i in (0..count * rows.padded).filter(|i| i % rows.padded >= rows.cols) {
        assert_eq!(
            (values[i], codes[i], half(high[i]), half(low[i])),
            (0.0, 0, 0.0, 0.0),
            "what is behind a row is no zero"
        );
    }
    let places = || (0..count * rows.cols).map(place);
    // A row's scale is a power of two, so nothing but the rounding to a half is lost, and that is the nearest one.
    for i in places() {
        let nearest = half::f16::from_f32(values[i] / row_scales[i / rows.padded]);
        assert_eq!(high[i], nearest.to_bits(), "{} as a half of scale {}", values[i], row_scales[i / rows.padded]);
    }
    [
        places().map(|i| values[i]).collect(),
        places().map(|i| f32::from(codes[i]) * scales[i / GROUP]).collect(),
        places().map(|i| (half(high[i]) + half(low[i])) * row_scales[i / rows.padded]).collect(),
    ]
}

proptest! {
    #![proptest_config(cases(24))]
    #[test]
    fn rows_in_every_form(count in 1usize..5, cols in 1usize..700, seed: u64, loud in -20i32..20, chosen: bool) {
        let Some(device) = device_of_tests() else { return Ok(()) };
        let x: Vec<f32> = random(count * cols, seed).iter().map(|x| x * 2.0f32.powi(loud)).collect();
        let weight = random(cols, seed + 1);
        let rows = DeviceRows::new(&device, count, cols, ALL).unwrap();
        let (on_device, weights) = (Buffer::of(&device, &x).unwrap(), Buffer::of(&device, &weight).unwrap());
        let order: Vec<u32> = (0..count as u32).rev().collect();
        let chosen_rows = Buffer::of(&device, &order).unwrap();
        let arguments = NormRowsArguments {
            x: on_device.address(),
            weight: weights.address(),
            chosen: if chosen { chosen_rows.address() } else { 0 },
            to: rows.arguments(ALL),
            eps: 1e-6,
            unused: 0,
        };
        norm_rows(&device, count, &arguments).unwrap();
        let mut expected = reference::rms_norm(&x, &weight, 1e-6);
        if chosen {
            expected = expected.chunks(cols).rev().flatten().copied().collect();
        }
        let [values, integers, two] = read(&rows, count);
        assert_close(&values, &expected, 1e-6);
        assert_close(&integers, &expected, 1e-2);
        assert_close(&two, &expected, 1e-6);
    }

    #[test]
    fn heads_with_gates(
        count in 1usize..4,
        heads in 1usize..10,
        dim in prop_oneof![1usize..140, prop::sample::select(vec![16usize, 32, 48, 64, 128, 256])],
        seed: u64,
    ) {
        let Some(device) = device_of_tests() else { return Ok(()) };
        let cols = heads * dim;
        let (x, gate) = (random(count * cols, seed), random(count * cols, seed + 1));
        let weight = random(dim, seed + 2);
        let rows = DeviceRows::new(&device, count, cols, ALL).unwrap();
        let [x_there, gate_there, weight_there] = [&x, &gate, &weight].map(|v| Buffer::of(&device, v).unwrap());
        let expected: Vec<f32> = reference::rms_norm(&x, &weight, 1e-6)
            .iter()
            .zip(&gate)
            .map(|(x, gate)| x * (gate * kernels::activation::sigmoid(*gate)))
            .collect();
        // Without halves a row may be cut. Codes and padding of the second time are those of the first one.
        for forms in [ALL, Forms { halves: Halves::No, ..ALL }] {
            rows.values.fill_bytes(0xFF).unwrap();
            rows.codes.fill_bytes(0x7F).unwrap();
            let arguments = NormHeadsArguments {
                x: x_there.address(),
                weight: weight_there.address(),
                gate: gate_there.address(),
                to: rows.arguments(forms),
                dim: dim as u32,
                eps: 1e-6,
                heads_of_block: 0,
                in_fours: 0,
            };
            norm_heads_gated(&device, count, arguments).unwrap();
            let [values, integers, _] = read(&rows, count);
            assert_close(&values, &expected, 1e-5);
            assert_close(&integers, &expected, 1e-2);
        }
    }
}
