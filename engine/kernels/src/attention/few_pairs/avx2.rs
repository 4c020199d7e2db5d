//! Few rows in pairs with AVX2. Every function demands that level, and lengths that `few_pairs` has checked.

use super::super::few::{LINE, PageRows};
use super::super::{Shape, TILE};
use super::{BLOCK, FewPairs, MOST_BLOCKS, MOST_SUM, MOST_WEIGHT};
use crate::cpu::lanes::prefetch;
use crate::format::Format;
use crate::levels::LEVELS_4;
use std::arch::x86_64::*;

const HALF: usize = 16; // columns of a register

/// Numbers of a format as integers.
trait Codes {
    /// Bytes of a block, its scale included. `None`: a row has one scale.
    const BLOCK_BYTES: Option<usize>;
    const MOST: f32; // the largest integer
    const STEP: f32; // what an integer counts, without its scale

    /// Loads sixteen columns from this one on.
    ///
    /// # Safety
    /// The row has them.
    unsafe fn load(row: *const u8, column: usize) -> __m256i;
}

struct Bytes;
struct Nibbles;
struct Levels;

const BYTES_BLOCK: usize = 2 + BLOCK;
const NIBBLES_BLOCK: usize = 2 + BLOCK / 2;

impl Codes for Bytes {
    const BLOCK_BYTES: Option<usize> = Some(BYTES_BLOCK);
    const MOST: f32 = 128.0;
    const STEP: f32 = 1.0;

    #[inline(always)]
    unsafe fn load(row: *const u8, column: usize) -> __m256i {
        // SAFETY: the caller's promise; so below.
        unsafe {
            let codes = row.add(column / BLOCK * BYTES_BLOCK + 2 + column % BLOCK);
            _mm256_cvtepi8_epi16(_mm_loadu_si128(codes.cast()))
        }
    }
}

impl Codes for Nibbles {
    const BLOCK_BYTES: Option<usize> = Some(NIBBLES_BLOCK);
    const MOST: f32 = 8.0;
    const STEP: f32 = 1.0;

    #[inline(always)]
    unsafe fn load(row: *const u8, column: usize) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let codes = row.add(column / BLOCK * NIBBLES_BLOCK + 2);
            let bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(codes.cast()));
            let nibbles = match column % BLOCK {
                0 => _mm256_and_si256(bytes, _mm256_set1_epi16(15)),
                _ => _mm256_srli_epi16::<4>(bytes),
            };
            _mm256_sub_epi16(nibbles, _mm256_set1_epi16(8))
        }
    }
}

impl Codes for Levels {
    const BLOCK_BYTES: Option<usize> = None;
    const MOST: f32 = 2047.0;
    const STEP: f32 = LEVELS_4[7] / Self::MOST;

    #[inline(always)]
    unsafe fn load(row: *const u8, column: usize) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let bytes = row.add(2 + column / BLOCK * HALF);
            let spread = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.cast())), both_bytes());
            let codes = if column.is_multiple_of(BLOCK) { spread } else { _mm256_srli_epi16::<4>(spread) };
            let codes = _mm256_and_si256(codes, _mm256_set1_epi8(15));
            let (low, high) = (look_up(&LOW_BYTES, codes), look_up(&HIGH_BYTES, codes));
            _mm256_unpacklo_epi8(low, high)
        }
    }
}

/// Returns the order that puts eight bytes into the lower half of each half of a register.
#[inline(always)]
unsafe fn both_bytes() -> __m256i {
    // SAFETY: only functions of this level call it; so below.
    unsafe { _mm256_setr_epi64x(0x0706_0504_0302_0100, -1, 0x0f0e_0d0c_0b0a_0908, -1) }
}

const LEVELS: [i16; 16] = {
    let mut levels = [0; 16];
    let mut code = 0;
    while code < 8 {
        let level = (LEVELS_4[code] / Levels::STEP + 0.5) as i16;
        (levels[code], levels[code + 8]) = (level, -level);
        code += 1;
    }
    levels
};
const LOW_BYTES: [u8; 16] = bytes_of_levels(0);
const HIGH_BYTES: [u8; 16] = bytes_of_levels(1);

const fn bytes_of_levels(at: usize) -> [u8; 16] {
    let mut bytes = [0; 16];
    let mut code = 0;
    while code < 16 {
        bytes[code] = LEVELS[code].to_le_bytes()[at];
        code += 1;
    }
    bytes
}

#[inline(always)]
unsafe fn look_up(table: &[u8; 16], codes: __m256i) -> __m256i {
    // SAFETY: see above.
    unsafe { _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())), codes) }
}

/// Scales of a tile by block.
struct Scales {
    of_blocks: [[f32; TILE]; MOST_BLOCKS],
    blocks: usize,
}

impl Scales {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn of<C: Codes>(shape: Shape, rows: PageRows) -> Scales {
        let blocks = if C::BLOCK_BYTES.is_some() { shape.dim / BLOCK } else { 1 };
        let mut scales = Scales { of_blocks: [[0.0; TILE]; MOST_BLOCKS], blocks };
        let mut halves = [[0u16; TILE]; MOST_BLOCKS];
        // SAFETY: the caller's promise.
        unsafe {
            for position in 0..shape.positions {
                let row = rows.bytes.as_ptr().add(position * rows.stride);
                for block in 0..blocks {
                    let scale = row.add(block * C::BLOCK_BYTES.unwrap_or_default());
                    *halves.get_unchecked_mut(block).get_unchecked_mut(position) =
                        u16::from_le_bytes([*scale, *scale.add(1)]);
                }
            }
            for (halves, scales) in halves.iter().zip(&mut scales.of_blocks).take(blocks) {
                for first in (0..shape.positions).step_by(8) {
                    let eight = _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().add(first).cast()));
                    let eight = _mm256_mul_ps(eight, _mm256_set1_ps(C::STEP));
                    _mm256_storeu_ps(scales.as_mut_ptr().add(first), eight);
                }
            }
        }
        scales
    }

    /// Divides the scales of each block by its largest one, and returns those.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn split(&mut self, positions: usize) -> [f32; MOST_BLOCKS] {
        let mut units = [0.0; MOST_BLOCKS];
        for (scales, unit) in self.of_blocks.iter_mut().zip(&mut units).take(self.blocks) {
            // SAFETY: a block has `TILE` scales.
            unsafe {
                let (mut largest, mut none) = (_mm256_setzero_ps(), _mm256_setzero_ps());
                for first in (0..positions).step_by(8) {
                    let scale = _mm256_loadu_ps(scales.as_ptr().add(first));
                    largest = _mm256_max_ps(largest, _mm256_andnot_ps(_mm256_set1_ps(-0.0), scale));
                    // Zero, or NaN where a scale is no number: the unit shows it.
                    none = _mm256_add_ps(none, _mm256_sub_ps(scale, scale));
                }
                let (largest, none) = (largest_of(largest), sum_of(none));
                *unit = largest + none;
                let factor = if largest == 0.0 { 0.0 } else { 1.0 / largest };
                for first in (0..positions).step_by(8) {
                    let at = scales.as_mut_ptr().add(first);
                    _mm256_storeu_ps(at, _mm256_mul_ps(_mm256_loadu_ps(at), _mm256_set1_ps(factor)));
                }
            }
        }
        units
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn largest_of(v: __m256) -> f32 {
    lanes_of(v).into_iter().fold(0.0, f32::max)
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum_of(v: __m256) -> f32 {
    lanes_of(v).into_iter().sum()
}

#[inline]
#[target_feature(enable = "avx2")]
fn lanes_of(v: __m256) -> [f32; 8] {
    let mut lanes = [0.0; 8];
    // SAFETY: they are eight.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), v) };
    lanes
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn scores(shape: Shape, queries: &FewPairs, keys: PageRows, scores: &mut [f32]) {
    // SAFETY: the caller's promise; so below.
    unsafe {
        match keys.format {
            Format::Q8_0 => score_all::<Bytes>(shape, queries, keys, scores),
            Format::Q4_0 => score_all::<Nibbles>(shape, queries, keys, scores),
            _ => score_all::<Levels>(shape, queries, keys, scores),
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn score_all<C: Codes>(shape: Shape, queries: &FewPairs, keys: PageRows, scores: &mut [f32]) {
    // SAFETY: see above.
    unsafe {
        let scales = Scales::of::<C>(shape, keys);
        let mut row = 0;
        while row < shape.rows {
            row += match shape.rows - row {
                4.. => score::<C, 4>(shape, row, queries, keys, &scales, scores),
                3 => score::<C, 3>(shape, row, queries, keys, &scales, scores),
                2 => score::<C, 2>(shape, row, queries, keys, &scales, scores),
                _ => score::<C, 1>(shape, row, queries, keys, &scales, scores),
            };
        }
    }
}

/// Multiplies M rows with all keys.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn score<C: Codes, const M: usize>(
    shape: Shape,
    row: usize,
    queries: &FewPairs,
    keys: PageRows,
    scales: &Scales,
    scores: &mut [f32],
) -> usize {
    let dim = shape.dim;
    // SAFETY: see above.
    unsafe {
        let first_words = queries.words.as_ptr().add(row * BLOCK / 2);
        for at in 0..shape.positions {
            for line in (0..keys.stride).step_by(LINE) {
                prefetch(keys.next.wrapping_add(at * keys.stride + line));
            }
            let key = keys.bytes.as_ptr().add(at * keys.stride);
            let (mut sums, mut whole) = ([_mm256_setzero_ps(); M], [_mm256_setzero_si256(); M]);
            let mut words = first_words;
            for (block, column) in (0..dim).step_by(BLOCK).enumerate() {
                let codes = [C::load(key, column), C::load(key, column + HALF)];
                for m in 0..M {
                    let query = words.add(m * BLOCK / 2);
                    let products = [
                        _mm256_madd_epi16(codes[0], _mm256_loadu_si256(query.cast())),
                        _mm256_madd_epi16(codes[1], _mm256_loadu_si256(query.add(HALF / 2).cast())),
                    ];
                    whole[m] = _mm256_add_epi32(whole[m], _mm256_add_epi32(products[0], products[1]));
                }
                words = words.add(shape.rows * BLOCK / 2);
                if C::BLOCK_BYTES.is_some() {
                    let scale = _mm256_set1_ps(*scales.of_blocks.get_unchecked(block).get_unchecked(at));
                    for m in 0..M {
                        sums[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[m]), scale, sums[m]);
                        whole[m] = _mm256_setzero_si256();
                    }
                }
            }
            let mut four = [_mm256_setzero_ps(); 4];
            for m in 0..M {
                four[m] = if C::BLOCK_BYTES.is_some() { sums[m] } else { _mm256_cvtepi32_ps(whole[m]) };
            }
            // Sums of neighbours twice, then of both halves of the register.
            let pairs = _mm256_hadd_ps(_mm256_hadd_ps(four[0], four[1]), _mm256_hadd_ps(four[2], four[3]));
            let mut lanes = [0.0f32; 4];
            let both = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
            _mm_storeu_ps(lanes.as_mut_ptr(), both);
            let scale = if C::BLOCK_BYTES.is_some() { 1.0 } else { scales.of_blocks[0][at] };
            for m in 0..M {
                let unit = scale * queries.units.get_unchecked(row + m);
                *scores.get_unchecked_mut((row + m) * TILE + at) = lanes[m] * unit;
            }
        }
    }
    M
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn weigh(shape: Shape, weights: &[f32], values: PageRows, corrections: &[f32], sums: &mut [f32]) {
    // SAFETY: see above.
    unsafe {
        match values.format {
            Format::Q8_0 => weigh_all::<Bytes>(shape, weights, values, corrections, sums),
            Format::Q4_0 => weigh_all::<Nibbles>(shape, weights, values, corrections, sums),
            _ => weigh_all::<Levels>(shape, weights, values, corrections, sums),
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn weigh_all<C: Codes>(shape: Shape, weights: &[f32], values: PageRows, corrections: &[f32], sums: &mut [f32]) {
    // SAFETY: see above.
    unsafe {
        let mut scales = Scales::of::<C>(shape, values);
        let units = scales.split(shape.positions);
        let mut row = 0;
        while row < shape.rows {
            let (weights, corrections) = (&weights[row * TILE..], &corrections[row..]);
            let sums = &mut sums[row * shape.dim..];
            row += match shape.rows - row {
                4.. => weigh_rows::<C, 4>(shape, weights, values, (&scales, &units), corrections, sums),
                3 => weigh_rows::<C, 3>(shape, weights, values, (&scales, &units), corrections, sums),
                2 => weigh_rows::<C, 2>(shape, weights, values, (&scales, &units), corrections, sums),
                _ => weigh_rows::<C, 1>(shape, weights, values, (&scales, &units), corrections, sums),
            };
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn weigh_rows<C: Codes, const M: usize>(
    shape: Shape,
    weights: &[f32],
    values: PageRows,
    (scales, scale_units): (&Scales, &[f32; MOST_BLOCKS]),
    corrections: &[f32],
    sums: &mut [f32],
) -> usize {
    let Shape { dim, positions, .. } = shape;
    let mut words = [[[0u32; TILE / 2]; MOST_BLOCKS]; M];
    let mut units = [0.0; M];
    // SAFETY: see above.
    unsafe {
        for m in 0..M {
            units[m] = pack_weights::<C>(&weights[m * TILE..][..TILE], scales, positions, &mut words[m]);
        }
        for column in (0..dim).step_by(HALF) {
            let block = column / BLOCK % scales.blocks;
            // Lines of each next row that begin under these columns.
            let [first, last] =
                [column, column + HALF].map(|column| (values.stride * column / dim).next_multiple_of(LINE));
            let mut acc = [[_mm256_setzero_si256(); 2]; M];
            let (mut row, mut next) = (values.bytes.as_ptr(), values.next.wrapping_add(first));
            let words = words.as_ptr().cast::<u32>().add(block * TILE / 2);
            for pair in 0..positions.div_ceil(2) {
                if first < last {
                    prefetch(next);
                    prefetch(next.wrapping_add(values.stride));
                    next = next.wrapping_add(2 * values.stride);
                }
                // Behind an odd number of positions the last one stands in, with the weight zero.
                let other = if 2 * pair + 1 < positions { row.add(values.stride) } else { row };
                let (one, two) = (C::load(row, column), C::load(other, column));
                row = other.add(values.stride);
                let pairs = [_mm256_unpacklo_epi16(one, two), _mm256_unpackhi_epi16(one, two)];
                for m in 0..M {
                    let word = _mm256_set1_epi32((*words.add(m * MOST_BLOCKS * TILE / 2 + pair)).cast_signed());
                    for n in 0..2 {
                        acc[m][n] = _mm256_add_epi32(acc[m][n], _mm256_madd_epi16(pairs[n], word));
                    }
                }
            }
            for m in 0..M {
                // The registers hold columns 0 to 3 and 8 to 11, and 4 to 7 and 12 to 15.
                let halves = [
                    _mm256_permute2x128_si256::<0x20>(acc[m][0], acc[m][1]),
                    _mm256_permute2x128_si256::<0x31>(acc[m][0], acc[m][1]),
                ];
                let (correction, unit) =
                    (_mm256_set1_ps(corrections[m]), _mm256_set1_ps(units[m] * scale_units[block]));
                for (n, half) in halves.into_iter().enumerate() {
                    let at = sums.as_mut_ptr().add(m * dim + column + 8 * n);
                    let before = _mm256_mul_ps(correction, _mm256_loadu_ps(at));
                    _mm256_storeu_ps(at, _mm256_fmadd_ps(unit, _mm256_cvtepi32_ps(half), before));
                }
            }
        }
    }
    M
}

/// Packs a row of weights for each block, each with the scale of what it weighs: two positions a word. Returns the unit of
/// the words.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack_weights<C: Codes>(
    weights: &[f32],
    scales: &Scales,
    positions: usize,
    words: &mut [[u32; TILE / 2]; MOST_BLOCKS],
) -> f32 {
    // SAFETY: see above.
    unsafe {
        let (mut largest, mut total) = (_mm256_setzero_ps(), _mm256_setzero_ps());
        for first in (0..positions).step_by(8) {
            let weights = _mm256_loadu_ps(weights.as_ptr().add(first));
            (largest, total) = (_mm256_max_ps(largest, weights), _mm256_add_ps(total, weights));
        }
        let (largest, total) = (largest_of(largest), sum_of(total));
        if total == 0.0 {
            return 0.0;
        }
        // A NaN stays one: it is in the total.
        let (by_largest, by_total) = (largest / MOST_WEIGHT, total * C::MOST / MOST_SUM);
        let unit = if by_largest >= by_total { by_largest } else { by_total };
        let factor = _mm256_set1_ps(1.0 / unit);
        for first in (0..positions).step_by(HALF) {
            let weights =
                [first, first + 8].map(|first| _mm256_mul_ps(_mm256_loadu_ps(weights.as_ptr().add(first)), factor));
            for (scales, words) in scales.of_blocks.iter().zip(&mut *words).take(scales.blocks) {
                let whole = |half: usize| {
                    let scales = _mm256_loadu_ps(scales.as_ptr().add(first + 8 * half));
                    _mm256_cvtps_epi32(_mm256_mul_ps(weights[half], scales))
                };
                // Packed within halves of the register, whose middle parts change places.
                let packed = _mm256_permute4x64_epi64::<0xd8>(_mm256_packs_epi32(whole(0), whole(1)));
                _mm256_storeu_si256(words.as_mut_ptr().add(first / 2).cast(), packed);
            }
        }
        unit
    }
}
