//! Scales that fit: the search behind every encoder.
//!
//! For integers q already chosen, the scale with the smallest squared error is a least-squares solution. So the search
//! tries a few scales around the one that just covers the range, rounds with each, solves, and keeps the best solution.

const LANES: usize = 8;

/// Adding and taking away 1.5 * 2^23 rounds to the nearest integer (ties to even) in two operations that every
/// processor does for several lanes; `f32::round_ties_even` is a function call on the oldest ones we run on.
const ROUNDER: f32 = 12_582_912.0;

/// The integer nearest to `value` within `low..=high`. NaN gives `low`.
#[inline(always)]
pub fn code(value: f32, low: f32, high: f32) -> f32 {
    (value.max(low).min(high) + ROUNDER) - ROUNDER
}

/// 1 / scale, or 0 where the scale is 0: such a group is all zeros.
#[inline(always)]
pub fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// The value that is farthest from zero, with its sign.
pub fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |most, &v| if v.abs() > most.abs() { v } else { most })
}

/// The scale for `x ≈ scale * q` with q in low..=high, where `low` is negative and the end that reaches further.
pub fn symmetric<const N: usize>(x: &[f32; N], low: f32, high: f32) -> f32 {
    let extreme = extreme(x);
    if extreme == 0.0 || !extreme.is_finite() {
        return 0.0;
    }
    let (mut best_gain, mut best_scale) = (-1.0, extreme / low);
    for step in -6..=6 {
        let factor = (low + 0.15 * step as f32) / extreme;
        let (mut xq, mut qq) = ([0.0f32; LANES], [0.0f32; LANES]);
        for chunk in x.as_chunks::<LANES>().0 {
            for lane in 0..LANES {
                let q = code(chunk[lane] * factor, low, high);
                xq[lane] += chunk[lane] * q;
                qq[lane] += q * q;
            }
        }
        let (xq, qq) = (sum(xq), sum(qq));
        // The squared error is |x|^2 - xq^2 / qq: the largest gain is the smallest error.
        let gain = xq * xq / qq;
        if qq > 0.0 && gain > best_gain {
            (best_gain, best_scale) = (gain, xq / qq);
        }
    }
    best_scale
}

/// Scale and minimum for `x ≈ scale * q + min` with q in 0..=levels. `through_zero`: the minimum must not be positive,
/// as in the formats that store it as a number to take away.
pub fn affine<const N: usize>(x: &[f32; N], levels: f32, through_zero: bool) -> (f32, f32) {
    let mut low = x.iter().copied().fold(f32::INFINITY, f32::min);
    let mut high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if through_zero {
        low = low.min(0.0);
        high = high.max(0.0);
    }
    let range = high - low;
    if range <= 0.0 || !range.is_finite() {
        return (0.0, if low.is_finite() { low } else { 0.0 });
    }
    let n = N as f32;
    let (mut best_error, mut best) = (f32::INFINITY, (range / levels, low));
    for step in -5..=5 {
        let factor = (levels + 0.16 * step as f32) / range;
        let [mut q1, mut q2, mut y1, mut y2, mut yq] = [[0.0f32; LANES]; 5];
        for chunk in x.as_chunks::<LANES>().0 {
            for lane in 0..LANES {
                // Sums of distances from the lowest value, which stay accurate where all values lie far from zero.
                let y = chunk[lane] - low;
                let q = code(y * factor, 0.0, levels);
                q1[lane] += q;
                q2[lane] += q * q;
                y1[lane] += y;
                y2[lane] += y * y;
                yq[lane] += y * q;
            }
        }
        let (q1, q2, y1, y2, yq) = (sum(q1), sum(q2), sum(y1), sum(y2), sum(yq));
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
        let error = y2 - 2.0 * scale * yq - 2.0 * shift * y1
            + scale * scale * q2
            + 2.0 * scale * shift * q1
            + n * shift * shift;
        if error < best_error {
            (best_error, best) = (error, (scale, low + shift));
        }
    }
    best
}

fn sum(lanes: [f32; LANES]) -> f32 {
    lanes.iter().sum()
}
