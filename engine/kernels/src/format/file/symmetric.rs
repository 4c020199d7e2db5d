//! Codes with a signed scale and no minimum: Q6_K, and the weighted Q4_0 and Q5_0.

use super::super::fit::code;
use super::lanes::{LANES, Lanes, codes_of, for_wide_registers, side_by_side};
use super::{NOTHING, extreme, k_symmetric, put_half};

/// Fit of eight groups: values are about scale · (code - half).
pub struct SymmetricFit<const N: usize> {
    scale: Lanes,
    codes: [[i32; LANES]; N],
}

pub fn q6_k(x: &[f32; 256], importance: Option<&[f32; 256]>, block: &mut [u8; 210]) {
    let groups = x.as_chunks::<16>().0;
    let (mut scales, mut codes) = ([0.0; 16], [0u8; 256]);
    for half in 0..2 {
        let values = side_by_side(&groups[8 * half..8 * half + 8]);
        let weights = importance.map(|all| side_by_side(&all.as_chunks::<16>().0[8 * half..8 * half + 8]));
        let fit = fit(&values, weights.as_ref().unwrap_or(&squares(&values)), 32);
        scales[8 * half..8 * half + 8].copy_from_slice(&fit.scale);
        let into = codes[128 * half..].as_chunks_mut::<16>().0;
        into.iter_mut().zip(0..LANES).for_each(|(codes, lane)| *codes = codes_of(&fit.codes, lane));
    }
    let most = extreme(&scales);
    if most.abs() < NOTHING {
        block.fill(0);
        return;
    }
    let by = -128.0 / most;
    let d = put_half(&mut [0; 2], 1.0 / by);
    let shares = scales.map(|scale| code(by * scale, -128, 127) as i8);
    for (group, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(shares[group]);
        if scale != 0.0 {
            *codes = groups[group].map(|x| (code(x / scale, -32, 31) + 32) as u8);
        }
    }
    k_symmetric::put_q6_k(&codes, &shares, d, block);
}

pub fn fit_one(x: &[f32; 32], weights: Option<&[f32; 32]>, half: i32) -> (f32, [u8; 32]) {
    let values = side_by_side(&[*x]);
    let weights = weights.map_or_else(|| squares(&values), |weights| side_by_side(&[*weights]));
    let fit = fit(&values, &weights, half);
    (fit.scale[0], codes_of(&fit.codes, 0))
}

fn squares<const N: usize>(x: &[Lanes; N]) -> [Lanes; N] {
    x.map(|x| x.map(|x| x * x))
}

for_wide_registers! {
    fn fit<const N: usize>(x: &[Lanes; N], weights: &[Lanes; N], half: i32) -> SymmetricFit<N>,
    fit_wide, fit_lanes
}

#[inline(always)]
fn fit_lanes<const N: usize>(x: &[Lanes; N], weights: &[Lanes; N], half: i32) -> SymmetricFit<N> {
    let mut most = [0.0f32; LANES];
    for x in x {
        for lane in 0..LANES {
            most[lane] = if x[lane].abs() > most[lane].abs() { x[lane] } else { most[lane] };
        }
    }
    let sums = |by: &Lanes, codes: &mut [[i32; LANES]; N]| {
        let (mut xq, mut qq) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..N {
            for lane in 0..LANES {
                let (x, w) = (x[i][lane], weights[i][lane]);
                let q = code(by[lane] * x, -half, half - 1);
                codes[i][lane] = q + half;
                xq[lane] += w * x * q as f32;
                qq[lane] += w * q as f32 * q as f32;
            }
        }
        (xq, qq)
    };
    let (mut codes, mut tried) = ([[0; LANES]; N], [[0; LANES]; N]);
    let (mut scale, mut gain) = ([0.0; LANES], [0.0; LANES]);
    let (xq, qq) = sums(&most.map(|most| -half as f32 / most), &mut codes);
    for lane in 0..LANES {
        scale[lane] = if qq[lane] != 0.0 { xq[lane] / qq[lane] } else { 0.0 };
        gain[lane] = scale[lane] * xq[lane];
    }
    for step in (-9..=9).filter(|&step| step != 0) {
        let reach = -(half as f32 + 0.1 * step as f32);
        let (xq, qq) = sums(&most.map(|most| reach / most), &mut tried);
        let mut is_better = [false; LANES];
        for lane in 0..LANES {
            is_better[lane] = qq[lane] > 0.0 && xq[lane] * xq[lane] > gain[lane] * qq[lane];
            scale[lane] = if is_better[lane] { xq[lane] / qq[lane] } else { scale[lane] };
            gain[lane] = if is_better[lane] { scale[lane] * xq[lane] } else { gain[lane] };
        }
        if is_better.contains(&true) {
            for i in 0..N {
                for lane in 0..LANES {
                    codes[i][lane] = if is_better[lane] { tried[i][lane] } else { codes[i][lane] };
                }
            }
        }
    }
    for lane in 0..LANES {
        if most[lane].abs() < NOTHING {
            scale[lane] = 0.0;
            codes.iter_mut().for_each(|codes| codes[lane] = 0);
        }
    }
    SymmetricFit { scale, codes }
}
