//! A folder of pasts from a hostile writer: for proofs that send bytes that no engine would write, and for those that look
//! which words an engine wrote.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use kernels::delta::DeltaHeads;
use kernels::format::Format;

use super::file::mend::{first_name, mend};
use super::file::{self, SequenceHead};
use super::{DiskCache, DiskLimits, ModelIdentity, forget_files};
use crate::memory::{MemoryKind, MemoryMeter};
use crate::request::{OwnerId, ReuseScope};
use crate::snapshot::Snapshot;
use crate::state::{KvFormats, StateShape};

const OWNER: OwnerId = OwnerId(7);
const SCOPE: ReuseScope = ReuseScope { user: Some(3), head_tokens: 0, is_head_shared: false };
const KV: KvFormats = KvFormats { key: Format::Q4_0, value: Format::Q4_0, rotated: [false; 2] };

fn model() -> ModelIdentity {
    let heads = DeltaHeads { key_heads: 1, value_heads: 1, key_dim: 32, value_dim: 32, tiled: false };
    let shape = StateShape { attention_layers: 1, delta_layers: 1, heads, conv_past: 3, kv_heads: 1, head_dim: 32 };
    ModelIdentity { fingerprint: [5; 32], shape }
}

/// Puts the bytes into an empty folder and reads it as a start does. Returns the tokens that came back, or why none
/// did, and leaves the folder empty. The outer error is a mistake of the reader.
///
/// The first byte says whether sizes and checksums are corrected, so that the bytes behind them are read; four bytes
/// give the length of the sequence's file, and the rest is the file of its first page.
pub fn read_folder(folder: &Path, bytes: &[u8]) -> Result<Result<usize, String>, String> {
    let (line, page, is_mended) = parts(bytes);
    let (mut line, mut page) = (line.to_vec(), page.to_vec());
    if is_mended {
        mend(&mut line, &mut page);
    }
    let put = |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).map_err(|error| error.to_string());
    put(&folder.join(file::name(&[1], KV, Some(OWNER), SCOPE)), &line)?;
    put(&folder.join("left.part"), &page)?;
    if let Some(name) = first_name(&line) {
        put(&file::page_path(folder, &name), &page)?;
    }
    let limits = DiskLimits { folder: folder.to_path_buf(), max_bytes: 1 << 30, min_tokens: 1, heads: 4 };
    let (stored, notes) = super::find(folder, &model())?;
    let (_, done) = channel();
    let (jobs, thread, waiting) = (None, None, Default::default());
    let mut disk = DiskCache {
        limits,
        model: model(),
        stored,
        uses: 0,
        jobs,
        done,
        thread,
        waiting,
        held_bytes: 0,
        forgetting: Vec::new(),
        notes,
    };
    disk.enforce();
    disk.sweep();
    let meter = MemoryMeter::default();
    let mut tokens = None;
    disk.heads();
    if let Some(at) = disk.newest() {
        let end = disk.stored()[at].positions.last().copied().unwrap_or(0);
        tokens = disk.load(at, 0..=end, Vec::new(), &meter, None).map(|loaded| loaded.tokens.len());
    }
    let mut notes = std::mem::take(&mut disk.notes);
    let is_foreign = disk.stored().iter().any(|stored| !stored.ours);
    drop(disk);
    forget_files(folder, &[OWNER]).map_err(|error| error.to_string())?;
    let left = std::fs::read_dir(folder).map_err(|error| error.to_string())?.count();
    match tokens {
        _ if left > 0 => Err(format!("{left} files are left of what is forgotten")),
        Some(tokens) => Ok(Ok(tokens)),
        // The file waits for its model to run again.
        None if is_foreign => Ok(Ok(0)),
        None => Ok(Err(notes.pop().unwrap_or_default())),
    }
}

#[cfg(feature = "hostile")]
pub fn tokens_of(path: &Path) -> Result<Vec<u32>, String> {
    file::read_tokens(path)
}

fn parts(bytes: &[u8]) -> (&[u8], &[u8], bool) {
    let (begin, rest) = bytes.split_at(bytes.len().min(5));
    let line = begin.get(1..5).and_then(|length| length.try_into().ok()).map_or(0, u32::from_le_bytes);
    let (line, page) = rest.split_at(rest.len().min(line as usize));
    (line, page, begin.first().is_some_and(|first| first % 2 == 1))
}

/// Builds a sound input: a sequence of `tokens` tokens with states in the middle and at its end. The folder is empty
/// again then.
pub fn sound_input(folder: &Path, tokens: u32, states: Format) -> Result<Vec<u8>, String> {
    let (model, meter) = (model(), MemoryMeter::default());
    let tokens: Vec<u32> = (0..tokens).collect();
    let layout = model.shape.layout(KV).map_err(|error| error.to_string())?;
    let page = |_| Arc::new(meter.zeroed(MemoryKind::Pages, model.shape.page_bytes(&layout)));
    let snapshot = |position| {
        let recurrent = crate::state::packed_bytes(states, model.shape.recurrent());
        let (recurrent, conv) =
            (meter.zeroed(MemoryKind::Snapshots, recurrent), meter.zeroed(MemoryKind::Snapshots, model.shape.conv()));
        Arc::new(Snapshot { position, format: states, recurrent, conv })
    };
    let positions = vec![tokens.len() / 2, tokens.len()];
    let counts = [tokens.len() as u64, positions.len() as u64, tokens.len() as u64 / 2];
    let head = SequenceHead::new(&model, KV, states, counts).ok_or("no such states")?;
    let names = file::page_names(&tokens, KV, &model);
    let path = folder.join(file::name(&[1], KV, Some(OWNER), SCOPE));
    let pages = (0..tokens.len().div_ceil(crate::state::PAGE_TOKENS)).map(page).collect();
    let snapshots = positions.iter().copied().map(snapshot).collect();
    let sequence = file::stored(path.clone(), &head, true, (tokens, positions, names.clone()))?;
    let job = file::WriteJob { sequence, head, snapshots, pages };
    file::write(job)?;
    let read = |path: &Path| std::fs::read(path).map_err(|error| error.to_string());
    let line = read(&path)?;
    let first_page = names.first().map_or(Ok(Vec::new()), |name| read(&file::page_path(folder, name)))?;
    forget_files(folder, &[OWNER]).map_err(|error| error.to_string())?;
    Ok([&[1], &(line.len() as u32).to_le_bytes()[..], &line, &first_page].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(folder: &Path, input: &[u8]) -> Result<usize, String> {
        read_folder(folder, input).unwrap()
    }

    #[test]
    fn what_is_sound_comes_back_and_what_is_not_is_told() {
        let folder = tempfile::tempdir().unwrap();
        for tokens in [40, 256, 300] {
            for states in crate::snapshot::FORMATS {
                let input = sound_input(folder.path(), tokens, states).unwrap();
                assert_eq!(read(folder.path(), &input), Ok(tokens as usize));
                let unmended = [&[0], &input[1..]].concat();
                assert_eq!(read(folder.path(), &unmended), Ok(tokens as usize));
                // One bit of the tokens: without its checksum it is another sequence, whose state makes no difference here.
                for (first, is_read) in [(0, false), (1, true)] {
                    let mut damaged = input.clone();
                    (damaged[0], damaged[200]) = (first, damaged[200] ^ 1);
                    assert_eq!(read(folder.path(), &damaged).is_ok(), is_read);
                }
            }
        }
        assert!(read(folder.path(), b"").is_err());
    }

    /// Fuzzing found this: the sum of page sizes over all files overflowed, and all other files were deleted.
    #[test]
    fn a_file_whose_pages_are_larger_than_any_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut input = sound_input(folder.path(), 256, Format::F32).unwrap();
        let (fingerprint, page_bytes) = (5 + 12, 5 + 12 + 32 + 12 + 16);
        input[fingerprint] ^= 1;
        assert_eq!(read(folder.path(), &input), Ok(0), "another model's file waits");
        input[page_bytes..page_bytes + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(read(folder.path(), &input).unwrap_err().contains("no sense"));
    }
}
