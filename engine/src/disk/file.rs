//! Formats of files on disk. All numbers are little-endian, as the processor has them; every part is followed by its
//! CRC-32.
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
//! A page's name is a hash of the model, the formats and all tokens up to the page's end: sequences that begin alike
//! share pages, and for a sequence that became longer only new pages are written.

#[cfg(any(test, feature = "hostile"))]
pub(super) mod mend;

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytemuck::{Pod, Zeroable};
use kernels::cpu::Cpu;
use kernels::format::Format;
use sha2::{Digest, Sha256};

use super::{ModelIdentity, StoredSequence};
use crate::memory::{HostMemory, MemoryKind, MemoryMeter, MeteredBuffer};
use crate::request::{OwnerId, ReuseScope};
use crate::snapshot::{self, Snapshot};
use crate::state::{KvFormats, KvPages, PAGE_TOKENS, ROTATION_SEED, packed_bytes};

pub(super) const EXTENSION: &str = "line"; // of a sequence's file
const SEQUENCE_MAGIC: &[u8; 8] = b"REPRISEL";
const PAGE_MAGIC: &[u8; 8] = b"REPRISEP";
/// Version 5: a head says what is rotated, and by which seed. Since 4 a sequence says where its instructions end, since 3 full pages have files of their own, and since 2 the
/// name of a sequence's file begins with its owner.
const VERSION: u32 = 5;

/// Largest page of any model. A file that claims more would have all others deleted to make room.
const MOST_PAGE_BYTES: u64 = 1 << 30;

pub(crate) type PageName = [u8; 16];

pub(crate) struct LoadedSequence {
    pub tokens: Vec<u32>,
    pub snapshots: Vec<Snapshot>, // ascending by position; the last is the end
    pub pages: KvPages,
}

#[repr(C, packed)]
#[derive(Clone, Copy, PartialEq, Pod, Zeroable)]
pub(super) struct SequenceHead {
    magic: [u8; 8],
    version: u32,
    fingerprint: [u8; 32],
    formats: [u32; 3], // numbers of the formats of keys, values and recurrent states
    rotated: [u32; 2], // 1 where keys, or values, are rotated
    rotation_seed: u64,
    page_bytes: u64,
    recurrent_bytes: u64,
    conv: u64, // values of a snapshot's convolution states
    tokens: u64,
    snapshots: u64,
    head_tokens: u64,
}

#[repr(C, packed)]
#[derive(Clone, Copy, PartialEq, Pod, Zeroable)]
struct PageHead {
    magic: [u8; 8],
    version: u32,
    formats: [u32; 2],
    rotated: [u32; 2],
    rotation_seed: u64,
    name: PageName,
    bytes: u64,
}

pub(super) struct WriteJob {
    pub sequence: StoredSequence,
    pub head: SequenceHead,
    pub snapshots: Vec<Arc<Snapshot>>,
    pub pages: KvPages, // all full pages, and the last one if it is not full
}

/// Names a sequence's file: the same for the same tokens, owner, scope and formats. The name begins with the owner, so
/// that an owner's files are found without reading them; the user follows, behind a `u`, and `open` if other users may
/// share the head. Earlier releases wrote no `open`: the heads of their files are not shared.
pub(super) fn name(tokens: &[u32], kv: KvFormats, owner: Option<OwnerId>, scope: ReuseScope) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for number in tokens.iter().copied().chain(numbers(kv)) {
        hash = (hash ^ u64::from(number)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
    let user = scope.user.map(|user| format!("u{user:016x}-")).unwrap_or_default();
    let open = if scope.is_head_shared { "open-" } else { "" };
    format!("{}{user}{open}{hash:016x}.{EXTENSION}", owner.map(prefix).unwrap_or_default())
}

fn numbers(kv: KvFormats) -> [u32; 4] {
    [kv.key.to_gguf(), kv.value.to_gguf(), u32::from(kv.rotated[0]), u32::from(kv.rotated[1])]
}

fn prefix(owner: OwnerId) -> String {
    format!("{:016x}-", owner.0)
}

/// Returns true for a file of one of these owners, also one that is not written to its end.
pub(super) fn is_of(path: &Path, owners: &[OwnerId]) -> bool {
    owner_of(path).is_some_and(|owner| owners.contains(&owner))
}

fn owner_of(path: &Path) -> Option<OwnerId> {
    let (owner, _) = path.file_stem()?.to_str()?.split_once('-')?;
    u64::from_str_radix(owner, 16).ok().map(OwnerId)
}

fn user_of(path: &Path) -> Option<u64> {
    let user = path.file_stem()?.to_str()?.split('-').find_map(|part| part.strip_prefix('u'))?;
    u64::from_str_radix(user, 16).ok()
}

fn is_head_shared(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.split('-').any(|part| part == "open")
}

/// Returns true if a file holds words of a user and has no owner.
pub(super) fn is_unowned(path: &Path) -> bool {
    owner_of(path).is_none() && user_of(path).is_some()
}

pub(super) fn page_names(tokens: &[u32], kv: KvFormats, model: &ModelIdentity) -> Vec<PageName> {
    let mut hash = Sha256::new();
    hash.update(model.fingerprint);
    numbers(kv).iter().for_each(|number| hash.update(number.to_le_bytes()));
    hash.update(ROTATION_SEED.to_le_bytes());
    let pages = tokens.chunks_exact(PAGE_TOKENS).map(|page| {
        hash.update(bytemuck::cast_slice::<u32, u8>(page));
        let mut name = PageName::default();
        name.copy_from_slice(&hash.clone().finalize()[..16]);
        name
    });
    pages.collect()
}

pub(super) fn page_path(folder: &Path, name: &PageName) -> PathBuf {
    folder.join(format!("{}.page", hex::encode(name)))
}

/// Writes the pages first, so that a sequence's file never names a page that is missing. The job's memory is free when
/// this returns.
pub(super) fn write(job: WriteJob) -> Result<StoredSequence, String> {
    let path = &job.sequence.path;
    let folder = path.parent().unwrap_or(Path::new("."));
    let failed = |path: &Path, error: std::io::Error| {
        let _ = std::fs::remove_file(path.with_extension("part"));
        format!("cannot write {}: {error}; the next start will be slower", path.display())
    };
    for (name, page) in job.sequence.names.iter().zip(&job.pages) {
        let path = page_path(folder, name);
        if !path.exists() {
            let written = on_host(page).and_then(|page| write_page(&path, job.sequence.kv, name, &page));
            written.map_err(|error| failed(&path, error))?;
        }
    }
    write_sequence(&job).map_err(|error| failed(path, error))?;
    Ok(job.sequence)
}

/// Copies a sequence's file behind the pages that it names.
pub(super) fn copy(path: &Path, to: &Path) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let names = read_names(path).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
    for from in names.iter().map(|name| page_path(folder, name)).chain([path.to_path_buf()]) {
        let to = to.join(from.file_name().unwrap_or_default());
        if !to.exists() {
            let mut from = File::open(from)?;
            written(&to, |out| std::io::copy(&mut from, out).map(drop))?;
        }
    }
    Ok(())
}

/// Writes another file and renames it, so that a file of this name is complete.
fn written(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> std::io::Result<()>) -> std::io::Result<()> {
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
    std::fs::rename(&part, path)
}

fn write_page(path: &Path, kv: KvFormats, name: &PageName, page: &[u8]) -> std::io::Result<()> {
    written(path, |out| {
        write_part(out, &[bytemuck::bytes_of(&PageHead::new(kv, name, page.len()))])?;
        write_part(out, &[page])
    })
}

fn write_sequence(job: &WriteJob) -> std::io::Result<()> {
    let StoredSequence { path, tokens, positions, names, .. } = &job.sequence;
    let positions: Vec<u64> = positions.iter().map(|position| *position as u64).collect();
    written(path, |out| {
        write_part(out, &[bytemuck::bytes_of(&job.head)])?;
        write_part(out, &[bytemuck::cast_slice(tokens)])?;
        write_part(out, &[bytemuck::cast_slice(&positions), names.as_flattened()])?;
        for snapshot in &job.snapshots {
            let (recurrent, conv) = (on_host(&snapshot.recurrent)?, on_host(&snapshot.conv)?);
            write_part(out, &[&recurrent, bytemuck::cast_slice(&conv)])?;
        }
        match job.pages.get(names.len()) {
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

pub(super) fn read_head(path: &Path, model: &ModelIdentity) -> Result<StoredSequence, String> {
    let (mut input, head) = open(path)?;
    let ours = head.fingerprint == model.fingerprint;
    if ours && !head.fits(model) {
        return Err("its sizes are not those of its model".to_string());
    }
    stored(path.to_path_buf(), &head, ours, contents(&mut input, &head)?)
}

pub(super) fn stored(
    path: PathBuf,
    head: &SequenceHead,
    ours: bool,
    contents: Contents,
) -> Result<StoredSequence, String> {
    let (kv, snapshots) = head.formats()?;
    let (tokens, positions, names) = contents;
    let page_file_bytes = (size_of::<PageHead>() as u64 + 8).saturating_add(head.page_bytes);
    let (owner, user, bytes) = (owner_of(&path), user_of(&path), head.file_bytes().unwrap_or(0));
    let is_head_shared = is_head_shared(&path);
    let head_tokens = usize::try_from(head.head_tokens).unwrap_or(usize::MAX);
    if head_tokens > tokens.len() {
        return Err("its sizes make no sense".to_string());
    }
    Ok(StoredSequence {
        path,
        ours,
        owner,
        user,
        head_tokens,
        is_head_shared,
        tokens,
        kv,
        snapshots,
        positions,
        names,
        bytes,
        page_file_bytes,
        kept_at: 0,
        used: 0,
    })
}

pub(super) fn read_names(path: &Path) -> Result<Vec<PageName>, String> {
    let (mut input, head) = open(path)?;
    contents(&mut input, &head).map(|(_, _, names)| names)
}

#[cfg(feature = "hostile")]
pub(super) fn read_tokens(path: &Path) -> Result<Vec<u32>, String> {
    let (mut input, head) = open(path)?;
    contents(&mut input, &head).map(|(tokens, _, _)| tokens)
}

/// Reads the sequence up to the last of `wanted`, which is the position of a snapshot, with the snapshots in `wanted`.
/// `shared` are its first pages that are in memory; `cpu` has the threads that read.
pub(super) fn read(
    path: &Path,
    model: &ModelIdentity,
    wanted: RangeInclusive<usize>,
    shared: KvPages,
    meter: &MemoryMeter,
    cpu: Option<&Cpu>,
) -> Result<LoadedSequence, String> {
    let end = *wanted.end();
    let (mut input, head) = open(path)?;
    if !head.fits(model) {
        return Err("another program replaced it since the start".to_string());
    }
    let (kv, format) = head.formats()?;
    let (mut tokens, positions, names) = contents(&mut input, &head)?;
    let mut snapshots = Vec::new();
    for position in positions.iter().filter(|position| **position <= end) {
        if !wanted.contains(position) {
            input.seek_relative(head.state_bytes().unwrap_or(0) as i64).map_err(|error| error.to_string())?;
            continue;
        }
        let mut recurrent: HostMemory<u8> = meter.staged(MemoryKind::Snapshots, head.recurrent_bytes as usize);
        let mut conv: HostMemory<f32> = meter.staged(MemoryKind::Snapshots, head.conv as usize);
        read_part(&mut input, [&mut recurrent[..], bytemuck::cast_slice_mut(&mut conv)])?;
        let (recurrent, conv) = (recurrent.settled(), conv.settled());
        snapshots.push(Snapshot { position: *position, format, recurrent, conv });
    }
    if snapshots.last().is_none_or(|last| last.position != end) {
        return Err("another program replaced it since the start".to_string());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut pages = shared;
    let full = pages.len()..(end.div_ceil(PAGE_TOKENS)).min(names.len());
    let read: Vec<OnceLock<Result<HostMemory<u8>, String>>> = full.clone().map(|_| OnceLock::new()).collect();
    let read_one = |at: usize| {
        let name = &names[full.start + at];
        let mut page: HostMemory<u8> = meter.staged(MemoryKind::Pages, head.page_bytes as usize);
        let _ = read[at].set(read_page(&page_path(folder, name), kv, name, &mut page).map(|()| page));
    };
    match cpu {
        Some(cpu) => cpu.pool.run(read.len(), read_one),
        None => (0..read.len()).for_each(read_one),
    }
    for page in read.into_iter().filter_map(OnceLock::into_inner) {
        pages.push(Arc::new(page?.settled()));
    }
    if pages.len() < end.div_ceil(PAGE_TOKENS) {
        let mut page: HostMemory<u8> = meter.staged(MemoryKind::Pages, head.page_bytes as usize);
        let rest = head.page_bytes as i64 + 4;
        input.seek(SeekFrom::End(-rest)).map_err(|error| error.to_string())?;
        read_part(&mut input, [&mut page[..]])?;
        pages.push(Arc::new(page.settled()));
    }
    tokens.truncate(end);
    Ok(LoadedSequence { tokens, snapshots, pages })
}

fn read_page(path: &Path, kv: KvFormats, name: &PageName, page: &mut [u8]) -> Result<(), String> {
    let file = File::open(path).map_err(|error| format!("its page {}: {error}", path.display()))?;
    // Only the head is read through the buffer.
    let mut input = BufReader::with_capacity(size_of::<PageHead>() + 4, file);
    let mut head = PageHead::zeroed();
    let damaged = |why: String| {
        let _ = std::fs::remove_file(path);
        format!("its page {}: {why}", path.display())
    };
    read_part(&mut input, [bytemuck::bytes_of_mut(&mut head)]).map_err(damaged)?;
    if head != PageHead::new(kv, name, page.len()) {
        return Err(damaged("it holds another page".to_string()));
    }
    read_part(&mut input, [page]).map_err(damaged)
}

/// Reads and checks the head, before anything of the sizes in it is allocated.
fn open(path: &Path) -> Result<(BufReader<File>, SequenceHead), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut input = BufReader::with_capacity(1 << 16, file); // not a window: bytes of a buffer
    let mut head = SequenceHead::zeroed();
    input.read_exact(bytemuck::bytes_of_mut(&mut head)).map_err(|error| error.to_string())?;
    if head.magic != *SEQUENCE_MAGIC {
        return Err("no engine wrote it".to_string());
    }
    if head.version != VERSION {
        return Err("it is of another version".to_string());
    }
    check(&mut input, crc32fast::hash(bytemuck::bytes_of(&head)))?;
    head.formats()?;
    if head.file_bytes() != Some(length) || head.page_bytes > MOST_PAGE_BYTES {
        return Err("it is cut short or its sizes make no sense".to_string());
    }
    Ok((input, head))
}

pub(super) type Contents = (Vec<u32>, Vec<usize>, Vec<PageName>); // tokens, positions of snapshots, names of pages

fn contents(input: &mut BufReader<File>, head: &SequenceHead) -> Result<Contents, String> {
    let mut tokens = vec![0u32; head.tokens as usize];
    read_part(input, [bytemuck::cast_slice_mut(&mut tokens)])?;
    let mut positions = vec![0u64; head.snapshots as usize];
    let mut names = vec![[0; 16]; tokens.len() / PAGE_TOKENS];
    read_part(input, [bytemuck::cast_slice_mut(&mut positions), names.as_flattened_mut()])?;
    if !positions.is_sorted_by(|a, b| a < b) || positions.last() != Some(&(tokens.len() as u64)) {
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

impl PageHead {
    fn new(kv: KvFormats, name: &PageName, bytes: usize) -> PageHead {
        let [key, value, rotated @ ..] = numbers(kv);
        PageHead {
            magic: *PAGE_MAGIC,
            version: VERSION,
            formats: [key, value],
            rotated,
            rotation_seed: ROTATION_SEED,
            name: *name,
            bytes: bytes as u64,
        }
    }
}

impl SequenceHead {
    pub fn new(
        // builds a head. `None`: the model cannot have sequences in these formats
        model: &ModelIdentity,
        kv: KvFormats,
        states: Format,
        [tokens, snapshots, head_tokens]: [u64; 3],
    ) -> Option<SequenceHead> {
        let shape = &model.shape;
        let layout = shape.layout(kv).ok().filter(|_| snapshot::FORMATS.contains(&states))?;
        Some(SequenceHead {
            magic: *SEQUENCE_MAGIC,
            version: VERSION,
            fingerprint: model.fingerprint,
            formats: [kv.key, kv.value, states].map(Format::to_gguf),
            rotated: kv.rotated.map(u32::from),
            rotation_seed: ROTATION_SEED,
            page_bytes: shape.page_bytes(&layout) as u64,
            recurrent_bytes: (shape.delta_layers * packed_bytes(states, shape.recurrent())) as u64,
            conv: (shape.delta_layers * shape.conv()) as u64,
            tokens,
            snapshots,
            head_tokens,
        })
    }

    fn formats(&self) -> Result<(KvFormats, Format), String> {
        let rotated = self.rotated;
        match self.formats.map(Format::from_number) {
            [Some(key), Some(value), Some(states)] if rotated.iter().all(|bit| *bit < 2) => {
                Ok((KvFormats { key, value, rotated: rotated.map(|bit| bit == 1) }, states))
            }
            _ => Err("its formats are unknown".to_string()),
        }
    }

    fn fits(&self, model: &ModelIdentity) -> bool {
        let ours = self.formats().ok().and_then(|(kv, states)| {
            let counts = [self.tokens, self.snapshots, self.head_tokens];
            SequenceHead::new(model, kv, states, counts)
        });
        ours == Some(*self)
    }

    fn state_bytes(&self) -> Option<u64> {
        self.conv.checked_mul(4)?.checked_add(self.recurrent_bytes)?.checked_add(4)
    }

    fn file_bytes(&self) -> Option<u64> {
        let pages = self.tokens / PAGE_TOKENS as u64;
        let tokens = self.tokens.checked_mul(4)?.checked_add(size_of::<SequenceHead>() as u64 + 8)?;
        let names = pages * size_of::<PageName>() as u64 + 4;
        let index = self.snapshots.checked_mul(8)?.checked_add(names)?;
        let states = self.state_bytes()?.checked_mul(self.snapshots)?;
        let rest = if self.tokens.is_multiple_of(PAGE_TOKENS as u64) { 0 } else { self.page_bytes.checked_add(4)? };
        tokens.checked_add(index)?.checked_add(states)?.checked_add(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateShape;
    use kernels::delta::DeltaHeads;

    /// A rotation is a part of what keys and values mean: signs of another seed, or none, make a file a miss.
    #[test]
    fn a_sequence_of_another_seed_or_rotation_does_not_fit() {
        let heads = DeltaHeads { key_heads: 1, value_heads: 1, key_dim: 32, value_dim: 32, tiled: false };
        let shape = StateShape { attention_layers: 1, delta_layers: 1, heads, conv_past: 3, kv_heads: 1, head_dim: 32 };
        let model = ModelIdentity { fingerprint: [5; 32], shape };
        let kv = KvFormats::new(Format::TQ4, Format::Q8_0);
        let head = SequenceHead::new(&model, kv, Format::BF16, [300, 1, 0]).unwrap();
        assert!(head.fits(&model) && head.formats() == Ok((kv, Format::BF16)));
        assert!(!SequenceHead { rotation_seed: ROTATION_SEED + 1, ..head }.fits(&model));
        assert!(SequenceHead { rotated: [2, 0], ..head }.formats().is_err());
        let tokens: Vec<u32> = (0..300).collect();
        let names = |kv| page_names(&tokens, kv, &model);
        assert_ne!(names(kv), names(kv.with_rotation(true)));
        assert_ne!(
            name(&tokens, kv, None, ReuseScope::default()),
            name(&tokens, kv.with_rotation(true), None, ReuseScope::default())
        );
    }
}
