//! Commands, one file each: arguments and work.

pub mod chat;
pub mod doctor;
pub mod keys;
pub mod licenses;
pub mod logits;
pub mod lora;
pub mod memories;
pub mod merge;
pub mod plan;
pub mod pull;
pub mod render;
pub mod run;
pub mod serve;
pub mod sessions;
pub mod who;
