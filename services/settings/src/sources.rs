//! Sources of settings, and the search for the user's file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Input of the settings. Nothing comes from the process, so `Sources::default()` gives the bare defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub config_file: Option<PathBuf>,
    pub directory: Option<PathBuf>,
    /// Whole environment. Only `REPRISE__...`, `XDG_CONFIG_HOME` and `HOME` matter.
    pub environment: BTreeMap<String, String>,
    pub flags: Vec<Flag>,
}

/// Override from the command line. A later one wins.
#[derive(Clone, Debug)]
pub struct Flag {
    pub name: String,
    pub key: String,
    pub value: String,
}

impl Flag {
    pub fn new(name: &str, key: &str, value: impl ToString) -> Flag {
        Flag { name: name.to_string(), key: key.to_string(), value: value.to_string() }
    }
}

/// Finds the user's file: the first of `--config F`, `reprise.toml` in the folder,
/// `$XDG_CONFIG_HOME/reprise/config.toml` (without that variable `$HOME/.config/reprise/config.toml`). One file, never
/// two merged: a setting has one place.
pub(crate) fn user_file(sources: &Sources) -> Result<Option<(PathBuf, String)>, Error> {
    if let Some(path) = &sources.config_file {
        return read(path).map(|text| Some((path.clone(), text)));
    }
    let beside = sources.directory.as_ref().map(|directory| directory.join("reprise.toml"));
    for path in beside.into_iter().chain(home_file(sources)) {
        if path.exists() {
            return read(&path).map(|text| Some((path, text)));
        }
    }
    Ok(None)
}

pub(crate) fn model_files(folder: &Path) -> Result<Vec<(String, String)>, Error> {
    let failed = |source| Error::Read { path: folder.to_path_buf(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, read(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

fn home_file(sources: &Sources) -> Option<PathBuf> {
    let set = |name: &str| sources.environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("reprise").join("config.toml"))
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })
}
