//! Slices in, slices out: the arithmetic of the engine. Knows no model and no file.
//!
//! One kernel is one stem: the public function, its versions by processor level, its tests. What all of them compute by
//! definition stands in `tests/support/reference.rs`.

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
extern crate self as kernels;
#[cfg(test)]
#[path = "../tests/support/reference.rs"]
mod reference;
#[cfg(test)]
#[path = "../tests/support/values.rs"]
mod testing;
