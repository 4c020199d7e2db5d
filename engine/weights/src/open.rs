//! A path to a model.

use std::path::Path;

use crate::contents::{FileContents, FileTensor};
use crate::error::Error;
use crate::gguf;
use crate::hf;
use crate::model::ModelWeights;

/// Opens the model at `path`: a GGUF file, any part of a GGUF set, an APR file, or a Hugging Face folder. With `mmap` its files are
/// mapped and not read into memory.
pub fn open(path: &Path, mmap: bool) -> Result<ModelWeights, Error> {
    match kind(path)? {
        FilesKind::Folder | FilesKind::Apr => hf::open(path, mmap),
        FilesKind::Gguf => gguf::open(path, mmap),
    }
}

pub fn contents(path: &Path, mmap: bool) -> Result<FileContents, Error> {
    match kind(path)? {
        FilesKind::Gguf => gguf::contents(path, mmap),
        FilesKind::Folder | FilesKind::Apr => hf::contents(path, mmap),
    }
}

pub fn tensors_of(path: &Path, mmap: bool) -> Result<Vec<FileTensor>, Error> {
    match kind(path)? {
        FilesKind::Gguf if path.extension().is_none_or(|extension| extension != "safetensors") => {
            gguf::tensors_of(path, mmap)
        }
        _ => hf::tensors_of(path, mmap),
    }
}

enum FilesKind {
    Folder,
    Apr,
    Gguf,
}

fn kind(path: &Path) -> Result<FilesKind, Error> {
    let about = std::fs::metadata(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
    Ok(match about.is_dir() {
        true => FilesKind::Folder,
        false if hf::is_apr(path) => FilesKind::Apr,
        false => FilesKind::Gguf,
    })
}
