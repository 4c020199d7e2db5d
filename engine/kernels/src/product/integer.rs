//! The integer path: weights as 8-bit values with a scale and a minimum for each 16, times rounded activations.

#[cfg(target_arch = "x86_64")]
mod avx2;

use super::{Activations, BLOCK, Weights};
use crate::cpu::CpuLevel;
use crate::format::{Ints, unpack_padded};

/// Multiplies weight rows `first..first + rows` with all rows of `x`; `out`: [x.rows(), rows], zeros before.
pub(super) fn rows(level: CpuLevel, x: &Activations, w: Weights, first: usize, rows: usize, out: &mut [f32]) {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `CpuLevel::detect` is the only source of these levels, and it asked the processor. (The wider registers are
        // for panels: rows of a file come here only where a format has none.)
        CpuLevel::Avx512 | CpuLevel::Avx2 => unsafe { avx2::rows(x, w, first, rows, out) },
        _ => portable(x, w, first, rows, out),
    }
}

fn portable(x: &Activations, w: Weights, first: usize, rows: usize, out: &mut [f32]) {
    let row_bytes = w.row_bytes();
    let block_bytes = w.format.bytes_of_256();
    let mut ints = Ints::default();
    for row in 0..rows {
        let bytes = &w.bytes[(first + row) * row_bytes..][..row_bytes];
        let mut sums = [0.0f32; 8];
        for (block, bytes) in bytes.chunks(block_bytes).enumerate() {
            unpack_padded(w.format, bytes, &mut ints);
            for m in 0..x.rows() {
                let (q, scales, totals) = x.rounded_row(m);
                let q = &q[block * BLOCK..][..BLOCK];
                let scales = &scales[block * 16..][..16];
                let totals = &totals[block * 16..][..16];
                sums.fill(0.0);
                let mut minimum = 0.0;
                for group in 0..16 {
                    let lanes = group_products(&ints.q[group * 16..][..16], &q[group * 16..][..16]);
                    let scale = ints.scale[group] * scales[group];
                    for lane in 0..8 {
                        sums[lane] += lanes[lane] as f32 * scale;
                    }
                    minimum += ints.min[group] * totals[group];
                }
                out[m * rows + row] += sums.iter().sum::<f32>() + minimum;
            }
        }
    }
}

// Sums sixteen products in pairs: the shape of the multiply-and-add-neighbours instruction.
fn group_products(a: &[i8], b: &[i8]) -> [i32; 8] {
    let mut lanes = [0i32; 8];
    for lane in 0..8 {
        lanes[lane] =
            i32::from(a[lane * 2]) * i32::from(b[lane * 2]) + i32::from(a[lane * 2 + 1]) * i32::from(b[lane * 2 + 1]);
    }
    lanes
}
