//! Bytes that no client would send, into every parser that meets bytes from outside. Inputs are drawn by a seed from a
//! corpus, so that a number names an input. A panic, an input that takes long or much memory, and an error without words
//! are failures.

mod answers;
mod args;
mod corpus;
mod doors;
mod files;
mod generate;
mod json;
mod memory;
mod random;
mod report;
mod runner;
mod stored;
mod targets;
mod told;

pub use args::{Args, prove, run};
pub use corpus::{Corpus, corpus_folder};
pub use generate::Generator;
pub use report::{Failure, TargetReport};
pub use runner::{Until, try_target};
pub use targets::{HostileTarget, TARGETS};
