//! The integer path: weights as 8-bit values with a scale and a minimum for each 16, times rounded activations.

use super::Weights;
use super::activations::{Activations, BLOCK};
use crate::cpu::level::{Level, levels, madd};
use crate::integers::{Ints, unpack};

/// Weight rows `first..first + rows` times all rows of `x`; `out`: [x.rows(), rows], zeros before.
pub(super) fn rows(level: Level, x: &Activations, w: Weights, first: usize, rows: usize, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 {
        // SAFETY: `Level::detect` is the only source of this level, and it asked the processor.
        unsafe { super::avx512::rows(x, w, first, rows, out) };
        return;
    }
    let problem = Problem { x, w, first, rows };
    levels!(level, body(problem: Problem<'_>, out: &mut [f32]));
}

#[derive(Clone, Copy)]
struct Problem<'a> {
    x: &'a Activations,
    w: Weights<'a>,
    first: usize,
    rows: usize,
}

#[inline(always)]
fn body<const FMA: bool>(p: Problem<'_>, out: &mut [f32]) {
    let row_bytes = p.w.row_bytes();
    let block_bytes = p.w.format.block_bytes() * (BLOCK / p.w.format.block_len());
    let mut ints = Ints::default();
    for row in 0..p.rows {
        let bytes = &p.w.bytes[(p.first + row) * row_bytes..][..row_bytes];
        let mut sums = [0.0f32; 8];
        for (block, bytes) in bytes.chunks(block_bytes).enumerate() {
            if bytes.len() == block_bytes {
                unpack(p.w.format, bytes, &mut ints);
            } else {
                // The last block of a row that is no multiple of 256: zero bytes stand for zeros, and so do the
                // activations beyond the row's end.
                let mut padded = [0u8; 1024];
                padded[..bytes.len()].copy_from_slice(bytes);
                unpack(p.w.format, &padded[..block_bytes], &mut ints);
            }
            for m in 0..p.x.rows() {
                let (q, scales, totals) = p.x.rounded_row(m);
                let q = &q[block * BLOCK..][..BLOCK];
                let scales = &scales[block * 16..][..16];
                let totals = &totals[block * 16..][..16];
                sums.fill(0.0);
                let mut minimum = 0.0;
                for group in 0..16 {
                    let lanes = group_products(&ints.q[group * 16..][..16], &q[group * 16..][..16]);
                    let scale = ints.scale[group] * scales[group];
                    for lane in 0..8 {
                        sums[lane] = madd::<FMA>(lanes[lane] as f32, scale, sums[lane]);
                    }
                    minimum = madd::<FMA>(ints.min[group], totals[group], minimum);
                }
                out[m * p.rows + row] += sums.iter().sum::<f32>() + minimum;
            }
        }
    }
}

/// Sixteen products summed in pairs: the shape of the multiply-and-add-neighbours instruction.
#[inline(always)]
fn group_products(a: &[i8], b: &[i8]) -> [i32; 8] {
    let mut lanes = [0i32; 8];
    for lane in 0..8 {
        lanes[lane] =
            i32::from(a[lane * 2]) * i32::from(b[lane * 2]) + i32::from(a[lane * 2 + 1]) * i32::from(b[lane * 2 + 1]);
    }
    lanes
}
