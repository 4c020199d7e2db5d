//! Values for tests of kernels, and distances between results.

pub fn random(len: usize, seed: u64) -> Vec<f32> {
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

/// Returns blocks of random codes with scales that make values of about (-1, 1), for a format that no quantiser writes;
/// None for every other format.
pub fn random_codes(format: &str, bytes: usize, block_bytes: usize, seed: u64) -> Option<Vec<u8>> {
    // Places of a block's scales, and their bits.
    let scales: &[(usize, u16)] = match format {
        "q4_1" => &[(0, 0x2c00), (2, 0xb800)],
        "q2_k" => &[(80, 0x251e), (82, 0x27ae)],
        "q3_k" => &[(108, 0x1d1f)],
        "iq4_nl" => &[(0, 0x2000)],
        "iq4_xs" => &[(0, 0x0c19)],
        "mxfp4" => &[(0, 0x5a7c)],
        _ => return None,
    };
    let mut blocks: Vec<u8> = random(bytes, seed).iter().map(|code| ((code + 1.0) * 128.0) as u8).collect();
    for block in blocks.chunks_exact_mut(block_bytes) {
        scales.iter().for_each(|(at, bits)| block[*at..at + 2].copy_from_slice(&bits.to_le_bytes()));
    }
    Some(blocks)
}

/// Returns ‖a − b‖ / ‖b‖; infinity if a value is not finite.
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
