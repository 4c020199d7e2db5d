//! Values for tests of kernels, and the distance of results. Tests of several crates take this file in.

use kernels::format::{Format, quantize};

pub fn random(len: usize, seed: u64) -> Vec<f32> {
    // values in (-1, 1), the same for the same seed
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// Whole blocks of values in (-1, 1) or little beyond. Formats without an encoder get random codes with scales of that
/// size.
pub fn random_blocks(format: Format, values: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; format.row_bytes(values).expect("whole blocks")];
    // Where the scales of a block lie, and their bits.
    let scales: &[(usize, u16)] = match format {
        Format::Q4_1 => &[(0, 0x2c00), (2, 0xb800)],
        Format::Q2_K => &[(80, 0x251e), (82, 0x27ae)],
        Format::Q3_K => &[(108, 0x1d1f)],
        Format::IQ4_NL => &[(0, 0x2000)],
        Format::IQ4_XS => &[(0, 0x0c19)],
        Format::MXFP4 => &[(0, 0x5a7c)],
        _ => {
            quantize(format, &random(values, seed), &mut bytes);
            return bytes;
        }
    };
    let codes = random(bytes.len(), seed);
    bytes.iter_mut().zip(codes).for_each(|(byte, code)| *byte = ((code + 1.0) * 128.0) as u8);
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        scales.iter().for_each(|(at, bits)| block[*at..at + 2].copy_from_slice(&bits.to_le_bytes()));
    }
    bytes
}

/// ‖a − b‖ / ‖b‖; a value that is not finite is infinitely far.
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    if a.iter().chain(b).any(|x| !x.is_finite()) {
        return f64::INFINITY;
    }
    let square = |x: f64| x * x;
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
    if difference == 0.0 { 0.0 } else { (difference / size.max(1e-30)).sqrt() }
}

#[track_caller]
pub fn assert_close(a: &[f32], b: &[f32], tolerance: f64) {
    let distance = distance(a, b);
    assert!(distance <= tolerance, "distance {distance:e} is over {tolerance:e}");
}
