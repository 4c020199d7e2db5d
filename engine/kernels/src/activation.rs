//! Elementwise functions.

use crate::cpu::level::{Level, levels, madd};

pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// Below it eˣ is taken for 0.
pub(crate) const LEAST_EXP: f32 = -87.3;
/// Adding 1.5 · 2²³ leaves a rounded number in the low bits.
pub(crate) const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts, so that what it is taken from keeps all its digits.
pub(crate) const LN_2_PARTS: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
/// Of the series of eˣ, the highest power first.
pub(crate) const EXP_FACTORS: [f32; 7] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];

/// eˣ in a form that the compiler can do for many values at once, to 2 units in the last place; 0 below -87, and no more than e^88.3.
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    // eˣ = 2ⁿ · eʳ with |r| ≤ ln 2 / 2.
    let x = x.clamp(LEAST_EXP, 88.3);
    let shifted = madd::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = madd::<FMA>(n, -LN_2_PARTS[0], x);
    let r = madd::<FMA>(n, -LN_2_PARTS[1], r);
    let mut sum = EXP_FACTORS[0];
    for factor in &EXP_FACTORS[1..] {
        sum = madd::<FMA>(sum, r, *factor);
    }
    let power = f32::from_bits((shifted.to_bits().wrapping_add(127)) << 23);
    if x <= LEAST_EXP { 0.0 } else { sum * power }
}

/// ln(1 + eˣ), which is x itself where eˣ would overflow.
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// gate = silu(gate) · up
pub fn silu_times(level: Level, gate: &mut [f32], up: &[f32]) {
    levels!(level, silu_times_body(gate: &mut [f32], up: &[f32]))
}

#[inline(always)]
fn silu_times_body<const FMA: bool>(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = quick_silu::<FMA>(*gate) * up;
    }
}

/// out = out · silu(gate)
pub fn times_silu(level: Level, out: &mut [f32], gate: &[f32]) {
    levels!(level, times_silu_body(out: &mut [f32], gate: &[f32]))
}

#[inline(always)]
fn times_silu_body<const FMA: bool>(out: &mut [f32], gate: &[f32]) {
    for (out, gate) in out.iter_mut().zip(gate) {
        *out *= quick_silu::<FMA>(*gate);
    }
}

/// out = out · sigmoid(gate)
pub fn times_sigmoid(level: Level, out: &mut [f32], gate: &[f32]) {
    levels!(level, times_sigmoid_body(out: &mut [f32], gate: &[f32]))
}

#[inline(always)]
fn times_sigmoid_body<const FMA: bool>(out: &mut [f32], gate: &[f32]) {
    for (out, gate) in out.iter_mut().zip(gate) {
        *out /= 1.0 + exp::<FMA>(-gate);
    }
}

/// silu by our own `exp`.
#[inline(always)]
pub fn quick_silu<const FMA: bool>(x: f32) -> f32 {
    x / (1.0 + exp::<FMA>(-x))
}

/// The `used` largest of softmax(scores) as (index, weight), largest first; `renormalise` makes the weights sum to one.
pub fn top_of_softmax(scores: &[f32], used: usize, renormalise: bool, out: &mut Vec<(usize, f32)>) {
    out.clear();
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = scores.iter().map(|score| (score - largest).exp()).sum();
    out.extend(scores.iter().enumerate().map(|(index, score)| (index, (score - largest).exp() / sum)));
    // Equal weights are taken by the lower index, so that a run can be repeated anywhere.
    out.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    out.truncate(used);
    if renormalise {
        let sum: f32 = out.iter().map(|(_, weight)| weight).sum();
        out.iter_mut().for_each(|(_, weight)| *weight /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_near_the_library_everywhere() {
        for i in -8730..8830 {
            let x = i as f32 / 100.0 + 0.003;
            for ours in [exp::<false>(x), exp::<true>(x)] {
                let expected = f64::from(x).exp();
                assert!((f64::from(ours) - expected).abs() <= 4e-7 * expected || x < -87.0, "exp({x}) = {ours}");
            }
        }
        assert_eq!((exp::<true>(0.0), exp::<true>(f32::NEG_INFINITY)), (1.0, 0.0));
    }

    #[test]
    fn known_values() {
        assert_eq!(sigmoid(0.0), 0.5);
        assert!((silu(1.0) - 0.731_058_6).abs() < 1e-6);
        assert!((softplus(0.0) - std::f32::consts::LN_2).abs() < 1e-6);
        assert_eq!(softplus(100.0), 100.0);
        assert!(sigmoid(-200.0) >= 0.0 && silu(-200.0).abs() < 1e-6);
    }

    #[test]
    fn top_of_softmax_is_sorted_and_sums_to_one() {
        let mut top = Vec::new();
        top_of_softmax(&[0.0, 2.0, 1.0, 2.0], 3, true, &mut top);
        assert_eq!(top.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1, 3, 2]);
        assert!((top.iter().map(|(_, weight)| weight).sum::<f32>() - 1.0).abs() < 1e-6);
    }
}
