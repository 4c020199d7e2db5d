//! Parts that the commands of the binary share, those for users and those that measure: output to a terminal, the
//! store, a model in this process with its flags and its progress, and a client of a running service.
//!
//! They are not in `model` or `runtime`, which know no flags and no terminal, and not in `lab`, which measures.

#![deny(clippy::print_stdout, clippy::print_stderr)] // they panic where nothing reads: `say!` and `note!` do not

pub mod answer;
pub mod client;
pub mod flags;
pub mod hardware;
pub mod opening;
pub mod output;
pub mod store;
