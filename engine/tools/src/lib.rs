//! Writes model files: a GGUF stream, the mixtures of formats that quantised files have, random models of a real shape,
//! checkpoints imported and quantised, merged models and adapters.
//!
//! The crate `weights` reads model files, and this one is above the engine, so that a tool may run a model too.

pub mod apr;
mod deciding;
pub mod divergence;
mod error;
pub mod family;
mod file_head;
pub mod gguf_writer;
pub mod imatrix;
pub mod import;
pub mod lora;
pub mod merge;
pub mod mixture;
mod new_folder;
mod planned;
pub mod quantize;
pub mod safetensors_writer;
mod streaming;
pub mod synth;
mod target;
mod tensor_source;
pub mod tensors;
mod type_rule;
pub mod validate;

pub use error::Error;
pub use planned::check_out;
