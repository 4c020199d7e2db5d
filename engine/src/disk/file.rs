//! The formats of files on disk. All numbers are little-endian, every part is followed by its CRC-32.
//!
//! ```text
//! NAME.line, a sequence
//!   head    magic, version, fingerprint, formats, sizes, counts     the file's length follows from it
//!   tokens  u32 each
//!   index   for each snapshot its position u64, for each full page its name
//!   states  for each snapshot: recurrent in its format, convolution f32 each
//!   rest    the last page, if it is not full
//! NAME.page, a full page
//!   head    magic, version, formats, the page's own name, bytes
//!   bytes
//! ```
//!
//! A page's name is a hash of the model, the formats and all tokens up to the page's end: sequences that begin alike share
//! pages, and for a sequence that became longer only new pages are written.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernels::format::Format;
use sha2::{Digest, Sha256};

use super::{ModelIdentity, StoredSequence, WriteJob};
use crate::memory::{MemoryKind, MemoryMeter, MeteredBuffer};
use crate::request::OwnerId;
use crate::snapshot::{self, Snapshot};
use crate::state::{KvFormats, KvPages, PAGE_TOKENS, packed_bytes};

/// Of a sequence's file.
pub(super) const EXTENSION: &str = "line";
const SEQUENCE_MAGIC: &[u8; 8] = b"REPRISEL";
const PAGE_MAGIC: &[u8; 8] = b"REPRISEP";
/// 3: full pages have files of their own. Since 2 the name of a sequence's file begins with its owner.
const VERSION: u32 = 3;
const HEAD_BYTES: usize = 8 + 4 + 32 + 3 * 4 + 3 * 8 + 8 + 4;
const PAGE_HEAD_BYTES: usize = 8 + 4 + 2 * 4 + 16 + 8;

/// A hash, as above.
pub(crate) type PageName = [u8; 16];

pub(crate) struct LoadedSequence {
    pub tokens: Vec<u32>,
    /// Ascending by position; the last is the end.
    pub snapshots: Vec<Snapshot>,
    pub pages: KvPages,
}

struct SequenceFileHeader {
    fingerprint: [u8; 32],
    kv: KvFormats,
    snapshots_as: Format,
    page_bytes: usize,
    recurrent_bytes: usize,
    conv: usize,
    tokens: usize,
    snapshots: usize,
}

/// The name of a sequence's file: the same for the same tokens, owner and formats. It begins with the owner, so that an
/// owner's files are found without reading them.
pub(super) fn name(tokens: &[u32], kv: KvFormats, owner: Option<OwnerId>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for number in tokens.iter().copied().chain([kv.key.to_gguf(), kv.value.to_gguf()]) {
        hash = (hash ^ u64::from(number)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
    format!("{}{hash:016x}.{EXTENSION}", owner.map(prefix).unwrap_or_default())
}

/// The beginning of the names of an owner's files.
pub(super) fn prefix(owner: OwnerId) -> String {
    format!("{:016x}-", owner.0)
}

fn owner_of(path: &Path) -> Option<OwnerId> {
    let (owner, _) = path.file_stem()?.to_str()?.split_once('-')?;
    u64::from_str_radix(owner, 16).ok().map(OwnerId)
}

/// The names of a sequence's full pages.
pub(super) fn page_names(tokens: &[u32], kv: KvFormats, model: &ModelIdentity) -> Vec<PageName> {
    let mut hash = Sha256::new();
    hash.update(model.fingerprint);
    hash.update(kv.key.to_gguf().to_le_bytes());
    hash.update(kv.value.to_gguf().to_le_bytes());
    let pages = tokens.chunks_exact(PAGE_TOKENS).map(|page| {
        hash.update(bytemuck::cast_slice::<u32, u8>(page));
        let mut name = PageName::default();
        name.copy_from_slice(&hash.clone().finalize()[..16]);
        name
    });
    pages.collect()
}

pub(super) fn page_path(folder: &Path, name: &PageName) -> PathBuf {
    let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("{hex}.page"))
}

/// Writes the pages first, so that a sequence's file never names a page that is not there.
pub(super) fn write(job: &WriteJob, model: &ModelIdentity) -> Result<StoredSequence, String> {
    let folder = job.path.parent().unwrap_or(Path::new("."));
    let failed = |path: &Path, error: std::io::Error| {
        let _ = std::fs::remove_file(path.with_extension("part"));
        format!("cannot write {}: {error}; the next start will be slower", path.display())
    };
    for (name, page) in job.names.iter().zip(&job.pages) {
        let path = page_path(folder, name);
        if !path.exists() {
            let written = on_host(page).and_then(|page| write_page(&path, job.kv, name, &page));
            written.map_err(|error| failed(&path, error))?;
        }
    }
    let bytes = write_sequence(&job.path, job, model).map_err(|error| failed(&job.path, error))?;
    let page_file_bytes = job.pages.first().map_or(0, |page| (PAGE_HEAD_BYTES + page.bytes() + 8) as u64);
    Ok(StoredSequence {
        path: job.path.clone(),
        ours: true,
        owner: job.owner,
        tokens: job.tokens.clone(),
        kv: job.kv,
        snapshots: job.format,
        positions: job.snapshots.iter().map(|snapshot| snapshot.position).collect(),
        names: job.names.clone(),
        bytes,
        page_file_bytes,
        used: 0,
    })
}

/// Writes another file and renames it, so that a file of this name is complete.
fn written(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> std::io::Result<()>) -> std::io::Result<u64> {
    let part = path.with_extension("part");
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    // Only the user of this process may read it: it holds what people said.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&part)?;
    let mut out = BufWriter::with_capacity(1 << 20, &file);
    write(&mut out)?;
    out.flush()?;
    drop(out);
    file.sync_all()?;
    std::fs::rename(&part, path)?;
    Ok(file.metadata()?.len())
}

fn write_page(path: &Path, kv: KvFormats, name: &PageName, page: &[u8]) -> std::io::Result<u64> {
    written(path, |out| {
        write_part(out, &[&page_head(kv, name, page.len())])?;
        write_part(out, &[page])
    })
}

fn page_head(kv: KvFormats, name: &PageName, bytes: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(PAGE_HEAD_BYTES);
    head.extend_from_slice(PAGE_MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&kv.key.to_gguf().to_le_bytes());
    head.extend_from_slice(&kv.value.to_gguf().to_le_bytes());
    head.extend_from_slice(name);
    head.extend_from_slice(&(bytes as u64).to_le_bytes());
    head
}

fn write_sequence(path: &Path, job: &WriteJob, model: &ModelIdentity) -> std::io::Result<u64> {
    let shape = &model.shape;
    let page_bytes = job.pages.first().map_or(0, |page| page.bytes());
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(SEQUENCE_MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&model.fingerprint);
    for format in [job.kv.key, job.kv.value, job.format] {
        head.extend_from_slice(&format.to_gguf().to_le_bytes());
    }
    let recurrent_bytes = shape.delta_layers * packed_bytes(job.format, shape.recurrent());
    for size in [page_bytes, recurrent_bytes, shape.delta_layers * shape.conv(), job.tokens.len()] {
        head.extend_from_slice(&(size as u64).to_le_bytes());
    }
    head.extend_from_slice(&(job.snapshots.len() as u32).to_le_bytes());
    let positions: Vec<u64> = job.snapshots.iter().map(|snapshot| snapshot.position as u64).collect();
    written(path, |out| {
        write_part(out, &[&head])?;
        write_part(out, &[bytemuck::cast_slice(&job.tokens)])?;
        write_part(out, &[bytemuck::cast_slice(&positions), job.names.as_flattened()])?;
        for snapshot in &job.snapshots {
            let (recurrent, conv) = (on_host(&snapshot.recurrent)?, on_host(&snapshot.conv)?);
            write_part(out, &[&recurrent, bytemuck::cast_slice(&conv)])?;
        }
        match job.pages.get(job.names.len()) {
            Some(rest) => write_part(out, &[&*on_host(rest)?]),
            None => Ok(()),
        }
    })
}

fn on_host<T: bytemuck::Pod>(values: &MeteredBuffer<T>) -> std::io::Result<Cow<'_, [T]>> {
    values.on_host().map_err(std::io::Error::other)
}

fn write_part(out: &mut impl Write, parts: &[&[u8]]) -> std::io::Result<()> {
    let mut crc = crc32fast::Hasher::new();
    for part in parts {
        crc.update(part);
        out.write_all(part)?;
    }
    out.write_all(&crc.finalize().to_le_bytes())
}

/// A sequence's file, without its states and pages.
pub(super) fn read_head(path: &Path, model: &ModelIdentity) -> Result<StoredSequence, String> {
    let (mut input, head) = open(path)?;
    let ours = head.fingerprint == model.fingerprint;
    if ours && !head.fits(model) {
        return Err("its sizes are not those of its model".to_string());
    }
    let (tokens, positions, names) = contents(&mut input, &head)?;
    Ok(StoredSequence {
        path: path.to_path_buf(),
        ours,
        owner: owner_of(path),
        tokens,
        kv: head.kv,
        snapshots: head.snapshots_as,
        positions,
        names,
        bytes: head.file_bytes().unwrap_or(0) as u64,
        page_file_bytes: (PAGE_HEAD_BYTES + head.page_bytes + 8) as u64,
        used: 0,
    })
}

/// The full pages that a sequence's file names.
pub(super) fn read_names(path: &Path) -> Result<Vec<PageName>, String> {
    let (mut input, head) = open(path)?;
    contents(&mut input, &head).map(|(_, _, names)| names)
}

/// The sequence up to `end`, which is the position of a snapshot. `shared` are its first pages that are in memory.
pub(super) fn read(
    path: &Path,
    model: &ModelIdentity,
    end: usize,
    shared: KvPages,
    meter: &MemoryMeter,
) -> Result<LoadedSequence, String> {
    let (mut input, head) = open(path)?;
    if head.fingerprint != model.fingerprint || !head.fits(model) {
        return Err("it is another file than at the start".to_string());
    }
    let (mut tokens, positions, names) = contents(&mut input, &head)?;
    let mut snapshots = Vec::new();
    for position in positions.iter().filter(|position| **position <= end) {
        let mut recurrent: MeteredBuffer<u8> = meter.staged(MemoryKind::Snapshots, head.recurrent_bytes);
        let mut conv: MeteredBuffer<f32> = meter.staged(MemoryKind::Snapshots, head.conv);
        read_part(&mut input, [&mut recurrent[..], bytemuck::cast_slice_mut(&mut conv)])?;
        let (recurrent, conv) = (recurrent.settled(), conv.settled());
        snapshots.push(Snapshot { position: *position, format: head.snapshots_as, recurrent, conv });
    }
    if snapshots.last().is_none_or(|last| last.position != end) {
        return Err("it is another file than at the start".to_string());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut pages = shared;
    for number in pages.len()..end.div_ceil(PAGE_TOKENS) {
        let mut page: MeteredBuffer<u8> = meter.staged(MemoryKind::Pages, head.page_bytes);
        match names.get(number) {
            Some(name) => read_page(&page_path(folder, name), head.kv, name, &mut page)?,
            None => {
                let rest = head.page_bytes as i64 + 4;
                input.seek(SeekFrom::End(-rest)).map_err(|error| error.to_string())?;
                read_part(&mut input, [&mut page[..]])?;
            }
        }
        pages.push(Arc::new(page.settled()));
    }
    tokens.truncate(end);
    Ok(LoadedSequence { tokens, snapshots, pages })
}

fn read_page(path: &Path, kv: KvFormats, name: &PageName, page: &mut [u8]) -> Result<(), String> {
    let file = File::open(path).map_err(|error| format!("its page {}: {error}", path.display()))?;
    // Only the head is read through the buffer.
    let mut input = BufReader::with_capacity(PAGE_HEAD_BYTES + 4, file);
    let mut head = [0; PAGE_HEAD_BYTES];
    let damaged = |why: String| {
        let _ = std::fs::remove_file(path);
        format!("its page {}: {why}", path.display())
    };
    read_part(&mut input, [&mut head[..]]).map_err(damaged)?;
    if head[..] != page_head(kv, name, page.len()) {
        return Err(damaged("it is another page's".to_string()));
    }
    read_part(&mut input, [page]).map_err(damaged)
}

/// Reads and checks the head, before anything of the sizes in it is allocated.
fn open(path: &Path) -> Result<(BufReader<File>, SequenceFileHeader), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut input = BufReader::with_capacity(1 << 16, file); // not a window: bytes of a buffer
    let mut bytes = [0; HEAD_BYTES];
    input.read_exact(&mut bytes).map_err(|error| error.to_string())?;
    let (magic, rest) = bytes.split_at(8);
    let (version, rest) = rest.split_at(4);
    let (fingerprint, mut rest) = rest.split_at(32);
    if magic != SEQUENCE_MAGIC {
        return Err("it is no file of ours".to_string());
    }
    if version != VERSION.to_le_bytes() {
        return Err("it is of another version".to_string());
    }
    check(&mut input, crc32fast::hash(&bytes))?;
    let mut number = |bytes: usize| {
        let (own, others) = rest.split_at(bytes);
        rest = others;
        own.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let mut format = || u32::try_from(number(4)).ok().and_then(Format::from_gguf).ok_or("its formats are unknown");
    let kv = KvFormats { key: format()?, value: format()? };
    let snapshots_as = format()?;
    let mut size = |bytes: usize| usize::try_from(number(bytes)).map_err(|_| "its sizes make no sense");
    let (page_bytes, recurrent_bytes, conv, tokens, snapshots) = (size(8)?, size(8)?, size(8)?, size(8)?, size(4)?);
    let fingerprint = fingerprint.try_into().map_err(|_| "its sizes make no sense")?;
    let head =
        SequenceFileHeader { fingerprint, kv, snapshots_as, page_bytes, recurrent_bytes, conv, tokens, snapshots };
    if head.file_bytes().is_none_or(|bytes| bytes as u64 != length) {
        return Err("it is cut short or its sizes make no sense".to_string());
    }
    Ok((input, head))
}

/// Tokens, positions of snapshots, names of pages.
type Contents = (Vec<u32>, Vec<usize>, Vec<PageName>);

fn contents(input: &mut BufReader<File>, head: &SequenceFileHeader) -> Result<Contents, String> {
    let mut tokens = vec![0u32; head.tokens];
    read_part(input, [bytemuck::cast_slice_mut(&mut tokens)])?;
    let mut positions = vec![0u64; head.snapshots];
    let mut names = vec![[0; 16]; head.tokens / PAGE_TOKENS];
    read_part(input, [bytemuck::cast_slice_mut(&mut positions), names.as_flattened_mut()])?;
    if !positions.is_sorted_by(|a, b| a < b) || positions.last() != Some(&(head.tokens as u64)) {
        return Err("its positions make no sense".to_string());
    }
    let positions = positions.into_iter().map(|position| position as usize).collect();
    Ok((tokens, positions, names))
}

fn read_part<const N: usize>(input: &mut impl Read, parts: [&mut [u8]; N]) -> Result<(), String> {
    let mut crc = crc32fast::Hasher::new();
    for part in parts {
        input.read_exact(part).map_err(|error| error.to_string())?;
        crc.update(part);
    }
    check(input, crc.finalize())
}

fn check(input: &mut impl Read, crc: u32) -> Result<(), String> {
    let mut expected = [0; 4];
    input.read_exact(&mut expected).map_err(|error| error.to_string())?;
    if crc.to_le_bytes() == expected { Ok(()) } else { Err("its checksum is wrong".to_string()) }
}

impl SequenceFileHeader {
    fn fits(&self, model: &ModelIdentity) -> bool {
        let shape = &model.shape;
        let layout = shape.layout(self.kv);
        layout.is_ok_and(|layout| self.page_bytes == shape.page_bytes(&layout))
            && snapshot::FORMATS.contains(&self.snapshots_as)
            && self.recurrent_bytes == shape.delta_layers * packed_bytes(self.snapshots_as, shape.recurrent())
            && self.conv == shape.delta_layers * shape.conv()
    }

    fn file_bytes(&self) -> Option<usize> {
        let tokens = self.tokens.checked_mul(4)?.checked_add(HEAD_BYTES + 8)?;
        let index =
            self.snapshots.checked_mul(8)?.checked_add((self.tokens / PAGE_TOKENS).checked_mul(16)?)?.checked_add(4)?;
        let state = self.conv.checked_mul(4)?.checked_add(self.recurrent_bytes)?.checked_add(4)?;
        let states = state.checked_mul(self.snapshots)?;
        let rest = if self.tokens.is_multiple_of(PAGE_TOKENS) { 0 } else { self.page_bytes.checked_add(4)? };
        tokens.checked_add(index)?.checked_add(states)?.checked_add(rest)
    }
}
