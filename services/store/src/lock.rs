//! One service per store. SQLite keeps the file whole with any number of programs; what a second *service* would break is
//! the first one's replies in progress, which it would take for the remains of a crash.

use crate::Error;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Held as long as the value lives, and released by the system if the process dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// `None`: another process holds it.
pub fn try_lock(store: &Path) -> Result<Option<Lock>, Error> {
    let path = path_beside(store);
    let failed = |error| Error::from_io(store, error);
    let mut file =
        OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    // The number helps a person find the other service. A full disk must not keep us from starting, so failures are left.
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(Some(Lock { _file: file }))
}

/// `" (process 123)"`, or nothing when the holder could not write it.
pub fn holder(store: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path_beside(store)).and_then(|file| file.take(20).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(process)) => format!(" (process {process})"),
        _ => String::new(),
    }
}

fn path_beside(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}
