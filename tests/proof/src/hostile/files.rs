//! Files from outside: model files, the configuration.

use super::stored::in_folder;
use settings::{Settings, Sources};
use std::path::Path;
use text::Tokenizer;
use weights::ModelBytes;
use weights::hf::{Folder, load};

const DENSE_CONFIG: &[u8] = include_bytes!("../../../../engine/weights/fuzz/seeds/config/dense.json");
const DENSE_WEIGHTS: &[u8] = include_bytes!("../../../../engine/weights/fuzz/seeds/safetensors/dense.safetensors");

pub fn gguf(bytes: &[u8]) -> Result<(), String> {
    let opened = weights::gguf::from_bytes(Path::new("hostile.gguf"), ModelBytes::copy_of(bytes));
    opened.map(drop).map_err(|error| error.to_string())
}

/// The index and the tensors of a folder whose other files are sound.
pub fn safetensors(bytes: &[u8]) -> Result<(), String> {
    folder(DENSE_CONFIG.to_vec(), bytes, None)
}

/// config.json and, after a zero, tokenizer_config.json, around sound weights.
pub fn config(bytes: &[u8]) -> Result<(), String> {
    let mut parts = bytes.split(|&byte| byte == 0).map(<[u8]>::to_vec);
    folder(parts.next().unwrap_or_default(), DENSE_WEIGHTS, parts.next())
}

fn folder(config: Vec<u8>, weights: &[u8], tokenizer_config: Option<Vec<u8>>) -> Result<(), String> {
    let loaded = load(Folder {
        path: "hostile".into(),
        config,
        shards: vec![("hostile/model.safetensors".into(), ModelBytes::copy_of(weights))],
        tokenizer: b"{}".to_vec(),
        tokenizer_config,
        generation_config: None,
        chat_template: None,
    });
    loaded.map(drop).map_err(|error| error.to_string())
}

pub fn tokenizer(bytes: &[u8]) -> Result<(), String> {
    let tokenizer = Tokenizer::from_json(bytes).map_err(|error| error.to_string())?;
    let tokens = tokenizer.encode("Turn on the light in the k\u{fc}che \u{1f4a1}, please.\n\t  12345 <|im_end|>");
    tokenizer.decode(&tokens);
    Ok(())
}

pub fn settings(bytes: &[u8]) -> Result<(), String> {
    let path = in_folder("settings", |folder, _| folder.join("reprise.toml"));
    std::fs::write(&path, bytes).map_err(|error| error.to_string())?;
    let sources = Sources { config_file: Some(path), ..Sources::default() };
    Settings::load(&sources).map(drop).map_err(|error| error.to_string())
}
