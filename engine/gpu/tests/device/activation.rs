use proptest::prelude::*;
use reference::{assert_close, random};

use crate::norm::read;
use gpu::activation::*;
use gpu::buffer::Buffer;
use gpu::rows::{DeviceRows, Forms, Halves};
use testing::{cases, device_of_tests};

proptest! {
    #![proptest_config(cases(12))]
    #[test]
    fn silu_times_in_pieces_and_whole(
        count in 1usize..4,
        cols in prop_oneof![3 => 1usize..2500, 1 => Just(12288)],
        seed: u64,
    ) {
        let Some(device) = device_of_tests() else { return Ok(()) };
        let (gate, up) = (random(count * cols, seed), random(count * cols, seed + 1));
        let [gate_there, up_there] = [&gate, &up].map(|values| Buffer::of(&device, values).unwrap());
        let expected: Vec<f32> = gate.iter().zip(&up).map(|(g, u)| g * kernels::activation::sigmoid(*g) * u).collect();
        let all = Forms { values: true, integers: true, halves: Halves::Two };
        let rows = DeviceRows::new(&device, count, cols, all).unwrap();
        for forms in [Forms { halves: Halves::No, ..all }, all] {
            rows.values.fill_bytes(0xFF).unwrap();
            rows.codes.fill_bytes(0x7F).unwrap();
            silu_times(&device, count, gate_there.address(), up_there.address(), rows.arguments(forms)).unwrap();
            if forms.halves == Halves::Two {
                let [values, integers, two] = read(&rows, count);
                assert_close(&values, &expected, 1e-6);
                assert_close(&integers, &expected, 1e-2);
                assert_close(&two, &expected, 1e-6);
            } else {
                let values = rows.values.to_vec().unwrap();
                let values: Vec<f32> = values.chunks(rows.padded).flat_map(|row| row[..cols].to_vec()).collect();
                assert_close(&values, &expected, 1e-6);
            }
        }
    }
}
