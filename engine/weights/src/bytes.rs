//! Bytes of a model file: mapped or read into memory, cheap to share, cut into ranges.

use std::fs::File;
use std::io::Read;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::mapped::MappedFile;

#[derive(Clone)]
pub struct ModelBytes {
    owner: Arc<Owner>,
    start: usize,
    len: usize,
}

impl ModelBytes {
    pub fn open(path: &Path, mmap: bool) -> Result<ModelBytes, Error> {
        let io = |source| Error::Io { path: path.to_path_buf(), source };
        // Asked before it is opened: to open a pipe is to wait for its writer.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(Error::file(path, "is not a regular file"));
        }
        let mut file = File::open(path).map_err(io)?;
        let about = file.metadata().map_err(io)?;
        let len = usize::try_from(about.len()).map_err(|_| Error::file(path, "is larger than memory can address"))?;
        // An empty map is an error on some systems, and an empty file is an error of its own in both readers.
        let mapped = if mmap && len > 0 { MappedFile::new(&file).map_err(io)? } else { None };
        let memory = match mapped {
            Some(mapped) => Memory::Map(mapped),
            None => Memory::Heap(read_aligned(&mut file, len, path)?),
        };
        let len = memory.bytes().len().min(len);
        let owner = Owner { memory, modified_ns: modified_ns(&about), path: path.to_path_buf() };
        Ok(ModelBytes { owner: Arc::new(owner), start: 0, len })
    }

    pub fn copy_of(bytes: &[u8]) -> ModelBytes {
        let mut lines = vec![CacheLine([0; LINE]); bytes.len().div_ceil(LINE)].into_boxed_slice();
        bytemuck::cast_slice_mut(&mut lines)[..bytes.len()].copy_from_slice(bytes);
        ModelBytes { owner: Owner::of_no_file(Memory::Heap(lines)), start: 0, len: bytes.len() }
    }

    /// Says that these bytes will hardly be read again: of a mapped file, the system may have their memory back.
    pub fn let_go(&self) {
        #[cfg(unix)]
        if let Memory::Map(MappedFile { map, .. }) = &self.owner.memory {
            // Whole pages only: what lies on the pages at both ends belongs to others too.
            let (start, end) = (self.start.next_multiple_of(PAGE), (self.start + self.len) / PAGE * PAGE);
            if start < end {
                // SAFETY: the map is of a file and only read, so a page that is wanted again comes from there again.
                // That the system refuses is no harm.
                let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
            }
        }
    }

    /// Sets whether the system reads on behind a wanted page of a mapped file: good for a file that is read to its end, and
    /// megabytes too many for a look here and there. It holds for the whole file.
    pub fn read_ahead(&self, ahead: bool) {
        #[cfg(unix)]
        if let Memory::Map(MappedFile { map, .. }) = &self.owner.memory {
            // That the system refuses is no harm.
            let _ = map.advise(if ahead { memmap2::Advice::Normal } else { memmap2::Advice::Random });
        }
    }

    pub fn mapped_file(&self) -> Option<&Path> {
        matches!(self.owner.memory, Memory::Map(_)).then_some(&self.owner.path)
    }

    /// Returns whether the mapped file was cut while it was in use: since then it reads as zeros.
    pub fn is_cut(&self) -> bool {
        matches!(&self.owner.memory, Memory::Map(mapped) if mapped.is_cut())
    }

    /// Returns the file's time of writing since 1970; 0 if the system does not tell, or without a file.
    pub(crate) fn modified_ns(&self) -> i128 {
        self.owner.modified_ns
    }

    /// Returns a part of these bytes. None: the range is not inside them.
    pub fn slice(&self, range: Range<usize>) -> Option<ModelBytes> {
        (range.start <= range.end && range.end <= self.len).then(|| ModelBytes {
            owner: self.owner.clone(),
            start: self.start + range.start,
            len: range.end - range.start,
        })
    }
}

impl Deref for ModelBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.owner.memory.bytes()[self.start..self.start + self.len]
    }
}

impl std::fmt::Debug for ModelBytes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ModelBytes({})", self.len)
    }
}

/// Memory for what is made of a file's bytes: no page of it is taken before it is written.
pub(crate) struct Room(memmap2::MmapMut);

impl Room {
    pub fn new(len: usize) -> Result<Room, Error> {
        Ok(Room(zeroed_pages(len).map_err(|source| Error::Memory { bytes: len, source })?))
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }

    pub fn into_bytes(self) -> Result<ModelBytes, Error> {
        let len = self.0.len();
        let map = self.0.make_read_only().map_err(|source| Error::Memory { bytes: len, source })?;
        Ok(ModelBytes { owner: Owner::of_no_file(Memory::Made(map)), start: 0, len })
    }
}

/// Maps memory of its own pages, all zero.
pub fn zeroed_pages(len: usize) -> std::io::Result<memmap2::MmapMut> {
    let map = memmap2::MmapMut::map_anon(len.max(1))?;
    // Large pages spare the processor most of its look-ups of addresses, and are touched for the first time some hundred times
    // less often; where there are none, small ones do.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(map)
}

const LINE: usize = 64;
/// No processor that we compile for has larger small pages.
#[cfg(unix)]
const PAGE: usize = 1 << 16; // not a window: bytes of a page

/// Heap memory comes in cache lines, so that its start suits every element type and every vector load.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct CacheLine([u8; LINE]);

// SAFETY: a line is an array of bytes: no padding, every bit pattern is valid, and zero is one of them.
unsafe impl bytemuck::Zeroable for CacheLine {}
// SAFETY: as above; the type is Copy, 'static and repr(C).
unsafe impl bytemuck::Pod for CacheLine {}

struct Owner {
    memory: Memory,
    modified_ns: i128,
    path: PathBuf,
}

enum Memory {
    Map(MappedFile),
    Made(memmap2::Mmap),
    Heap(Box<[CacheLine]>),
}

impl Owner {
    fn of_no_file(memory: Memory) -> Arc<Owner> {
        Arc::new(Owner { memory, modified_ns: 0, path: PathBuf::new() })
    }
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Map(MappedFile { map, .. }) | Memory::Made(map) => map,
            Memory::Heap(lines) => bytemuck::cast_slice(lines),
        }
    }
}

#[cfg(unix)]
fn modified_ns(about: &std::fs::Metadata) -> i128 {
    use std::os::unix::fs::MetadataExt;
    i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec())
}

#[cfg(not(unix))]
fn modified_ns(_: &std::fs::Metadata) -> i128 {
    0
}

fn read_aligned(file: &mut File, len: usize, path: &Path) -> Result<Box<[CacheLine]>, Error> {
    // Zeroed by the system as it is touched, not by us before: a model is many gigabytes.
    let lines = bytemuck::allocation::try_zeroed_slice_box(len.div_ceil(LINE));
    let mut lines: Box<[CacheLine]> = lines.map_err(|()| {
        Error::file(path, format!("does not fit into memory: {len} bytes could not be reserved; map it instead"))
    })?;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut lines);
    file.read_exact(&mut bytes[..len]).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_and_read_hold_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for len in [0usize, 1, 63, 64, 65, 1000] {
            let data: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            std::fs::write(&path, &data).unwrap();
            for mmap in [true, false] {
                let bytes = ModelBytes::open(&path, mmap).unwrap();
                assert_eq!(&bytes[..], &data[..], "len {len}, mmap {mmap}");
                assert_eq!(bytes.as_ptr() as usize % LINE, 0);
            }
            assert_eq!(&ModelBytes::copy_of(&data)[..], &data[..]);
        }
    }

    #[test]
    fn ranges_outside_are_none() {
        let bytes = ModelBytes::copy_of(&[1, 2, 3, 4]);
        let middle = bytes.slice(1..3).unwrap();
        assert_eq!(&middle[..], &[2, 3]);
        assert_eq!(&middle.slice(1..2).unwrap()[..], &[3]);
        assert!(middle.slice(0..3).is_none());
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 2..1;
        assert!(middle.slice(reversed).is_none());
    }

    #[test]
    fn a_folder_is_not_a_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ModelBytes::open(folder.path(), true).is_err());
    }
}
