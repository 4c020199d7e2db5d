//! A block for multi-token prediction in a file of its own: `mtp-*.gguf` beside a model's file, as some repositories have it.

use std::path::{Path, PathBuf};

use crate::bytes::ModelBytes;
use crate::error::Error;
use crate::gguf::metadata::Metadata;
use crate::gguf::parts::{self, GgufParts};
use crate::gguf::read;

const MOST_FILES: usize = 16;

/// Adds the block of the first file that was made for this model. One that does not fit costs nothing but a note, because the
/// model works without.
pub(crate) fn add_prediction(parts: &mut GgufParts, path: &Path, mmap: bool, notes: &mut Vec<String>) {
    let Some(model) = Measure::of(&parts.metadata).filter(|model| model.predicting == 0) else { return };
    for file in beside(path) {
        let name = || file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match take(parts, &model, &file, mmap) {
            Ok(true) => {
                notes.push(format!("multi-token prediction is in {}", name()));
                return;
            }
            Ok(false) => notes.push(format!("{} was made for another model", name())),
            Err(error) => {
                let prefix = model.block();
                parts.tensors.drop_all(|name| name.starts_with(&prefix));
                notes.push(format!("{} is left out: {error}", name()));
            }
        }
    }
}

struct Measure {
    arch: String,
    hidden: u64,
    trunk: u64,
    predicting: u64,
}

impl Measure {
    fn of(metadata: &Metadata) -> Option<Measure> {
        let arch = metadata.text("general.architecture").ok()??.to_owned();
        let number = |key: &str| metadata.unsigned(&format!("{arch}.{key}")).ok().flatten();
        let predicting = number("nextn_predict_layers").unwrap_or(0);
        let trunk = number("block_count")?.checked_sub(predicting)?;
        Some(Measure { hidden: number("embedding_length")?, trunk, predicting, arch })
    }

    fn block(&self) -> String {
        format!("blk.{}.", self.trunk)
    }

    fn is_block_of(&self, model: &Measure) -> bool {
        self.predicting > 0 && (&self.arch, self.hidden, self.trunk) == (&model.arch, model.hidden, model.trunk)
    }
}

fn beside(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_block = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        name.starts_with("mtp-") && name.ends_with(".gguf") && file != path
    };
    let mut files: Vec<PathBuf> = files.flatten().map(|file| file.path()).filter(is_block).collect();
    files.sort();
    files.truncate(MOST_FILES);
    files
}

/// Takes the block from a file. False: the file is of another model.
fn take(parts: &mut GgufParts, model: &Measure, file: &Path, mmap: bool) -> Result<bool, Error> {
    let bytes = ModelBytes::open(file, mmap)?;
    let header = read::header(file, &bytes)?;
    if !Measure::of(&header.metadata).is_some_and(|found| found.is_block_of(model)) {
        return Ok(false);
    }
    let prefix = model.block();
    let added = parts::add_tensors(&mut parts.tensors, file, &bytes, &header, |name| name.starts_with(&prefix))?;
    parts.headers.push(bytes.slice(0..header.end).unwrap_or(bytes));
    parts.has_own_prediction_file = added > 0;
    Ok(added > 0)
}
