//! Any bytes as config.json, tokenizer_config.json and generation_config.json around sound weights: a model or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weights::ModelBytes;
use weights::hf::{Folder, load};

fuzz_target!(|data: &[u8]| {
    // Three texts in one input, so that a seed of one can become another's.
    let mut parts = data.split(|&byte| byte == 0).map(<[u8]>::to_vec);
    let _ = load(Folder {
        path: "fuzz".into(),
        config: parts.next().unwrap_or_default(),
        shards: vec![(
            "fuzz/model.safetensors".into(),
            ModelBytes::copy_of(include_bytes!("../seeds/safetensors/dense.safetensors")),
        )],
        tokenizer: b"{}".to_vec(),
        tokenizer_config: parts.next(),
        generation_config: parts.next(),
        chat_template: None,
    });
});
