//! Commands, one file each: arguments and work.

pub mod chat;
pub mod completions;
pub mod doctor;
pub mod engine_flags;
pub mod imatrix;
pub mod import;
pub mod keys;
pub mod licenses;
pub mod logits;
pub mod lora;
pub mod man;
pub mod memories;
pub mod merge;
pub mod plan;
pub mod publish;
pub mod pull;
pub mod quantize;
pub mod render;
pub mod run;
pub mod serve;
pub mod sessions;
pub mod speech_servers;
pub mod tensors;
pub mod validate;
pub mod who;
