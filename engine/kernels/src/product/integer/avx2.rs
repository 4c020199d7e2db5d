//! The integer product with AVX2.
//!
//! The instruction multiplies unsigned by signed bytes and adds neighbours in 16 bits, so the weight's sign moves to the
//! activation: |w| · (±x) is w · x, and two of them stay below 2¹⁵. A row of weights is unpacked once for all rows of
//! activations.

use std::arch::x86_64::*;
use std::cell::RefCell;

use crate::format::{Ints, unpack_padded};
use crate::product::{Activations, BLOCK, Weights};
use crate::scratch::with;

thread_local! {
    // A row of weights, kept by its thread: a token has thousands of products.
    static UNPACKED: RefCell<Vec<Ints>> = const { RefCell::new(Vec::new()) };
}

/// Multiplies weight rows `first..first + out_rows` with all rows of `x`; `out`: [x.rows(), out_rows].
///
/// # Safety
/// The processor has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn rows(x: &Activations, w: Weights, first: usize, out_rows: usize, out: &mut [f32]) {
    let row_bytes = w.row_bytes();
    let block_bytes = w.format.bytes_of_256();
    with(&UNPACKED, row_bytes.div_ceil(block_bytes), |unpacked| {
        for row in 0..out_rows {
            let bytes = &w.bytes[(first + row) * row_bytes..][..row_bytes];
            for (ints, bytes) in unpacked.iter_mut().zip(bytes.chunks(block_bytes)) {
                unpack_padded(w.format, bytes, ints);
            }
            for m in 0..x.rows() {
                out[m * out_rows + row] = one(unpacked, x, m);
            }
        }
    });
}

#[target_feature(enable = "avx2,fma")]
fn one(weights: &[Ints], x: &Activations, m: usize) -> f32 {
    let (q, scales, sums) = x.rounded_row(m);
    let ones = _mm256_set1_epi16(1);
    // Lanes 0 to 3 of a sum belong to the first group of 16, lanes 4 to 7 to the second.
    let lane = _mm256_set_epi32(1, 1, 1, 1, 0, 0, 0, 0);
    let mut total = _mm256_setzero_ps();
    for (block, weights) in weights.iter().enumerate() {
        let q = &q[block * BLOCK..][..BLOCK];
        let (scales, sums) = (&scales[block * 16..][..16], &sums[block * 16..][..16]);
        for half in 0..2 {
            // SAFETY: all four hold 16 values, of which this is one half.
            let (scale, min, scales, sums) = unsafe {
                (
                    _mm256_loadu_ps(weights.scale.as_ptr().add(8 * half)),
                    _mm256_loadu_ps(weights.min.as_ptr().add(8 * half)),
                    _mm256_loadu_ps(scales.as_ptr().add(8 * half)),
                    _mm256_loadu_ps(sums.as_ptr().add(8 * half)),
                )
            };
            let factors = _mm256_mul_ps(scale, scales);
            total = _mm256_fmadd_ps(min, sums, total);
            for quarter in 0..4 {
                let at = 128 * half + 32 * quarter;
                // SAFETY: both hold 256 bytes, and `at` is 224 at most.
                let (w, s) = unsafe {
                    (
                        _mm256_loadu_si256(weights.q.as_ptr().add(at).cast()),
                        _mm256_loadu_si256(q.as_ptr().add(at).cast()),
                    )
                };
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(s, w));
                let dots = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, ones));
                let lanes = _mm256_add_epi32(lane, _mm256_set1_epi32(2 * quarter as i32));
                total = _mm256_fmadd_ps(dots, _mm256_permutevar8x32_ps(factors, lanes), total);
            }
        }
    }
    let low = _mm_add_ps(_mm256_castps256_ps128(total), _mm256_extractf128_ps::<1>(total));
    let low = _mm_add_ps(low, _mm_movehl_ps(low, low));
    _mm_cvtss_f32(_mm_add_ss(low, _mm_movehdup_ps(low)))
}
