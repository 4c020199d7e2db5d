//! Finds shared memory that changed, and wrong counts. It reads all memory of all sequences, so only tests and debug
//! builds run it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use crate::cache::Head;
use crate::cached_sequence::CachedSequence;
use crate::memory::{MemoryKind, MemoryMeter, MeteredBuffer};
use crate::snapshot::Snapshot;
use crate::state::{KvPages, PAGE_TOKENS};

#[derive(Default)]
pub(crate) struct MemoryChecksums {
    pages: HashMap<usize, (Weak<MeteredBuffer<u8>>, u32)>,
    snapshots: HashMap<usize, (Weak<Snapshot>, u32)>,
}

impl MemoryChecksums {
    /// Checks each sequence, with the number of its tokens, then compares the bytes of all of them with the meter's.
    pub fn check<'a>(
        &mut self,
        sequences: impl Iterator<Item = (usize, &'a CachedSequence)>,
        heads: impl Iterator<Item = &'a Head>,
        meter: &MemoryMeter,
        budget_bytes: usize,
    ) -> Result<(), String> {
        self.pages.retain(|_, (page, _)| page.strong_count() > 0);
        self.snapshots.retain(|_, (snapshot, _)| snapshot.strong_count() > 0);
        let mut seen = HashSet::new();
        // Shared pages and snapshots are read once.
        let mut summed = HashSet::new();
        let mut bytes = [0usize; MemoryKind::ALL.len()];
        for (tokens, sequence) in sequences {
            sequence.check(tokens)?;
            sequence.add_bytes(&mut seen, &mut bytes);
            self.check_parts(tokens, &sequence.state.pages, &sequence.snapshots, &mut summed)?;
        }
        for head in heads {
            if head.snapshots.last().is_none_or(|last| last.position != head.tokens.len()) {
                return Err(format!("a head of {} tokens has no state at its end", head.tokens.len()));
            }
            head.add_bytes(&mut seen, &mut bytes);
            self.check_parts(head.tokens.len(), &head.pages, &head.snapshots, &mut summed)?;
        }
        for kind in MemoryKind::ALL.into_iter().filter(|kind| *kind != MemoryKind::Spare) {
            if bytes[kind as usize] != meter.bytes(kind) {
                let (held, counted) = (bytes[kind as usize], meter.bytes(kind));
                return Err(format!("{}: {held} bytes held, {counted} counted", kind.name()));
            }
        }
        let held = meter.used_bytes() + meter.bytes(MemoryKind::Spare);
        if held > budget_bytes {
            return Err(format!("{held} bytes held, the ceiling is {budget_bytes}"));
        }
        Ok(())
    }

    fn check_parts(
        &mut self,
        tokens: usize,
        pages: &KvPages,
        snapshots: &[Arc<Snapshot>],
        summed: &mut HashSet<usize>,
    ) -> Result<(), String> {
        for (number, page) in pages.iter().enumerate() {
            let at = Arc::as_ptr(page) as usize;
            if (number + 1) * PAGE_TOKENS <= tokens && summed.insert(at) {
                let now = checksum(page)?;
                if self.pages.entry(at).or_insert_with(|| (Arc::downgrade(page), now)).1 != now {
                    return Err(format!("page {number} of a sequence of {tokens} tokens has changed"));
                }
            }
        }
        for snapshot in snapshots.iter().filter(|snapshot| summed.insert(Arc::as_ptr(snapshot) as usize)) {
            let at = Arc::as_ptr(snapshot) as usize;
            let now = checksum(&snapshot.recurrent)?;
            if self.snapshots.entry(at).or_insert_with(|| (Arc::downgrade(snapshot), now)).1 != now {
                return Err(format!("the snapshot at {} has changed", snapshot.position));
            }
        }
        Ok(())
    }
}

fn checksum(bytes: &MeteredBuffer<u8>) -> Result<u32, String> {
    bytes.on_host().map(|bytes| crc32fast::hash(&bytes)).map_err(|error| error.to_string())
}
