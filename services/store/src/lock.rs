//! One service per store. SQLite keeps the file intact with any number of programs; a second *service* would take the
//! first one's replies in progress for the remains of a crash.
//!
//! The service locks two files: one for it alone, and the journal of replies. So it stays alone where a user deletes the first.

use crate::Error;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

// End of the name of the journal of replies.
pub const JOURNAL: &str = "-words";

/// Lock on a store, until the value is dropped. The system releases it if the process dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    _journal: Option<File>,
}

pub fn try_lock(store: &Path) -> Result<Option<Lock>, Error> {
    let failed = |error| Error::from_io(store, error);
    let path = path_beside(store, ".lock");
    let open = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path);
    let Some(mut file) = lock_file(open.map_err(failed)?).map_err(failed)? else { return Ok(None) };
    let Some(journal) = lock_journal(&path_beside(store, JOURNAL)).map_err(failed)? else { return Ok(None) };
    // The process id helps a person find the other service. A full disk must not prevent a start, so failures are
    // ignored.
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(Some(Lock { _file: file, _journal: journal }))
}

fn lock_file(file: File) -> std::io::Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

// Locks the journal. A service that rewrites it locks the new file before that takes the old one's name.
#[cfg(unix)]
fn lock_journal(path: &Path) -> std::io::Result<Option<Option<File>>> {
    use std::os::unix::fs::MetadataExt;
    loop {
        create_private_file(path)?;
        let Some(file) = lock_file(OpenOptions::new().read(true).append(true).open(path)?)? else { return Ok(None) };
        let (locked, there) = (file.metadata()?, std::fs::metadata(path));
        // A service that ended in between may have left a newer file.
        if there.is_ok_and(|there| there.ino() == locked.ino() && there.dev() == locked.dev()) {
            return Ok(Some(Some(file)));
        }
    }
}

// Elsewhere a lock keeps out the reads and writes of this process, too.
#[cfg(not(unix))]
fn lock_journal(_: &Path) -> std::io::Result<Option<Option<File>>> {
    Ok(Some(None))
}

// Locks a journal that is to take the place of another one.
pub fn lock_new_journal(file: &File) {
    if cfg!(unix) {
        let _ = file.try_lock(); // only this service has the file, and without its lock there is still the other one
    }
}

/// Returns `" (process 123)"`, or nothing if the holder could not write it.
pub fn holder(store: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path_beside(store, ".lock")).and_then(|file| file.take(20).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(process)) => format!(" (process {process})"),
        _ => String::new(),
    }
}

/// Names a file beside the one that a path leads to: two links to one store have one lock and one journal.
pub fn path_beside(store: &Path, ending: &str) -> PathBuf {
    let file = store.canonicalize().unwrap_or_else(|_| match (store.parent(), store.file_name()) {
        (Some(folder), Some(name)) => folder.canonicalize().map_or(store.to_owned(), |folder| folder.join(name)),
        _ => store.to_owned(),
    });
    let mut name = file.into_os_string();
    name.push(ending);
    PathBuf::from(name)
}

/// Creates a file that other users of the machine cannot read: it holds what people say at home. SQLite gives its other
/// files the same rights.
pub fn create_private_file(path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new();
    file.write(true).create(true).truncate(false);
    let mut folder = std::fs::DirBuilder::new();
    folder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        file.mode(0o600);
        folder.mode(0o700);
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        folder.create(parent)?;
    }
    file.open(path).map(|_| ())
}
