//! A GGUF file as it is, whatever it holds: keys and tensors without a model's meaning.

use std::path::{Path, PathBuf};

use kernels::format::Format;

use super::metadata::Metadata;
use super::parts::{self, GgufParts};
use crate::bytes::ModelBytes;
use crate::error::Error;

#[derive(Debug)]
pub struct GgufFile {
    pub path: PathBuf,
    /// Each key of the first part with the bytes of its type and value.
    pub keys: Vec<(String, ModelBytes)>,
    /// Tensors in the files' order. Each lies inside its file and over no other.
    pub tensors: Vec<GgufTensor>,
    metadata: Metadata,
}

#[derive(Debug, Clone)]
pub struct GgufTensor {
    pub name: String,
    /// Innermost first: [columns, rows, ..].
    pub dims: Vec<u64>,
    /// Format of the values. None: the kernels cannot read the type.
    pub format: Option<Format>,
    pub type_name: String,
    pub data: ModelBytes,
}

impl GgufFile {
    pub fn open(path: &Path, mmap: bool) -> Result<GgufFile, Error> {
        let GgufParts { metadata, keys, order, tensors, .. } = parts::open(path, mmap)?;
        let tensors = order.into_iter().filter_map(|name| {
            let stored = tensors.get(&name)?;
            Some(GgufTensor {
                dims: stored.dims.iter().rev().map(|&dim| dim as u64).collect(),
                format: stored.format,
                type_name: stored.type_name.clone(),
                data: stored.data.clone(),
                name,
            })
        });
        Ok(GgufFile { path: path.to_path_buf(), keys, tensors: tensors.collect(), metadata })
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        self.metadata.text(key)
    }

    pub fn texts(&self, key: &str) -> Result<Option<&[String]>, Error> {
        self.metadata.text_list(key)
    }

    pub fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        self.metadata.float(key)
    }

    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, Error> {
        self.metadata.unsigned(key)
    }
}
