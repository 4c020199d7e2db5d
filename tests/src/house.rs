//! The rules of the house as functions from text to complaints. They know no files but those they are given, so that
//! each rule can be shown to fail; `tests/tests/house.rs` holds them against the real tree.

pub mod files;
pub mod lexer;
pub mod rules;
pub mod walls;
pub mod windows;
