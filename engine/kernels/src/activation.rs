use crate::cpu::{CpuLevel, Lanes, at_level};

pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Computes ln(1 + eˣ), which is x itself where eˣ would overflow.
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// gate = silu(gate) · up
pub fn silu_times(level: CpuLevel, gate: &mut [f32], up: &[f32]) {
    at_level!(level, silu_times_body(gate: &mut [f32], up: &[f32]))
}

#[inline(always)]
fn silu_times_body<L: Lanes>(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = L::silu_one(*gate) * up;
    }
}

/// out = out · silu(gate)
pub fn times_silu(level: CpuLevel, out: &mut [f32], gate: &[f32]) {
    at_level!(level, times_silu_body(out: &mut [f32], gate: &[f32]))
}

#[inline(always)]
fn times_silu_body<L: Lanes>(out: &mut [f32], gate: &[f32]) {
    for (out, gate) in out.iter_mut().zip(gate) {
        *out *= L::silu_one(*gate);
    }
}

/// out = out · sigmoid(gate)
pub fn times_sigmoid(level: CpuLevel, out: &mut [f32], gate: &[f32]) {
    at_level!(level, times_sigmoid_body(out: &mut [f32], gate: &[f32]))
}

#[inline(always)]
fn times_sigmoid_body<L: Lanes>(out: &mut [f32], gate: &[f32]) {
    for (out, gate) in out.iter_mut().zip(gate) {
        *out /= 1.0 + L::exp_one(-gate);
    }
}

/// x = x · Φ(x), with the normal distribution Φ to 2e-7.
pub fn gelu(level: CpuLevel, x: &mut [f32]) {
    at_level!(level, gelu_body(x: &mut [f32]))
}

#[inline(always)]
fn gelu_body<L: Lanes>(x: &mut [f32]) {
    for x in x {
        // Abramowitz and Stegun 7.1.26, for erf(|x| / √2).
        let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
        let t = 1.0 / L::madd_one(z, 0.327_591_1, 1.0);
        let mut sum = 1.061_405_4;
        for factor in [-1.453_152, 1.421_413_7, -0.284_496_72, 0.254_829_6] {
            sum = L::madd_one(sum, t, factor);
        }
        let tail = 0.5 * sum * t * L::exp_one(-z * z);
        *x *= if *x < 0.0 { tail } else { 1.0 - tail };
    }
}

/// Lists the `used` largest of softmax(scores) as (index, weight), largest first; `renormalise` makes the weights sum
/// to one. Returns the lead of the last used weight over the first unused one, as a share of its weight: near zero,
/// rounding chooses between the two.
pub fn top_of_softmax(scores: &[f32], used: usize, renormalise: bool, out: &mut Vec<(usize, f32)>) -> f32 {
    out.clear();
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = scores.iter().map(|score| (score - largest).exp()).sum();
    out.extend(scores.iter().enumerate().map(|(index, score)| (index, (score - largest).exp() / sum)));
    // The lower index wins among equal weights, so that a run can be repeated anywhere.
    out.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let lead = match out.get(used.saturating_sub(1)..) {
        Some([(_, last), (_, next), ..]) => 1.0 - next / last,
        _ => f32::INFINITY,
    };
    out.truncate(used);
    if renormalise {
        let sum: f32 = out.iter().map(|(_, weight)| weight).sum();
        out.iter_mut().for_each(|(_, weight)| *weight /= sum);
    }
    lead
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    #[test]
    fn gelu_as_the_reference_at_every_level_and_length() {
        for level in CpuLevel::available() {
            for len in [0, 1, 7, 16, 33, 257] {
                let mut x: Vec<f32> = random(len, 3).iter().map(|x| x * 6.0).collect();
                let expected = reference::gelu(&x);
                gelu(level, &mut x);
                // Far below zero the result is so small that only the difference itself says something.
                let largest = x.iter().zip(&expected).map(|(x, expected)| (x - expected).abs()).fold(0.0, f32::max);
                assert!(largest < 1e-6, "{largest}");
            }
        }
    }

    #[test]
    fn known_values() {
        assert_eq!(sigmoid(0.0), 0.5);
        assert!((sigmoid(1.0) - 0.731_058_6).abs() < 1e-6);
        assert!((softplus(0.0) - std::f32::consts::LN_2).abs() < 1e-6);
        assert_eq!(softplus(100.0), 100.0);
        assert!(sigmoid(-200.0) >= 0.0 && sigmoid(-200.0) < 1e-8);
    }

    #[test]
    fn top_of_softmax_is_sorted_and_sums_to_one() {
        let mut top = Vec::new();
        let lead = top_of_softmax(&[0.0, 2.0, 1.0, 2.0], 3, true, &mut top);
        assert!((lead - (1.0 - (-1.0_f32).exp())).abs() < 1e-6);
        assert_eq!(top.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1, 3, 2]);
        assert!((top.iter().map(|(_, weight)| weight).sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(top_of_softmax(&[0.0, 2.0, 1.0, 2.0], 1, true, &mut top), 0.0, "two are equal");
        assert_eq!(top_of_softmax(&[0.0, 1.0], 2, true, &mut top), f32::INFINITY, "all are used");
    }
}
