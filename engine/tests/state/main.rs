//! What is reused must not change what is answered.

mod cut;
mod device;
mod disk;
mod memory;
mod random;
mod reuse;
mod support;
