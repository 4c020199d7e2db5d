use super::super::dequantize;
use super::*;

const WRITTEN: [Format; 10] = {
    use Format::*;
    [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS]
};

fn bell(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| 0.3 * (0..12).map(|_| uniform()).sum::<f32>()).collect()
}

fn round_trip(format: Format, row: &[f32], importance: Option<&[f32]>) -> Vec<f32> {
    let mut bytes = vec![0xa5; format.row_bytes(row.len()).unwrap()];
    quantize_for_file(format, row, importance, &mut bytes);
    let mut back = vec![0.0; row.len()];
    dequantize(format, &bytes, &mut back);
    back
}

fn error(row: &[f32], back: &[f32], weights: impl Fn(usize) -> f64) -> f64 {
    let each = row.iter().zip(back).enumerate();
    each.map(|(i, (a, b))| weights(i) * f64::from(a - b).powi(2)).sum()
}

/// Recipe: `tests/data/reference/make_file_blocks.py`.
#[test]
fn blocks_are_those_of_the_ecosystems_quantiser() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/file_blocks.safetensors");
    let file = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&file).unwrap();
    let floats = |name: &str| -> Vec<f32> {
        let bytes = file.tensor(name).unwrap().data().as_chunks::<4>().0;
        bytes.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    };
    let (rows, importance) = (floats("rows"), floats("importance"));
    for format in WRITTEN {
        for (kind, importance) in [("plain", None), ("weighted", Some(&importance[..]))] {
            let name = format!("{}.{kind}", format.name().to_uppercase());
            let expected = file.tensor(&name).unwrap().data();
            let mut ours = vec![0; expected.len()];
            let row_bytes = format.row_bytes(512).unwrap();
            for (row, bytes) in rows.chunks(512).zip(ours.chunks_mut(row_bytes)) {
                quantize_for_file(format, row, importance, bytes);
            }
            let block = format.block_bytes();
            let wrong: Vec<usize> = (0..ours.len() / block)
                .filter(|i| ours[i * block..][..block] != expected[i * block..][..block])
                .collect();
            assert!(wrong.is_empty(), "{name}: blocks {wrong:?} differ");
        }
    }
}

#[test]
fn errors_are_no_larger_than_those_of_the_quick_encoders() {
    let row = bell(3, 256 * 64);
    let size = error(&row, &vec![0.0; row.len()], |_| 1.0);
    for (format, most) in WRITTEN.into_iter().zip([0.1, 0.085, 0.05, 0.042, 0.006, 0.082, 0.042, 0.0195, 0.08, 0.078]) {
        let relative = (error(&row, &round_trip(format, &row, None), |_| 1.0) / size).sqrt();
        println!("{:7} {relative:.5}", format.name());
        assert!(relative <= most && relative >= 0.7 * most, "{}: {relative}", format.name());
    }
}

#[test]
fn important_columns_lose_less() {
    let row = bell(5, 2048);
    let importance: Vec<f32> = (0..row.len()).map(|i| if i % 7 == 0 { 40.0 } else { 0.1 }).collect();
    let weight = |i: usize| f64::from(importance[i]);
    let mut seen = 0;
    for format in WRITTEN.into_iter().filter(|&format| is_weighted(format) == Some(true)) {
        let plain = error(&row, &round_trip(format, &row, None), weight);
        let weighted = error(&row, &round_trip(format, &row, Some(&importance)), weight);
        println!("{:7} {:.3}", format.name(), weighted / plain);
        assert!(weighted < 0.95 * plain, "{}: {weighted} after {plain}", format.name());
        seen += 1;
    }
    assert_eq!(seen, 9);
    assert_eq!(round_trip(Format::Q8_0, &row, Some(&importance)), round_trip(Format::Q8_0, &row, None));
}

#[test]
fn rows_of_zeros_and_of_one_value_survive() {
    for format in WRITTEN {
        for importance in [None, Some(vec![1.0; 256]), Some(vec![0.0; 256])] {
            let zeros = round_trip(format, &[0.0; 256], importance.as_deref());
            assert!(zeros.iter().all(|&x| x == 0.0), "{}", format.name());
            if importance.as_ref().is_some_and(|all| all[0] == 0.0) {
                continue;
            }
            for value in [3.0f32, -3.0] {
                let back = round_trip(format, &[value; 256], importance.as_deref());
                assert!(back.iter().all(|x| (x - value).abs() < 0.15), "{} of {value}: {}", format.name(), back[0]);
            }
        }
    }
}

#[test]
fn no_value_panics() {
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, f32::MIN_POSITIVE, -0.0, 1e30];
    let row: Vec<f32> = (0..512).map(|i| odd[(i * i + i / 9) % odd.len()]).collect();
    for format in WRITTEN {
        round_trip(format, &row, None);
        round_trip(format, &row, Some(&vec![1.0; 512]));
    }
}
