//! One service per store. SQLite keeps the file intact with any number of programs; a second *service* would take the
//! first one's replies in progress for the remains of a crash.

use crate::Error;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Lock on a store, until the value is dropped. The system releases it if the process dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

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
    // The process id helps a person find the other service. A full disk must not prevent a start, so failures are
    // ignored.
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(Some(Lock { _file: file }))
}

/// Returns `" (process 123)"`, or nothing if the holder could not write it.
pub fn holder(store: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path_beside(store)).and_then(|file| file.take(20).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(process)) => format!(" (process {process})"),
        _ => String::new(),
    }
}

/// Names the lock's file beside the file that a path leads to: two links to one store have one lock.
fn path_beside(store: &Path) -> PathBuf {
    let file = store.canonicalize().unwrap_or_else(|_| match (store.parent(), store.file_name()) {
        (Some(folder), Some(name)) => folder.canonicalize().map_or(store.to_owned(), |folder| folder.join(name)),
        _ => store.to_owned(),
    });
    let mut name = file.into_os_string();
    name.push(".lock");
    PathBuf::from(name)
}
