//! Pairs with AVX2. Every function demands that level, and lengths that `pairs` has checked.

use super::super::COLUMNS;
use super::{ALL_WEIGHTS, LONGEST, MOST, MOST_VALUE, Product};
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn pack_row(row: &[f32], words: &mut [u32]) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let (mut largest, mut squares) = ([_mm256_setzero_ps(); 2], [_mm256_setzero_ps(); 2]);
        for at in (0..row.len()).step_by(16) {
            for half in 0..2 {
                let x = _mm256_loadu_ps(row.as_ptr().add(at + 8 * half));
                largest[half] = _mm256_max_ps(largest[half], absolute(x));
                squares[half] = _mm256_fmadd_ps(x, x, squares[half]);
            }
        }
        let mut values = [[0.0f32; 8]; 2];
        _mm256_storeu_ps(values[0].as_mut_ptr(), _mm256_max_ps(largest[0], largest[1]));
        _mm256_storeu_ps(values[1].as_mut_ptr(), _mm256_add_ps(squares[0], squares[1]));
        let largest = values[0].iter().fold(0.0f32, |largest, x| largest.max(*x));
        let length = values[1].iter().sum::<f32>().sqrt();
        if length == 0.0 {
            words.fill(0);
            return 0.0;
        }
        // A NaN stays one: it is in the length.
        let (by_largest, by_length) = (MOST / largest, LONGEST / length);
        let scale = if by_length >= by_largest { by_largest } else { by_length };
        for at in (0..row.len()).step_by(16) {
            let scaled = |half: usize| {
                let x = _mm256_loadu_ps(row.as_ptr().add(at + 8 * half));
                _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(scale)))
            };
            // Packed within halves of the register, whose middle parts change places.
            let packed = _mm256_permute4x64_epi64::<0xd8>(_mm256_packs_epi32(scaled(0), scaled(1)));
            _mm256_storeu_si256(words.as_mut_ptr().add(at / 2).cast(), packed);
        }
        1.0 / scale
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn absolute(x: __m256) -> __m256 {
    _mm256_andnot_ps(_mm256_set1_ps(-0.0), x)
}

/// Divides, and gives zero where the divisor is zero.
#[inline]
#[target_feature(enable = "avx2")]
fn over(most: f32, by: __m256) -> __m256 {
    let some = _mm256_cmp_ps::<_CMP_NEQ_UQ>(by, _mm256_setzero_ps());
    _mm256_and_ps(some, _mm256_div_ps(_mm256_set1_ps(most), by))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn pack_weights(weights: &[f32], width: usize, words: &mut [u32], units: &mut [f32]) {
    let positions = weights.len() / width;
    for row in (0..width).step_by(8) {
        // SAFETY: the caller's promise.
        unsafe {
            let at = |position: usize| _mm256_loadu_ps(weights.as_ptr().add(position * width + row));
            let (mut sums, mut largest) = ([_mm256_setzero_ps(); 4], [_mm256_setzero_ps(); 4]);
            for position in 0..positions {
                sums[position % 4] = _mm256_add_ps(sums[position % 4], at(position));
                largest[position % 4] = _mm256_max_ps(largest[position % 4], at(position));
            }
            let total = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
            let largest = _mm256_max_ps(_mm256_max_ps(largest[0], largest[1]), _mm256_max_ps(largest[2], largest[3]));
            let unit = _mm256_max_ps(
                _mm256_mul_ps(largest, _mm256_set1_ps(1.0 / MOST)),
                _mm256_mul_ps(total, _mm256_set1_ps(1.0 / ALL_WEIGHTS)),
            );
            _mm256_storeu_ps(units.as_mut_ptr().add(row), unit);
            pack_columns(weights, width, row, over(1.0, unit), words);
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn pack_values(values: &[f32], words: &mut [u32], units: &mut [f32]) {
    let positions = values.len() / COLUMNS;
    for column in (0..COLUMNS).step_by(8) {
        // SAFETY: the caller's promise.
        unsafe {
            let at = |position: usize| _mm256_loadu_ps(values.as_ptr().add(position * COLUMNS + column));
            let mut largest = [_mm256_setzero_ps(); 4];
            for position in 0..positions {
                largest[position % 4] = _mm256_max_ps(largest[position % 4], absolute(at(position)));
            }
            let largest = _mm256_max_ps(_mm256_max_ps(largest[0], largest[1]), _mm256_max_ps(largest[2], largest[3]));
            _mm256_storeu_ps(units.as_mut_ptr().add(column), _mm256_mul_ps(largest, _mm256_set1_ps(1.0 / MOST_VALUE)));
            pack_columns(values, COLUMNS, column, over(MOST_VALUE, largest), words);
        }
    }
}

/// Packs eight columns from this one on: two positions a word, the second one zero behind an odd number.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack_columns(rows: &[f32], width: usize, column: usize, scale: __m256, words: &mut [u32]) {
    let positions = rows.len() / width;
    // SAFETY: the caller's promise.
    unsafe {
        let packed = |position: usize| {
            let row = _mm256_loadu_ps(rows.as_ptr().add(position * width + column));
            _mm256_cvtps_epi32(_mm256_mul_ps(row, scale))
        };
        for pair in 0..positions.div_ceil(2) {
            let first = _mm256_and_si256(packed(2 * pair), _mm256_set1_epi32(0xffff));
            let has_second = 2 * pair + 1 < positions;
            let second = if has_second { packed(2 * pair + 1) } else { _mm256_setzero_si256() };
            let word = _mm256_or_si256(first, _mm256_slli_epi32::<16>(second));
            _mm256_storeu_si256(words.as_mut_ptr().add(pair * width + column).cast(), word);
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn multiply(
    product: &Product,
    m: usize,
    n: usize,
    before: Option<&[f32]>,
    c: &mut [f32],
    c_stride: usize,
) {
    let before = before.map_or(std::ptr::null(), <[f32]>::as_ptr);
    // SAFETY: the caller's promise. Columns outside: a block of b's columns stays near the core while all rows pass by.
    unsafe {
        for column in (0..n).step_by(16) {
            let mut row = 0;
            while row + 4 <= m {
                block::<4>(product, before, c.as_mut_ptr(), c_stride, row, column);
                row += 4;
            }
            while row < m {
                block::<1>(product, before, c.as_mut_ptr(), c_stride, row, column);
                row += 1;
            }
        }
    }
}

/// Multiplies M rows with sixteen columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn block<const M: usize>(
    product: &Product,
    before: *const f32,
    c: *mut f32,
    c_stride: usize,
    row: usize,
    column: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[_mm256_setzero_si256(); 2]; M];
        let (mut a, mut b) = (product.a.as_ptr().add(row * product.a_row), product.b.as_ptr().add(column));
        for _ in 0..product.pairs {
            let words = [_mm256_loadu_si256(b.cast()), _mm256_loadu_si256(b.add(8).cast())];
            for i in 0..M {
                let word = _mm256_set1_epi32((*a.add(i * product.a_row)).cast_signed());
                for j in 0..2 {
                    sums[i][j] = _mm256_add_epi32(sums[i][j], _mm256_madd_epi16(words[j], word));
                }
            }
            a = a.wrapping_add(product.a_pair);
            b = b.wrapping_add(product.b_stride);
        }
        for i in 0..M {
            let unit = _mm256_set1_ps(*product.a_units.as_ptr().add(row + i));
            for j in 0..2 {
                let c = c.add((row + i) * c_stride + column + 8 * j);
                let units = _mm256_mul_ps(unit, _mm256_loadu_ps(product.b_units.as_ptr().add(column + 8 * j)));
                let sum = _mm256_cvtepi32_ps(sums[i][j]);
                let sum = if before.is_null() {
                    _mm256_mul_ps(sum, units)
                } else {
                    let before = _mm256_mul_ps(_mm256_loadu_ps(c), _mm256_set1_ps(*before.add(row + i)));
                    _mm256_fmadd_ps(sum, units, before)
                };
                _mm256_storeu_ps(c, sum);
            }
        }
    }
}
