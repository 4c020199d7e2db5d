//! A path to a model.

use std::path::Path;

use crate::contents::FileTensor;
use crate::error::Error;
use crate::gguf;
use crate::hf;
use crate::model::ModelWeights;

/// Opens the model at `path`: a GGUF file, any part of a GGUF set, or a Hugging Face folder. With `mmap` its files are
/// mapped and not read into memory.
pub fn open(path: &Path, mmap: bool) -> Result<ModelWeights, Error> {
    if is_folder(path)? { hf::open(path, mmap) } else { gguf::open(path, mmap) }
}

/// Lists the tensors of a GGUF file or set, of a folder of safetensors or of one such file, whatever they belong to.
pub fn tensors_of(path: &Path, mmap: bool) -> Result<Vec<FileTensor>, Error> {
    if is_folder(path)? || path.extension().is_some_and(|extension| extension == "safetensors") {
        return hf::tensors_of(path, mmap);
    }
    gguf::tensors_of(path, mmap)
}

fn is_folder(path: &Path) -> Result<bool, Error> {
    let about = std::fs::metadata(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
    Ok(about.is_dir())
}
