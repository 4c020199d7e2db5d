//! Writes model files: a GGUF stream, the mixtures of formats that quantised files have, random models of a real shape,
//! checkpoints imported and quantised.
//!
//! The crate `weights` reads model files, and this one is above the engine, so that a tool may run a model too.

pub mod apr;
pub mod divergence;
mod error;
pub mod family;
pub mod gguf_writer;
pub mod imatrix;
pub mod import;
pub mod mixture;
mod planned;
pub mod quantize;
mod streaming;
pub mod synth;
pub mod tensors;
pub mod validate;

pub use error::Error;
