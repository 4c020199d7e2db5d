//! The files of the project, as a fresh clone has them and before they are committed.

use std::fs;
use std::path::{Path, PathBuf};

pub struct File {
    /// Path from the root, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn new(path: &str, text: &str) -> File {
        File { path: path.to_string(), text: text.to_string() }
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Every text file below the root, without what builds and version control leave there.
pub fn all() -> Vec<File> {
    let mut files = Vec::new();
    collect(&root(), "", &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Folders that the rules leave alone: build outputs, version control, other people's packages, a household's data.
const NOT_OURS: &[&str] =
    &["target", ".git", "node_modules", ".venv", "__pycache__", "data/models", "corpus", "artifacts"];
/// Text of which a rule could have an opinion. Anything else (weights, pictures, lock files) is data.
const TEXT: &[&str] = &[
    "rs", "cu", "cuh", "sh", "toml", "md", "sql", "py", "js", "ts", "html", "css", "yml", "yaml", "jinja", "run",
    "stop",
];

fn collect(folder: &Path, path: &str, files: &mut Vec<File>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        if NOT_OURS.iter().any(|skipped| name == *skipped || below == *skipped) {
            continue;
        }
        let place = entry.path();
        if place.is_dir() {
            collect(&place, &below, files);
        } else if is_text(&name)
            && let Ok(text) = fs::read_to_string(&place)
        {
            files.push(File { path: below, text });
        }
    }
}

fn is_text(name: &str) -> bool {
    let extension = name.rsplit('.').next().unwrap_or(name);
    TEXT.contains(&extension)
}
