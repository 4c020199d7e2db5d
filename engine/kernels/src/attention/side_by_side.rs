//! Many query rows side by side, [head dim, row], in f32: on every level, and for keys and values that are not rounded.

use super::few::PageRows;
use super::{COLUMNS, Shape, TILE, padded};
use crate::cpu::{CpuLevel, Lanes, at_level};
use crate::dense::{Block, add_product, transpose};

pub(super) struct SideBySide<'a> {
    level: CpuLevel,
    q: &'a [f32], // [head dim, padded row]
    unpacked: &'a mut [f32],
}

pub(super) fn scratch(rows: usize, dim: usize) -> usize {
    padded(rows) * dim + TILE * COLUMNS
}

impl<'a> SideBySide<'a> {
    pub fn new(level: CpuLevel, q: &[f32], dim: usize, scratch: &'a mut [f32]) -> SideBySide<'a> {
        let (rows, width) = (q.len() / dim, padded(q.len() / dim));
        let (turned, unpacked) = scratch.split_at_mut(width * dim);
        turned.fill(0.0);
        let (q, to) = (Block { values: q, stride: dim }, &mut *turned);
        at_level!(level, transpose(q: Block<'_>, rows: usize, dim: usize, to: &mut [f32], width: usize));
        SideBySide { level, q: turned, unpacked }
    }

    /// Writes `scores`: [position, padded row].
    pub fn scores(&mut self, shape: Shape, keys: PageRows, scores: &mut [f32]) {
        for columns in blocks_of(shape.dim) {
            let unpacked = &mut self.unpacked[..shape.positions * columns.len()];
            keys.unpack(self.level, columns.clone(), unpacked);
            let q = &self.q[columns.start * padded(shape.rows)..];
            add_scores(self.level, shape, q, unpacked, columns.start > 0, scores);
        }
    }

    /// Multiplies the sums, [row, head dim], with the corrections of their rows and adds values with their weights, in
    /// the layout of `scores`.
    pub fn weigh(&mut self, shape: Shape, weights: &[f32], values: PageRows, corrections: &[f32], sums: &mut [f32]) {
        for (sums, correction) in sums.chunks_exact_mut(shape.dim).zip(corrections) {
            if *correction != 1.0 {
                sums.iter_mut().for_each(|sum| *sum *= correction);
            }
        }
        for columns in blocks_of(shape.dim) {
            let unpacked = &mut self.unpacked[..shape.positions * columns.len()];
            values.unpack(self.level, columns.clone(), unpacked);
            add_weighed(self.level, shape, weights, unpacked, &mut sums[columns.start..]);
        }
    }
}

fn blocks_of(dim: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..dim).step_by(COLUMNS).map(move |first| first..dim.min(first + COLUMNS))
}

/// Writes `scores`, [position, padded row], or adds to them. `q`: [column, padded row]. `keys`: [position, column].
fn add_scores(level: CpuLevel, shape: Shape, q: &[f32], keys: &[f32], add: bool, scores: &mut [f32]) {
    at_level!(level, scores_body(shape: Shape, q: &[f32], keys: &[f32], add: bool, scores: &mut [f32]))
}

#[inline(always)]
fn scores_body<L: Lanes>(shape: Shape, q: &[f32], keys: &[f32], add: bool, scores: &mut [f32]) {
    let (width, depth) = (padded(shape.rows), keys.len() / shape.positions);
    let q = Block { values: q, stride: width };
    let scale = if add { 1.0 } else { 0.0 };
    add_product::<L>(keys, depth, 1, shape.positions, q, width, depth, scale, scores, width);
}

/// Adds values, [position, column], with their weights, in the layout of `add_scores`, to these columns of the sums,
/// whose rows have `dim`.
fn add_weighed(level: CpuLevel, shape: Shape, weights: &[f32], values: &[f32], sums: &mut [f32]) {
    at_level!(level, weigh_body(shape: Shape, weights: &[f32], values: &[f32], sums: &mut [f32]))
}

#[inline(always)]
fn weigh_body<L: Lanes>(shape: Shape, weights: &[f32], values: &[f32], sums: &mut [f32]) {
    let Shape { rows, dim, positions } = shape;
    let width = values.len() / positions;
    let values = Block { values, stride: width };
    add_product::<L>(weights, 1, padded(rows), rows, values, width, positions, 1.0, sums, dim);
}
