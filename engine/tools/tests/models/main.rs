//! Models merged, and adapters made, merged and run.

mod adapted;
mod adapter_forms;
mod folders;
mod goldens;
mod lora;
mod merge;
mod prediction;
