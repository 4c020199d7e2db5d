//! A path to a model.

use std::path::Path;

use crate::error::Error;
use crate::gguf;
use crate::hf;
use crate::model::ModelWeights;

/// Opens the model at `path`: a GGUF file, any part of a GGUF set, or a Hugging Face folder. With `mmap` its files are
/// mapped and not read into memory.
pub fn open(path: &Path, mmap: bool) -> Result<ModelWeights, Error> {
    let about = std::fs::metadata(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
    if about.is_dir() { hf::open(path, mmap) } else { gguf::open(path, mmap) }
}
