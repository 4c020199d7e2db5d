use super::*;
use proptest::prelude::*;

/// Eight rows of 512 values in each format, with the values that the ecosystem's own package gives them.
/// Recipe: `tests/data/reference/make_blocks.py`.
fn reference() -> Vec<(Format, Vec<u8>, Vec<f32>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/blocks.safetensors");
    let file = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&file).unwrap();
    let mut found = Vec::new();
    for &format in Format::ALL {
        let name = format.name().to_uppercase();
        if let Ok(bytes) = file.tensor(&format!("{name}.bytes")) {
            let values = file.tensor(&format!("{name}.values")).unwrap();
            let values = values.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
            found.push((format, bytes.data().to_vec(), values));
        }
    }
    found
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn values_are_the_reference_bit_by_bit() {
    let reference = reference();
    assert_eq!(reference.len(), Format::ALL.len() - 1, "every format but f32 is in the reference");
    for (format, bytes, expected) in reference {
        assert_eq!(format.row_bytes(512).unwrap() * 8, bytes.len(), "{}", format.name());
        let mut values = vec![0.0; expected.len()];
        dequantize(format, &bytes, &mut values);
        assert!(bits(&values) == bits(&expected), "{} differs from the reference", format.name());
    }
}

#[test]
fn integers_stand_for_the_same_values() {
    for (format, bytes, expected) in reference() {
        if !format.is_quantised() {
            continue;
        }
        let step = format.row_bytes(256).unwrap();
        let mut ints = Ints::default();
        let mut values = [0.0; 256];
        for (bytes, expected) in bytes.chunks(step).zip(expected.chunks(256)) {
            unpack(format, bytes, &mut ints);
            ints.to_values(&mut values);
            assert_eq!(bits(&values), bits(expected), "{}", format.name());
        }
    }
}

#[test]
fn the_table_is_in_the_order_of_the_enum() {
    for (i, &format) in Format::ALL.iter().enumerate() {
        assert_eq!(TABLE[i].0, format);
        assert_eq!(format as usize, i);
        assert_eq!(Format::from_name(format.name()), Some(format));
        assert_eq!(Format::from_name(&format.name().to_uppercase()), Some(format));
        assert_eq!(Format::from_gguf(format.to_gguf()), Some(format));
    }
    for (i, format) in [Format::TQ4, Format::TQ3].into_iter().enumerate() {
        assert_eq!((TABLE[Format::ALL.len() + i].0, format as usize), (format, Format::ALL.len() + i));
        let number = format.to_gguf();
        assert_eq!((Format::from_number(number), Format::from_gguf(number)), (Some(format), None));
        assert_eq!(Format::from_name(format.name()), None, "no file of a model has it");
    }
    assert_eq!(TABLE.len(), Format::ALL.len() + 2);
    assert_eq!(Format::from_gguf(9), None);
    assert_eq!(Format::from_name("q9_k"), None);
}

#[test]
fn row_bytes_refuses_what_does_not_fit() {
    assert_eq!(Format::Q4_K.row_bytes(512), Some(288));
    assert_eq!(Format::Q4_K.row_bytes(511), None);
    assert_eq!(Format::Q4_K.row_bytes(32), None);
    assert_eq!(Format::Q8_0.row_bytes(0), Some(0));
    assert_eq!(Format::F32.row_bytes(usize::MAX / 2), None);
}

#[test]
#[should_panic(expected = "256 values of q4_k are not 143 bytes")]
fn wrong_sizes_are_told() {
    dequantize(Format::Q4_K, &[0; 143], &mut [0.0; 256]);
}

const WRITTEN: [Format; 10] = {
    use Format::*;
    [F32, F16, BF16, Q4_0, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K]
};

/// Relative error (of norms) allowed for bell-shaped values: about a tenth over the error measured when the encoders
/// were written, so that a worse search shows.
fn allowed_error(format: Format) -> f64 {
    match format {
        Format::F32 => 0.0,
        Format::F16 => 2.4e-4,
        Format::BF16 => 1.8e-3,
        Format::Q8_0 => 0.0057,
        Format::Q6_K => 0.0185,
        Format::Q5_K => 0.039,
        Format::Q5_1 => 0.037,
        Format::Q5_0 => 0.043,
        Format::Q4_K => 0.077,
        Format::Q4_0 => 0.087,
        _ => panic!("{} has no encoder", format.name()),
    }
}

fn round_trip(format: Format, values: &[f32]) -> Vec<f32> {
    let mut bytes = vec![0xa5; format.row_bytes(values.len()).unwrap()];
    quantize(format, values, &mut bytes);
    let mut back = vec![0.0; values.len()];
    dequantize(format, &bytes, &mut back);
    back
}

fn relative_error(values: &[f32], back: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 = values.iter().zip(back).map(|(&a, &b)| square(f64::from(a) - f64::from(b))).sum();
    let size: f64 = values.iter().map(|&a| square(f64::from(a))).sum();
    (error / size).sqrt()
}

fn bell(seed: u64, count: usize, size: f32) -> Vec<f32> {
    let mut state = seed | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| size * (0..12).map(|_| uniform()).sum::<f32>()).collect()
}

#[test]
fn encoders_are_as_close_as_their_bits_allow() {
    let values = bell(7, 256 * 400, 0.3);
    for format in WRITTEN {
        let error = relative_error(&values, &round_trip(format, &values));
        println!("{:7} {error:.5}", format.name());
        assert!(error <= allowed_error(format), "{}: error {error}", format.name());
        assert!(error >= 0.8 * allowed_error(format), "{}: error {error}, the bound is slack", format.name());
    }
}

proptest! {
    #[test]
    fn any_size_of_value_round_trips(seed: u64, exponent in -8f32..3.0) {
        let values = bell(seed, 512, 10f32.powf(exponent));
        for format in WRITTEN {
            // Scales are halves: below the normal range of halves they lose precision.
            if exponent < -2.0 && format.is_quantised() {
                continue;
            }
            if exponent < -4.0 && format == Format::F16 {
                continue;
            }
            let error = relative_error(&values, &round_trip(format, &values));
            prop_assert!(error <= 1.4 * allowed_error(format), "{}: error {error}", format.name());
        }
    }

    #[test]
    fn encoded_values_encode_to_nearly_themselves(seed: u64) {
        let values = bell(seed, 512, 0.1);
        for format in WRITTEN {
            let once = round_trip(format, &values);
            let twice = round_trip(format, &once);
            let error = relative_error(&once, &twice);
            prop_assert!(error <= 0.6 * allowed_error(format), "{}: error {error}", format.name());
        }
    }

    #[test]
    fn constant_and_sparse_rows_survive(value in -100f32..100.0, place in 0usize..256) {
        let mut sparse = [0.0f32; 256];
        sparse[place] = value;
        for format in WRITTEN {
            prop_assert!(round_trip(format, &[0.0; 256]).iter().all(|&v| v == 0.0), "{}", format.name());
            for back in round_trip(format, &[value; 256]) {
                prop_assert!((back - value).abs() <= 0.26 * value.abs() + 1e-4, "{}: {value} {back}", format.name());
            }
            for (i, &back) in round_trip(format, &sparse).iter().enumerate() {
                let expected = sparse[i];
                prop_assert!((back - expected).abs() <= 0.26 * value.abs() + 1e-4, "{}: {i} {expected} {back}", format.name());
            }
        }
    }

    #[test]
    fn no_value_and_no_byte_panics(floats in prop::collection::vec(any::<u32>(), 256), bytes in prop::collection::vec(any::<u8>(), 1024)) {
        let values: Vec<f32> = floats.into_iter().map(f32::from_bits).collect();
        for &format in Format::ALL {
            let mut out = vec![0; format.row_bytes(256).unwrap()];
            if WRITTEN.contains(&format) {
                quantize(format, &values, &mut out);
            }
            let mut back = [0.0; 256];
            dequantize(format, &bytes[..out.len()], &mut back);
            if format.is_quantised() {
                let mut ints = Ints::default();
                unpack(format, &bytes[..out.len()], &mut ints);
            }
        }
    }
}
