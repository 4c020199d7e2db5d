//! Activations: f32 rows, and the same rounded to 8 bits, made once and shared by all products that read them.

pub(super) mod tiles;

use super::BLOCK;
use crate::cpu::{Cpu, DisjointParts, Lanes, at_level};
use tiles::Tiles;

/// Number of values of a row that share one scale when they are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// 32 values, the group of most weight formats: a group then costs one correction and not two.
    #[default]
    Coarse,
    /// 16 values: nearer by a tenth and more, and prefill a quarter slower. For weights that are themselves so near
    /// that the rounding of activations dominates the error.
    Fine,
}

const GROUP: usize = 32;
const STORED: usize = 16; // scales are stored for each 16 values, as the weights' integer form has them

#[derive(Default)]
pub struct Activations {
    rows: usize,
    cols: usize,
    values: Vec<f32>,
    /// [rows, padded cols]: filled up with zeros to whole blocks.
    rounded: Vec<i8>,
    scales: Vec<f32>, // [rows, padded cols / 16]
    /// [rows, padded cols / 16]: sum of the group's rounded values times their scale, for formats with a minimum.
    sums: Vec<f32>,
    is_rounded: bool, // true if the rounded rows are those of `values`
    rounding: Rounding,
    tiles: Tiles,
}

impl Activations {
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns all rows, to be changed. Earlier rounded rows are out of date from here on.
    pub fn all(&mut self) -> &mut [f32] {
        self.is_rounded = false;
        &mut self.values
    }

    /// Makes room for rows of undefined content. Earlier rounded rows are out of date from here on.
    pub fn resize(&mut self, rows: usize, cols: usize) -> &mut [f32] {
        (self.rows, self.cols) = (rows, cols);
        self.values.resize(rows * cols, 0.0);
        self.is_rounded = false;
        &mut self.values
    }

    pub fn set(&mut self, rows: usize, cols: usize, values: &[f32]) {
        self.resize(rows, cols).copy_from_slice(values);
    }

    /// Rounds all rows: after the values are written and before an integer product.
    pub fn quantise(&mut self, cpu: &Cpu, rounding: Rounding) {
        self.rounding = rounding;
        let padded = self.padded();
        self.rounded.resize(self.rows * padded, 0);
        self.scales.resize(self.rows * padded / STORED, 0.0);
        self.sums.resize(self.rows * padded / STORED, 0.0);
        let (rounded, scales, sums) = (
            DisjointParts::new(&mut self.rounded),
            DisjointParts::new(&mut self.scales),
            DisjointParts::new(&mut self.sums),
        );
        let (values, cols) = (&self.values, self.cols);
        cpu.pool.run(self.rows, |row| {
            // SAFETY: each task takes the parts of its own row.
            let (rounded, scales, sums) = unsafe {
                let groups = padded / STORED;
                (rounded.part(row * padded, padded), scales.part(row * groups, groups), sums.part(row * groups, groups))
            };
            let values = &values[row * cols..][..cols];
            match rounding {
                Rounding::Coarse => {
                    at_level!(cpu.level, round_coarse(values: &[f32], rounded: &mut [i8], scales: &mut [f32], sums: &mut [f32]))
                }
                Rounding::Fine => {
                    at_level!(cpu.level, round_fine(values: &[f32], rounded: &mut [i8], scales: &mut [f32], sums: &mut [f32]))
                }
            }
        });
        self.tile(cpu);
        self.is_rounded = true;
    }

    fn tile(&mut self, cpu: &Cpu) {
        if super::has_panels(cpu.level) {
            let mut tiles = std::mem::take(&mut self.tiles);
            tiles.fill(cpu, self);
            self.tiles = tiles;
        }
    }

    pub fn gather(&self, cpu: &Cpu, rows: &[usize], out: &mut Activations) {
        (out.rows, out.cols) = (rows.len(), self.cols);
        let groups = self.padded() / STORED;
        copy_rows(&self.values, self.cols, rows, &mut out.values);
        copy_rows(&self.rounded, self.padded(), rows, &mut out.rounded);
        copy_rows(&self.scales, groups, rows, &mut out.scales);
        copy_rows(&self.sums, groups, rows, &mut out.sums);
        (out.is_rounded, out.rounding) = (self.is_rounded, self.rounding);
        if out.is_rounded {
            out.tile(cpu);
        }
    }

    pub fn rounded(&self) -> Vec<f32> {
        let padded = self.padded();
        (0..self.rows * self.cols)
            .map(|i| {
                let at = i / self.cols * padded + i % self.cols;
                f32::from(self.rounded[at]) * self.scales[at / STORED]
            })
            .collect()
    }

    pub(super) fn padded(&self) -> usize {
        self.cols.next_multiple_of(BLOCK)
    }

    pub(super) fn is_rounded(&self) -> bool {
        self.is_rounded
    }

    pub(super) fn rounding(&self) -> Rounding {
        self.rounding
    }

    pub(super) fn tiles(&self) -> &Tiles {
        &self.tiles
    }

    #[inline]
    pub(super) fn rounded_row(&self, row: usize) -> (&[i8], &[f32], &[f32]) {
        let padded = self.padded();
        let groups = padded / STORED;
        (
            &self.rounded[row * padded..][..padded],
            &self.scales[row * groups..][..groups],
            &self.sums[row * groups..][..groups],
        )
    }
}

// Rounds a number between -127 and 127 to the nearest integer, ties to even: adding 1.5 · 2²³ leaves it in the low
// bits. The library's function is a call where the target has no instruction for it.
#[inline(always)]
fn nearest(x: f32) -> i8 {
    (x + 12_582_912.0).to_bits() as i8
}

fn copy_rows<T: Copy>(from: &[T], width: usize, rows: &[usize], to: &mut Vec<T>) {
    to.clear();
    for row in rows {
        // Rounded values are missing where only the f32 path is in use.
        to.extend_from_slice(from.get(row * width..(row + 1) * width).unwrap_or_default());
    }
}

#[inline(always)]
fn round_coarse<L: Lanes>(values: &[f32], rounded: &mut [i8], scales: &mut [f32], sums: &mut [f32]) {
    round_row(values, rounded, scales, sums, Rounding::Coarse);
}

#[inline(always)]
fn round_fine<L: Lanes>(values: &[f32], rounded: &mut [i8], scales: &mut [f32], sums: &mut [f32]) {
    round_row(values, rounded, scales, sums, Rounding::Fine);
}

#[inline(always)]
fn round_row(values: &[f32], rounded: &mut [i8], scales: &mut [f32], sums: &mut [f32], rounding: Rounding) {
    let cols = values.len();
    rounded[cols..].fill(0);
    let groups = rounded.as_chunks_mut::<GROUP>().0.iter_mut();
    let stored = scales.as_chunks_mut::<2>().0.iter_mut().zip(sums.as_chunks_mut::<2>().0);
    for (group, (rounded, (scales, sums))) in groups.zip(stored).enumerate() {
        let mut padded = [0.0; GROUP];
        let values = match values[(group * GROUP).min(cols)..].first_chunk::<GROUP>() {
            Some(whole) => whole,
            None => {
                let rest = &values[(group * GROUP).min(cols)..];
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            }
        };
        let halves = values.as_chunks::<STORED>().0;
        let mut largest =
            [0, 1].map(|half: usize| halves[half].iter().fold(0.0f32, |largest, x| larger(x.abs(), largest)));
        if rounding == Rounding::Coarse {
            largest = [larger(largest[0], largest[1]); 2];
        }
        for half in 0..2 {
            let scale = largest[half] / 127.0;
            let inverse = if largest[half] > 0.0 { 127.0 / largest[half] } else { 0.0 };
            let rounded = &mut rounded.as_chunks_mut::<STORED>().0[half];
            for (rounded, value) in rounded.iter_mut().zip(&halves[half]) {
                *rounded = nearest(value * inverse);
            }
            scales[half] = scale;
            sums[half] = rounded.iter().map(|x| i32::from(*x)).sum::<i32>() as f32 * scale;
        }
    }
}

// One instruction, where the library's function takes several because it handles NaN.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}
