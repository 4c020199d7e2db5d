//! Pairs with AVX-512 and VNNI. Every function demands that level, and lengths that `pairs` has checked.

use super::super::COLUMNS;
use super::{ALL_WEIGHTS, LONGEST, MOST, MOST_VALUE, Product};
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn pack_row(row: &[f32], words: &mut [u32]) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let (mut largest, mut squares) = ([_mm512_setzero_ps(); 2], [_mm512_setzero_ps(); 2]);
        for at in (0..row.len()).step_by(32) {
            for half in 0..2 {
                let x = _mm512_loadu_ps(row.as_ptr().add(at + 16 * half));
                largest[half] = _mm512_max_ps(largest[half], _mm512_abs_ps(x));
                squares[half] = _mm512_fmadd_ps(x, x, squares[half]);
            }
        }
        let largest = _mm512_reduce_max_ps(_mm512_max_ps(largest[0], largest[1]));
        let length = _mm512_reduce_add_ps(_mm512_add_ps(squares[0], squares[1])).sqrt();
        if length == 0.0 {
            words.fill(0);
            return 0.0;
        }
        // A NaN stays one: it is in the length.
        let (by_largest, by_length) = (MOST / largest, LONGEST / length);
        let scale = if by_length >= by_largest { by_largest } else { by_length };
        for at in (0..row.len()).step_by(16) {
            let scaled = _mm512_mul_ps(_mm512_loadu_ps(row.as_ptr().add(at)), _mm512_set1_ps(scale));
            let packed = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(scaled));
            _mm256_storeu_si256(words.as_mut_ptr().add(at / 2).cast(), packed);
        }
        1.0 / scale
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn pack_weights(weights: &[f32], width: usize, words: &mut [u32], units: &mut [f32]) {
    let positions = weights.len() / width;
    for row in (0..width).step_by(16) {
        // SAFETY: the caller's promise.
        unsafe {
            let at = |position: usize| _mm512_loadu_ps(weights.as_ptr().add(position * width + row));
            let (mut sums, mut largest) = ([_mm512_setzero_ps(); 4], [_mm512_setzero_ps(); 4]);
            for position in 0..positions {
                sums[position % 4] = _mm512_add_ps(sums[position % 4], at(position));
                largest[position % 4] = _mm512_max_ps(largest[position % 4], at(position));
            }
            let total = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
            let largest = _mm512_max_ps(_mm512_max_ps(largest[0], largest[1]), _mm512_max_ps(largest[2], largest[3]));
            let unit = _mm512_max_ps(
                _mm512_mul_ps(largest, _mm512_set1_ps(1.0 / MOST)),
                _mm512_mul_ps(total, _mm512_set1_ps(1.0 / ALL_WEIGHTS)),
            );
            let some = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(unit, _mm512_setzero_ps());
            let scale = _mm512_maskz_div_ps(some, _mm512_set1_ps(1.0), unit);
            _mm512_storeu_ps(units.as_mut_ptr().add(row), unit);
            pack_columns(weights, width, row, scale, words);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn pack_values(values: &[f32], words: &mut [u32], units: &mut [f32]) {
    let positions = values.len() / COLUMNS;
    for column in (0..COLUMNS).step_by(16) {
        // SAFETY: the caller's promise.
        unsafe {
            let at = |position: usize| _mm512_loadu_ps(values.as_ptr().add(position * COLUMNS + column));
            let mut largest = [_mm512_setzero_ps(); 4];
            for position in 0..positions {
                largest[position % 4] = _mm512_max_ps(largest[position % 4], _mm512_abs_ps(at(position)));
            }
            let largest = _mm512_max_ps(_mm512_max_ps(largest[0], largest[1]), _mm512_max_ps(largest[2], largest[3]));
            let some = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(largest, _mm512_setzero_ps());
            let scale = _mm512_maskz_div_ps(some, _mm512_set1_ps(MOST_VALUE), largest);
            _mm512_storeu_ps(units.as_mut_ptr().add(column), _mm512_mul_ps(largest, _mm512_set1_ps(1.0 / MOST_VALUE)));
            pack_columns(values, COLUMNS, column, scale, words);
        }
    }
}

/// Packs sixteen columns from this one on: two positions a word, the second one zero behind an odd number.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn pack_columns(rows: &[f32], width: usize, column: usize, scale: __m512, words: &mut [u32]) {
    let positions = rows.len() / width;
    // SAFETY: the caller's promise.
    unsafe {
        let packed = |position: usize| {
            let row = _mm512_loadu_ps(rows.as_ptr().add(position * width + column));
            _mm512_cvtps_epi32(_mm512_mul_ps(row, scale))
        };
        for pair in 0..positions.div_ceil(2) {
            let first = _mm512_and_si512(packed(2 * pair), _mm512_set1_epi32(0xffff));
            let has_second = 2 * pair + 1 < positions;
            let second = if has_second { packed(2 * pair + 1) } else { _mm512_setzero_si512() };
            let word = _mm512_or_si512(first, _mm512_slli_epi32::<16>(second));
            _mm512_storeu_si512(words.as_mut_ptr().add(pair * width + column).cast(), word);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn multiply(
    product: &Product,
    m: usize,
    n: usize,
    before: Option<&[f32]>,
    c: &mut [f32],
    c_stride: usize,
) {
    let target = Target { before: before.map_or(std::ptr::null(), <[f32]>::as_ptr), c: c.as_mut_ptr(), c_stride };
    let mut column = 0;
    // SAFETY: the caller's promise. Columns outside: a block of b's columns stays near the core while all rows pass by.
    unsafe {
        while column + 64 <= n {
            rows::<4>(product, &target, m, column);
            column += 64;
        }
        while column + 32 <= n {
            rows::<2>(product, &target, m, column);
            column += 32;
        }
        if column < n {
            rows::<1>(product, &target, m, column);
        }
    }
}

struct Target {
    before: *const f32,
    c: *mut f32,
    c_stride: usize,
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn rows<const N: usize>(product: &Product, target: &Target, m: usize, column: usize) {
    let mut row = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while row + 4 <= m {
            block::<4, N>(product, target, row, column);
            row += 4;
        }
        while row < m {
            block::<1, N>(product, target, row, column);
            row += 1;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn block<const M: usize, const N: usize>(product: &Product, target: &Target, row: usize, column: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); N]; M];
        let (mut a, mut b) = (product.a.as_ptr().add(row * product.a_row), product.b.as_ptr().add(column));
        for _ in 0..product.pairs {
            let mut words = [_mm512_setzero_si512(); N];
            for j in 0..N {
                words[j] = _mm512_loadu_si512(b.add(16 * j).cast());
            }
            for i in 0..M {
                let word = _mm512_set1_epi32((*a.add(i * product.a_row)).cast_signed());
                for j in 0..N {
                    sums[i][j] = _mm512_dpwssd_epi32(sums[i][j], words[j], word);
                }
            }
            a = a.wrapping_add(product.a_pair);
            b = b.wrapping_add(product.b_stride);
        }
        for i in 0..M {
            let unit = _mm512_set1_ps(*product.a_units.as_ptr().add(row + i));
            let c = target.c.add((row + i) * target.c_stride + column);
            for j in 0..N {
                let units = _mm512_mul_ps(unit, _mm512_loadu_ps(product.b_units.as_ptr().add(column + 16 * j)));
                let sum = _mm512_cvtepi32_ps(sums[i][j]);
                let sum = if target.before.is_null() {
                    _mm512_mul_ps(sum, units)
                } else {
                    let before =
                        _mm512_mul_ps(_mm512_loadu_ps(c.add(16 * j)), _mm512_set1_ps(*target.before.add(row + i)));
                    _mm512_fmadd_ps(sum, units, before)
                };
                _mm512_storeu_ps(c.add(16 * j), sum);
            }
        }
    }
}
