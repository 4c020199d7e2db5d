//! The arithmetic of the engine: slices in, slices out. The crate knows no model and no file.
//!
//! A kernel is one stem: a public function, its versions by processor level, its CUDA source where a GPU has it too
//! (`.cu`), and its tests. The crate `reference` defines every kernel in f64; each version is held to it.
//!
//! | module | computes |
//! |---|---|
//! | [`format`](mod@format) | block formats of weights: bytes to exact values and back |
//! | [`product`] | activations times a weight matrix, in f32 or in 8-bit integers |
//! | [`attention`] | causal attention over pages of keys and values |
//! | [`delta`], [`recurrence`] | the gated delta rule, and a linear layer's part with a state |
//! | [`hadamard`] | the rotation in front of keys and values in few bits |
//! | [`norm`], [`rotation`], [`activation`] | the small functions between |
//! | [`dot`] | a vector of bytes times many, for searches by meaning |
//! | [`cpu`] | the processor's level, threads, and the registers that kernels are written in |
//!
//! Every kernel takes its [`cpu::Cpu`] or [`cpu::CpuLevel`] first: the level is detected once and held as a value.
//!
//! ```
//! use kernels::cpu::Cpu;
//! use kernels::format::{Format, quantize};
//! use kernels::product::{Activations, MatrixOrder, Precision, Rounding, Weights, product};
//!
//! let cpu = Cpu::new(1);
//! // A matrix of two rows with 64 values each, in blocks of 8-bit codes.
//! let (rows, cols) = (2, 64);
//! let values: Vec<f32> = (0..rows * cols).map(|i| (i as f32).sin()).collect();
//! let mut bytes = vec![0; rows * Format::Q8_0.row_bytes(cols).expect("whole blocks")];
//! quantize(Format::Q8_0, &values, &mut bytes);
//! let weights = Weights { format: Format::Q8_0, rows, cols, order: MatrixOrder::Rows, bytes: &bytes };
//!
//! // One row of activations, rounded once for all matrices that read it.
//! let mut x = Activations::default();
//! x.set(1, cols, &values[..cols]);
//! x.quantise(&cpu, Rounding::Coarse);
//!
//! let mut out = [0.0; 2];
//! product(&cpu, Precision::Integer, &x, weights, &mut out);
//! for (row, out) in values.chunks(cols).zip(out) {
//!     let exact: f32 = row.iter().zip(x.values()).map(|(w, x)| w * x).sum();
//!     assert!((out - exact).abs() < 0.1);
//! }
//! ```

pub mod activation;
pub mod attention;
mod convolution;
pub mod cpu;
pub mod cuda;
pub mod delta;
mod dense;
pub mod dot;
pub mod format;
pub mod hadamard;
mod levels;
pub mod norm;
pub mod peak;
pub mod product;
pub mod recurrence;
pub mod rotation;
mod scratch;
mod unpack;

#[cfg(test)]
mod testing;
