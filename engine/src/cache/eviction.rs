//! Choice of the part of the cache that is dropped first.

use std::sync::Arc;

use super::CacheEntry;
use crate::cached_sequence::CachedSequence;
use crate::memory::MemoryKind;
use crate::snapshot::Snapshot;
use crate::state::PAGE_TOKENS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionRights {
    All,      // all of them: a user waits for the reply
    Unneeded, // only those that the latest conversations will not need
}

pub(super) enum Victim {
    Snapshot { entry: usize, snapshot: usize },
    RecurrenceLog { entry: usize },
    Sequence { entry: usize },
    Running { sequence: usize, snapshot: usize },
}

/// Number of last snapshots of a sequence, to which a barge-in or a retry goes back.
const NEAR_THE_END: usize = 2;

/// Finds the part with the least value. Value is the tokens that would have to be computed again, times the likelihood
/// that a conversation needs them, per byte. `EvictionRights::Unneeded` spares the `needed` most recent sequences that
/// no newer one has replaced. A running request's sequence only loses snapshots.
pub(super) fn least_valuable(
    entries: &[CacheEntry],
    running: &[&mut CachedSequence],
    uses: u64,
    rights: EvictionRights,
    needed: usize,
) -> Option<Victim> {
    let mut recent: Vec<u64> = entries.iter().filter(|entry| entry.is_needed()).map(|entry| entry.used).collect();
    recent.sort_unstable_by(|a, b| b.cmp(a));
    let spared_from = match rights {
        EvictionRights::All => u64::MAX,
        EvictionRights::Unneeded => recent.get(needed.max(1) - 1).or(recent.last()).copied().unwrap_or(u64::MAX),
    };
    let mut least: Option<(f64, Victim)> = None;
    let mut offer = |value: f64, bytes: usize, victim: Victim| {
        let value = value / bytes.max(1) as f64;
        if least.as_ref().is_none_or(|(smallest, _)| value < *smallest) {
            least = Some((value, victim));
        }
    };
    for (at, entry) in entries.iter().enumerate() {
        let sequence = &entry.sequence;
        let spared = entry.is_needed() && entry.used >= spared_from;
        let likely = 1.0 / (1.0 + (uses - entry.used) as f64) * if sequence.speculative { 0.1 } else { 1.0 };
        for (snapshot, value, bytes) in thinnable(sequence, spared) {
            offer(value * likely, bytes, Victim::Snapshot { entry: at, snapshot });
        }
        if spared {
            continue;
        }
        let bytes = sequence.recurrence_log.own_bytes();
        if bytes > 0 {
            offer(
                sequence.recurrence_log.covered().len() as f64 / 2.0 * likely,
                bytes,
                Victim::RecurrenceLog { entry: at },
            );
        }
        // Shared pages are neither freed nor lost with this sequence.
        let own = sequence.state.pages.iter().filter(|page| Arc::strong_count(page) == 1);
        let (pages, bytes) = own.fold((0, 0), |(pages, bytes), page| (pages + 1, bytes + page.bytes()));
        let bytes = bytes + sequence.state.own_bytes();
        let tokens = (pages * PAGE_TOKENS).min(sequence.state.position) + 1;
        offer(tokens as f64 * likely, bytes, Victim::Sequence { entry: at });
    }
    for (at, sequence) in running.iter().enumerate() {
        let likely = if sequence.speculative { 0.1 } else { 1.0 };
        for (snapshot, value, bytes) in thinnable(sequence, rights == EvictionRights::Unneeded) {
            offer(value * likely, bytes, Victim::Running { sequence: at, snapshot });
        }
    }
    least.map(|(_, victim)| victim)
}

/// Finds the moved snapshot with the least value.
pub(super) fn least_valuable_moved(entries: &[CacheEntry], uses: u64) -> Option<(usize, usize)> {
    let moved = entries.iter().enumerate().flat_map(|(at, entry)| {
        let likely = 1.0 / (1.0 + (uses - entry.used) as f64);
        let own = of_kind(&entry.sequence, MemoryKind::MovedSnapshots, 0);
        own.map(move |(snapshot, value, _)| (value * likely, (at, snapshot)))
    });
    moved.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, place)| place)
}

fn thinnable(sequence: &CachedSequence, spares_the_end: bool) -> impl Iterator<Item = (usize, f64, usize)> {
    of_kind(sequence, MemoryKind::Snapshots, if spares_the_end { NEAR_THE_END } else { 0 })
}

// Lists the snapshots that no other sequence shares, with their values and bytes, but for the last `spared` ones.
fn of_kind(sequence: &CachedSequence, kind: MemoryKind, spared: usize) -> impl Iterator<Item = (usize, f64, usize)> {
    let count = sequence.snapshots.len().saturating_sub(spared);
    let before = std::iter::once(0).chain(sequence.snapshots.iter().map(|snapshot| snapshot.position));
    let end = sequence.state.position;
    let all = sequence.snapshots[..count].iter().zip(before).enumerate();
    let own = move |snapshot: &Arc<Snapshot>| snapshot.kind() == kind && Arc::strong_count(snapshot) == 1;
    all.filter(move |(_, (snapshot, _))| own(snapshot)).map(move |(at, (snapshot, before))| {
        // Conversations go back a turn or two, rarely further.
        let near = 1.0 / (1.0 + (end - snapshot.position) as f64 / 256.0);
        (at, (snapshot.position - before) as f64 * near, snapshot.bytes())
    })
}
