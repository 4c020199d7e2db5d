//! What was computed and may be of use again.
//!
//! A sequence is one past that was computed: its tokens, its pages, the state at its end, snapshots at positions before and
//! a recurrence log of its last tokens. A request finds the sequence that takes it furthest; a past that was left stays findable
//! until its memory is needed. What is kept decides how fast a request is answered, never what is answered.

mod cached_sequence;
mod evicted;
mod eviction;

use std::sync::Arc;

use kernels::attention::Layout;
use kernels::format::Format;

use crate::disk::{DiskCache, LoadedSequence, StoredSequence};
use crate::executor::Executor;
use crate::memory::MemoryMeter;
use crate::network::Network;
use crate::recurrence_log::RecurrenceLog;
use crate::request::{OwnerId, PrefillReason};
use crate::state::{KvFormats, KvPages, PAGE_TOKENS, SequenceState};
use evicted::Evicted;
use eviction::{Victim, least_valuable};

pub(crate) use cached_sequence::{CachedSequence, MemoryChecksums};
pub(crate) use eviction::EvictionRights;

struct CacheEntry {
    tokens: Vec<u32>,
    sequence: CachedSequence,
    used: u64,
    /// Handed to the disk, or not worth it.
    saved: bool,
    /// A newer sequence holds most of it: it was left, and is kept for who comes back.
    left: bool,
}

impl CacheEntry {
    fn is_needed(&self) -> bool {
        !self.left && !self.sequence.speculative
    }
}

#[derive(Clone, Copy)]
pub(crate) struct CacheLimits {
    /// Ceiling over all that is held of sequences, running ones included.
    pub budget_bytes: usize,
    pub recurrence_log_tokens: usize,
    pub snapshots: Format,
    /// So many of the most recent pasts are spared by work that nobody waits for.
    pub needed_sequences: usize,
}

pub(crate) struct SequenceCache {
    entries: Vec<CacheEntry>,
    gone: Evicted,
    /// Counts uses, to tell old from new: the engine knows no clock.
    uses: u64,
    limits: CacheLimits,
    meter: MemoryMeter,
    disk: Option<DiskCache>,
    /// A file is read for a past only where that many tokens come with it.
    worth_reading_tokens: usize,
}

/// Where a request begins.
pub(crate) struct PrefixMatch {
    pub sequence: Option<CachedSequence>,
    pub reason: PrefillReason,
}

/// A prompt that is looked for.
#[derive(Clone, Copy)]
pub(crate) struct PrefixQuery<'a> {
    pub tokens: &'a [u32],
    pub layout: Layout,
    /// No further than this.
    pub limit: usize,
    /// To make room for what is read from disk.
    pub rights: EvictionRights,
}

/// Less than this is what a template puts first, which is everybody's: to know only that is to know nothing.
const NOTHING_TOKENS: usize = 16;

impl SequenceCache {
    pub fn new(limits: CacheLimits, meter: &MemoryMeter) -> SequenceCache {
        let (entries, gone, meter) = (Vec::new(), Evicted::default(), meter.clone());
        SequenceCache { entries, gone, uses: 0, limits, meter, disk: None, worth_reading_tokens: 0 }
    }

    pub fn set_disk(&mut self, disk: DiskCache, worth_reading_tokens: usize) {
        (self.disk, self.worth_reading_tokens) = (Some(disk), worth_reading_tokens);
    }

    pub fn disk(&mut self) -> Option<&mut DiskCache> {
        self.disk.as_mut()
    }

    /// Hands one sequence to the disk, the one used last first. Returns whether there was one. Where somebody may be waiting it
    /// neither waits for the writer nor takes the room of what is needed.
    pub fn save_one(&mut self, nobody_waits: bool) -> bool {
        if self.disk.is_none() || !self.entries.iter().any(|entry| !entry.saved) {
            return false;
        }
        // Its end becomes a snapshot until it is written. The writer may hold what others need.
        let snapshot = self.entries.iter().map(|entry| entry.sequence.state.shape).next();
        let bytes = snapshot.map_or(0, |shape| shape.snapshot_bytes(self.limits.snapshots));
        if !self.make_room(bytes, EvictionRights::NothingNeeded, &mut []) {
            if !nobody_waits {
                return true;
            }
            self.disk.iter_mut().for_each(DiskCache::flush);
            if !self.make_room(bytes, EvictionRights::NothingNeeded, &mut [])
                && !self.make_room(bytes, EvictionRights::All, &mut [])
            {
                return false;
            }
        }
        let unsaved = self.entries.iter_mut().filter(|entry| !entry.saved);
        let (Some(entry), Some(disk)) = (unsaved.max_by_key(|entry| entry.used), &mut self.disk) else { return false };
        entry.saved = true;
        disk.save(&entry.tokens, &entry.sequence, self.limits.snapshots);
        true
    }

    /// Drops what was computed for an owner, here and on disk.
    pub fn forget(&mut self, owner: OwnerId) {
        self.entries.retain(|entry| entry.sequence.owner != Some(owner));
        self.gone.forget(owner);
        if let Some(disk) = &mut self.disk {
            disk.forget(owner);
        }
    }

    pub fn sequences(&self) -> impl Iterator<Item = (usize, &CachedSequence)> {
        self.entries.iter().map(|entry| (entry.tokens.len(), &entry.sequence))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps a sequence that ended; `tokens` are those its state holds.
    pub fn keep(&mut self, tokens: Vec<u32>, sequence: CachedSequence) {
        if sequence.state.position == 0 {
            return;
        }
        self.uses += 1;
        let layout = sequence.state.layout;
        // A sequence that this one only makes longer holds nothing that this one lacks.
        self.entries.retain(|old| old.sequence.state.layout != layout || !tokens.starts_with(&old.tokens));
        if !sequence.speculative {
            for old in self.entries.iter_mut().filter(|old| old.sequence.state.layout == layout) {
                // Little is lost with it now. Whoever comes back to it makes it needed again.
                old.left |= common(&old.tokens, &tokens) >= old.tokens.len() / 4 * 3;
                old.saved |= old.left;
            }
        }
        self.entries.push(CacheEntry { tokens, sequence, used: self.uses, saved: false, left: false });
    }

    /// A prompt is about to be looked for: the sequence that it will begin from is the last that should go.
    pub fn touch(&mut self, tokens: &[u32], layout: Layout) {
        self.uses += 1;
        let uses = self.uses;
        let ours = self.entries.iter_mut().filter(|entry| entry.sequence.state.layout == layout);
        let best = ours.map(|entry| (entry.sequence.reach(common(&entry.tokens, tokens)).0, entry));
        if let Some((1.., entry)) = best.max_by_key(|(reached, _)| *reached) {
            entry.used = uses;
        }
    }

    /// The sequence that takes a prompt furthest. `running` are the sequences of requests that are being computed: they can be
    /// branched from, not taken.
    pub fn find(
        &mut self,
        network: &Network,
        executor: &mut Executor,
        sought: PrefixQuery,
        running: &[(&[u32], &CachedSequence)],
    ) -> PrefixMatch {
        let PrefixQuery { tokens, layout, limit, .. } = sought;
        self.uses += 1;
        self.read_if_worth_it(network, executor, sought, running);
        let kept = self.entries.iter().map(|entry| (&entry.tokens[..], &entry.sequence));
        let mut known = 0;
        // The past that was known furthest, where the prompt is another one from there on.
        let mut edited: Option<&[u32]> = None;
        let mut best: Option<(usize, usize)> = None;
        for (at, (past, sequence)) in kept.chain(running.iter().copied()).enumerate() {
            if sequence.state.layout != layout {
                continue;
            }
            let common = common(past, tokens);
            // One that is not computed to its end may have been given more.
            let changed = common < past.len().min(sequence.given_tokens);
            if common > known || (common == known && !changed) {
                (known, edited) = (common, changed.then_some(past));
            }
            let (reached, _) = sequence.reach(common.min(limit));
            if reached > 0 && best.is_none_or(|(furthest, _)| reached > furthest) {
                best = Some((reached, at));
            }
        }
        let reached = best.map_or(0, |(reached, _)| reached);
        let gone = self.gone.known(tokens).min(limit);
        let foreign = self.disk.as_ref().map_or(0, |disk| disk.known_to_others(tokens)).min(limit);
        // What is told is what most had to be computed for.
        let lost = known.min(limit).saturating_sub(reached);
        let edited = edited.filter(|past| known < tokens.len() && (reached > 0 || goes_on_alike(past, tokens, known)));
        let reason = if gone > reached.max(known) {
            PrefillReason::Evicted { known_tokens: gone }
        } else if foreign > reached.max(known) && foreign >= self.worth_reading_tokens {
            PrefillReason::OtherModel { known_tokens: foreign }
        } else if lost > limit - known.min(limit) && (reached > 0 || known >= NOTHING_TOKENS) {
            PrefillReason::Evicted { known_tokens: known }
        } else if edited.is_some() {
            PrefillReason::Edited { at: known }
        } else if reached == 0 {
            PrefillReason::Cold
        } else {
            PrefillReason::NewText
        };
        let sequence = best.map(|(reached, at)| match at.checked_sub(self.entries.len()) {
            Some(running_at) => running[running_at].1.branch(network, executor, reached),
            None => self.begin_from(network, executor, at, reached),
        });
        PrefixMatch { sequence, reason }
    }

    /// Brings a sequence from disk where it takes the prompt further than any that is here, and no more of it than that.
    fn read_if_worth_it(
        &mut self,
        network: &Network,
        executor: &Executor,
        sought: PrefixQuery,
        running: &[(&[u32], &CachedSequence)],
    ) {
        let PrefixQuery { tokens, layout, limit, rights } = sought;
        let Some(disk) = &mut self.disk else { return };
        let kept = self.entries.iter().map(|entry| (&entry.tokens[..], &entry.sequence));
        let all = kept.chain(running.iter().copied()).filter(|(_, sequence)| sequence.state.layout == layout);
        let here = all.map(|(past, sequence)| sequence.reach(common(past, tokens).min(limit)).0).max().unwrap_or(0);
        let ours = |kv: KvFormats| kv.key == layout.key_format && kv.value == layout.value_format;
        let reach = |stored: &StoredSequence| {
            let limit = common(&stored.tokens, tokens).min(limit);
            stored.positions.iter().rev().find(|position| **position <= limit).copied().unwrap_or(0)
        };
        let there = disk.stored().iter().enumerate().filter(|(_, stored)| stored.ours && ours(stored.kv));
        let best = there.map(|(at, stored)| (reach(stored), at)).max();
        let Some((reached, at)) = best.filter(|(reached, _)| *reached >= here + self.worth_reading_tokens) else {
            return;
        };
        // Pages that another past has in memory are the same ones.
        let kept = self.entries.iter().map(|entry| (&entry.tokens[..], &entry.sequence));
        let all = kept.chain(running.iter().copied()).filter(|(_, sequence)| sequence.state.layout == layout);
        let shared = all.map(|(past, sequence)| (common(past, tokens).min(reached) / PAGE_TOKENS, sequence));
        let shared: KvPages = match shared.max_by_key(|(pages, _)| *pages) {
            Some((pages, sequence)) => sequence.state.pages[..pages].to_vec(),
            None => KvPages::new(),
        };
        let shape = network.state_shape;
        let states = disk.stored()[at].positions.iter().filter(|position| **position <= reached).count();
        let bytes = (reached.div_ceil(PAGE_TOKENS) - shared.len()) * shape.page_bytes(&layout)
            + states * shape.snapshot_bytes(disk.stored()[at].snapshots)
            + shape.fixed_bytes();
        if !self.make_room(bytes, rights, &mut []) {
            return;
        }
        let Some(disk) = &mut self.disk else { return };
        let owner = disk.stored()[at].owner;
        let Some(loaded) = disk.load(at, reached, shared, &self.meter) else { return };
        let LoadedSequence { tokens, snapshots, pages } = loaded;
        let Some(end) = snapshots.last() else { return };
        let sequence = CachedSequence {
            state: SequenceState::at(end, &pages, shape, layout, &self.meter, executor.cpu()),
            snapshots: snapshots.into_iter().map(Arc::new).collect(),
            recurrence_log: RecurrenceLog::new(&shape, self.limits.recurrence_log_tokens, &self.meter),
            speculative: false,
            owner,
            given_tokens: reached,
        };
        self.entries.push(CacheEntry { tokens, sequence, used: self.uses, saved: true, left: false });
    }

    fn begin_from(&mut self, network: &Network, executor: &mut Executor, at: usize, reached: usize) -> CachedSequence {
        let whole = self.entries[at].sequence.state.position == reached;
        if whole {
            return self.entries.remove(at).sequence;
        }
        let sequence = self.entries[at].sequence.branch(network, executor, reached);
        if self.entries[at].sequence.speculative {
            self.entries.remove(at);
        } else {
            self.entries[at].used = self.uses;
        }
        sequence
    }

    /// Frees what saves the least, until `bytes` more fit under the ceiling. Returns whether they do. `running` are the
    /// sequences that are being computed, as far as they can be thinned.
    pub fn make_room(&mut self, bytes: usize, rights: EvictionRights, running: &mut [&mut CachedSequence]) -> bool {
        while self.meter.used_bytes() + bytes > self.limits.budget_bytes {
            let needed = self.limits.needed_sequences;
            let Some(victim) = least_valuable(&self.entries, running, self.uses, rights, needed) else {
                return false;
            };
            match victim {
                Victim::Snapshot { entry, snapshot } => drop(self.entries[entry].sequence.snapshots.remove(snapshot)),
                Victim::Running { sequence, snapshot } => drop(running[sequence].snapshots.remove(snapshot)),
                Victim::RecurrenceLog { entry } => self.entries[entry].sequence.recurrence_log.clear(),
                Victim::Sequence { entry } => {
                    let entry = self.entries.remove(entry);
                    if !entry.sequence.speculative {
                        self.gone.remember(&entry.tokens, entry.sequence.owner);
                    }
                }
            }
        }
        true
    }
}

/// Whether a prompt is what was known but for a few tokens here, as where a sequence with the time was changed: what follows is
/// the same again soon.
fn goes_on_alike(past: &[u32], tokens: &[u32], from: usize) -> bool {
    let Some(follows) = past.get(from + ALIKE_TOKENS..from + 2 * ALIKE_TOKENS) else { return false };
    let here = &tokens[from..tokens.len().min(from + 4 * ALIKE_TOKENS)];
    here.windows(ALIKE_TOKENS).any(|window| window == follows)
}

const ALIKE_TOKENS: usize = 24;

/// How many tokens two pasts begin with together.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_is_told_from_another_text() {
        let past: Vec<u32> = (0..200).collect();
        let changed = [&past[..10], &[900, 901, 902], &past[12..]].concat();
        assert!(goes_on_alike(&past, &changed, 10));
        let other: Vec<u32> = (0..200).map(|i| if i < 10 { i } else { i * 7 }).collect();
        assert!(!goes_on_alike(&past, &other, 10));
        assert!(!goes_on_alike(&past, &past[..5], 5) && !goes_on_alike(&past[..20], &changed, 10));
    }
}
