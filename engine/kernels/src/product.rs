//! Rows of activations times a weight matrix in any format: out[m, n] = x[m, ..] · w[n, ..].
//!
//! Two paths. The f32 path unpacks weights to f32 and changes nothing else. The integer path, for quantised weights,
//! works on activations that were rounded to 8 bits once and are shared by all products that read them.

mod activations;
#[cfg(target_arch = "x86_64")]
mod ahead;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod integer;
mod panel;
mod turned;
mod unrounded;

use crate::cpu::{Cpu, CpuLevel, DisjointParts};
use crate::format::{Format, dequantize};
use crate::scratch::with_scratch;

pub use activations::{Activations, Rounding};
pub use panel::{PANEL, PANEL_ORDER, pack_panel, panel_bytes};
pub use turned::{TurnedHalves, turned_products};

const BLOCK: usize = 256; // columns that are worked on together: the longest block of any weight format

#[derive(Clone, Copy)]
pub struct Weights<'a> {
    pub format: Format,
    pub rows: usize,
    pub cols: usize,
    pub order: MatrixOrder,
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixOrder {
    Rows,   // row after row as in files, each `format.row_bytes(cols)` bytes
    Panels, // sixteen rows interleaved (`panel.rs`), for processors that `has_panels` names
}

/// Rows of activations that cost hardly more than one: weights are unpacked once for all of them, and memory is the
/// bottleneck.
pub const FEW_ROWS: usize = 8;

/// Returns true if integer products are faster with panels here: matrices are then worth repacking when they are
/// loaded.
pub fn has_panels(level: CpuLevel) -> bool {
    matches!(level, CpuLevel::Avx512 | CpuLevel::Avx2)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    F32,
    Integer, // activations are rounded to 8 bits where the weights are quantised
}

const ROWS_OF_A_TASK: usize = 16; // weight rows of one task if they lie as in files and activations are rounded
// Fewest bytes of panels that a task reads one after the other, so that the memory can run ahead of it.
const BYTES_OF_A_TASK: usize = 1 << 15; // not a window: bytes
// Fewest tasks for each thread, if the matrix has that many panels: a thread that is held up leaves the rest to
// others.
const TASKS_OF_A_THREAD: usize = 8;

impl Weights<'_> {
    fn row_bytes(&self) -> usize {
        self.format.row_bytes(self.cols).expect("a matrix was checked when it was read")
    }

    pub fn row(&self, row: usize, out: &mut [f32]) {
        if self.order == MatrixOrder::Panels {
            return panel::row_values(self, row, out);
        }
        let bytes = self.row_bytes();
        dequantize(self.format, &self.bytes[row * bytes..][..bytes], out);
    }
}

pub fn product(cpu: &Cpu, precision: Precision, x: &Activations, w: Weights, out: &mut [f32]) {
    products(cpu, x, [(precision, w, out)]);
}

pub fn products<const N: usize>(cpu: &Cpu, x: &Activations, matrices: [(Precision, Weights, &mut [f32]); N]) {
    let jobs = matrices.map(|(precision, w, out)| {
        assert_eq!(x.cols(), w.cols);
        assert_eq!(out.len(), x.rows() * w.rows);
        let integer = precision == Precision::Integer && w.format.is_quantised();
        assert!(!integer || x.is_rounded(), "an integer product needs rounded activations");
        Job::new(cpu, integer, x, w, DisjointParts::new(out))
    });
    let tasks = jobs.iter().map(|job| job.tasks).sum();
    cpu.pool.run(tasks, |mut task| {
        for job in &jobs {
            if task < job.tasks {
                return job.run(cpu, x, task);
            }
            task -= job.tasks;
        }
    });
}

struct Job<'a> {
    w: Weights<'a>,
    out: DisjointParts<'a, f32>,
    way: Way,
    rows_of_a_task: usize,
    tasks: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    F32,
    Rows,
    Panels,
}

impl<'a> Job<'a> {
    fn new(cpu: &Cpu, integer: bool, x: &Activations, w: Weights<'a>, out: DisjointParts<'a, f32>) -> Job<'a> {
        let way = match w.order {
            MatrixOrder::Rows if integer => Way::Rows,
            MatrixOrder::Panels if integer && has_panels(cpu.level) => Way::Panels,
            // Panels at a level without a product for them occur only in tests: slow, and right.
            _ => Way::F32,
        };
        let rows_of_a_task = match way {
            Way::Panels => {
                let panels = w.rows.div_ceil(PANEL).max(1);
                let most = panels.div_ceil(cpu.pool.threads() * TASKS_OF_A_THREAD);
                let enough = BYTES_OF_A_TASK.div_ceil((w.bytes.len() / panels).max(1));
                // Many rows of activations work on two panels at once.
                PANEL * enough.min(most).next_multiple_of(if x.rows() > 1 { 2 } else { 1 })
            }
            Way::Rows => ROWS_OF_A_TASK,
            Way::F32 => unrounded::rows_of_a_task(x),
        };
        Job { w, out, way, rows_of_a_task, tasks: w.rows.div_ceil(rows_of_a_task) }
    }

    fn run(&self, cpu: &Cpu, x: &Activations, task: usize) {
        let w = self.w;
        let first = task * self.rows_of_a_task;
        let rows = self.rows_of_a_task.min(w.rows - first);
        match self.way {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor is of the level, and the columns of these panels are this task's alone.
            Way::Panels => unsafe {
                let (first, count) = (first / PANEL, rows.div_ceil(PANEL));
                match cpu.level {
                    CpuLevel::Avx512 => avx512::panels(x, w, first, count, self.out),
                    _ => avx2::panels(x, w, first, count, self.out),
                }
            },
            Way::Rows => with_scratch(x.rows() * rows, |sums| {
                sums.fill(0.0);
                integer::rows(cpu.level, x, w, first, rows, sums);
                for (m, values) in sums.chunks_exact(rows).enumerate() {
                    // SAFETY: this task alone writes columns first..first + rows of the output.
                    unsafe { self.out.part(m * w.rows + first, rows) }.copy_from_slice(values);
                }
            }),
            // SAFETY: as above.
            _ => unsafe { unrounded::rows(cpu, x, w, first, rows, self.out) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::testing::{assert_close, random, random_blocks};

    fn panels(w: Weights) -> Option<Vec<u8>> {
        let mut bytes = vec![0; panel_bytes(w.format, w.rows, w.cols)?];
        let size = bytes.len() / w.rows.div_ceil(PANEL);
        bytes
            .chunks_exact_mut(size)
            .enumerate()
            .for_each(|(panel, out)| pack_panel(CpuLevel::detect(), &w, panel, out));
        Some(bytes)
    }

    #[test]
    fn every_format_layout_level_and_path_is_near_the_reference() {
        for level in CpuLevel::available() {
            let cpu = Cpu::with_level(2, level);
            for format in Format::ALL.iter().copied() {
                let shapes = [
                    (1, 1, 1),
                    (3, 37, 1),
                    (2, 16, 3),
                    (7, 5, 2),
                    (9, 40, 2),
                    (6, 16, 1),
                    (1, 333, 2),
                    (25, 48, 3),
                    (11, 33, 2),
                    (15, 40, 2),
                    (16, 16, 1),
                ];
                for (m, rows, blocks) in shapes {
                    // One and a half 256-blocks for the formats with short blocks: the tail counts too.
                    let cols = if format.block_len() > 32 { 256 * blocks } else { 96 + 32 * blocks };
                    let (bytes, x) = (random_blocks(format, rows * cols, 3), random(m * cols, 4));
                    let w = Weights { format, rows, cols, order: MatrixOrder::Rows, bytes: &bytes };
                    let expected = testing::product(&x, w);
                    let packed = panels(w);
                    let packed = packed.as_ref().map(|bytes| Weights { order: MatrixOrder::Panels, bytes, ..w });
                    let roundings = [Rounding::Coarse, Rounding::Fine];
                    let layouts = [Some(w), packed].into_iter().flatten();
                    for (w, rounding) in layouts.flat_map(|w| roundings.map(|rounding| (w, rounding))) {
                        let mut activations = Activations::default();
                        activations.set(m, cols, &x);
                        activations.quantise(&cpu, rounding);
                        let mut out = vec![f32::NAN; m * rows];
                        product(&cpu, Precision::F32, &activations, w, &mut out);
                        assert_close(&out, &expected, 1e-5);
                        out.fill(f32::NAN);
                        product(&cpu, Precision::Integer, &activations, w, &mut out);
                        // A sum that nearly cancels says little: only large products are compared with the unrounded
                        // ones.
                        let tolerance = if !format.is_quantised() {
                            1e-5
                        } else if m * rows < 16 {
                            0.2
                        } else {
                            1.5e-2
                        };
                        assert_close(&out, &expected, tolerance);
                        // Against the rounded activations themselves the integer path is exact but for f32 sums.
                        let integer = format.is_quantised() && (w.order == MatrixOrder::Rows || has_panels(level));
                        if integer {
                            assert_close(&out, &testing::product(&activations.rounded(), w), 1e-4);
                        }
                    }
                }
            }
        }
    }
}
