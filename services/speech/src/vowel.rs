//! A sound that a detector takes for a voice, for measurements and tests.

use std::f32::consts::PI;

// Hertz and width of the formants of an open vowel.
const FORMANTS: [(f32, f32); 3] = [(730.0, 90.0), (1090.0, 110.0), (2440.0, 170.0)];

/// Makes a buzz with the formants of an open vowel.
pub fn vowel(rate: u32, ms: u64) -> Vec<i16> {
    let (count, rate) = (crate::samples_of(ms, rate), rate as f32);
    let mut states = [[0.0_f32; 2]; 3];
    let sample = |at: u64| {
        let pitch = 120.0 + 12.0 * (at as f32 * 5.3 / rate).sin();
        let pulse = if at.is_multiple_of((rate / pitch).max(1.0) as u64) { 1.0 } else { 0.0 };
        let mut sum = 0.0;
        for ((hertz, width), [one, two]) in FORMANTS.into_iter().zip(&mut states) {
            let radius = (-PI * width / rate).exp();
            let next = pulse + 2.0 * radius * (2.0 * PI * hertz / rate).cos() * *one - radius * radius * *two;
            (*two, *one) = (*one, next);
            sum += next;
        }
        (sum * 2500.0).clamp(-30_000.0, 30_000.0) as i16
    };
    (0..count).map(sample).collect()
}
