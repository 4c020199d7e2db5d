use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use reqwest::StatusCode;
use reqwest::header::CONTENT_RANGE;
use sha2::{Digest, Sha256};

use crate::client::{FailedTry, HubClient, Tries, again};
use crate::error::Error;
use crate::listing::{Listed, Listing};
use crate::name::Name;

/// Callback with the bytes of a file so far and in all. The first may sink, because a part that the hub cannot continue
/// is fetched again.
pub type Progress<'p> = &'p mut (dyn FnMut(u64, u64) + Send);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    There,
    /// Bytes of this fetch; the rest had come before.
    New {
        bytes: u64,
    },
}

pub(crate) struct FilePlace<'p> {
    pub to: &'p Path,
    /// SHA-256 of the last fetch: a file that still has it may be replaced.
    pub recorded: Option<&'p str>,
}

// State of a file's place before it is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    There,
    Free,
    // File of the same length that no fetch wrote, where the hub tells no hash: the bytes are compared.
    MayBeSame,
}

/// Looks at a file's place. A file that no fetch wrote may be the operator's own, so only the operator removes it.
pub(crate) fn look(file: &Listed, place: &FilePlace<'_>, progress: Progress<'_>) -> Result<Found, Error> {
    let FilePlace { to, recorded } = *place;
    if is_there(file, to, progress)? {
        return Ok(Found::There);
    }
    let Ok(about) = std::fs::symlink_metadata(to) else { return Ok(Found::Free) };
    let may_replace = file.sha256.is_none() && about.is_file() && is_unchanged(to, recorded);
    let may_be_same = file.sha256.is_none() && about.is_file() && about.len() == file.bytes;
    match (may_replace, may_be_same) {
        (true, _) => Ok(Found::Free),
        (false, true) => Ok(Found::MayBeSame),
        (false, false) => Err(Error::Another { path: to.to_path_buf() }),
    }
}

impl HubClient {
    pub(crate) async fn fetch(
        &self,
        name: &Name,
        listing: &Listing,
        file: &Listed,
        place: FilePlace<'_>,
        progress: Progress<'_>,
    ) -> Result<(Fetched, Option<String>), Error> {
        let (to, found) = (place.to, look(file, &place, progress)?);
        if found == Found::There {
            return Ok((Fetched::There, None));
        }
        let mut part = Part::open(file, to, progress)?;
        let mut came = 0;
        let mut tries = Tries::new(self.options());
        let mut damaged = false;
        loop {
            let before = part.bytes;
            let failure = if part.bytes < file.bytes || file.bytes == 0 {
                self.receive(name, listing, file, &mut part, progress).await.err()
            } else {
                None
            };
            came += part.bytes.saturating_sub(before);
            if part.bytes > before {
                tries.reset();
            }
            if let Some(failure) = failure {
                tries.wait(&file.path, failure).await?;
                continue;
            }
            match part.finish(file) {
                Ok(()) => {
                    let sha256 = hex::encode(part.hash.clone().finalize());
                    if found == Found::MayBeSame {
                        return part.compare(to, &sha256);
                    }
                    part.into_place(to)?;
                    return Ok((Fetched::New { bytes: came }, Some(sha256)));
                }
                // Once may have been an accident of the way, or of an earlier try.
                Err(_) if !damaged => {
                    damaged = true;
                    part.begin_anew()?;
                }
                Err(error) => {
                    part.begin_anew()?;
                    return Err(error);
                }
            }
        }
    }

    async fn receive(
        &self,
        name: &Name,
        listing: &Listing,
        file: &Listed,
        part: &mut Part,
        progress: Progress<'_>,
    ) -> Result<(), FailedTry> {
        let response = self.get(name, &listing.commit, &file.path, part.bytes).await?;
        let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
        let start = range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse::<u64>().ok());
        let goes_on = response.status() == StatusCode::PARTIAL_CONTENT && start == Some(part.bytes);
        if part.bytes > 0 && !goes_on {
            part.begin_anew().map_err(FailedTry::Final)?;
        }
        let mut body = response.bytes_stream();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| again(&error))?;
            if part.bytes + piece.len() as u64 > file.bytes {
                part.begin_anew().map_err(FailedTry::Final)?;
                let found = format!("more than {} bytes", file.bytes);
                return Err(FailedTry::Final(damaged(file, found, format!("{} bytes", file.bytes))));
            }
            part.write(&piece).map_err(FailedTry::Final)?;
            progress(part.bytes, file.bytes);
        }
        match part.bytes < file.bytes {
            true => Err(FailedTry::Again { why: "the connection ended early".to_owned(), after: None }),
            false => Ok(()),
        }
    }
}

struct Part {
    path: PathBuf,
    file: File,
    bytes: u64,
    hash: Sha256,
}

impl Part {
    fn open(file: &Listed, to: &Path, progress: Progress<'_>) -> Result<Part, Error> {
        let folder = to.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(|error| on_disk(folder, error))?;
        let path = part_of(file, to);
        // A link there leads elsewhere: no fetch made it.
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let opened = OpenOptions::new().read(true).append(true).create(true).custom_flags(no_link).open(&path);
        let mut opened = opened.map_err(|error| on_disk(&path, error))?;
        if let Err(std::fs::TryLockError::WouldBlock) = opened.try_lock() {
            return Err(Error::Busy { path });
        }
        let mut part_hash = Sha256::new();
        let bytes = match file.sha256 {
            // Without a hash of the whole, two parts of different versions could end up in one file.
            None => 0,
            Some(_) => {
                hash_of(&mut opened, &mut part_hash, file.bytes, progress).map_err(|error| on_disk(&path, error))?
            }
        };
        let mut part = Part { path, file: opened, bytes, hash: part_hash };
        if bytes == 0 || bytes > file.bytes {
            part.begin_anew()?;
        }
        Ok(part)
    }

    fn begin_anew(&mut self) -> Result<(), Error> {
        self.file.set_len(0).map_err(|error| on_disk(&self.path, error))?;
        (self.bytes, self.hash) = (0, Sha256::new());
        Ok(())
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.file.write_all(piece).map_err(|error| on_disk(&self.path, error))?;
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
        Ok(())
    }

    fn finish(&self, file: &Listed) -> Result<(), Error> {
        let found = hex::encode(self.hash.clone().finalize());
        match &file.sha256 {
            Some(expected) if *expected != found => Err(damaged(file, format!("SHA-256 {found}"), expected.clone())),
            _ => Ok(()),
        }
    }

    fn compare(self, to: &Path, sha256: &str) -> Result<(Fetched, Option<String>), Error> {
        let _ = std::fs::remove_file(&self.path);
        if is_unchanged(to, Some(sha256)) {
            return Ok((Fetched::There, None));
        }
        Err(Error::Another { path: to.to_path_buf() })
    }

    fn into_place(self, to: &Path) -> Result<(), Error> {
        self.file.sync_all().map_err(|error| on_disk(&self.path, error))?;
        std::fs::rename(&self.path, to).map_err(|error| on_disk(to, error))?;
        // Makes the name survive a power cut too.
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| on_disk(folder, error))
    }
}

/// True if the file on disk is the hub's: by its size, and by its hash if the hub tells one.
fn is_there(file: &Listed, to: &Path, progress: Progress<'_>) -> Result<bool, Error> {
    let (Ok(about), Some(expected)) = (std::fs::metadata(to), &file.sha256) else { return Ok(false) };
    if !about.is_file() || about.len() != file.bytes {
        return Ok(false);
    }
    let mut hash = Sha256::new();
    let mut there = File::open(to).map_err(|error| on_disk(to, error))?;
    hash_of(&mut there, &mut hash, file.bytes, progress).map_err(|error| on_disk(to, error))?;
    Ok(*expected == hex::encode(hash.finalize()))
}

pub(crate) fn is_unchanged(path: &Path, sha256: Option<&str>) -> bool {
    let (Some(sha256), Ok(mut file)) = (sha256, File::open(path)) else { return false };
    let mut hash = Sha256::new();
    hash_of(&mut file, &mut hash, 0, &mut |_, _| ()).is_ok() && hex::encode(hash.finalize()) == sha256
}

fn hash_of(file: &mut File, hash: &mut Sha256, whole: u64, progress: Progress<'_>) -> io::Result<u64> {
    let mut piece = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(bytes);
        }
        hash.update(&piece[..count]);
        bytes += count as u64;
        progress(bytes.min(whole), whole);
    }
}

/// Checks that the disk has room for the missing bytes: a disk that fills up in the night has fetched nothing by the
/// morning.
pub fn check_room<'l>(folder: &Path, files: impl Iterator<Item = (&'l Listed, PathBuf)>) -> Result<(), Error> {
    let there = |path: &Path| std::fs::metadata(path).map_or(0, |about| about.len());
    let missing = files.map(|(file, to)| file.bytes.saturating_sub(there(&to).max(there(&part_of(file, &to)))));
    let needed: u64 = missing.sum();
    let nearest = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    let Ok(about) = rustix::fs::statvfs(nearest) else { return Ok(()) };
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    if free < needed {
        let folder = folder.to_path_buf();
        return Err(Error::DiskRoom { folder, free_mib: free >> 20, needed_mib: needed.div_ceil(1 << 20) });
    }
    Ok(())
}

/// Returns the name of an incomplete file. It includes the hash, so that a part never continues another file.
fn part_of(file: &Listed, to: &Path) -> PathBuf {
    let version = file.sha256.as_deref().and_then(|hash| hash.get(..12)).unwrap_or("small");
    let mut path = to.as_os_str().to_owned();
    path.push(format!(".{version}.part"));
    PathBuf::from(path)
}

fn damaged(file: &Listed, found: String, expected: String) -> Error {
    Error::Damaged { file: file.path.clone(), found, expected }
}

fn on_disk(path: &Path, source: io::Error) -> Error {
    Error::Disk { path: path.to_path_buf(), source }
}
