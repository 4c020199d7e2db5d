//! Development only: no product crate depends on this one, except for its tests.
//!
//! | for | module |
//! |---|---|
//! | kernels on a GPU, or on a GPU in software | `devices`, `emulator`, `stand_in` |
//! | results of the reference implementation | `golden`, `vocabulary` |
//! | model files, right and wrong | `gguf`, `folder`, `tiny`, `blocks`, `packed` |
//!
//! The definitions of kernels are in the crate `reference`, which uses no other crate.

pub mod blocks;
pub mod devices;
pub mod emulator;
pub mod folder;
pub mod gguf;
pub mod golden;
pub mod packed;
pub mod stand_in;
pub mod tiny;
pub mod vocabulary;

pub use blocks::random_blocks;
pub use devices::{cases, device_of_tests};
pub use emulator::{Emulator, EmulatorError, gpu_error, has_emulator, is_emulated, open_emulator};
