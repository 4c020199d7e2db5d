//! Measurements: benchmarks, comparisons of presets, sets of questions, and the tools to play and print them.

pub mod ab;
pub mod answer;
pub mod bench;
mod charts;
pub mod client;
mod dice;
pub mod eval;
pub mod hardware;
mod household;
pub mod opening;
pub mod output;
pub mod probe;
pub mod qa;
mod script;
pub mod store;
pub mod synth;
