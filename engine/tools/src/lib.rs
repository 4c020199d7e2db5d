//! Writes model files: a GGUF stream, the mixtures of formats that quantised files have, random models of a real shape, merged
//! models and adapters.
//!
//! The crate `weights` reads model files, and this one is above the engine, so that a tool may run a model too.

mod error;
pub mod gguf_writer;
pub mod lora;
pub mod merge;
pub mod mixture;
mod model_folder;
mod new_folder;
pub mod safetensors_writer;
pub mod synth;

pub use error::Error;
