//! Any bytes as the one safetensors file of a folder whose other files are sound: a model or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weights::ModelBytes;
use weights::hf::{Folder, load};

fuzz_target!(|data: &[u8]| {
    let _ = load(Folder {
        path: "fuzz".into(),
        config: include_bytes!("../seeds/config/dense.json").to_vec(),
        shards: vec![("fuzz/model.safetensors".into(), ModelBytes::copy_of(data))],
        tokenizer: b"{}".to_vec(),
        tokenizer_config: None,
        generation_config: None,
        chat_template: None,
    });
});
