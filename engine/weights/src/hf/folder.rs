//! The files of a folder, read and not yet understood.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::bytes::ModelBytes;
use crate::error::{Error, shown};

#[derive(Debug)]
pub struct Folder {
    pub path: PathBuf,
    pub config: Vec<u8>,
    pub shards: Vec<(PathBuf, ModelBytes)>,
    pub tokenizer: Vec<u8>,
    pub tokenizer_config: Option<Vec<u8>>,
    pub generation_config: Option<Vec<u8>>,
    pub chat_template: Option<String>,
}

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Text files of a model are a few megabytes, the tokenizer's the largest of them; more than this is something else.
const LARGEST_TEXT_BYTES: u64 = 1 << 28;

/// Reads the small files of a folder whole, and maps or reads its tensors' files.
pub fn read(path: &Path, mmap: bool) -> Result<Folder, Error> {
    let Some(config) = optional(path, "config.json")? else {
        if !path.exists() {
            return Err(Error::file(path, "there is no such file or folder"));
        }
        let what = "holds no config.json: give the folder of a model, or the path of a .gguf file";
        return Err(Error::file(path, what));
    };
    super::check_family(&path.join("config.json"), &config)?;
    let tokenizer = optional(path, "tokenizer.json")?.ok_or_else(|| Error::file(path, "holds no tokenizer.json"))?;
    let chat_template = match optional(path, "chat_template.jinja")? {
        None => None,
        Some(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(_) => return Err(Error::file(&path.join("chat_template.jinja"), "is not UTF-8")),
        },
    };
    let mut shards = Vec::new();
    for name in shard_names(path)? {
        let shard = path.join(name);
        let bytes = ModelBytes::open(&shard, mmap)?;
        shards.push((shard, bytes));
    }
    Ok(Folder {
        path: path.to_path_buf(),
        config,
        shards,
        tokenizer,
        tokenizer_config: optional(path, "tokenizer_config.json")?,
        generation_config: optional(path, "generation_config.json")?,
        chat_template,
    })
}

/// Returns the files of a folder's tensors; of a file, the file itself.
pub(crate) fn shards(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    Ok(shard_names(path)?.into_iter().map(|name| path.join(name)).collect())
}

fn shard_names(path: &Path) -> Result<BTreeSet<String>, Error> {
    let Some(json) = optional(path, INDEX)? else {
        if path.join(SINGLE).exists() {
            return Ok([SINGLE.to_string()].into());
        }
        return Err(Error::file(path, format!("holds neither {SINGLE} nor {INDEX}: is the download complete?")));
    };
    let index_path = path.join(INDEX);
    let index: Index = serde_json::from_slice(&json)
        .map_err(|error| Error::file(&index_path, format!("is damaged: {}", shown(&error.to_string()))))?;
    let names: BTreeSet<String> = index.weight_map.into_values().collect();
    for name in &names {
        // A name that leads out of the folder would read a file that the user did not offer.
        let plain = Path::new(name).file_name().is_some_and(|last| last == name.as_str());
        if !plain || !name.ends_with(".safetensors") {
            let expected = "the name of a .safetensors file in the folder";
            return Err(Error::key(&index_path, "weight_map", format!("'{}'", shown(name)), expected));
        }
        if !path.join(name).exists() {
            return Err(Error::file(&path.join(name), format!("is missing: {INDEX} names it")));
        }
    }
    if names.is_empty() {
        return Err(Error::key(&index_path, "weight_map", "an empty map", "the files of the tensors"));
    }
    Ok(names)
}

#[derive(Deserialize)]
struct Index {
    weight_map: std::collections::HashMap<String, String>,
}

pub(super) fn optional(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, Error> {
    let path = folder.join(name);
    let io = |source| Error::Io { path: path.clone(), source };
    match std::fs::metadata(&path) {
        // Asked before it is opened: to open a pipe is to wait for its writer.
        Ok(about) if !about.is_file() => return Err(Error::file(&path, "is not a regular file")),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    }
    let file = std::fs::File::open(&path).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(LARGEST_TEXT_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    match u64::try_from(bytes.len()) {
        Ok(len) if len <= LARGEST_TEXT_BYTES => Ok(Some(bytes)),
        _ => Err(Error::file(
            &path,
            format!("has more than {LARGEST_TEXT_BYTES} bytes: that is no text file of a model"),
        )),
    }
}
