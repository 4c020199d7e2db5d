//! Errors of a model: the file, what was found in it, and what was expected.

use std::path::{Path, PathBuf};

use crate::family;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },

    /// Mistake of a whole file: no model, cut short, a part of an incomplete set, a model that the engine does not
    /// compute.
    #[error("{}: {what}", path.display())]
    File { path: PathBuf, what: String },

    #[error("the file states a YaRN of factor {factor} itself: leave rope.yarn at 1")]
    Stretched { factor: f64 },

    #[error("{}: key '{key}': found {found}, expected {expected}", path.display())]
    Key { path: PathBuf, key: String, found: String, expected: String },

    #[error("{}: tensor '{tensor}': found {found}, expected {expected}", path.display())]
    Tensor { path: PathBuf, tensor: String, found: String, expected: String },

    #[error("{}: architecture '{arch}' is of no known family; known are {known}", path.display())]
    OtherFamily { path: PathBuf, arch: String, known: String },

    #[error("{bytes} bytes of memory for the model could not be had: {source}; free some, or take a smaller model")]
    Memory { bytes: usize, source: std::io::Error },
}

impl Error {
    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Error {
        Error::File { path: path.to_path_buf(), what: what.into() }
    }

    pub(crate) fn key(path: &Path, key: &str, found: impl Into<String>, expected: impl Into<String>) -> Error {
        Error::Key { path: path.to_path_buf(), key: shown(key), found: found.into(), expected: expected.into() }
    }

    pub(crate) fn tensor(path: &Path, tensor: &str, found: impl Into<String>, expected: impl Into<String>) -> Error {
        Error::Tensor {
            path: path.to_path_buf(),
            tensor: shown(tensor),
            found: found.into(),
            expected: expected.into(),
        }
    }

    pub fn cut(path: &Path) -> Error {
        let what = "was cut or could not be read while the model was in use; put the whole file back, under a new name and \
                    renamed when it is there";
        Error::file(path, what)
    }

    pub(crate) fn other_family(path: &Path, arch: &str) -> Error {
        Error::OtherFamily { path: path.to_path_buf(), arch: shown(arch), known: family::all_names() }
    }

    pub(crate) fn older_sibling(path: &Path, arch: &str, family: &str, members: &str) -> Error {
        let why = format!(
            "it is an older sibling of the {family} family with merged projections; take a model of the family"
        );
        Error::file(path, format!("architecture '{arch}' is not supported: {why} ({members})"))
    }
}

pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 120;
    let mut out = String::new();
    for c in text.chars() {
        if out.len() >= LONGEST {
            out.push('…');
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_on_one_line() {
        assert_eq!(shown("a\nb\x1b[31m"), "a\\nb\\u{1b}[31m");
        assert!(shown(&"x".repeat(5000)).len() < 200);
    }
}
