//! Rows of activations times a weight matrix in any format: out[m, n] = x[m, ..] · w[n, ..].
//!
//! Two paths. The f32 path unpacks weights to f32 and changes nothing else. The integer path, for quantised weights,
//! works on activations that were rounded to 8 bits once and are shared by all products that read them.

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod integer;

use crate::cpu::{Cpu, Parts, level::levels};
use crate::dense::{Block, rows_times_rows};
use crate::format::{Format, dequantize};
use crate::scratch::with_scratch;

pub use activations::Activations;

/// A weight matrix: `rows` rows of `cols` values, each row `format.row_bytes(cols)` bytes.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    pub format: Format,
    pub rows: usize,
    pub cols: usize,
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Activations stay f32.
    F32,
    /// Activations are rounded to 8 bits where the weights are quantised.
    Integer,
}

/// Weight rows that one task works on.
const ROWS_OF_A_TASK: usize = 16;

impl Weights<'_> {
    fn row_bytes(&self) -> usize {
        self.format.row_bytes(self.cols).expect("a matrix was checked when it was read")
    }

    /// The values of one row.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        let bytes = self.row_bytes();
        dequantize(self.format, &self.bytes[row * bytes..][..bytes], out);
    }
}

/// `out`: [x.rows(), w.rows].
pub fn product(cpu: &Cpu, precision: Precision, x: &Activations, w: Weights, out: &mut [f32]) {
    assert_eq!(x.cols(), w.cols);
    assert_eq!(out.len(), x.rows() * w.rows);
    let integer = precision == Precision::Integer && w.format.is_quantised();
    assert!(!integer || x.is_rounded(), "an integer product needs rounded activations");
    let out = Parts::new(out);
    cpu.pool.run(w.rows.div_ceil(ROWS_OF_A_TASK), |task| {
        let first = task * ROWS_OF_A_TASK;
        let rows = ROWS_OF_A_TASK.min(w.rows - first);
        // SAFETY: this task alone writes columns first..first + rows of the output.
        let mut write =
            |m: usize, values: &[f32]| unsafe { out.part(m * w.rows + first, rows) }.copy_from_slice(values);
        if integer {
            with_scratch(x.rows() * rows, |sums| {
                sums.fill(0.0);
                integer::rows(cpu.level, x, w, first, rows, sums);
                sums.chunks_exact(rows).enumerate().for_each(|(m, values)| write(m, values));
            });
        } else {
            f32_rows(cpu, x, w, first, rows, &mut write);
        }
    });
}

fn f32_rows(cpu: &Cpu, x: &Activations, w: Weights, first: usize, rows: usize, write: &mut dyn FnMut(usize, &[f32])) {
    let (m, depth) = (x.rows(), w.cols);
    with_scratch(rows * depth + m * rows, |scratch| {
        let (weights, out) = scratch.split_at_mut(rows * depth);
        for (row, values) in weights.chunks_exact_mut(depth).enumerate() {
            w.row(first + row, values);
        }
        let problem = Problem { x: x.values(), weights, m, rows, depth };
        levels!(cpu.level, f32_body(problem: Problem<'_>, out: &mut [f32]));
        out.chunks_exact(rows).enumerate().for_each(|(m, values)| write(m, values));
    });
}

#[derive(Clone, Copy)]
struct Problem<'a> {
    x: &'a [f32],
    weights: &'a [f32],
    m: usize,
    rows: usize,
    depth: usize,
}

#[inline(always)]
fn f32_body<const FMA: bool>(p: Problem<'_>, out: &mut [f32]) {
    let (x, weights) = (Block { values: p.x, stride: p.depth }, Block { values: p.weights, stride: p.depth });
    rows_times_rows::<FMA>(x, p.m, weights, p.rows, p.depth, out, p.rows);
}

/// The definition, in f64.
pub fn reference(x: &[f32], w: Weights) -> Vec<f32> {
    let mut row = vec![0.0; w.cols];
    let m = x.len() / w.cols;
    let mut out = vec![0.0; m * w.rows];
    for n in 0..w.rows {
        w.row(n, &mut row);
        for (m, x) in x.chunks_exact(w.cols).enumerate() {
            out[m * w.rows + n] = x.iter().zip(&row).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() as f32;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Level;
    use crate::format::{can_quantize, quantize};
    use crate::testing::{assert_close, random};

    #[test]
    fn every_format_level_and_path_is_near_the_reference() {
        for level in Level::ALL.into_iter().filter(|level| *level <= Level::detect()) {
            let cpu = Cpu::with_level(2, level);
            for format in Format::ALL.iter().copied().filter(|format| can_quantize(*format)) {
                for (m, rows, blocks) in [(1, 1, 1), (3, 37, 1), (2, 16, 3), (7, 5, 2), (9, 40, 2), (6, 16, 1)] {
                    // One and a half 256-blocks for the formats with short blocks: the tail counts too.
                    let cols = if format.block_len() > 32 { 256 * blocks } else { 96 + 32 * blocks };
                    let (values, x) = (random(rows * cols, 3), random(m * cols, 4));
                    let mut bytes = vec![0; rows * format.row_bytes(cols).unwrap()];
                    quantize(format, &values, &mut bytes);
                    let w = Weights { format, rows, cols, bytes: &bytes };
                    let expected = reference(&x, w);
                    let mut activations = Activations::default();
                    activations.set(m, cols, &x);
                    activations.quantise(&cpu);
                    let mut out = vec![f32::NAN; m * rows];
                    product(&cpu, Precision::F32, &activations, w, &mut out);
                    assert_close(&out, &expected, 1e-5);
                    out.fill(f32::NAN);
                    product(&cpu, Precision::Integer, &activations, w, &mut out);
                    // A sum that nearly cancels says little: only of many is the distance to the unrounded one told.
                    let tolerance = if !format.is_quantised() {
                        1e-5
                    } else if m * rows < 16 {
                        0.2
                    } else {
                        1.5e-2
                    };
                    assert_close(&out, &expected, tolerance);
                    // Against the rounded activations themselves the integer path is exact but for f32 sums.
                    if format.is_quantised() {
                        assert_close(&out, &reference(&activations.rounded(), w), 1e-4);
                    }
                }
            }
        }
    }
}
