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

    fn check(&self, shape: Shape) {
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
    /// Loads numbers of a row of `dim`, without the row's scale.
    ///
    /// # Safety
    /// The row has `COUNT` numbers from this column on, which is a multiple of `COUNT`.
    unsafe fn load<L: Lanes>(row: *const u8, dim: usize, column: usize) -> L::V;

    /// Returns the scale of a whole row.
    ///
    /// # Safety
    /// A row begins here.
    #[inline(always)]
    unsafe fn row_scale<L: Lanes>(_row: *const u8) -> f32 {
        1.0
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
    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: the caller's promise; so below. No level needs an alignment.
        unsafe { L::load(row.add(4 * column).cast()) }
    }
}

impl Stored for Halves {
    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe { L::load_f16(row.add(2 * column)) }
    }
}

impl Stored for UpperHalves {
    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe { L::load_bf16(row.add(2 * column)) }
    }
}

const BLOCK: usize = 32; // a block of 32 numbers: its scale, then their codes

impl Stored for Bytes {
    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe {
            let block = row.add(column / BLOCK * 34);
            L::mul(scale::<L>(block), L::load_i8(block.add(2 + column % BLOCK).cast()))
        }
    }
}

impl Stored for Nibbles {
    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe {
            let block = row.add(column / BLOCK * 18);
            let codes = L::load_i4(block.add(2 + column % WIDTH), column % BLOCK >= WIDTH);
            L::mul(scale::<L>(block), codes)
        }
    }
}

impl Stored for Levels4 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, _: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe { L::load_tq4(row.add(2 + column / BLOCK * WIDTH + column % WIDTH), column % BLOCK >= WIDTH) }
    }

    #[inline(always)]
    unsafe fn row_scale<L: Lanes>(row: *const u8) -> f32 {
        // SAFETY: the caller's promise.
        L::half(unsafe { u16::from_le_bytes([*row, *row.add(1)]) })
    }
}

impl Stored for Levels3 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(row: *const u8, dim: usize, column: usize) -> L::V {
        // SAFETY: see above.
        unsafe { L::load_tq3(row.add(2 + column / 4), row.add(signs_at(dim) + column / 8), column % 8) }
    }

    #[inline(always)]
    unsafe fn row_scale<L: Lanes>(row: *const u8) -> f32 {
        // SAFETY: the caller's promise.
        L::half(unsafe { u16::from_le_bytes([*row, *row.add(1)]) })
    }
}

/// # Safety
/// A block begins here.
#[inline(always)]
unsafe fn scale<L: Lanes>(block: *const u8) -> L::V {
    // SAFETY: the caller's promise.
    L::splat(L::half(unsafe { u16::from_le_bytes([*block, *block.add(1)]) }))
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
        for column in (0..dim).step_by(L::COUNT) {
            let mut key = [L::splat(0.0); N];
            for n in 0..N {
                key[n] = S::load::<L>(first.add(n * keys.stride), dim, column);
            }
            for m in 0..M {
                let q = L::load(q.add(m * dim + column));
                for n in 0..N {
                    sums[m][n] = L::madd(q, key[n], sums[m][n]);
                }
            }
        }
        let mut scales = [1.0; N];
        for n in 0..N {
            scales[n] = S::row_scale::<L>(first.add(n * keys.stride));
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
    let registers = shape.dim / L::COUNT;
    let mut register = 0;
    // SAFETY: `weigh` looked at the largest index of each slice.
    unsafe {
        let (weights, corrections, sums) = (weights.as_ptr(), corrections.as_ptr(), sums.as_mut_ptr());
        while register < registers {
            let column = register * L::COUNT;
            register += match registers - register {
                4.. if L::WIDE == 4 && M <= 4 => add::<L, S, M, 4>(shape, column, weights, values, corrections, sums),
                2.. => add::<L, S, M, 2>(shape, column, weights, values, corrections, sums),
                _ => add::<L, S, M, 1>(shape, column, weights, values, corrections, sums),
            };
        }
    }
    M
}

/// Adds N registers of each value to M rows of sums.
///
/// # Safety
/// The M rows of weights and sums, and N registers of each value, exist in full.
#[inline(always)]
unsafe fn add<L: Lanes, S: Stored, const M: usize, const N: usize>(
    shape: Shape,
    column: usize,
    weights: *const f32,
    values: PageRows,
    corrections: *const f32,
    sums: *mut f32,
) -> usize {
    let (dim, stride) = (shape.dim, values.stride);
    // Bytes of the next rows that were prefetched before this column, and before the next one.
    let asked = [column, column + N * L::COUNT].map(|column| stride * column / dim);
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
            for line in (asked[0]..asked[1]).step_by(LINE) {
                prefetch(values.next.wrapping_add(position * stride + line));
            }
            let mut value = [L::splat(0.0); N];
            for n in 0..N {
                value[n] = S::load::<L>(row, dim, column + n * L::COUNT);
            }
            let scale = S::row_scale::<L>(row);
            for m in 0..M {
                let weight = L::splat(*weights.add(m * TILE + position) * scale);
                for n in 0..N {
                    acc[m][n] = L::madd(weight, value[n], acc[m][n]);
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
