//! Scales that fit: the search behind every encoder.
//!
//! For integers q already chosen, the scale with the smallest squared error is a least-squares solution. So the search
//! tries a few scales around the one that just covers the range, rounds with each, solves, and keeps the best solution.

/// Lanes of a sum, the same number on every processor: so the results are the same bits on all.
const LANES: usize = 8;

/// Adding 1.5 * 2^23 to a float leaves the nearest integer in its low bits.
const ROUNDER: f32 = 12_582_912.0;

/// Rounds `value` to the nearest integer (ties to even) within `low..=high`, also for infinities; NaN gives either end.
/// Two operations that every processor has for several lanes; `f32::round_ties_even` is a function call on old ones.
#[inline(always)]
pub fn code(value: f32, low: i32, high: i32) -> i32 {
    let integer = ((value + ROUNDER).to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    integer.max(low).min(high)
}

pub fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Returns the value that is farthest from zero, with its sign.
pub fn extreme<const N: usize>(x: &[f32; N]) -> f32 {
    let (low, high) = range(x);
    if high >= -low { high } else { low }
}

/// Fits the scale of `x ≈ scale * q` with q in low..=high, where `low` is negative and the end that reaches further.
pub fn symmetric<const N: usize>(x: &[f32; N], low: i32, high: i32) -> f32 {
    let extreme = extreme(x);
    if extreme == 0.0 || !extreme.is_finite() {
        return 0.0;
    }
    let (mut best_gain, mut best_scale) = (-1.0, extreme / low as f32);
    for step in -6..7 {
        let factor = (low as f32 + 0.15 * step as f32) / extreme;
        let Sums { qy: xq, qq, .. } = sums(x, factor, low, high);
        // The squared error is |x|^2 - xq^2 / qq: the largest gain is the smallest error.
        let gain = xq * xq / qq;
        if qq > 0.0 && gain > best_gain {
            (best_gain, best_scale) = (gain, xq / qq);
        }
    }
    best_scale
}

/// Fits scale and minimum of `x ≈ scale * q + min` with q in 0..=levels. `through_zero`: the minimum must not be
/// positive, as in the formats that store it as a number to subtract.
pub fn affine<const N: usize>(x: &[f32; N], levels: i32, through_zero: bool) -> (f32, f32) {
    let (mut low, mut high) = range(x);
    if through_zero {
        low = low.min(0.0);
        high = high.max(0.0);
    }
    let range = high - low;
    if range <= 0.0 || !range.is_finite() {
        return (0.0, if low.is_finite() { low } else { 0.0 });
    }
    // Distances from the lowest value: sums of them stay accurate where all values lie far from zero.
    let mut distances = [0.0f32; N];
    for i in 0..N {
        distances[i] = x[i] - low;
    }
    let (mut y1, mut y2) = ([0.0f32; LANES], [0.0f32; LANES]);
    for y in distances.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            y1[lane] += y[lane];
            y2[lane] += y[lane] * y[lane];
        }
    }
    let (n, y1, y2) = (N as f32, sum(y1), sum(y2));
    let (mut best_error, mut best) = (f32::INFINITY, (range / levels as f32, low));
    for step in -5..6 {
        let factor = (levels as f32 + 0.16 * step as f32) / range;
        let Sums { q: q1, qq: q2, qy: yq } = sums(&distances, factor, 0, levels);
        let determinant = n * q2 - q1 * q1;
        if determinant <= 0.0 {
            continue;
        }
        let mut scale = (n * yq - y1 * q1) / determinant;
        let mut shift = (q2 * y1 - q1 * yq) / determinant;
        if through_zero && low + shift > 0.0 {
            shift = -low;
            scale = (yq - shift * q1) / q2;
        }
        let cross = scale * yq + shift * y1 - scale * shift * q1;
        let error = y2 - 2.0 * cross + scale * scale * q2 + n * shift * shift;
        if error < best_error {
            (best_error, best) = (error, (scale, low + shift));
        }
    }
    best
}

/// Encodes `(x - min) / scale`, less `low`, so that codes start at 0.
pub fn codes<const N: usize>(x: &[f32; N], scale: f32, min: f32, low: i32, high: i32) -> [u8; N] {
    let inverse = inverse(scale);
    let mut codes = [0; N];
    for i in 0..N {
        codes[i] = (code((x[i] - min) * inverse, low, high) - low) as u8;
    }
    codes
}

fn range<const N: usize>(x: &[f32; N]) -> (f32, f32) {
    // (lowest, highest)
    let (mut low, mut high) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
    for x in x.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            low[lane] = if x[lane] < low[lane] { x[lane] } else { low[lane] };
            high[lane] = if x[lane] > high[lane] { x[lane] } else { high[lane] };
        }
    }
    (low.iter().copied().fold(low[0], f32::min), high.iter().copied().fold(high[0], f32::max))
}

struct Sums {
    q: f32,
    qq: f32,
    qy: f32,
}

/// Sums the codes of `y * factor`. An encoder spends its time here.
fn sums<const N: usize>(y: &[f32; N], factor: f32, low: i32, high: i32) -> Sums {
    let chunks = y.as_chunks::<LANES>().0;
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { sums_avx2(chunks, factor, low, high) };
    }
    sums_of_lanes(chunks, factor, low, high)
}

fn sums_of_lanes(chunks: &[[f32; LANES]], factor: f32, low: i32, high: i32) -> Sums {
    let (mut q, mut qq, mut qy) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
    for y in chunks {
        for lane in 0..LANES {
            let code = code(y[lane] * factor, low, high) as f32;
            q[lane] += code;
            qq[lane] += code * code;
            qy[lane] += code * y[lane];
        }
    }
    Sums { q: sum(q), qq: sum(qq), qy: sum(qy) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sums_avx2(chunks: &[[f32; LANES]], factor: f32, low: i32, high: i32) -> Sums {
    use std::arch::x86_64::*;
    let (factor, rounder) = (_mm256_set1_ps(factor), _mm256_set1_ps(ROUNDER));
    let (low, high) = (_mm256_set1_epi32(low), _mm256_set1_epi32(high));
    let (mut q, mut qq, mut qy) = (_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps());
    for y in chunks {
        // SAFETY: a chunk is eight floats; the load takes any alignment.
        let y = unsafe { _mm256_loadu_ps(y.as_ptr()) };
        let rounded = _mm256_castps_si256(_mm256_add_ps(_mm256_mul_ps(y, factor), rounder));
        let integer = _mm256_sub_epi32(rounded, _mm256_castps_si256(rounder));
        let code = _mm256_cvtepi32_ps(_mm256_min_epi32(_mm256_max_epi32(integer, low), high));
        q = _mm256_add_ps(q, code);
        qq = _mm256_add_ps(qq, _mm256_mul_ps(code, code));
        qy = _mm256_add_ps(qy, _mm256_mul_ps(code, y));
    }
    // The order of `sum`: halves, then quarters, then the last two.
    let sum_of = |x: __m256| {
        let pairs = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let evens_and_odds = _mm_add_ps(pairs, _mm_movehl_ps(pairs, pairs));
        _mm_cvtss_f32(_mm_add_ss(evens_and_odds, _mm_shuffle_ps::<1>(evens_and_odds, evens_and_odds)))
    };
    Sums { q: sum_of(q), qq: sum_of(qq), qy: sum_of(qy) }
}

fn sum(x: [f32; LANES]) -> f32 {
    ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_nearest_integers() {
        for (value, expected) in [(0.4, 0), (0.6, 1), (-2.7, -3), (2.5, 2), (3.5, 4), (9.0, 7), (-9.0, -8)] {
            assert_eq!(code(value, -8, 7), expected, "{value}");
        }
        assert_eq!((code(f32::INFINITY, -8, 7), code(f32::NEG_INFINITY, -8, 7)), (7, -8));
        assert_eq!((code(1e30, -8, 7), code(-1e30, -8, 7)), (7, -8));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn wide_registers_give_the_same_bits() {
        if !std::is_x86_feature_detected!("avx2") {
            println!("skipped: no AVX2");
            return;
        }
        let mut y = [0.0f32; 32];
        for round in 0..200 {
            for i in 0..32 {
                y[i] = ((i * 37 + round * 101) % 251) as f32 * 0.013 - 1.6;
            }
            y[round % 32] = [f32::INFINITY, 1e20, -0.0][round % 3];
            let (chunks, factor) = (y.as_chunks::<LANES>().0, 1.7 + 0.03 * round as f32);
            // SAFETY: the processor has AVX2.
            let wide = unsafe { sums_avx2(chunks, factor, -8, 7) };
            let plain = sums_of_lanes(chunks, factor, -8, 7);
            let bits = |sums: Sums| [sums.q, sums.qq, sums.qy].map(f32::to_bits);
            assert_eq!(bits(wide), bits(plain), "round {round}");
        }
    }
}
