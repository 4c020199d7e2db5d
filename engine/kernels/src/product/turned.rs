//! A matrix of halves that was turned once, when it was read: sixteen of its rows lie side by side, column by column. Several
//! rows of f32 activations meet a column in registers, and no sum goes across lanes.

use super::{Activations, PANEL};
use crate::cpu::{Cpu, DisjointParts, Lanes, at_level};
use half::f16;

pub struct TurnedHalves {
    values: Vec<f16>, // [panel, column, row of the panel]; rows that fill the last panel are zero
    rows: usize,
    cols: usize,
}

impl TurnedHalves {
    // Turns `values`: [rows, cols].
    pub fn new(rows: usize, cols: usize, values: &[f16]) -> TurnedHalves {
        assert_eq!(values.len(), rows * cols);
        let mut turned = vec![f16::ZERO; rows.next_multiple_of(PANEL) * cols];
        for (row, values) in values.chunks_exact(cols.max(1)).enumerate() {
            let panel = &mut turned[row / PANEL * PANEL * cols..];
            for (column, value) in values.iter().enumerate() {
                panel[column * PANEL + row % PANEL] = *value;
            }
        }
        TurnedHalves { values: turned, rows, cols }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }
}

// Computes out = x · wᵀ for each matrix, [rows of x, rows of w], as one job.
pub fn turned_products<const N: usize>(cpu: &Cpu, x: &Activations, matrices: [(&TurnedHalves, &mut [f32]); N]) {
    let jobs = matrices.map(|(w, out)| {
        assert_eq!((x.cols(), out.len()), (w.cols, x.rows() * w.rows));
        (w, DisjointParts::new(out))
    });
    let panels = |w: &TurnedHalves| w.rows.div_ceil(PANEL);
    cpu.pool.run(jobs.iter().map(|(w, _)| panels(w)).sum(), |mut panel| {
        for (w, out) in &jobs {
            if panel < panels(w) {
                let job = Panel { w, panel, x: x.values(), rows: x.rows(), out };
                at_level!(cpu.level, panel_body(job: Panel<'_>));
                return;
            }
            panel -= panels(w);
        }
    });
}

#[derive(Clone, Copy)]
struct Panel<'a> {
    w: &'a TurnedHalves,
    panel: usize,
    x: &'a [f32],
    rows: usize,
    out: &'a DisjointParts<'a, f32>,
}

#[inline(always)]
fn panel_body<L: Lanes>(job: Panel<'_>) {
    let mut row = 0;
    while row < job.rows {
        // Parts of nearly one size.
        let left = job.rows - row;
        row += match left.div_ceil(left.div_ceil(TOGETHER)) {
            6.. => rows::<L, 6>(job, row),
            5 => rows::<L, 5>(job, row),
            4 => rows::<L, 4>(job, row),
            3 => rows::<L, 3>(job, row),
            2 => rows::<L, 2>(job, row),
            _ => rows::<L, 1>(job, row),
        };
    }
}

const TOGETHER: usize = 6; // rows whose sums registers can hold
const MOST_REGISTERS: usize = 4; // of a column: the narrowest level has four lanes

// Multiplies M rows with each column of a panel.
#[inline(always)]
fn rows<L: Lanes, const M: usize>(job: Panel<'_>, row: usize) -> usize {
    let registers = PANEL / L::COUNT;
    let Panel { w, panel, out, .. } = job;
    let x = &job.x[row * w.cols..][..M * w.cols];
    let values = &w.values[panel * PANEL * w.cols..][..PANEL * w.cols];
    let mut sums = [[L::splat(0.0); MOST_REGISTERS]; M];
    let mut turned = [[0.0f32; PANEL]; M];
    // SAFETY: both slices have all columns; a row of `turned` has a panel's registers.
    unsafe {
        let (x, mut values) = (x.as_ptr(), values.as_ptr().cast::<u8>());
        for column in 0..w.cols {
            let mut weights = [L::splat(0.0); MOST_REGISTERS];
            for n in 0..registers {
                weights[n] = L::load_f16(values.add(2 * n * L::COUNT));
            }
            for m in 0..M {
                let x = L::splat(*x.add(m * w.cols + column));
                for n in 0..registers {
                    sums[m][n] = L::madd(x, weights[n], sums[m][n]);
                }
            }
            values = values.add(2 * PANEL);
        }
        for m in 0..M {
            for n in 0..registers {
                L::store(turned[m].as_mut_ptr().add(n * L::COUNT), sums[m][n]);
            }
        }
    }
    let first = panel * PANEL;
    let count = PANEL.min(w.rows - first);
    for (m, sums) in turned.iter().enumerate() {
        // SAFETY: this task alone writes the columns of its panel.
        unsafe { out.part((row + m) * w.rows + first, count) }.copy_from_slice(&sums[..count]);
    }
    M
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuLevel;
    use crate::testing::{assert_close, random};

    #[test]
    fn as_the_reference_at_every_level_and_shape() {
        for level in CpuLevel::available() {
            let cpu = Cpu::with_level(2, level);
            for (m, rows, cols) in [(1, 1, 1), (2, 17, 5), (3, 16, 24), (13, 40, 7), (20, 33, 64), (29, 48, 96)] {
                let halves: Vec<f16> = random(rows * cols, 1).into_iter().map(f16::from_f32).collect();
                let mut x = Activations::default();
                x.set(m, cols, &random(m * cols, 2));
                let expected = reference::product(x.values(), rows, cols, |row, out| {
                    out.iter_mut().zip(&halves[row * cols..]).for_each(|(out, half)| *out = half.to_f32());
                });
                let (turned, mut out) = (TurnedHalves::new(rows, cols, &halves), vec![f32::NAN; m * rows]);
                turned_products(&cpu, &x, [(&turned, &mut out)]);
                assert_close(&out, &expected, 1e-5);
            }
        }
    }
}
