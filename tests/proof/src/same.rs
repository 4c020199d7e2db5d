//! The same question has the same answer however it is computed: with what is cached or without, beside other replies or alone,
//! on each level of the processor, with pasts read from disk, with a reply that was stopped and went on. Random conversations
//! with small random models; an engine that remembers nothing is the oracle.

mod args;
mod conversation;
mod engines;

pub use args::{Args, prove};
