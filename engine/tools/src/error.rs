//! Errors of the writers.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {what}", path.display())]
    File { path: PathBuf, what: String },
    #[error(transparent)]
    Weights(#[from] weights::Error),
}

impl Error {
    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Error {
        Error::File { path: path.to_path_buf(), what: what.into() }
    }
}
