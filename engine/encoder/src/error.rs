use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{}: {what}", path.display())]
    Form { path: PathBuf, what: String },
}

impl Error {
    pub(crate) fn form(path: &std::path::Path, what: impl Into<String>) -> Error {
        Error::Form { path: path.to_owned(), what: what.into() }
    }
}
