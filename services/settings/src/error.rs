//! Mistakes in a configuration. Loading reports all of them at once, so that a user need not start Reprise again for
//! each.

use std::fmt;
use std::path::PathBuf;

use crate::origin::{Origin, SettingsLayer};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{place}: not valid TOML: {message}")]
    Syntax { place: String, message: String },
    #[error("cannot lay one layer of the configuration over another: {0}")]
    Merge(#[from] config::ConfigError),
    #[error("{}", list(.0))]
    Mistakes(Vec<Mistake>),
    #[error("there is no preset {name:?}{}; there are: {there_are}", hint.as_deref().map(|hint| format!(" ({hint}?)")).unwrap_or_default())]
    NoSuchPreset { name: String, hint: Option<String>, there_are: String },
    #[error("{0}")]
    WindowTooLarge(Box<Mistake>),
    #[error(
        "the system lets this process have {files} open files, and the service needs {needed} (limits.spare_files, limits.goodbyes and a few connections): allow more with `ulimit -n` or LimitNOFILE="
    )]
    TooFewFiles { files: u64, needed: usize },
}

impl Error {
    /// Returns true if the command line has the mistakes, and no file or variable.
    pub fn is_of_flags(&self) -> bool {
        let is_of_flag = |mistake: &Mistake| mistake.origin.layer == SettingsLayer::Flag;
        match self {
            Error::Mistakes(mistakes) => mistakes.iter().all(is_of_flag),
            Error::WindowTooLarge(mistake) => is_of_flag(mistake),
            _ => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub origin: Origin,
    pub found: String,
    /// Allowed values, e.g. `a whole number from 0 to 65535`.
    pub allowed: String,
    /// `did you mean ...`, if an allowed word is near.
    pub hint: Option<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: found {}", self.origin, self.origin.key, self.found)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint}?)")?;
        }
        write!(f, "; allowed: {}", self.allowed)
    }
}

/// Limit on the mistakes on the screen: one wrong line in `[preset]` can upset every preset.
const SHOWN: usize = 12;

fn list(mistakes: &[Mistake]) -> String {
    if let [only] = mistakes {
        return only.to_string();
    }
    let mut text = format!("{} mistakes in the configuration", mistakes.len());
    for mistake in mistakes.iter().take(SHOWN) {
        text.push_str(&format!("\n  {mistake}"));
    }
    if mistakes.len() > SHOWN {
        text.push_str(&format!("\n  and {} more", mistakes.len() - SHOWN));
    }
    text
}
