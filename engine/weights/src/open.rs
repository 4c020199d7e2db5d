//! A path to a model.

use std::path::Path;

use crate::error::Error;
use crate::gguf;
use crate::hf;
use crate::model::ModelWeights;

/// Opens the model at `path`: a GGUF file, any part of a GGUF set, an APR file, or a Hugging Face folder. With `mmap` its files are
/// mapped and not read into memory.
pub fn open(path: &Path, mmap: bool) -> Result<ModelWeights, Error> {
    let about = std::fs::metadata(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
    match about.is_dir() {
        true => hf::open(path, mmap),
        false if hf::is_apr(path) => hf::open_apr(path, mmap),
        false => gguf::open(path, mmap),
    }
}
