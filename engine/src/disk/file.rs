//! The format of a line's file. All numbers are little-endian, every part is followed by its CRC-32.
//!
//! ```text
//! head    magic, version, fingerprint, formats, sizes, counts     the file's whole length follows from it
//! tokens  u32 each
//! states  for each snapshot: position u64, recurrent f32 each, convolution f32 each
//! pages   bytes
//! ```

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use kernels::format::Format;

use super::{Job, Owner, Stored};
use crate::memory::{Counted, Kind, Meter};
use crate::request::OwnerId;
use crate::state::{KvFormats, PAGE, Pages, Snapshot};

const MAGIC: &[u8; 8] = b"REPRISEL";
/// 2: the file's name says whose it is. Files of version 1 could not be deleted with their conversation.
const VERSION: u32 = 2;
const HEAD_BYTES: usize = 8 + 4 + 32 + 2 * 4 + 3 * 8 + 8 + 4;

pub(crate) struct Loaded {
    pub tokens: Vec<u32>,
    /// Ascending; the last is the end.
    pub snapshots: Vec<Snapshot>,
    pub pages: Pages,
}

struct Head {
    kv: KvFormats,
    page_bytes: usize,
    recurrent: usize,
    conv: usize,
    tokens: usize,
    snapshots: usize,
}

/// A file's name: the same past of the same owner in the same formats has the same. The owner stands in the name so that
/// its files are found without reading them.
pub(super) fn name(tokens: &[u32], kv: KvFormats, owner: Option<OwnerId>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for number in tokens.iter().copied().chain([kv.key.to_gguf(), kv.value.to_gguf()]) {
        hash = (hash ^ u64::from(number)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
    format!("{}{hash:016x}.line", owner.map(prefix).unwrap_or_default())
}

/// What the names of an owner's files begin with.
pub(super) fn prefix(owner: OwnerId) -> String {
    format!("{:016x}-", owner.0)
}

fn owner_of(path: &Path) -> Option<OwnerId> {
    let (owner, _) = path.file_stem()?.to_str()?.split_once('-')?;
    u64::from_str_radix(owner, 16).ok().map(OwnerId)
}

pub(super) fn write(job: &Job, owner: &Owner) -> Result<Stored, String> {
    let part = job.path.with_extension("part");
    let failed = |error: std::io::Error| {
        let _ = std::fs::remove_file(&part);
        format!("cannot write {}: {error}; the next start will be slower", job.path.display())
    };
    let bytes = write_to(&part, job, owner).map_err(failed)?;
    std::fs::rename(&part, &job.path).map_err(failed)?;
    let positions = job.snapshots.iter().map(|snapshot| snapshot.position).collect();
    let (path, tokens) = (job.path.clone(), job.tokens.clone());
    Ok(Stored { path, tokens, kv: job.kv, owner: job.owner, positions, bytes, used: 0 })
}

fn write_to(path: &Path, job: &Job, owner: &Owner) -> std::io::Result<u64> {
    let shape = &owner.shape;
    let page_bytes = job.pages.first().map_or(0, |page| page.len());
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    // What people said can be read out of it.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    let mut out = BufWriter::with_capacity(1 << 20, &file);
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&owner.fingerprint);
    head.extend_from_slice(&job.kv.key.to_gguf().to_le_bytes());
    head.extend_from_slice(&job.kv.value.to_gguf().to_le_bytes());
    for size in
        [page_bytes, shape.delta_layers * shape.recurrent(), shape.delta_layers * shape.conv(), job.tokens.len()]
    {
        head.extend_from_slice(&(size as u64).to_le_bytes());
    }
    head.extend_from_slice(&(job.snapshots.len() as u32).to_le_bytes());
    write_part(&mut out, &[&head])?;
    write_part(&mut out, &[bytemuck::cast_slice(&job.tokens)])?;
    for snapshot in &job.snapshots {
        let position = (snapshot.position as u64).to_le_bytes();
        let (recurrent, conv) = (bytemuck::cast_slice(&snapshot.recurrent), bytemuck::cast_slice(&snapshot.conv));
        write_part(&mut out, &[&position, recurrent, conv])?;
    }
    for page in &job.pages {
        write_part(&mut out, &[page])?;
    }
    out.flush()?;
    drop(out);
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

fn write_part(out: &mut impl Write, pieces: &[&[u8]]) -> std::io::Result<()> {
    let mut crc = crc32fast::Hasher::new();
    for piece in pieces {
        crc.update(piece);
        out.write_all(piece)?;
    }
    out.write_all(&crc.finalize().to_le_bytes())
}

/// None: of another model.
pub(super) fn read_head(path: &Path, owner: &Owner) -> Result<Option<Stored>, String> {
    let mut input = open(path)?;
    let Some(head) = head(&mut input, owner)? else { return Ok(None) };
    let tokens = tokens(&mut input, &head)?;
    let bytes = head.file_bytes().ok_or("its sizes make no sense")?;
    let mut positions = Vec::new();
    let file = input.get_mut();
    for at in 0..head.snapshots {
        use std::io::{Seek, SeekFrom};
        file.seek(SeekFrom::Start((head.states_at() + at * head.state_bytes()) as u64))
            .map_err(|error| error.to_string())?;
        let mut position = [0; 8];
        file.read_exact(&mut position).map_err(|error| error.to_string())?;
        positions.push(usize::try_from(u64::from_le_bytes(position)).map_err(|_| "a position makes no sense")?);
    }
    check_positions(&positions, &head)?;
    let (kv, owner) = (head.kv, owner_of(path));
    Ok(Some(Stored { path: path.to_path_buf(), tokens, kv, owner, positions, bytes: bytes as u64, used: 0 }))
}

pub(super) fn read(path: &Path, owner: &Owner, meter: &Meter) -> Result<Loaded, String> {
    let mut input = open(path)?;
    let head = head(&mut input, owner)?.ok_or("it belongs to another model")?;
    let tokens = tokens(&mut input, &head)?;
    let mut snapshots = Vec::new();
    for _ in 0..head.snapshots {
        let mut position = [0; 8];
        let mut recurrent: Counted<f32> = meter.zeroed(Kind::Snapshots, head.recurrent);
        let mut conv: Counted<f32> = meter.zeroed(Kind::Snapshots, head.conv);
        let pieces = [&mut position[..], bytemuck::cast_slice_mut(&mut recurrent), bytemuck::cast_slice_mut(&mut conv)];
        read_part(&mut input, pieces)?;
        let position = usize::try_from(u64::from_le_bytes(position)).map_err(|_| "a position makes no sense")?;
        snapshots.push(Snapshot { position, recurrent, conv });
    }
    check_positions(&snapshots.iter().map(|snapshot| snapshot.position).collect::<Vec<_>>(), &head)?;
    let mut pages = Pages::new();
    for _ in 0..head.pages() {
        let mut page: Counted<u8> = meter.zeroed(Kind::Pages, head.page_bytes);
        read_part(&mut input, [&mut page[..]])?;
        pages.push(Arc::new(page));
    }
    Ok(Loaded { tokens, snapshots, pages })
}

fn open(path: &Path) -> Result<BufReader<File>, String> {
    Ok(BufReader::with_capacity(1 << 20, File::open(path).map_err(|error| error.to_string())?))
}

/// Checks everything that sizes follow from before anything is allocated.
fn head(input: &mut BufReader<File>, owner: &Owner) -> Result<Option<Head>, String> {
    let length = input.get_ref().metadata().map_err(|error| error.to_string())?.len();
    let mut bytes = [0; HEAD_BYTES];
    read_part(input, [&mut bytes[..]])?;
    let (magic, rest) = bytes.split_at(8);
    let (version, rest) = rest.split_at(4);
    let (fingerprint, mut rest) = rest.split_at(32);
    if magic != MAGIC {
        return Err("it is no file of ours".to_string());
    }
    if version != VERSION.to_le_bytes() {
        return Err("it is of another version".to_string());
    }
    if fingerprint != owner.fingerprint {
        return Ok(None);
    }
    let mut number = |bytes: usize| {
        let (own, others) = rest.split_at(bytes);
        rest = others;
        own.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let mut format = || u32::try_from(number(4)).ok().and_then(Format::from_gguf).ok_or("its formats are unknown");
    let kv = KvFormats { key: format()?, value: format()? };
    let mut size = |bytes: usize| usize::try_from(number(bytes)).map_err(|_| "its sizes make no sense");
    let (page_bytes, recurrent, conv, tokens, snapshots) = (size(8)?, size(8)?, size(8)?, size(8)?, size(4)?);
    let head = Head { kv, page_bytes, recurrent, conv, tokens, snapshots };
    let shape = &owner.shape;
    let layout = shape.layout(kv).map_err(|error| error.to_string())?;
    let fits = page_bytes == shape.page_bytes(&layout)
        && recurrent == shape.delta_layers * shape.recurrent()
        && conv == shape.delta_layers * shape.conv();
    if !fits || head.file_bytes().is_none_or(|bytes| bytes as u64 != length) {
        return Err("it is cut short or its sizes make no sense".to_string());
    }
    Ok(Some(head))
}

fn tokens(input: &mut BufReader<File>, head: &Head) -> Result<Vec<u32>, String> {
    let mut tokens = vec![0u32; head.tokens];
    read_part(input, [bytemuck::cast_slice_mut(&mut tokens)])?;
    Ok(tokens)
}

fn check_positions(positions: &[usize], head: &Head) -> Result<(), String> {
    let ascending = positions.is_sorted_by(|a, b| a < b);
    if ascending && positions.last() == Some(&head.tokens) {
        Ok(())
    } else {
        Err("its positions make no sense".to_string())
    }
}

fn read_part<const N: usize>(input: &mut impl Read, pieces: [&mut [u8]; N]) -> Result<(), String> {
    let mut crc = crc32fast::Hasher::new();
    for piece in pieces {
        input.read_exact(piece).map_err(|error| error.to_string())?;
        crc.update(piece);
    }
    let mut expected = [0; 4];
    input.read_exact(&mut expected).map_err(|error| error.to_string())?;
    if crc.finalize().to_le_bytes() == expected { Ok(()) } else { Err("its checksum is wrong".to_string()) }
}

impl Head {
    fn pages(&self) -> usize {
        self.tokens.div_ceil(PAGE)
    }

    fn states_at(&self) -> usize {
        HEAD_BYTES + 4 + self.tokens * 4 + 4
    }

    fn state_bytes(&self) -> usize {
        8 + (self.recurrent + self.conv) * 4 + 4
    }

    fn file_bytes(&self) -> Option<usize> {
        let tokens = self.tokens.checked_mul(4)?.checked_add(HEAD_BYTES + 8)?;
        let state = self.recurrent.checked_add(self.conv)?.checked_mul(4)?.checked_add(12)?;
        let states = state.checked_mul(self.snapshots)?;
        let pages = self.page_bytes.checked_add(4)?.checked_mul(self.pages())?;
        tokens.checked_add(states)?.checked_add(pages)
    }
}
