//! Checkpoints imported and quantised, against the ecosystem's files and the results of the folders they came from.

mod damaged;
mod fitting;
mod import;
mod quantize;
mod support;
