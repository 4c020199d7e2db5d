//! What measures: benchmarks, comparisons of presets, sets of questions, and what they need to be played and told.

pub mod ab;
pub mod bench;
pub mod eval;
pub mod machine;
pub mod opening;
pub mod output;
mod plot;
mod script;
pub mod store;
pub mod synth;
pub mod websocket;
