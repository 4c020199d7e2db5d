//! Codes that look values up in a table: IQ4_NL, IQ4_XS.

use super::super::IQ4;
use super::super::fit::code;
use super::lanes::{LANES, Lanes, for_wide_registers, side_by_side};
use super::{NOTHING, block32, inverse, put_half, sum_of_squares};

/// Largest number of steps away from the scale that just covers the range, either way.
const STEPS: i32 = 7;

pub fn iq4_nl(row: &[f32], importance: Option<&[f32]>, bytes: &mut [u8]) {
    for (i, (x, block)) in row.as_chunks::<32>().0.iter().zip(bytes.as_chunks_mut::<18>().0).enumerate() {
        let weights = weights(x, importance.map(|all| &all.as_chunks::<32>().0[i]), sum_of_squares(x) * (2.0 / 32.0));
        let scale = fit(&side_by_side(&[*x]), &side_by_side(&[weights]))[0];
        put_half(block, scale);
        put_codes(x, inverse(scale), &mut block[2..]);
    }
}

pub fn iq4_xs(x: &[f32; 256], importance: Option<&[f32; 256]>, block: &mut [u8; 136]) {
    let groups: [[f32; 32]; 8] = std::array::from_fn(|group| x.as_chunks::<32>().0[group]);
    let spread = sum_of_squares(x) * (2.0 / 256.0);
    let weights: [[f32; 32]; 8] = std::array::from_fn(|group| {
        weights(&groups[group], importance.map(|all| &all.as_chunks::<32>().0[group]), spread)
    });
    let scales = fit(&side_by_side(&groups), &side_by_side(&weights));
    let unit = -super::extreme(&scales) / 32.0;
    let by = inverse(unit);
    block.fill(0);
    put_half(block, unit);
    let mut high = 0u16;
    for (group, x) in groups.iter().enumerate() {
        let share = code(by * scales[group], -32, 31);
        put_codes(x, inverse(unit * share as f32), &mut block[8 + 16 * group..]);
        let share = (share + 32) as u16;
        block[4 + group / 2] |= ((share & 15) << (4 * (group % 2))) as u8;
        high |= (share >> 4) << (2 * group);
    }
    block[2..4].copy_from_slice(&high.to_le_bytes());
}

fn weights(x: &[f32; 32], importance: Option<&[f32; 32]>, spread: f32) -> [f32; 32] {
    match importance {
        Some(importance) => std::array::from_fn(|i| importance[i] * (spread + x[i] * x[i]).sqrt()),
        None => x.map(|x| x * x),
    }
}

fn put_codes(x: &[f32; 32], by: f32, packed: &mut [u8]) {
    block32::put_nibbles(&x.map(|x| nearest(by * x).0), packed);
}

#[inline(always)]
fn nearest(x: f32) -> (u8, f32) {
    let (mut code, mut value) = (0, f32::from(IQ4[0]));
    for i in 1..16 {
        let is_above = x + x >= f32::from(i16::from(IQ4[i - 1]) + i16::from(IQ4[i]));
        code = if is_above { i as u8 } else { code };
        value = if is_above { f32::from(IQ4[i]) } else { value };
    }
    (code, value)
}

for_wide_registers! {
    fn fit<const N: usize>(x: &[Lanes; N], weights: &[Lanes; N]) -> Lanes,
    fit_wide, fit_lanes
}

#[inline(always)]
fn fit_lanes<const N: usize>(x: &[Lanes; N], weights: &[Lanes; N]) -> Lanes {
    let mut most = [0.0f32; LANES];
    for x in x {
        for lane in 0..LANES {
            most[lane] = if x[lane].abs() > most[lane].abs() { x[lane] } else { most[lane] };
        }
    }
    let sums = |by: &Lanes| {
        let (mut xq, mut qq) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..N {
            for lane in 0..LANES {
                let (x, w) = (x[i][lane], weights[i][lane]);
                let value = nearest(by[lane] * x).1;
                xq[lane] += w * value * x;
                qq[lane] += w * value * value;
            }
        }
        (xq, qq)
    };
    let lowest = f32::from(IQ4[0]);
    let (xq, qq) = sums(&most.map(|most| 1.0 / (-most / lowest)));
    let (mut scale, mut gain) = ([0.0; LANES], [0.0; LANES]);
    for lane in 0..LANES {
        scale[lane] = if qq[lane] > 0.0 { xq[lane] / qq[lane] } else { 0.0 };
        gain[lane] = scale[lane] * xq[lane];
    }
    for step in -STEPS..=STEPS {
        let (xq, qq) = sums(&most.map(|most| (step as f32 + lowest) / most));
        for lane in 0..LANES {
            let is_better = qq[lane] > 0.0 && xq[lane] * xq[lane] > gain[lane] * qq[lane];
            scale[lane] = if is_better { xq[lane] / qq[lane] } else { scale[lane] };
            gain[lane] = if is_better { scale[lane] * xq[lane] } else { gain[lane] };
        }
    }
    for lane in 0..LANES {
        scale[lane] = if most[lane].abs() < NOTHING { 0.0 } else { scale[lane] };
    }
    scale
}
