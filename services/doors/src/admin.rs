//! Sessions, keys, experiments and what stands in prompts, for people and programs that look after them.

pub mod context;
pub mod experiments;
pub mod keys;
pub mod sessions;
