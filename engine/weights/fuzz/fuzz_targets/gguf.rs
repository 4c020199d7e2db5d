//! Any bytes as a GGUF file: a model or an error.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use weights::ModelBytes;

fuzz_target!(|data: &[u8]| {
    let _ = weights::gguf::from_bytes(Path::new("fuzz.gguf"), ModelBytes::copy_of(data));
});
