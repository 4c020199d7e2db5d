//! Activations: f32 rows, and the same rounded to 8 bits, made once and shared by all products that read them.

use crate::cpu::{Cpu, Parts, level::levels};

/// Values that share one scale: as many as share one in the weights' integer form. With 32 the rounding of activations
/// costs a tenth more accuracy and saves next to nothing.
pub(super) const GROUP: usize = 16;
/// Rounded rows are padded with zeros to whole blocks of this many values, the longest block of any weight format.
pub(super) const BLOCK: usize = 256;

#[derive(Default)]
pub struct Activations {
    rows: usize,
    cols: usize,
    values: Vec<f32>,
    /// [rows, padded cols]
    rounded: Vec<i8>,
    /// [rows, padded cols / 16]
    scales: Vec<f32>,
    /// [rows, padded cols / 16]: sum of the group's rounded values times their scale, for formats with a minimum.
    sums: Vec<f32>,
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

    /// Room for rows to be written through `values_mut`; what is there is undefined.
    pub fn resize(&mut self, rows: usize, cols: usize) -> &mut [f32] {
        (self.rows, self.cols) = (rows, cols);
        self.values.resize(rows * cols, 0.0);
        self.rounded.clear();
        &mut self.values
    }

    /// Rounded rows, if there are any, are out of date from here on.
    pub fn values_mut(&mut self) -> &mut [f32] {
        self.rounded.clear();
        &mut self.values
    }

    pub fn set(&mut self, rows: usize, cols: usize, values: &[f32]) {
        self.resize(rows, cols).copy_from_slice(values);
    }

    /// Rounds all rows. To be called after the values are written and before an integer product.
    pub fn quantise(&mut self, cpu: &Cpu) {
        let padded = self.padded();
        self.rounded.resize(self.rows * padded, 0);
        self.scales.resize(self.rows * padded / GROUP, 0.0);
        self.sums.resize(self.rows * padded / GROUP, 0.0);
        let (rounded, scales, sums) =
            (Parts::new(&mut self.rounded), Parts::new(&mut self.scales), Parts::new(&mut self.sums));
        let (values, cols) = (&self.values, self.cols);
        cpu.pool.run(self.rows, |row| {
            // SAFETY: each task takes the parts of its own row.
            let (rounded, scales, sums) = unsafe {
                let groups = padded / GROUP;
                (rounded.part(row * padded, padded), scales.part(row * groups, groups), sums.part(row * groups, groups))
            };
            let values = &values[row * cols..][..cols];
            levels!(cpu.level, round_row(values: &[f32], rounded: &mut [i8], scales: &mut [f32], sums: &mut [f32]));
        });
    }

    /// Some of the rows, in this order, with their rounded values where there are any.
    pub fn gather(&self, rows: &[usize], out: &mut Activations) {
        (out.rows, out.cols) = (rows.len(), self.cols);
        let groups = self.padded() / GROUP;
        copy_rows(&self.values, self.cols, rows, &mut out.values);
        copy_rows(&self.rounded, self.padded(), rows, &mut out.rounded);
        copy_rows(&self.scales, groups, rows, &mut out.scales);
        copy_rows(&self.sums, groups, rows, &mut out.sums);
    }

    /// What the rounded values stand for.
    pub fn rounded(&self) -> Vec<f32> {
        let padded = self.padded();
        (0..self.rows * self.cols)
            .map(|i| {
                let at = i / self.cols * padded + i % self.cols;
                f32::from(self.rounded[at]) * self.scales[at / GROUP]
            })
            .collect()
    }

    fn padded(&self) -> usize {
        self.cols.next_multiple_of(BLOCK)
    }

    /// Whether `quantise` was called since the values were written.
    pub(super) fn is_rounded(&self) -> bool {
        self.rounded.len() == self.rows * self.padded()
    }

    /// Rounded values, scales and sums of one row.
    #[inline]
    pub(super) fn rounded_row(&self, row: usize) -> (&[i8], &[f32], &[f32]) {
        let padded = self.padded();
        let groups = padded / GROUP;
        (
            &self.rounded[row * padded..][..padded],
            &self.scales[row * groups..][..groups],
            &self.sums[row * groups..][..groups],
        )
    }
}

/// The nearest whole number, ties to even, of a number between -127 and 127: adding 1.5 · 2²³ leaves it in the low bits.
/// The library's function is a call where the target has no instruction for it.
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
fn round_row<const FMA: bool>(values: &[f32], rounded: &mut [i8], scales: &mut [f32], sums: &mut [f32]) {
    rounded[values.len()..].fill(0);
    for (group, (scale, sum)) in scales.iter_mut().zip(sums).enumerate() {
        let start = (group * GROUP).min(values.len());
        let values = &values[start..(start + GROUP).min(values.len())];
        let largest = values.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        *scale = largest / 127.0;
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let rounded = &mut rounded[group * GROUP..][..GROUP];
        for (rounded, value) in rounded.iter_mut().zip(values) {
            *rounded = nearest(value * inverse);
        }
        let total: i32 = rounded.iter().map(|x| i32::from(*x)).sum();
        *sum = total as f32 * *scale;
    }
}
