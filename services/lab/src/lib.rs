//! Measurements: benchmarks, comparisons of presets, sets of questions.

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
