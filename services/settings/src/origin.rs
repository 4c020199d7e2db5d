//! Where a value came from, in words a person can act on.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `config/default.toml` inside the binary.
    Default { line: usize },
    /// A model file: inside the binary, or from `[model] presets_dir`.
    ModelFile { file: String, line: usize },
    /// The user's own file.
    UserFile { file: String, line: usize },
    /// An environment variable.
    Environment { variable: String },
    /// A flag of the command line.
    Flag { flag: String },
}

impl Origin {
    /// Higher wins over lower: where two values contradict each other, the later layer is the one that was just written.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Origin::Default { .. } => 0,
            Origin::ModelFile { .. } => 1,
            Origin::UserFile { .. } => 2,
            Origin::Environment { .. } => 3,
            Origin::Flag { .. } => 4,
        }
    }

    /// The name alone, for the comments of `--print-config`: lines of built-in files say nothing to a reader there.
    pub fn short(&self) -> String {
        match self {
            Origin::Default { .. } => "default".to_string(),
            Origin::ModelFile { file, .. } => file.clone(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default { line } => write!(f, "default.toml:{line}"),
            Origin::ModelFile { file, line } | Origin::UserFile { file, line } => write!(f, "{file}:{line}"),
            Origin::Environment { variable } => write!(f, "environment {variable}"),
            Origin::Flag { flag } => write!(f, "flag {flag}"),
        }
    }
}
