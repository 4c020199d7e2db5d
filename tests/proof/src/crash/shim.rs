//! The library that makes writes fail and clocks jump, built where there is a C compiler.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Orders to the library. All zero: nothing fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub failing_writes: i64,
    pub failing_flushes: i64,
    pub torn_writes: bool,
    pub seconds_ahead: i64,
}

pub struct Shim {
    folder: TempDir,
    told: File,
}

const ENOSPC: i64 = 28;
const EIO: i64 = 5;
const EROFS: i64 = 30;
pub const ERRORS: [i64; 3] = [ENOSPC, EIO, EROFS];

impl Shim {
    pub fn build() -> Result<Option<Shim>> {
        if Command::new("cc").arg("--version").output().is_err() {
            return Ok(None);
        }
        let folder = tempfile::tempdir()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/faults.c");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.path().join("faults.so")).arg(source).arg("-ldl");
        ensure!(compile.status()?.success(), "the shim does not compile");
        let told =
            File::options().create(true).truncate(true).read(true).write(true).open(folder.path().join("faults"))?;
        let shim = Shim { folder, told };
        shim.tell(Faults::default())?;
        Ok(Some(shim))
    }

    pub fn variables(&self) -> [(&'static str, PathBuf); 2] {
        let path = |name| self.folder.path().join(name);
        [("LD_PRELOAD", path("faults.so")), ("PROOF_FAULTS", path("faults"))]
    }

    pub fn tell(&self, faults: Faults) -> Result<()> {
        let numbers =
            [faults.failing_writes, faults.failing_flushes, i64::from(faults.torn_writes), faults.seconds_ahead];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        self.told.write_all_at(&bytes, 0).context("the shim is told")
    }
}
