//! The model inside the binary, so that a fresh clone talks and tests have a model that gives sensible answers.

use crate::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const FILE: &str = "reprise-builtin.gguf";
static BYTES: &[u8] = include_bytes!("../../../models/builtin/builtin.gguf");

/// Notice for every place that opens this model, before any other output.
pub fn what_it_is() -> String {
    "this is the built-in model, a tiny demonstration that knows a few dozen things to say; for a real one put \
     Qwen3.5-4B-Q4_K_M.gguf (huggingface.co/unsloth/Qwen3.5-4B-GGUF) into data/models and choose it: \
     ./start.sh --preset qwen3.5-4b"
        .to_owned()
}

pub fn is_built_in(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == FILE)
}

/// Writes the file to the folder of models, unless it is there unchanged: all other code opens models by their path.
/// Replaces a file of an older version.
pub fn unpack(file: PathBuf) -> Result<PathBuf, Error> {
    if std::fs::read(&file).is_ok_and(|found| found == BYTES) {
        return Ok(file);
    }
    match write(&file) {
        Ok(()) => Ok(file),
        Err(source) => Err(Error::Unpack { file, source }),
    }
}

/// Writes the file under another name and renames it, so that a second process never reads half of it.
fn write(file: &Path) -> std::io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    static WRITERS: AtomicU32 = AtomicU32::new(0);
    let own = format!("{}-{}.new", std::process::id(), WRITERS.fetch_add(1, Ordering::Relaxed));
    let whole = file.with_extension(own);
    let done = std::fs::write(&whole, BYTES).and_then(|()| std::fs::rename(&whole, file));
    if done.is_err() {
        let _ = std::fs::remove_file(&whole);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_unpacked_once_and_mended_where_it_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/models").join(FILE);
        assert!(is_built_in(&file));
        assert!(unpack(file.clone()).is_ok());
        let written = std::fs::metadata(&file).unwrap().modified().unwrap();
        unpack(file.clone()).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), written);
        std::fs::write(&file, b"half").unwrap();
        unpack(file.clone()).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), BYTES);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("models"), b"a file").unwrap();
        let error = unpack(folder.path().join("models").join(FILE)).unwrap_err().to_string();
        assert!(error.contains("models") && error.contains("models_dir"), "{error}");
    }
}
