//! Conformance of the websockets to RFC 6455: a table of bytes sent and expected. The cases are those that every server
//! meets sooner or later: fragments, control frames between them, broken UTF-8, reserved bits, close codes, limits.

mod args;
mod cases;
mod connection;
mod frames;

pub use args::{Args, prove};
pub use cases::{Case, Expect, cases};
