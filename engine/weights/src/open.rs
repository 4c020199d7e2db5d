//! The one door: a path to a model.

use std::path::Path;

use crate::error::Error;
use crate::gguf;
use crate::hf;
use crate::model::Model;

#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// Map the files instead of reading them into memory.
    pub mmap: bool,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions { mmap: true }
    }
}

/// The model at `path`: a GGUF file, any part of a GGUF set, or a Hugging Face folder.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Model, Error> {
    let about = std::fs::metadata(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
    if about.is_dir() { hf::open(path, options.mmap) } else { gguf::open(path, options.mmap) }
}
