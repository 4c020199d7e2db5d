//! Sessions, keys, experiments and what stands in prompts, for people and programs that look after them.

pub mod console;
pub mod context;
pub mod experiments;
pub mod health;
pub mod keys;
pub mod memories;
pub mod metrics;
pub mod persons;
pub mod server;
pub mod sessions;
pub mod state_streams;
pub mod window;
