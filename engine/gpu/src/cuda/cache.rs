//! Compiled kernels on disk, one file for each program, processor, compiler and driver: they are compiled once.

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::nvrtc;

pub type LoadProgram<'l> = &'l mut dyn FnMut(&'static str, &[u8]) -> Result<(), Error>;

/// Compiles every program for a processor and a driver that need not be on this machine.
pub fn compile_ahead(folder: &Path, target: u32, driver: i32, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
    programs(target, driver, Some(folder), progress, &mut |_, _| Ok(()))
}

/// Gives every program's machine code to `load`. What is not in `folder`, or is of no use to the driver any more, is compiled,
/// several at a time, and kept there once the driver has taken it.
pub fn programs(
    target: u32,
    driver: i32,
    folder: Option<&Path>,
    progress: &mut dyn FnMut(&str),
    load: LoadProgram,
) -> Result<(), Error> {
    let mut missing = Vec::new();
    for program in kernels::cuda::PROGRAMS.iter().filter(|program| program.is_for(target)) {
        let (source, architecture) = (program.source(), program.architecture(target));
        let name = file_name(program.name, &source, &architecture, driver);
        let kept = folder.and_then(|folder| std::fs::read(folder.join(&name)).ok()).and_then(|bytes| unsealed(&bytes));
        if kept.is_none_or(|code| load(program.name, &code).is_err()) {
            missing.push((program.name, source, architecture, name));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    progress(&format!("compiling {} GPU programs for sm_{target}, once", missing.len()));
    let compiled: Vec<Result<_, Error>> = std::thread::scope(|scope| {
        let jobs: Vec<_> = missing
            .into_iter()
            .map(|(program, source, architecture, name)| {
                scope.spawn(move || nvrtc::compile(program, &source, &architecture).map(|code| (program, code, name)))
            })
            .collect();
        let join = |job: std::thread::ScopedJoinHandle<_>| job.join().unwrap_or(Err(Error::NoCompiler));
        jobs.into_iter().map(join).collect()
    });
    for result in compiled {
        let (program, code, name) = result?;
        progress(&format!("{program}: {} KiB", code.len() / 1024));
        load(program, &code)?;
        if let Some(folder) = folder {
            keep(folder, &name, &code)?;
        }
    }
    Ok(())
}

fn file_name(program: &str, source: &str, architecture: &str, driver: i32) -> String {
    let hash = Sha256::new().chain_update(source).chain_update(driver.to_le_bytes()).finalize();
    format!("{program}.{architecture}.{}.cubin", hex::encode(&hash[..8]))
}

fn unsealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (seal, code) = bytes.split_at_checked(32)?;
    (Sha256::digest(code)[..] == *seal).then(|| code.to_vec())
}

/// Writes a sealed file, and renames it into place at the end, so that no program reads half of it.
fn keep(folder: &Path, name: &str, code: &[u8]) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Cache {
        file: folder.join(name).display().to_string(),
        reason: error.to_string(),
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let part = folder.join(format!("{name}.{}.part", std::process::id()));
    let sealed = [&Sha256::digest(code)[..], code].concat();
    std::fs::write(&part, sealed).map_err(failed)?;
    std::fs::rename(&part, folder.join(name)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_found_and_what_was_damaged_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let name = file_name("norm", "a source", "sm_90", 13000);
        keep(folder.path(), &name, b"code").unwrap();
        let bytes = std::fs::read(folder.path().join(&name)).unwrap();
        assert_eq!(unsealed(&bytes), Some(b"code".to_vec()));
        for damaged in [&bytes[..20], &bytes[..bytes.len() - 1], b""] {
            assert_eq!(unsealed(damaged), None);
        }
        let others = [
            file_name("norm", "b", "sm_90", 13000),
            file_name("norm", "a source", "sm_80", 13000),
            file_name("norm", "a source", "sm_90", 12080),
        ];
        assert!(!others.contains(&name));
    }
}
