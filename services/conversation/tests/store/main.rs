//! The store on real files.

mod core;
mod support;
