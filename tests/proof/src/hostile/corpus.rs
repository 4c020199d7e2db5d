//! Inputs to begin from: files in `corpus/NAME`, also those that once broke something.

use super::targets::HostileTarget;
use anyhow::Context;
use std::path::PathBuf;

pub struct Corpus {
    pub inputs: Vec<Vec<u8>>,
}

pub fn corpus_folder(target: &str) -> PathBuf {
    let own = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"));
    // A binary that was carried to another machine runs in the root of the sources.
    let folder = if own.exists() { own } else { PathBuf::from("tests/proof/corpus") };
    folder.join(target)
}

impl Corpus {
    pub fn of(target: &HostileTarget) -> anyhow::Result<Corpus> {
        let folder = corpus_folder(target.corpus);
        let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read {}", folder.display()))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        paths.sort();
        let inputs = paths.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
        anyhow::ensure!(!inputs.is_empty(), "{} has no files", folder.display());
        Ok(Corpus { inputs })
    }
}
