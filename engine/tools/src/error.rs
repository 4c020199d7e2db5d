//! Errors of the tools.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {what}", path.display())]
    File { path: PathBuf, what: String },
    #[error(transparent)]
    Weights(#[from] weights::Error),
    #[error(transparent)]
    Engine(#[from] engine::Error),
    #[error("{}: {source}", path.display())]
    Text { path: PathBuf, source: text::Error },
    #[error("{}: tensor '{tensor}': {what}", path.display())]
    Tensor { path: PathBuf, tensor: String, what: String },
    #[error("{} has room for {free_mib} MiB, and the file takes {needed_mib} MiB: make room, or name another folder", folder.display())]
    DiskRoom { folder: PathBuf, free_mib: u64, needed_mib: u64 },
}

impl Error {
    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Error {
        Error::File { path: path.to_path_buf(), what: what.into() }
    }

    pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
        Error::Io { path: path.to_path_buf(), source }
    }

    pub(crate) fn tensor(path: &Path, tensor: &str, what: impl Into<String>) -> Error {
        Error::Tensor { path: path.to_path_buf(), tensor: tensor.to_string(), what: what.into() }
    }
}
