//! Many query rows in integers of 16 bits. One instruction multiplies 32 of them in pairs and adds both products of a
//! pair, where f32 multiplies 16: a long past is read in little more than half the time.
//!
//! Keys and values that lie in pages as f16 or less have 11 bits or fewer. Here a query and a key have one scale each,
//! a column of values has one a tile, and so have the weights of a row. The scales are chosen so that no sum leaves 32
//! bits.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use super::few::PageRows;
use super::{COLUMNS, PageLayout, Shape, TILE, padded};
use crate::cpu::{CpuLevel, at_level};
use crate::dense::{Block, transpose};
use crate::format::Format;

const POSITIONS: usize = 16;
const LEAST_ROWS: usize = 64; // number of query rows from which on this is worth its preparation

const MOST: f32 = 32_767.0; // the largest 16-bit integer
/// Largest length of a row, as of a vector: the product of two such rows has 31 bits, and so has each part of its sum.
const LONGEST: f32 = 46_000.0;
/// Largest value of a column. With it, and with the largest weights that fit, a sum has 31 bits and the rounding errors
/// of both are smallest.
const MOST_VALUE: f32 = 8191.0;
const ALL_WEIGHTS: f32 = 262_000.0;

/// Numbers in pairs. A word holds two, of neighbouring columns or positions; a unit is their common factor.
pub(super) struct Pairs<'a> {
    level: CpuLevel,
    queries: &'a [u32], // [pair of columns, padded row]
    query_units: &'a [f32],
    keys: &'a mut [u32], // [position, pair of columns]
    key_units: &'a mut [f32],
    weights: &'a mut [u32], // [pair of positions, padded row]
    weight_units: &'a mut [f32],
    values: &'a mut [u32], // [pair of positions, column]
    value_units: &'a mut [f32],
    unpacked: &'a mut [f32],
}

pub(super) fn fits(level: CpuLevel, layout: PageLayout, rows: usize) -> bool {
    let is_rounded = layout.key_format != Format::F32 && layout.value_format != Format::F32;
    let has_pairs = matches!(level, CpuLevel::Avx512 | CpuLevel::Avx2);
    has_pairs && rows >= LEAST_ROWS && layout.head_dim.is_multiple_of(COLUMNS) && is_rounded
}

pub(super) fn scratch(rows: usize, dim: usize) -> usize {
    sizes(rows, dim).iter().sum()
}

fn sizes(rows: usize, dim: usize) -> [usize; 9] {
    let rows = padded(rows);
    let unpacked = (POSITIONS * dim).max(TILE * COLUMNS);
    [rows * dim / 2, rows, TILE * dim / 2, TILE, rows * TILE / 2, rows, TILE * COLUMNS / 2, COLUMNS, unpacked]
}

impl<'a> Pairs<'a> {
    pub fn new(level: CpuLevel, q: &[f32], dim: usize, scratch: &'a mut [f32]) -> Pairs<'a> {
        assert!(matches!(level, CpuLevel::Avx512 | CpuLevel::Avx2), "`fits` says where");
        let rows = q.len() / dim;
        let mut rest = scratch;
        let parts = sizes(rows, dim).map(|size| rest.split_off_mut(..size).expect("as `scratch` says"));
        let [queries, query_units, keys, key_units, weights, weight_units, values, value_units, unpacked] = parts;
        let (keys, weights, values) = (words(keys), words(weights), words(values));
        query_units.fill(0.0);
        queries.fill(0.0);
        // Packed row by row where the keys will lie, and then turned side by side.
        for (block, q) in q.chunks(TILE * dim).enumerate() {
            let units = &mut query_units[block * TILE..];
            for (row, q) in q.chunks_exact(dim).enumerate() {
                units[row] = pack_row(level, q, &mut keys[row * dim / 2..][..dim / 2]);
            }
            let (from, to) = (Block { values: numbers(keys), stride: dim / 2 }, &mut queries[block * TILE..]);
            let (count, width, to_stride) = (q.len() / dim, dim / 2, padded(rows));
            at_level!(level, transpose(from: Block<'_>, count: usize, width: usize, to: &mut [f32], to_stride: usize));
        }
        let queries = words(queries);
        Pairs { level, queries, query_units, keys, key_units, weights, weight_units, values, value_units, unpacked }
    }

    /// Writes `scores`: [position, padded row].
    pub fn scores(&mut self, shape: Shape, keys: PageRows, scores: &mut [f32]) {
        let Shape { rows, dim, positions } = shape;
        for first in (0..positions).step_by(POSITIONS) {
            let unpacked = &mut self.unpacked[..POSITIONS.min(positions - first) * dim];
            let keys = PageRows { bytes: &keys.bytes[first * keys.stride..], ..keys };
            keys.unpack(self.level, 0..dim, unpacked);
            for (at, row) in (first..).zip(unpacked.chunks_exact(dim)) {
                self.key_units[at] = pack_row(self.level, row, &mut self.keys[at * dim / 2..][..dim / 2]);
            }
        }
        let (width, pairs) = (padded(rows), dim / 2);
        let product = Product {
            a: self.keys,
            a_row: pairs,
            a_pair: 1,
            a_units: self.key_units,
            b: self.queries,
            b_stride: width,
            b_units: self.query_units,
            pairs,
        };
        multiply(self.level, &product, positions, width, None, scores, width);
    }

    /// Multiplies the sums, [row, head dim], with the corrections of their rows and adds values with their weights, in
    /// the layout of `scores`.
    pub fn weigh(&mut self, shape: Shape, weights: &[f32], values: PageRows, corrections: &[f32], sums: &mut [f32]) {
        let Shape { rows, dim, positions } = shape;
        let width = padded(rows);
        pack_weights(self.level, &weights[..positions * width], width, self.weights, self.weight_units);
        for first in (0..dim).step_by(COLUMNS) {
            let unpacked = &mut self.unpacked[..positions * COLUMNS];
            values.unpack(self.level, first..first + COLUMNS, unpacked);
            pack_values(self.level, unpacked, self.values, self.value_units);
            let product = Product {
                a: self.weights,
                a_row: 1,
                a_pair: width,
                a_units: self.weight_units,
                b: self.values,
                b_stride: COLUMNS,
                b_units: self.value_units,
                pairs: positions.div_ceil(2),
            };
            multiply(self.level, &product, rows, COLUMNS, Some(corrections), &mut sums[first..], dim);
        }
    }
}

/// c[i, ..n] = c[i, ..n] · before[i] + a_units[i] · b_units[..n] · Σ over k of a(i, k) · b[k, ..n], where a(i, k) = a[i
/// * a_row + k * a_pair], and both are words.
struct Product<'a> {
    a: &'a [u32],
    a_row: usize,
    a_pair: usize,
    a_units: &'a [f32],
    b: &'a [u32],
    b_stride: usize,
    b_units: &'a [f32],
    pairs: usize,
}

fn multiply(
    level: CpuLevel,
    product: &Product,
    m: usize,
    n: usize,
    before: Option<&[f32]>,
    c: &mut [f32],
    c_stride: usize,
) {
    let Product { a, a_row, a_pair, b, b_stride, pairs, .. } = *product;
    assert!(m > 0 && n.is_multiple_of(16) && pairs > 0);
    assert!((m - 1) * a_row + (pairs - 1) * a_pair < a.len() && (pairs - 1) * b_stride + n <= b.len());
    assert!(m <= product.a_units.len() && n <= product.b_units.len() && (m - 1) * c_stride + n <= c.len());
    assert!(before.is_none_or(|before| m <= before.len()));
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `Pairs` is only made where the processor has the instructions, and the assertions looked at the largest
    // index of each slice.
    unsafe {
        match level {
            CpuLevel::Avx512 => avx512::multiply(product, m, n, before, c, c_stride),
            _ => avx2::multiply(product, m, n, before, c, c_stride),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("no level of this processor multiplies pairs")
}

/// Packs a row of queries or keys, whose length is a multiple of 32. Returns its unit.
pub(super) fn pack_row(level: CpuLevel, row: &[f32], words: &mut [u32]) -> f32 {
    assert!(row.len() == 2 * words.len() && row.len().is_multiple_of(32));
    #[cfg(target_arch = "x86_64")]
    // SAFETY: see `multiply`.
    unsafe {
        match level {
            CpuLevel::Avx512 => avx512::pack_row(row, words),
            _ => avx2::pack_row(row, words),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("no level of this processor multiplies pairs")
}

/// `weights`: [position, width], none negative; `words`: [pair of positions, width].
fn pack_weights(level: CpuLevel, weights: &[f32], width: usize, words: &mut [u32], units: &mut [f32]) {
    let positions = weights.len() / width;
    assert!(width.is_multiple_of(16) && words.len() >= positions.div_ceil(2) * width && units.len() >= width);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: see `multiply`.
    unsafe {
        match level {
            CpuLevel::Avx512 => avx512::pack_weights(weights, width, words, units),
            _ => avx2::pack_weights(weights, width, words, units),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("no level of this processor multiplies pairs")
}

/// `values`: [position, COLUMNS]; `words`: [pair of positions, COLUMNS].
fn pack_values(level: CpuLevel, values: &[f32], words: &mut [u32], units: &mut [f32]) {
    let positions = values.len() / COLUMNS;
    assert!(words.len() >= positions.div_ceil(2) * COLUMNS && units.len() >= COLUMNS);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: see `multiply`.
    unsafe {
        match level {
            CpuLevel::Avx512 => avx512::pack_values(values, words, units),
            _ => avx2::pack_values(values, words, units),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("no level of this processor multiplies pairs")
}

pub(super) fn words(numbers: &mut [f32]) -> &mut [u32] {
    // SAFETY: both are four bytes with the same alignment, and any bits are both.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
}

fn numbers(words: &[u32]) -> &[f32] {
    // SAFETY: see `words`.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}
