//! Any bytes as a GGUF file: a model or an error.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use weights::Bytes;

fuzz_target!(|data: &[u8]| {
    let _ = weights::gguf::from_bytes(Path::new("fuzz.gguf"), Bytes::copy_of(data));
});
