//! Measurements: benchmarks, comparisons of presets, sets of questions.

#![deny(clippy::print_stdout, clippy::print_stderr)] // they panic where nothing reads: `say!` and `note!` do not

pub mod ab;
pub mod bench;
mod charts;
mod dice;
pub mod eval;
mod household;
pub mod probe;
pub mod qa;
mod remembered;
mod script;
pub mod synth;
