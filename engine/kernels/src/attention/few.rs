//! Few query rows: keys and values go from their pages straight into registers, each once for several rows. The next
//! rows are prefetched meanwhile, because one token reads all of the past and computes little with it.

use super::{Shape, TILE};
use crate::cpu::{CpuLevel, Lanes, at_level, lanes::prefetch};
use crate::format::Format;
use crate::levels::signs_at;
use crate::unpack::unpack_columns;

/// Divisor of the head widths that this module handles: no register holds more numbers.
pub(super) const WIDTH: usize = 16;

pub(super) const LINE: usize = 64;

#[derive(Clone, Copy)]
pub(super) struct PageRows<'a> {
    pub format: Format,
    pub bytes: &'a [u8],
    pub stride: usize,   // bytes
    pub next: *const u8, // rows that are read after these; they need not exist
}

impl PageRows<'_> {
    pub fn unpack(&self, level: CpuLevel, columns: std::ops::Range<usize>, out: &mut [f32]) {
        unpack_columns(level, self.format, self.bytes, self.stride, columns, out);
    }

    pub fn check(&self, shape: Shape) {
        assert!(shape.dim.is_multiple_of(WIDTH) && self.format.row_bytes(shape.dim) == Some(self.stride));
        assert!(self.bytes.len() >= shape.positions * self.stride && shape.positions <= TILE);
    }
}

/// Writes `scores`: [row, TILE]. `q`: [row, head dim].
pub(super) fn scores(level: CpuLevel, shape: Shape, q: &[f32], keys: PageRows, scores: &mut [f32]) {
    keys.check(shape);
    assert!(q.len() >= shape.rows * shape.dim && scores.len() >= shape.rows * TILE);
    at_level!(level, scores_body(shape: Shape, q: &[f32], keys: PageRows<'_>, scores: &mut [f32]));
}

/// Multiplies the sums, [row, head dim], with the corrections of their rows and adds values with their weights, [row,
/// TILE].
pub(super) fn weigh(
    level: CpuLevel,
    shape: Shape,
    weights: &[f32],
    values: PageRows,
    corrections: &[f32],
    sums: &mut [f32],
) {
    values.check(shape);
    let Shape { rows, dim, .. } = shape;
    assert!(weights.len() >= rows * TILE && corrections.len() >= rows && sums.len() >= rows * dim);
    at_level!(level, weigh_body(shape: Shape, weights: &[f32], values: PageRows<'_>, corrections: &[f32], sums: &mut [f32]));
}

trait Stored {
    /// Columns that share a scale. `None`: numbers lie as they are.
    const SCALED: Option<usize>;

    /// Loads numbers of a row of `dim`, without their scale.
    ///
    /// # Safety
    /// The row has `COUNT` numbers from this column on, which is a multiple of `COUNT`.
    unsafe fn load<L: Lanes>(row: *const u8, dim: usize, column: usize) -> L::V;

    /// Returns the scale of these columns, a half.
    ///
    /// # Safety
    /// A row begins here, and has this column.
    #[inline(always)]
    unsafe fn scale(_row: *const u8, _column: usize) -> u16 {
        unreachable!("numbers without a scale")
    }
}

struct Singles;
struct Halves;
struct UpperHalves;
struct Bytes;
struct Nibbles;
struct Levels4;
struct Levels3;

impl Stored for Singles {
    const SCALED: Option<usize> = None;

    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: the caller's promise; so below. No level needs an alignment.
        unsafe { L::load(row.add(4 * column).cast()) }
    }
}

impl Stored for Halves {
    const SCALED: Option<usize> = None;

    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe { L::load_f16(row.add(2 * column)) }
    }
}

impl Stored for UpperHalves {
    const SCALED: Option<usize> = None;

    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe { L::load_bf16(row.add(2 * column)) }
    }
}

const BLOCK: usize = 32; // a block of 32 numbers: its scale, then their codes
const BYTES_BLOCK: usize = 2 + BLOCK;
const NIBBLES_BLOCK: usize = 2 + BLOCK / 2;

impl Stored for Bytes {
    const SCALED: Option<usize> = Some(BLOCK);

    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe { L::load_i8(row.add(column / BLOCK * BYTES_BLOCK + 2 + column % BLOCK).cast()) }
    }

    #[inline(always)]
    unsafe fn scale(row: *const u8, column: usize) -> u16 {
        // SAFETY: the caller's promise.
        unsafe { half(row.add(column / BLOCK * BYTES_BLOCK)) }
    }
}

impl Stored for Nibbles {
    const SCALED: Option<usize> = Some(BLOCK);

    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe {
            let codes = row.add(column / BLOCK * NIBBLES_BLOCK + 2);
            L::load_i4(codes.add(column % WIDTH), column % BLOCK >= WIDTH)
        }
    }

    #[inline(always)]
    unsafe fn scale(row: *const u8, column: usize) -> u16 {
        // SAFETY: the caller's promise.
        unsafe { half(row.add(column / BLOCK * NIBBLES_BLOCK)) }
    }
}

impl Stored for Levels4 {
    const SCALED: Option<usize> = Some(usize::MAX);

    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe { L::load_tq4(row.add(2 + column / BLOCK * WIDTH + column % WIDTH), column % BLOCK >= WIDTH) }
    }

    #[inline(always)]
    unsafe fn scale(row: *const u8, _: usize) -> u16 {
        // SAFETY: the caller's promise.
        unsafe { half(row) }
    }
}

impl Stored for Levels3 {
    const SCALED: Option<usize> = Some(usize::MAX);

    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, dim: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe { L::load_tq3(row.add(2 + column / 4), row.add(signs_at(dim) + column / 8), column % 8) }
    }

    #[inline(always)]
    unsafe fn scale(row: *const u8, _: usize) -> u16 {
        // SAFETY: the caller's promise.
        unsafe { half(row) }
    }
}

/// # Safety
/// A scale lies here.
#[inline(always)]
unsafe fn half(scale: *const u8) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { u16::from_le_bytes([*scale, *scale.add(1)]) }
}

#[inline(always)]
fn scores_body<L: Lanes>(shape: Shape, q: &[f32], keys: PageRows, scores: &mut [f32]) {
    match keys.format {
        Format::F16 => score_all::<L, Halves>(shape, q, keys, scores),
        Format::BF16 => score_all::<L, UpperHalves>(shape, q, keys, scores),
        Format::Q8_0 => score_all::<L, Bytes>(shape, q, keys, scores),
        Format::Q4_0 => score_all::<L, Nibbles>(shape, q, keys, scores),
        Format::TQ4 => score_all::<L, Levels4>(shape, q, keys, scores),
        Format::TQ3 => score_all::<L, Levels3>(shape, q, keys, scores),
        _ => score_all::<L, Singles>(shape, q, keys, scores),
    }
}

#[inline(always)]
fn score_all<L: Lanes, S: Stored>(shape: Shape, q: &[f32], keys: PageRows, scores: &mut [f32]) {
    let mut row = 0;
    while row < shape.rows {
        row += match shape.rows - row {
            8.. if L::WIDE == 4 => score::<L, S, 8>(shape, row, q, keys, scores),
            4.. => score::<L, S, 4>(shape, row, q, keys, scores),
            3 => score::<L, S, 3>(shape, row, q, keys, scores),
            2 => score::<L, S, 2>(shape, row, q, keys, scores),
            _ => score::<L, S, 1>(shape, row, q, keys, scores),
        };
    }
}

#[inline(always)]
fn score<L: Lanes, S: Stored, const M: usize>(
    shape: Shape,
    row: usize,
    q: &[f32],
    keys: PageRows,
    scores: &mut [f32],
) -> usize {
    let mut at = 0;
    // SAFETY: `scores` looked at the largest index of each slice.
    unsafe {
        let (q, scores) = (q.as_ptr().add(row * shape.dim), scores.as_mut_ptr().add(row * TILE));
        while at < shape.positions {
            at += match shape.positions - at {
                4.. if L::WIDE == 4 && M <= 4 => dots::<L, S, M, 4>(shape.dim, q, keys, at, scores),
                2.. => dots::<L, S, M, 2>(shape.dim, q, keys, at, scores),
                _ => dots::<L, S, M, 1>(shape.dim, q, keys, at, scores),
            };
        }
    }
    M
}

/// Multiplies M rows with N keys.
///
/// # Safety
/// The M rows, the N keys and M rows of scores exist in full.
#[inline(always)]
unsafe fn dots<L: Lanes, S: Stored, const M: usize, const N: usize>(
    dim: usize,
    q: *const f32,
    keys: PageRows,
    at: usize,
    scores: *mut f32,
) -> usize {
    let mut sums = [[L::splat(0.0); N]; M];
    // SAFETY: the caller's promise.
    unsafe {
        let first = keys.bytes.as_ptr().add(at * keys.stride);
        for line in (0..N * keys.stride).step_by(LINE) {
            prefetch(keys.next.wrapping_add(at * keys.stride + line));
        }
        let has_blocks = S::SCALED == Some(BLOCK);
        let span = if has_blocks { BLOCK } else { L::COUNT };
        for begin in (0..dim).step_by(span) {
            let mut scales = [L::splat(1.0); N];
            if has_blocks {
                for n in 0..N {
                    scales[n] = L::splat(L::half(S::scale(first.add(n * keys.stride), begin)));
                }
            }
            for column in (begin..begin + span).step_by(L::COUNT) {
                let mut key = [L::splat(0.0); N];
                for n in 0..N {
                    key[n] = S::load::<L>(first.add(n * keys.stride), dim, column);
                    if has_blocks {
                        key[n] = L::mul(scales[n], key[n]);
                    }
                }
                for m in 0..M {
                    let q = L::load(q.add(m * dim + column));
                    for n in 0..N {
                        sums[m][n] = L::madd(q, key[n], sums[m][n]);
                    }
                }
            }
        }
        let mut scales = [1.0; N];
        if S::SCALED == Some(usize::MAX) {
            for n in 0..N {
                scales[n] = L::half(S::scale(first.add(n * keys.stride), 0));
            }
        }
        for group in (0..M * N).step_by(4) {
            let mut four = [L::splat(0.0); 4];
            for i in group..(group + 4).min(M * N) {
                four[i - group] = sums[i / N][i % N];
            }
            let four = L::sums(four);
            for i in group..(group + 4).min(M * N) {
                *scores.add(i / N * TILE + at + i % N) = four[i - group] * scales[i % N];
            }
        }
    }
    N
}

#[inline(always)]
fn weigh_body<L: Lanes>(shape: Shape, weights: &[f32], values: PageRows, corrections: &[f32], sums: &mut [f32]) {
    match values.format {
        Format::F16 => weigh_all::<L, Halves>(shape, weights, values, corrections, sums),
        Format::BF16 => weigh_all::<L, UpperHalves>(shape, weights, values, corrections, sums),
        Format::Q8_0 => weigh_all::<L, Bytes>(shape, weights, values, corrections, sums),
        Format::Q4_0 => weigh_all::<L, Nibbles>(shape, weights, values, corrections, sums),
        Format::TQ4 => weigh_all::<L, Levels4>(shape, weights, values, corrections, sums),
        Format::TQ3 => weigh_all::<L, Levels3>(shape, weights, values, corrections, sums),
        _ => weigh_all::<L, Singles>(shape, weights, values, corrections, sums),
    }
}

#[inline(always)]
fn weigh_all<L: Lanes, S: Stored>(
    shape: Shape,
    weights: &[f32],
    values: PageRows,
    corrections: &[f32],
    sums: &mut [f32],
) {
    let mut row = 0;
    while row < shape.rows {
        let (weights, corrections) = (&weights[row * TILE..], &corrections[row..]);
        let sums = &mut sums[row * shape.dim..];
        row += match shape.rows - row {
            8.. if L::WIDE == 4 => weigh_rows::<L, S, 8>(shape, weights, values, corrections, sums),
            4.. => weigh_rows::<L, S, 4>(shape, weights, values, corrections, sums),
            3 => weigh_rows::<L, S, 3>(shape, weights, values, corrections, sums),
            2 => weigh_rows::<L, S, 2>(shape, weights, values, corrections, sums),
            _ => weigh_rows::<L, S, 1>(shape, weights, values, corrections, sums),
        };
    }
}

#[inline(always)]
fn weigh_rows<L: Lanes, S: Stored, const M: usize>(
    shape: Shape,
    weights: &[f32],
    values: PageRows,
    corrections: &[f32],
    sums: &mut [f32],
) -> usize {
    let dim = shape.dim;
    let span = match S::SCALED {
        Some(BLOCK) => BLOCKS * BLOCK,
        _ => dim,
    };
    let mut scaled = [[[0.0; TILE]; BLOCKS]; M];
    for begin in (0..dim).step_by(span) {
        let end = dim.min(begin + span);
        if S::SCALED.is_some() {
            scale_weights::<L, S, M>(shape, begin..end, weights, values, &mut scaled);
        }
        let weights = match S::SCALED {
            Some(_) => Weights { first: scaled.as_flattened().as_flattened(), row: BLOCKS * TILE, begin },
            None => Weights { first: weights, row: TILE, begin },
        };
        let mut column = begin;
        // SAFETY: `weigh` looked at the largest index of each slice.
        unsafe {
            let (corrections, sums) = (corrections.as_ptr(), sums.as_mut_ptr());
            while column < end {
                let count = match (end - column) / L::COUNT {
                    4.. if L::WIDE == 4 && M <= 4 => {
                        add::<L, S, M, 4>(shape, column, weights, values, corrections, sums)
                    }
                    2.. => add::<L, S, M, 2>(shape, column, weights, values, corrections, sums),
                    _ => add::<L, S, M, 1>(shape, column, weights, values, corrections, sums),
                };
                column += count * L::COUNT;
            }
        }
    }
    M
}

const BLOCKS: usize = 2; // blocks of a row that are weighed together

/// Weights of M rows, each with the scale of what it weighs, from column `begin` on.
#[derive(Clone, Copy)]
struct Weights<'a> {
    first: &'a [f32],
    row: usize,
    begin: usize,
}

#[inline(always)]
fn scale_weights<L: Lanes, S: Stored, const M: usize>(
    shape: Shape,
    columns: std::ops::Range<usize>,
    weights: &[f32],
    values: PageRows,
    scaled: &mut [[[f32; TILE]; BLOCKS]; M],
) {
    let columns = columns.step_by(S::SCALED.unwrap_or(usize::MAX));
    for (block, column) in columns.enumerate() {
        let mut scales = [0u16; TILE];
        for (position, scale) in scales.iter_mut().take(shape.positions).enumerate() {
            // SAFETY: `weigh` looked at the positions and at the width of a row.
            *scale = unsafe { S::scale(values.bytes.as_ptr().add(position * values.stride), column) };
        }
        for first in (0..TILE).step_by(L::COUNT) {
            // SAFETY: as there; a row of weights has `TILE` places.
            unsafe {
                let scales = L::load_f16(scales.as_ptr().add(first).cast());
                for m in 0..M {
                    let weights = L::load(weights.as_ptr().add(m * TILE + first));
                    L::store(scaled[m][block].as_mut_ptr().add(first), L::mul(weights, scales));
                }
            }
        }
    }
}

/// Adds N registers of each value to M rows of sums.
///
/// # Safety
/// The M rows of weights and sums, and N registers of each value, exist in full.
#[inline(always)]
unsafe fn add<L: Lanes, S: Stored, const M: usize, const N: usize>(
    shape: Shape,
    column: usize,
    weights: Weights,
    values: PageRows,
    corrections: *const f32,
    sums: *mut f32,
) -> usize {
    let (dim, stride) = (shape.dim, values.stride);
    // Registers of one block share their weights.
    let block = |n: usize| match S::SCALED {
        Some(BLOCK) if N * L::COUNT <= BLOCK => (column - weights.begin) / BLOCK * TILE,
        Some(BLOCK) => (column - weights.begin + n * L::COUNT) / BLOCK * TILE,
        _ => 0,
    };
    // Lines of each next row that begin under these columns.
    let [first, last] = [column, column + N * L::COUNT].map(|column| (stride * column / dim).next_multiple_of(LINE));
    let lines = (last - first) / LINE;
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[L::splat(0.0); N]; M];
        for m in 0..M {
            let correction = L::splat(*corrections.add(m));
            for n in 0..N {
                acc[m][n] = L::mul(correction, L::load(sums.add(m * dim + column + n * L::COUNT)));
            }
        }
        for position in 0..shape.positions {
            let row = values.bytes.as_ptr().add(position * stride);
            let next = values.next.wrapping_add(position * stride + first);
            for line in 0..lines {
                prefetch(next.wrapping_add(line * LINE));
            }
            let mut value = [L::splat(0.0); N];
            for n in 0..N {
                value[n] = S::load::<L>(row, dim, column + n * L::COUNT);
            }
            for m in 0..M {
                let weights = weights.first.as_ptr().add(m * weights.row + position);
                for n in 0..N {
                    acc[m][n] = L::madd(L::splat(*weights.add(block(n))), value[n], acc[m][n]);
                }
            }
        }
        for m in 0..M {
            for n in 0..N {
                L::store(sums.add(m * dim + column + n * L::COUNT), acc[m][n]);
            }
        }
    }
    N
}
