//! Every file of a service: the database with its log and journal as bytes, what was computed as the words that its tokens
//! spell.

use super::canary::Needles;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use text::Tokenizer;

#[derive(Debug, Default)]
pub struct Searched {
    pub found: Vec<(String, PathBuf)>,
    pub files: u64,
    pub bytes: u64,
}

pub fn tokenizer() -> Result<Tokenizer> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/builtin/builtin.gguf");
    Ok(engine::vocabulary::open(&file).with_context(|| format!("{}", file.display()))?.0)
}

pub fn search(folder: &Path, needles: &Needles, tokenizer: &Tokenizer) -> Result<Searched> {
    let mut searched = Searched::default();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                // Models hold no words of users.
                folders.extend(Some(path).filter(|path| !path.ends_with("data/models")));
                continue;
            }
            let bytes = match path.extension().and_then(|extension| extension.to_str()) {
                // Keys and values, whose words stand in the sequences that name them.
                Some("page") => continue,
                Some("line") => engine::hostile_disk::tokens_of(&path).map(|tokens| {
                    tokens.iter().flat_map(|token| tokenizer.token_bytes(*token)).copied().collect::<Vec<u8>>()
                }),
                _ => std::fs::read(&path).map_err(|error| error.to_string()),
            };
            // A running service deletes files meanwhile.
            let Ok(bytes) = bytes else { continue };
            (searched.files, searched.bytes) = (searched.files + 1, searched.bytes + bytes.len() as u64);
            searched.found.extend(needles.in_bytes(&bytes).into_iter().map(|word| (word, path.clone())));
        }
    }
    Ok(searched)
}
