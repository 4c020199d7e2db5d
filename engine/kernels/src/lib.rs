//! Slices in, slices out: the arithmetic of the engine. Knows no model and no file.
//!
//! One kernel is one stem: the public function, its versions by processor level, its tests. What all of them compute by
//! definition stands in the crate `reference`.

pub mod activation;
pub mod attention;
mod convolution;
pub mod cpu;
pub mod cuda;
pub mod delta;
mod dense;
pub mod format;
pub mod norm;
pub mod peak;
pub mod product;
pub mod recurrence;
pub mod rotation;
mod scratch;
mod unpack;

#[cfg(test)]
mod testing;
