//! Codes with a scale and a minimum: Q4_K, Q5_K, and the weighted Q4_1 and Q5_1.

use super::super::fit::code;
use super::lanes::{LANES, Lanes, codes_of, for_wide_registers, side_by_side};
use super::{NOTHING, k_affine, put_half, sum_of_squares};

/// Steps of a search: how far from the scale that just covers the range it begins, in codes, and how it goes on.
#[derive(Clone, Copy)]
pub struct Steps {
    first: f32,
    step: f32,
    count: i32,
}

const Q4_K: Steps = Steps { first: -1.0, step: 0.1, count: 20 };
const Q5_K: Steps = Steps { first: -0.5, step: 0.1, count: 15 };
const WEIGHTED: Steps = Steps { first: -0.9, step: 0.05, count: 36 };

/// Fit of eight groups: values are about scale · code + min, and no minimum is above zero.
pub struct AffineFit<const N: usize> {
    scale: Lanes,
    min: Lanes,
    codes: [[i32; LANES]; N],
}

pub fn q4_k(x: &[f32; 256], importance: Option<&[f32; 256]>, block: &mut [u8; 144]) {
    let (header, codes) = block.split_at_mut(16);
    k_affine::put_q4_k(&groups(x, importance, 15, Q4_K, header), codes);
}

pub fn q5_k(x: &[f32; 256], importance: Option<&[f32; 256]>, block: &mut [u8; 176]) {
    let (header, codes) = block.split_at_mut(16);
    k_affine::put_q5_k(&groups(x, importance, 31, Q5_K, header), codes);
}

pub fn fit_one(x: &[f32; 32], weights: &[f32; 32], levels: i32) -> (f32, f32, [u8; 32]) {
    let fit = fit(&side_by_side(&[*x]), &side_by_side(&[*weights]), levels, WEIGHTED);
    (fit.scale[0], fit.min[0], codes_of(&fit.codes, 0))
}

/// Fits eight groups, writes their scales and minima as shares of one of each, and returns the codes.
fn groups(
    x: &[f32; 256],
    importance: Option<&[f32; 256]>,
    levels: i32,
    steps: Steps,
    header: &mut [u8],
) -> [[u8; 32]; 8] {
    let groups: [[f32; 32]; 8] = std::array::from_fn(|group| x.as_chunks::<32>().0[group]);
    let weights: [[f32; 32]; 8] = match importance {
        Some(importance) => {
            let spread = 2.0 * sum_of_squares(x) / 256.0;
            let weight = |i: usize| importance[i] * (spread + x[i] * x[i]).sqrt();
            std::array::from_fn(|group| std::array::from_fn(|i| weight(32 * group + i)))
        }
        None => groups.map(|x| {
            let size = (sum_of_squares(&x) / 32.0).sqrt();
            x.map(|x| size + x.abs())
        }),
    };
    let steps = if importance.is_some() { WEIGHTED } else { steps };
    let fit = fit(&side_by_side(&groups), &side_by_side(&weights), levels, steps);
    let least = fit.min.map(|min| -min);
    let (scales, mins, d, dmin) = match importance {
        Some(_) => {
            let sums = weights.map(|weights| weights.iter().fold(0.0, |sum, w| sum + w));
            let ((d, scales), (dmin, mins)) = (shares(&fit.scale, &sums), shares(&least, &sums));
            (scales, mins, d, dmin)
        }
        None => {
            let ((d, scales), (dmin, mins)) = (plain_shares(&fit.scale), plain_shares(&least));
            (scales, mins, d, dmin)
        }
    };
    let (halves, packed) = header.split_at_mut(4);
    let (d, dmin) = (put_half(halves, d), put_half(&mut halves[2..], dmin));
    k_affine::put_scales(&scales, &mins, packed);
    std::array::from_fn(|group| {
        let (scale, min) = (d * f32::from(scales[group]), dmin * f32::from(mins[group]));
        if scale == 0.0 {
            return codes_of(&fit.codes, group);
        }
        groups[group].map(|x| code((x + min) / scale, 0, levels) as u8)
    })
}

fn plain_shares(x: &[f32; 8]) -> (f32, [u8; 8]) {
    let most = x.iter().fold(0.0f32, |most, &x| if x > most { x } else { most });
    let inverse = if most > 0.0 { 63.0 / most } else { 0.0 };
    (most / 63.0, x.map(|x| code(inverse * x, 0, 63) as u8))
}

/// Writes numbers as shares of one unit, in 63 steps, with the smallest weighted error that a few units and then changes of
/// single shares lead to.
fn shares(x: &[f32; 8], weights: &[f32; 8]) -> (f32, [u8; 8]) {
    const STEPS: i32 = 63;
    let most = x.iter().fold(0.0f32, |most, &x| most.max(x));
    if most < NOTHING {
        return (0.0, [0; 8]);
    }
    let share = |x: f32, by: f32| code(by * x, 0, STEPS);
    let error = |by: f32| {
        let unit = 1.0 / by;
        x.iter().zip(weights).fold(0.0, |sum, (&x, w)| {
            let off = x - unit * share(x, by) as f32;
            sum + w * off * off
        })
    };
    let (mut by, mut least) = (STEPS as f32 / most, 0.0);
    for (i, step) in [0, -4, -3, -2, -1, 1, 2, 3, 4].into_iter().enumerate() {
        let tried = (0.1 * step as f32 + STEPS as f32) / most;
        let tried = if step == 0 { by } else { tried };
        let error = error(tried);
        if i == 0 || error < least {
            (by, least) = (tried, error);
        }
    }
    let mut found = x.map(|x| share(x, by));
    let (mut xq, mut qq) = (0.0, 0.0);
    for ((&x, &w), &q) in x.iter().zip(weights).zip(&found) {
        xq += w * x * q as f32;
        qq += w * q as f32 * q as f32;
    }
    for _ in 0..5 {
        let mut is_changed = false;
        for ((&x, &w), q) in x.iter().zip(weights).zip(&mut found) {
            let old = *q as f32;
            let (mut other_xq, mut other_qq) = (xq - w * x * old, qq - w * old * old);
            if other_xq <= 0.0 || other_qq <= 0.0 {
                continue;
            }
            let new = share(x * other_qq / other_xq, 1.0);
            if new != *q {
                other_xq += w * x * new as f32;
                other_qq += w * new as f32 * new as f32;
                if other_xq * other_xq * qq > xq * xq * other_qq {
                    (*q, xq, qq, is_changed) = (new, other_xq, other_qq, true);
                }
            }
        }
        if !is_changed {
            break;
        }
    }
    (if qq > 0.0 { xq / qq } else { 0.0 }, found.map(|q| q as u8))
}

for_wide_registers! {
    fn fit<const N: usize>(x: &[Lanes; N], weights: &[Lanes; N], levels: i32, steps: Steps) -> AffineFit<N>,
    fit_wide, fit_lanes
}

#[inline(always)]
fn fit_lanes<const N: usize>(x: &[Lanes; N], weights: &[Lanes; N], levels: i32, steps: Steps) -> AffineFit<N> {
    let (mut min, mut max) = (x[0], x[0]);
    let (mut sum_w, mut sum_x) = (weights[0], [0.0; LANES]);
    for lane in 0..LANES {
        sum_x[lane] = sum_w[lane] * x[0][lane];
    }
    for i in 1..N {
        for lane in 0..LANES {
            let (x, w) = (x[i][lane], weights[i][lane]);
            min[lane] = if x < min[lane] { x } else { min[lane] };
            max[lane] = if x > max[lane] { x } else { max[lane] };
            sum_w[lane] += w;
            sum_x[lane] += w * x;
        }
    }
    let mut flat = [false; LANES];
    let (mut by, mut scale) = ([0.0; LANES], [0.0; LANES]);
    for lane in 0..LANES {
        min[lane] = if min[lane] > 0.0 { 0.0 } else { min[lane] };
        flat[lane] = max[lane] <= min[lane];
        by[lane] = levels as f32 / (max[lane] - min[lane]);
        scale[lane] = 1.0 / by[lane];
    }
    let mut codes = [[0; LANES]; N];
    let mut least = [0.0; LANES];
    for i in 0..N {
        for lane in 0..LANES {
            let x = x[i][lane];
            let q = code(by[lane] * (x - min[lane]), 0, levels);
            codes[i][lane] = q;
            let off = scale[lane] * q as f32 + min[lane] - x;
            least[lane] += weights[i][lane] * (off * off);
        }
    }
    let flat_min = min;
    let mut tried = [[0; LANES]; N];
    for step in 0..=steps.count {
        let reach = steps.first + steps.step * step as f32 + levels as f32;
        for lane in 0..LANES {
            by[lane] = reach / (max[lane] - min[lane]);
        }
        let (mut q1, mut q2, mut xq) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        for i in 0..N {
            for lane in 0..LANES {
                let (x, w) = (x[i][lane], weights[i][lane]);
                let q = code(by[lane] * (x - min[lane]), 0, levels);
                tried[i][lane] = q;
                let weighted = w * q as f32;
                q1[lane] += weighted;
                q2[lane] += weighted * q as f32;
                xq[lane] += weighted * x;
            }
        }
        let (mut new_scale, mut new_min) = ([0.0; LANES], [0.0; LANES]);
        let mut determinant = [0.0; LANES];
        for lane in 0..LANES {
            determinant[lane] = sum_w[lane] * q2[lane] - q1[lane] * q1[lane];
            new_scale[lane] = (sum_w[lane] * xq[lane] - sum_x[lane] * q1[lane]) / determinant[lane];
            new_min[lane] = (q2[lane] * sum_x[lane] - q1[lane] * xq[lane]) / determinant[lane];
            let is_above = new_min[lane] > 0.0;
            new_scale[lane] = if is_above { xq[lane] / q2[lane] } else { new_scale[lane] };
            new_min[lane] = if is_above { 0.0 } else { new_min[lane] };
        }
        let mut error = [0.0; LANES];
        for i in 0..N {
            for lane in 0..LANES {
                let off = new_scale[lane] * tried[i][lane] as f32 + new_min[lane] - x[i][lane];
                error[lane] += weights[i][lane] * (off * off);
            }
        }
        let mut is_better = [false; LANES];
        for lane in 0..LANES {
            is_better[lane] = determinant[lane] > 0.0 && error[lane] < least[lane];
            least[lane] = if is_better[lane] { error[lane] } else { least[lane] };
            scale[lane] = if is_better[lane] { new_scale[lane] } else { scale[lane] };
            min[lane] = if is_better[lane] { new_min[lane] } else { min[lane] };
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
        if flat[lane] {
            (scale[lane], min[lane]) = (0.0, flat_min[lane]);
            codes.iter_mut().for_each(|codes| codes[lane] = 0);
        }
    }
    AffineFit { scale, min, codes }
}
