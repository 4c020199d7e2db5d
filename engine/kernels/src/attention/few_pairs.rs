//! Few query rows in integers of 16 bits, where the processor has AVX2 and keys or values lie in 8 or 4 bits: their codes
//! are whole numbers as they are, and one instruction multiplies sixteen of them in pairs, where f32 multiplies eight.
//!
//! Queries and weights become whole numbers, too, with one unit a row: they keep 15 bits. The sum of a block is exact.

#[cfg(target_arch = "x86_64")]
mod avx2;

use super::few::PageRows;
use super::pairs::{pack_row, words};
use super::{Shape, TILE};
use crate::cpu::CpuLevel;
use crate::format::Format;

const BLOCK: usize = 32;
const MOST_BLOCKS: usize = 8;
const MOST_WEIGHT: f32 = 32_767.0; // the largest 16-bit integer
const MOST_SUM: f32 = 2_147_000_000.0;

/// Query rows as integers. A word holds two neighbouring columns; a unit is their common factor.
pub(super) struct FewPairs<'a> {
    level: CpuLevel,
    words: &'a [u32], // [block, row, pair of columns]
    units: &'a [f32],
}

pub(super) fn fits(level: CpuLevel, format: Format, dim: usize) -> bool {
    let has_codes = matches!(format, Format::Q8_0 | Format::Q4_0 | Format::TQ4);
    level == CpuLevel::Avx2 && has_codes && dim.is_multiple_of(BLOCK) && dim <= MOST_BLOCKS * BLOCK
}

pub(super) fn scratch(rows: usize, dim: usize) -> usize {
    (rows + 1) * dim / 2 + rows
}

impl<'a> FewPairs<'a> {
    pub fn new(level: CpuLevel, q: &[f32], dim: usize, scratch: &'a mut [f32]) -> FewPairs<'a> {
        let (rows, pairs) = (q.len() / dim, dim / 2);
        let (packed, rest) = scratch.split_at_mut(rows * pairs);
        let (units, rest) = rest.split_at_mut(rows);
        let (packed, one) = (words(packed), &mut words(rest)[..pairs]);
        for (row, q) in q.chunks_exact(dim).enumerate() {
            units[row] = pack_row(level, q, one);
            for (block, from) in one.chunks_exact(BLOCK / 2).enumerate() {
                packed[(block * rows + row) * BLOCK / 2..][..BLOCK / 2].copy_from_slice(from);
            }
        }
        FewPairs { level, words: packed, units }
    }

    /// Writes `scores`: [row, TILE].
    pub fn scores(&self, shape: Shape, keys: PageRows, scores: &mut [f32]) {
        check(self.level, shape, keys);
        assert!(self.words.len() >= shape.rows * shape.dim / 2 && self.units.len() >= shape.rows);
        assert!(scores.len() >= shape.rows * TILE);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `fits` looked for the level, and the assertions at the largest index of each slice; so below.
        unsafe {
            avx2::scores(shape, self, keys, scores);
        }
    }
}

/// Multiplies the sums, [row, head dim], with the corrections of their rows and adds values with their weights, [row,
/// TILE], none of them negative.
pub(super) fn weigh(
    level: CpuLevel,
    shape: Shape,
    weights: &[f32],
    values: PageRows,
    corrections: &[f32],
    sums: &mut [f32],
) {
    check(level, shape, values);
    let Shape { rows, dim, .. } = shape;
    assert!(weights.len() >= rows * TILE && corrections.len() >= rows && sums.len() >= rows * dim);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: see above.
    unsafe {
        avx2::weigh(shape, weights, values, corrections, sums);
    }
}

fn check(level: CpuLevel, shape: Shape, rows: PageRows) {
    assert!(fits(level, rows.format, shape.dim), "`fits` says where");
    rows.check(shape);
}
