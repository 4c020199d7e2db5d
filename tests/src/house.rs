//! The rules of the house as functions from text to complaints. They know no files but those they are given, so that
//! each rule can be shown to fail; `tests/tests/house.rs` holds them against the real tree.

pub mod allowed;
pub mod circles;
pub mod commands;
pub mod doors;
pub mod files;
pub mod modules;
pub mod names;
pub mod pages;
pub mod prose;
pub mod purity;
pub mod rules;
pub mod source;
pub mod walls;
pub mod windows;
