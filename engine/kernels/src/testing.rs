//! What the kernels' tests share.

/// Values in (-1, 1), the same for the same seed.
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
