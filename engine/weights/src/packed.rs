//! Packed weights on disk, so that the next start maps them instead of packing again.
//!
//! ```text
//! NAME.packed
//!   weights   as `pack` lays them out
//!   checks    CRC-32 of each piece of the weights, u32 each
//!   foot      key [32], bytes of the weights u64, CRC-32 of checks and foot until here u32, magic [8]
//! ```
//!
//! The key is a hash of the model's fingerprint and time of writing, of the order that this processor reads, and of all
//! that was packed; its beginning is the file's name. It is a cache: a file that is damaged, cut or of something else is packed anew and
//! written again, never an error. Numbers are little-endian.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use kernels::cpu::Cpu;

use crate::bytes::ModelBytes;

#[derive(Clone, Debug)]
pub struct PackedFolder {
    pub path: PathBuf,
    pub max_bytes: u64,
    /// Least bytes of a file: fewer are packed as fast as they are read.
    pub min_bytes: u64,
}

/// A file that a thread is writing meanwhile. It is written also where the caller does not wait for it, unless the process
/// ends before.
pub struct Keeping(JoinHandle<Result<(), String>>);

pub type Key = [u8; 32];

const MAGIC: &[u8; 8] = b"REPRISEW";
/// Bytes that one checksum covers.
const PIECE: usize = 4 << 20;
const FOOT: usize = 32 + 8 + 4 + 8;
const FINISHED: &str = "packed";
const UNFINISHED: &str = "part";

impl Keeping {
    pub fn wait(self) -> Result<(), String> {
        self.0.join().unwrap_or_else(|_| Err("the thread that keeps packed weights failed".to_owned()))
    }
}

impl PackedFolder {
    /// Returns the weights of a key if they are there and whole. `progress` gets (bytes checked, bytes in all).
    pub fn find(
        &self,
        key: &Key,
        len: usize,
        mmap: bool,
        cpu: &Cpu,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Option<ModelBytes> {
        let bytes = ModelBytes::open(&self.path_of(key), mmap).ok()?;
        let checks_len = len.div_ceil(PIECE) * 4;
        if bytes.len() != len + checks_len + FOOT {
            return None;
        }
        let (weights, rest) = bytes.split_at(len);
        let (summed, sum_and_magic) = rest.split_at(checks_len + FOOT - 12);
        let (checks, foot) = summed.split_at(checks_len);
        let is_ours = foot[..32] == *key
            && foot[32..] == (len as u64).to_le_bytes()
            && sum_and_magic[..4] == crc32fast::hash(summed).to_le_bytes()
            && sum_and_magic[4..] == *MAGIC;
        if !is_ours {
            return None;
        }
        let checks = checks.as_chunks::<4>().0;
        let wrong = AtomicUsize::new(0);
        let at_once = 8 * cpu.pool.threads();
        for first in (0..checks.len()).step_by(at_once) {
            let count = at_once.min(checks.len() - first);
            cpu.pool.run(count, |i| {
                let piece = first + i;
                let part = &weights[piece * PIECE..len.min((piece + 1) * PIECE)];
                wrong.fetch_add(usize::from(crc32fast::hash(part).to_le_bytes() != checks[piece]), Ordering::Relaxed);
            });
            progress(len.min((first + count) * PIECE), len);
        }
        (wrong.into_inner() == 0).then(|| bytes.slice(0..len))?
    }

    pub fn path_of(&self, key: &Key) -> PathBuf {
        self.path.join(hex::encode(&key[..16])).with_extension(FINISHED)
    }
}

pub(crate) fn keep(folder: &PackedFolder, key: &Key, weights: ModelBytes) -> Option<Keeping> {
    let (folder, key) = (folder.clone(), *key);
    let work = move || {
        let written = write(&folder, &key, &weights);
        written.map_err(|error| {
            let folder = folder.path.display();
            format!("packed weights could not be kept in {folder}, and the next start packs them again: {error}")
        })
    };
    std::thread::Builder::new().name("packed-writer".to_owned()).spawn(work).ok().map(Keeping)
}

pub(crate) fn is_worth_keeping(folder: &PackedFolder, len: usize) -> bool {
    (folder.min_bytes..=folder.max_bytes).contains(&(len as u64))
}

/// Writes beside the file's place and renames: a file that is there is whole. The writer holds a lock, so that two processes
/// that start at the same time do not write into one file.
fn write(folder: &PackedFolder, key: &Key, weights: &[u8]) -> io::Result<()> {
    std::fs::create_dir_all(&folder.path)?;
    let path = folder.path_of(key);
    let part = path.with_extension(UNFINISHED);
    let file = File::options().write(true).create(true).truncate(false).open(&part)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(()),
        // Where files cannot be locked, two processes write the same bytes to the same places.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    make_room(folder, &path, weights.len() as u64)?;
    let written = write_all(&file, key, weights).and_then(|()| std::fs::rename(&part, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

fn write_all(mut file: &File, key: &Key, weights: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    let mut summed = Vec::new();
    for piece in weights.chunks(PIECE) {
        file.write_all(piece)?;
        summed.extend(crc32fast::hash(piece).to_le_bytes());
    }
    summed.extend(key);
    summed.extend((weights.len() as u64).to_le_bytes());
    file.write_all(&summed)?;
    file.write_all(&crc32fast::hash(&summed).to_le_bytes())?;
    file.write_all(MAGIC)?;
    file.sync_all()
}

/// Deletes what processes left that were stopped while they wrote, then the oldest files until the new one has room.
fn make_room(folder: &PackedFolder, new: &Path, len: u64) -> io::Result<()> {
    let mut old = Vec::new();
    for entry in std::fs::read_dir(&folder.path)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension == Some(UNFINISHED) && path.with_extension(FINISHED) != new {
            let is_left = File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
            if is_left {
                let _ = std::fs::remove_file(&path);
            }
        } else if extension == Some(FINISHED) && path != new {
            let about = path.metadata()?;
            old.push((about.modified()?, about.len(), path));
        }
    }
    old.sort();
    let mut bytes = len + old.iter().map(|(_, len, _)| len).sum::<u64>();
    for (_, len, path) in old {
        if bytes <= folder.max_bytes {
            break;
        }
        std::fs::remove_file(path)?;
        bytes -= len;
    }
    match free_bytes(&folder.path) {
        // Conversations are written to this disk too.
        Some(free) if free / 2 < len => {
            Err(io::Error::other(format!("they take {len} bytes, more than half of the {free} that are free")))
        }
        _ => Ok(()),
    }
}

/// Returns the bytes that a folder's disk has left. None: the system does not tell.
#[cfg(unix)]
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(folder).ok()?;
    about.f_bavail.checked_mul(about.f_frsize)
}

#[cfg(not(unix))]
pub fn free_bytes(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(path: &Path) -> PackedFolder {
        PackedFolder { path: path.to_path_buf(), max_bytes: 64 << 20, min_bytes: 1 }
    }

    fn weights(len: usize, seed: usize) -> ModelBytes {
        ModelBytes::copy_of(&(0..len).map(|i| (i * (seed + 7) / 5) as u8).collect::<Vec<u8>>())
    }

    fn found(folder: &PackedFolder, key: &Key, len: usize, mmap: bool) -> Option<Vec<u8>> {
        folder.find(key, len, mmap, &Cpu::new(2), &mut |_, _| ()).map(|bytes| bytes.to_vec())
    }

    #[test]
    fn what_is_kept_is_found_and_nothing_else() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder(&temporary.path().join("not/there/yet"));
        for len in [1, PIECE, 2 * PIECE + 5] {
            let (key, data) = ([len as u8; 32], weights(len, 1));
            assert!(found(&folder, &key, len, true).is_none());
            keep(&folder, &key, data.clone()).unwrap().wait().unwrap();
            for mmap in [true, false] {
                assert_eq!(found(&folder, &key, len, mmap).as_deref(), Some(&data[..]));
            }
            assert!(found(&folder, &key, len + 1, true).is_none());
            // Another model whose key begins alike.
            let mut other = key;
            other[31] ^= 1;
            assert!(found(&folder, &other, len, true).is_none());
        }
    }

    #[test]
    fn every_kind_of_damage_is_a_miss_and_is_repaired() {
        let temporary = tempfile::tempdir().unwrap();
        let (folder, key, len) = (folder(temporary.path()), [3; 32], PIECE + 100);
        let data = weights(len, 2);
        keep(&folder, &key, data.clone()).unwrap().wait().unwrap();
        let path = folder.path_of(&key);
        let whole = std::fs::read(&path).unwrap();
        // One bit in each part of the file, and its end.
        for at in [0, PIECE - 1, PIECE, len - 1, len, len + 7, len + 8, len + 40, len + 48, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            std::fs::write(&path, &damaged).unwrap();
            assert!(found(&folder, &key, len, true).is_none(), "byte {at}");
        }
        for cut in [0, 1, len, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(found(&folder, &key, len, true).is_none(), "cut at {cut}");
        }
        keep(&folder, &key, data.clone()).unwrap().wait().unwrap();
        assert_eq!(found(&folder, &key, len, true).as_deref(), Some(&data[..]));
    }

    #[test]
    fn the_oldest_go_when_the_folder_is_full_and_what_was_left_goes_too() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = PackedFolder { max_bytes: 3 * PIECE as u64, ..folder(temporary.path()) };
        std::fs::write(temporary.path().join("left.part"), b"half of it").unwrap();
        std::fs::write(temporary.path().join("note.txt"), b"not ours").unwrap();
        let busy = temporary.path().join("busy.part");
        let writer = File::create(&busy).unwrap();
        writer.lock().unwrap();
        for n in 1..=4_u8 {
            keep(&folder, &[n; 32], weights(PIECE, n.into())).unwrap().wait().unwrap();
            let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(u64::from(n));
            File::open(folder.path_of(&[n; 32])).unwrap().set_modified(past).unwrap();
        }
        let kept: Vec<bool> = (1..=4).map(|n| found(&folder, &[n; 32], PIECE, true).is_some()).collect();
        assert_eq!(kept, [false, false, true, true], "two and their feet fit");
        assert!(!temporary.path().join("left.part").exists());
        assert!(temporary.path().join("note.txt").exists() && busy.exists());
        assert!(!is_worth_keeping(&folder, 3 * PIECE + 1) && !is_worth_keeping(&folder, 0));
    }

    #[test]
    fn a_folder_that_cannot_be_is_told() {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("a file");
        std::fs::write(&file, b"x").unwrap();
        let what = keep(&folder(&file), &[1; 32], weights(10, 1)).unwrap().wait().unwrap_err();
        assert!(what.contains("a file") && what.contains("could not be kept"), "{what}");
    }
}
