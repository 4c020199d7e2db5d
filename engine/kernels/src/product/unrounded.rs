//! The f32 path: unrounded activations times weights in any format, which are widened to f32 on the way.
//!
//! A few rows of activations take weight rows as they lie in memory, and a weight is widened in a register. Many take a
//! block of weights that was widened and turned once, so that no sum goes across lanes.
//!
//! Dot products of bf16 have an instruction of their own on some processors. It does half of what `fma` does in f32 on
//! the one that was measured (115 against 230 billion operations a second), and would round activations besides.

use super::{Activations, BLOCK, MatrixOrder, Weights, panel};
use crate::cpu::{Cpu, DisjointParts, Lanes, at_level, lanes::prefetch};
use crate::dense::{Block, add_product, transpose};
use crate::format::Format;
use crate::scratch::with_scratch;
use crate::unpack::unpack;

const WORTH_TURNING: usize = 8; // rows of activations from which on it pays to turn weights
// Weight rows of a task that turns them: whole registers at every level, and enough of them side by side.
const ROWS: usize = 64;
const ROWS_OF_FEW: usize = 16; // weight rows of a task that does not turn them
const TOGETHER: usize = 4; // weight rows that a few rows of activations meet together
const TURNED: usize = BLOCK / 2; // columns that are turned at once: with `ROWS` they stay in the core's cache
const AHEAD: usize = 4096; // prefetch distance in bytes

pub(super) fn rows_of_a_task(x: &Activations) -> usize {
    if x.rows() < WORTH_TURNING { ROWS_OF_FEW } else { ROWS }
}

/// Multiplies weight rows `first..first + rows` with all rows of `x`, into their columns of `out`: [x.rows(), w.rows].
///
/// # Safety
/// No other task writes these columns.
pub(super) unsafe fn rows(cpu: &Cpu, x: &Activations, w: Weights, first: usize, rows: usize, out: DisjointParts<f32>) {
    let m = x.rows();
    // SAFETY: the caller's promise.
    let write = |m: usize, row: usize, values: &[f32]| unsafe {
        out.part(m * w.rows + first + row, values.len()).copy_from_slice(values);
    };
    if m < WORTH_TURNING {
        return with_scratch(TOGETHER * (w.cols + m), |scratch| {
            let (widened, sums) = scratch.split_at_mut(TOGETHER * w.cols);
            for row in (0..rows).step_by(TOGETHER) {
                let count = TOGETHER.min(rows - row);
                let few = Few::of(cpu, &w, first + row, count, widened);
                let x = x.values();
                at_level!(cpu.level, few_rows(few: Few<'_>, x: &[f32], sums: &mut [f32]));
                sums.chunks_exact(TOGETHER).enumerate().for_each(|(m, sums)| write(m, row, &sums[..count]));
            }
        });
    }
    with_scratch(rows * BLOCK + TURNED * ROWS + m * ROWS, |scratch| {
        let (widened, scratch) = scratch.split_at_mut(rows * BLOCK);
        let (turned, sums) = scratch.split_at_mut(TURNED * ROWS);
        for start in (0..w.cols).step_by(BLOCK) {
            let width = BLOCK.min(w.cols - start);
            for (row, values) in widened.chunks_exact_mut(BLOCK).enumerate() {
                widen(cpu, &w, first + row, start / BLOCK, &mut values[..width]);
            }
            let part = Part { x: x.values(), cols: w.cols, start, width, weights: widened, rows };
            at_level!(cpu.level, turned_times_rows(part: Part<'_>, turned: &mut [f32], sums: &mut [f32]));
        }
        sums.chunks_exact(ROWS).enumerate().for_each(|(m, sums)| write(m, 0, &sums[..rows]));
    });
}

#[derive(Clone, Copy)]
struct Few<'a> {
    format: Format,
    rows: [&'a [u8]; TOGETHER],
    /// Number of `rows` that count; the others repeat the last one, and their results are not read.
    count: usize,
}

impl<'a> Few<'a> {
    fn of(cpu: &Cpu, w: &Weights<'a>, first: usize, count: usize, widened: &'a mut [f32]) -> Few<'a> {
        let last = |row: usize| row.min(count - 1);
        if w.order == MatrixOrder::Rows && !w.format.is_quantised() {
            let bytes = w.row_bytes();
            let rows = std::array::from_fn(|row| &w.bytes[(first + last(row)) * bytes..][..bytes]);
            return Few { format: w.format, rows, count };
        }
        for (row, values) in widened.chunks_exact_mut(w.cols).enumerate().take(count) {
            for (block, values) in values.chunks_mut(BLOCK).enumerate() {
                widen(cpu, w, first + row, block, values);
            }
        }
        let bytes: &[u8] = bytemuck::cast_slice(widened);
        let rows = std::array::from_fn(|row| &bytes[last(row) * 4 * w.cols..][..4 * w.cols]);
        Few { format: Format::F32, rows, count }
    }
}

fn widen(cpu: &Cpu, w: &Weights, row: usize, block: usize, values: &mut [f32]) {
    match w.order {
        MatrixOrder::Rows => {
            let size = |cols: usize| w.format.row_bytes(cols).expect("blocks of 256 columns are whole in every format");
            let bytes = &w.bytes[row * w.row_bytes() + block * size(BLOCK)..][..size(values.len())];
            unpack(cpu.level, w.format, bytes, values);
        }
        MatrixOrder::Panels => panel::block_values(w, row, block, values),
    }
}

// `sums`: [rows of x, TOGETHER].
#[inline(always)]
fn few_rows<L: Lanes>(few: Few<'_>, x: &[f32], sums: &mut [f32]) {
    match few.format {
        Format::F16 => few_rows_of::<L, F16>(few, x, sums),
        Format::BF16 => few_rows_of::<L, BF16>(few, x, sums),
        _ => few_rows_of::<L, F32>(few, x, sums),
    }
}

const F32: u32 = Format::F32 as u32;
const F16: u32 = Format::F16 as u32;
const BF16: u32 = Format::BF16 as u32;

#[inline(always)]
fn few_rows_of<L: Lanes, const FORMAT: u32>(few: Few<'_>, x: &[f32], sums: &mut [f32]) {
    let rows = sums.len() / TOGETHER;
    let cols = x.len() / rows;
    let x = |row: usize| &x[row * cols..][..cols];
    let sums = sums.as_chunks_mut::<TOGETHER>().0;
    if rows == 1 {
        // One stream of memory after the other.
        for row in 0..few.count {
            [[sums[0][row]]] = dots::<L, 1, 1, 4, FORMAT>([few.rows[row]], [x(0)]);
        }
        return;
    }
    let mut row = 0;
    while row < rows {
        row += match rows - row {
            4.. => {
                let found = dots::<L, 4, TOGETHER, 1, FORMAT>(few.rows, [x(row), x(row + 1), x(row + 2), x(row + 3)]);
                sums[row..row + 4].copy_from_slice(&found);
                4
            }
            2.. => {
                let found = dots::<L, 2, TOGETHER, 1, FORMAT>(few.rows, [x(row), x(row + 1)]);
                sums[row..row + 2].copy_from_slice(&found);
                2
            }
            _ => {
                [sums[row]] = dots::<L, 1, TOGETHER, 1, FORMAT>(few.rows, [x(row)]);
                1
            }
        };
    }
}

// Multiplies M rows of `x` with each of N rows of weights; `APART` sums of each pair do not wait for each other.
#[inline(always)]
fn dots<L: Lanes, const M: usize, const N: usize, const APART: usize, const FORMAT: u32>(
    weights: [&[u8]; N],
    x: [&[f32]; M],
) -> [[f32; N]; M] {
    let size = if FORMAT == F32 { 4 } else { 2 };
    let cols = x[0].len();
    assert!(x.iter().all(|x| x.len() == cols) && weights.iter().all(|row| row.len() == cols * size));
    let mut sums = [[[L::splat(0.0); N]; M]; APART];
    let mut at = 0;
    // SAFETY: both loops read whole registers that end at `cols` or before.
    unsafe {
        while at + APART * L::COUNT <= cols {
            for apart in 0..APART {
                add::<L, M, N, FORMAT>(weights, x, at + apart * L::COUNT, &mut sums[apart]);
            }
            at += APART * L::COUNT;
        }
        while at + L::COUNT <= cols {
            add::<L, M, N, FORMAT>(weights, x, at, &mut sums[0]);
            at += L::COUNT;
        }
    }
    let mut out = [[0.0; N]; M];
    for m in 0..M {
        for n in 0..N {
            let mut sum = sums[0][m][n];
            for apart in 1..APART {
                sum = L::add(sum, sums[apart][m][n]);
            }
            // The rest behind whole registers.
            let rest: f32 = (at..cols).map(|i| one::<L, FORMAT>(weights[n], i) * x[m][i]).sum();
            out[m][n] = L::sum(sum) + rest;
        }
    }
    out
}

/// # Safety
/// All rows have a register's values from `at` on.
#[inline(always)]
unsafe fn add<L: Lanes, const M: usize, const N: usize, const FORMAT: u32>(
    weights: [&[u8]; N],
    x: [&[f32]; M],
    at: usize,
    sums: &mut [[L::V; N]; M],
) {
    let size = if FORMAT == F32 { 4 } else { 2 };
    let mut columns = [L::splat(0.0); N];
    for n in 0..N {
        let from = weights[n].as_ptr().wrapping_add(at * size);
        prefetch(from.wrapping_add(AHEAD));
        // SAFETY: the caller's promise.
        columns[n] = unsafe { load::<L, FORMAT>(from) };
    }
    for m in 0..M {
        // SAFETY: as above.
        let x = unsafe { L::load(x[m].as_ptr().add(at)) };
        for n in 0..N {
            sums[m][n] = L::madd(columns[n], x, sums[m][n]);
        }
    }
}

#[inline(always)]
fn one<L: Lanes, const FORMAT: u32>(weights: &[u8], at: usize) -> f32 {
    let half = || u16::from_le_bytes(weights.as_chunks().0[at]);
    match FORMAT {
        F16 => L::half(half()),
        BF16 => f32::from_bits(u32::from(half()) << 16),
        _ => f32::from_le_bytes(weights.as_chunks().0[at]),
    }
}

/// # Safety
/// A register's values can be read.
#[inline(always)]
unsafe fn load<L: Lanes, const FORMAT: u32>(from: *const u8) -> L::V {
    // SAFETY: the caller's promise.
    unsafe {
        match FORMAT {
            F16 => L::load_f16(from),
            BF16 => L::load_bf16(from),
            _ => L::load(from.cast()),
        }
    }
}

#[derive(Clone, Copy)]
struct Part<'a> {
    x: &'a [f32],
    cols: usize,
    start: usize,
    width: usize,
    weights: &'a [f32], // [rows, BLOCK]
    rows: usize,
}

// Adds to `sums`: [rows of activations, ROWS].
#[inline(always)]
fn turned_times_rows<L: Lanes>(part: Part<'_>, turned: &mut [f32], sums: &mut [f32]) {
    let m = sums.len() / ROWS;
    for first in (0..part.width).step_by(TURNED) {
        let width = TURNED.min(part.width - first);
        transpose::<L>(Block { values: &part.weights[first..], stride: BLOCK }, part.rows, width, turned, ROWS);
        let weights = Block { values: &*turned, stride: ROWS };
        let at = part.start + first;
        let before = if at == 0 { 0.0 } else { 1.0 };
        add_product::<L>(&part.x[at..], part.cols, 1, m, weights, part.rows, width, before, sums, ROWS);
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::{Cpu, CpuLevel};
    use crate::format::{Format, quantize};
    use crate::product::{Activations, MatrixOrder, Precision, Weights, product};
    use crate::testing;
    use crate::testing::random;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn floats_of_any_shape_are_as_the_reference_at_every_level(
            format in prop::sample::select(vec![Format::F32, Format::F16, Format::BF16]),
            m in 1..40usize,
            rows in 1..150usize,
            cols in 1..900usize,
            seed in 1..u64::MAX,
        ) {
            let mut bytes = vec![0; rows * format.row_bytes(cols).unwrap()];
            quantize(format, &random(rows * cols, seed), &mut bytes);
            let w = Weights { format, rows, cols, order: MatrixOrder::Rows, bytes: &bytes };
            let x = random(m * cols, seed ^ 1);
            let expected = testing::product(&x, w);
            for level in CpuLevel::available() {
                let cpu = Cpu::with_level(2, level);
                let mut activations = Activations::default();
                activations.set(m, cols, &x);
                let mut out = vec![f32::NAN; m * rows];
                product(&cpu, Precision::F32, &activations, w, &mut out);
                // A few values may nearly cancel: the largest possible sum is the measure.
                let size = (cols as f64 / 9.0).sqrt();
                for (ours, expected) in out.iter().zip(&expected) {
                    prop_assert!(f64::from((ours - expected).abs()) <= 1e-5 * size, "{ours} for {expected}, {}", level.name());
                }
            }
        }
    }
}
