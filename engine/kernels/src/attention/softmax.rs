//! Online softmax: scores become weights tile by tile, beside the largest score and the sum of weights so far.

use crate::cpu::{CpuLevel, Lanes, at_level};

/// Softens rows side by side, [position, padded row]. The caller multiplies earlier weighted values by `corrections`.
pub(super) fn soften_side_by_side(
    level: CpuLevel,
    rows: usize,
    scores: &mut [f32],
    largest: &mut [f32],
    totals: &mut [f32],
    corrections: &mut [f32],
) {
    at_level!(level, side_by_side_body(rows: usize, scores: &mut [f32], largest: &mut [f32], totals: &mut [f32], corrections: &mut [f32]))
}

#[inline(always)]
fn side_by_side_body<L: Lanes>(
    rows: usize,
    scores: &mut [f32],
    largest: &mut [f32],
    totals: &mut [f32],
    corrections: &mut [f32],
) {
    let width = super::padded(rows);
    for first in (0..rows).step_by(L::COUNT) {
        let lanes = L::COUNT.min(rows - first);
        let mut before = [f32::NEG_INFINITY; 16];
        before[..lanes].copy_from_slice(&largest[first..first + lanes]);
        // SAFETY: no level has more than sixteen lanes, and rows are padded to whole sixteens.
        unsafe {
            let before = L::load(before.as_ptr());
            let mut most = before;
            for scores in scores.chunks_exact(width) {
                most = L::max(most, L::load(scores[first..].as_ptr()));
            }
            // A row that sees nothing yet has no largest score, and its weights are zero whatever they are compared with.
            let base = L::where_more(most, L::splat(f32::NEG_INFINITY), most);
            let less = L::mul(base, L::splat(-1.0));
            let mut sums = L::splat(0.0);
            for scores in scores.chunks_exact_mut(width) {
                let at = scores[first..].as_mut_ptr();
                let weights = L::exp(L::add(L::load(at), less));
                L::store(at, weights);
                sums = L::add(sums, weights);
            }
            // The exponential of zero is exactly one, and most tiles bring no larger score.
            let correction = L::exp(L::add(before, less));
            let mut lane = [[0.0f32; 16]; 3];
            L::store(lane[0].as_mut_ptr(), most);
            L::store(lane[1].as_mut_ptr(), sums);
            L::store(lane[2].as_mut_ptr(), correction);
            for (at, row) in (first..first + lanes).enumerate() {
                corrections[row] = lane[2][at];
                totals[row] = totals[row] * lane[2][at] + lane[1][at];
                largest[row] = lane[0][at];
            }
        }
    }
}

pub(super) fn soften(level: CpuLevel, scores: &mut [f32], largest: &mut f32, total: &mut f32, correction: &mut f32) {
    at_level!(level, row_body(scores: &mut [f32], largest: &mut f32, total: &mut f32, correction: &mut f32));
}

#[inline(always)]
fn row_body<L: Lanes>(scores: &mut [f32], largest: &mut f32, total: &mut f32, correction: &mut f32) {
    assert!(scores.len().is_multiple_of(L::COUNT));
    let mut most = L::splat(*largest);
    for at in (0..scores.len()).step_by(L::COUNT) {
        // SAFETY: they are whole registers; so below.
        most = L::max(most, unsafe { L::load(scores[at..].as_ptr()) });
    }
    let mut lanes = [f32::NEG_INFINITY; 16];
    // SAFETY: no level has more than sixteen lanes.
    unsafe { L::store(lanes.as_mut_ptr(), most) };
    let most = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let base = if most == f32::NEG_INFINITY { 0.0 } else { most };
    let (less, mut sums) = (L::splat(-base), L::splat(0.0));
    for at in (0..scores.len()).step_by(L::COUNT) {
        let at = scores[at..].as_mut_ptr();
        // SAFETY: see above.
        unsafe {
            let weights = L::exp(L::add(L::load(at), less));
            L::store(at, weights);
            sums = L::add(sums, weights);
        }
    }
    *correction = if *largest == most { 1.0 } else { (*largest - base).exp() };
    *total = *total * *correction + L::sum(sums);
    *largest = most;
}
