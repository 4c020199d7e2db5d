//! The cache of computed sequences.
//!
//! A request begins from the cached sequence that shares the longest usable prefix with its prompt. Sequences that
//! conversations have left stay until their memory is needed. The cache decides how fast the engine replies, never what
//! it replies.

mod evicted;
mod eviction;
mod heads;

use std::sync::Arc;

use kernels::attention::PageLayout;
use kernels::cpu::Cpu;

use crate::cached_sequence::{CachedSequence, common_prefix, has_left};
use crate::disk::{DiskCache, LoadedSequence, StoredSequence};
use crate::executor::Executor;
use crate::limits::EngineLimits;
use crate::memory::{KeptStates, MemoryKind, MemoryMeter};
use crate::network::Network;
use crate::request::{OwnerId, PrefillReason, ReuseScope};
use crate::snapshot::Snapshot;
use crate::state::{KvFormats, KvPages, PAGE_TOKENS, StateShape};
use evicted::Evicted;
use eviction::{Victim, least_valuable, least_valuable_moved};
use heads::Heads;

pub(crate) use eviction::EvictionRights;
pub(crate) use heads::Head;

struct CacheEntry {
    tokens: Vec<u32>,
    sequence: CachedSequence,
    used: u64,   // value of `SequenceCache::uses` at its last use
    saved: bool, // true if the disk's thread has it, or it is not worth writing
    /// True if its conversation has left it: a newer sequence has most of its tokens.
    left: bool,
}

impl CacheEntry {
    fn is_needed(&self) -> bool {
        !self.left && !self.sequence.speculative
    }
}

pub(crate) struct SequenceCache {
    entries: Vec<CacheEntry>,
    heads: Heads,
    evicted: Evicted,
    /// Counts uses, to tell old from new: the engine knows no clock.
    uses: u64,
    limits: EngineLimits,
    meter: MemoryMeter,
    disk: Option<DiskCache>,
    worth_reading_tokens: usize, // fewest tokens that a file must give beyond memory to be read
}

pub(crate) struct PrefixMatch {
    pub sequence: Option<CachedSequence>,
    pub reason: PrefillReason,
    pub fork: Option<usize>, // position, at `sequence`'s end or after it, where another head differs from this prompt's
}

#[derive(Clone, Copy)]
pub(crate) struct PrefixQuery<'a> {
    pub tokens: &'a [u32],
    pub layout: PageLayout,
    pub limit: usize,
    pub rights: EvictionRights,
    pub owner: Option<OwnerId>,
    pub scope: ReuseScope,
    pub leaves_past: bool, // true if the request continues from a copy and the past stays in the cache
}

impl PrefixQuery<'_> {
    fn shown<'a>(&self, past: &'a [u32], sequence: &CachedSequence) -> &'a [u32] {
        sequence.scope.shown(past, &self.scope, self.tokens)
    }

    fn shown_of<'a>(&self, stored: &'a StoredSequence) -> &'a [u32] {
        let is_its_own = stored.owner.is_some() && stored.owner == self.owner;
        if is_its_own { &stored.tokens } else { stored.scope().shown(&stored.tokens, &self.scope, self.tokens) }
    }
}

struct WantedFile {
    at: usize,
    end: usize,
    rights: EvictionRights,
    scope: ReuseScope,
}

/// Fewest common tokens that mean anything: prompts of all conversations begin alike, with the template's own tokens.
const TEMPLATE_TOKENS: usize = 16;

impl SequenceCache {
    pub fn new(limits: EngineLimits, meter: &MemoryMeter) -> SequenceCache {
        SequenceCache {
            entries: Vec::new(),
            heads: Heads::default(),
            evicted: Evicted::default(),
            uses: 0,
            limits,
            meter: meter.clone(),
            disk: None,
            worth_reading_tokens: 0,
        }
    }

    pub fn kept_on_disk(&self) -> KeptStates {
        self.disk.as_ref().map(DiskCache::kept).unwrap_or_default()
    }

    pub fn set_disk(&mut self, disk: DiskCache, worth_reading_tokens: usize) {
        (self.disk, self.worth_reading_tokens) = (Some(disk), worth_reading_tokens);
    }

    pub fn disk(&mut self) -> Option<&mut DiskCache> {
        self.disk.as_mut()
    }

    /// Hands one sequence to the disk's thread: one whose head is not on disk, or else the most recently used one.
    /// Returns true if there may be more. Unless `is_idle`, it neither waits for the disk's thread nor evicts a needed
    /// sequence.
    pub fn save_one(&mut self, is_idle: bool) -> bool {
        if self.disk.is_none() || !self.entries.iter().any(|entry| !entry.saved) {
            return false;
        }
        // The disk's thread writes the end as a snapshot. Waiting for that thread frees the memory of earlier ones.
        let snapshot = self.entries.iter().map(|entry| entry.sequence.state.shape).next();
        let bytes = snapshot.map_or(0, |shape| shape.snapshot_bytes(self.limits.snapshots));
        if !self.make_room(bytes, EvictionRights::Unneeded, &mut []) {
            if !is_idle {
                return true;
            }
            self.disk.iter_mut().for_each(DiskCache::flush);
            if !self.make_room(bytes, EvictionRights::Unneeded, &mut [])
                && !self.make_room(bytes, EvictionRights::All, &mut [])
            {
                return false;
            }
        }
        let Some(disk) = &mut self.disk else { return false };
        let unsaved = self.entries.iter_mut().filter(|entry| !entry.saved);
        // A head that is not on disk goes before pasts that only one conversation comes back to.
        let first = unsaved.max_by_key(|entry| (disk.lacks_head_of(&entry.tokens, &entry.sequence), entry.used));
        let Some(entry) = first else { return false };
        entry.saved = true;
        let of_head = self.heads.snapshots_of(&entry.tokens, &entry.sequence);
        disk.save(&entry.tokens, &entry.sequence, entry.used, of_head, self.limits.snapshots);
        true
    }

    pub fn forget(&mut self, owner: OwnerId) {
        self.entries.retain(|entry| entry.sequence.owner != Some(owner));
        self.evicted.forget(owner);
        if let Some(disk) = &mut self.disk {
            disk.forget(owner);
        }
        let (entries, disk) = (&self.entries, &self.disk);
        self.heads.forget(|head| {
            let stored = disk.iter().flat_map(DiskCache::stored).map(|stored| &stored.tokens);
            entries.iter().map(|entry| &entry.tokens).chain(stored).any(|tokens| tokens.starts_with(head))
        });
    }

    /// Drops an owner's files. Its sequences stay in memory and are never written.
    pub fn forget_saved(&mut self, owner: OwnerId) {
        let ours = |entry: &&mut CacheEntry| entry.sequence.owner == Some(owner);
        self.entries.iter_mut().filter(ours).for_each(|entry| entry.saved = true);
        if let Some(disk) = &mut self.disk {
            disk.forget(owner);
        }
    }

    pub fn read_heads(&mut self, shape: &StateShape, cpu: Option<&Cpu>) {
        let Some(disk) = &mut self.disk else { return };
        // The newest last, so that it was used last.
        for stored in disk.heads().into_iter().rev().map(|at| disk.stored()[at].path.clone()).collect::<Vec<_>>() {
            let Some(at) = disk.stored().iter().position(|other| other.path == stored) else { continue };
            let StoredSequence { kv, owner, head_tokens, .. } = disk.stored()[at];
            let (scope, Ok(layout)) = (disk.stored()[at].scope(), shape.layout(kv)) else { continue };
            let bytes = head_tokens.div_ceil(PAGE_TOKENS) * shape.page_bytes(&layout)
                + disk.stored()[at].positions.len() * shape.snapshot_bytes(disk.stored()[at].snapshots);
            if self.meter.used_bytes() + bytes > self.limits.memory_bytes {
                continue;
            }
            let Some(loaded) = disk.load(at, 0..=head_tokens, KvPages::new(), &self.meter, cpu) else { continue };
            let LoadedSequence { tokens, snapshots, pages } = loaded;
            let snapshots = snapshots.into_iter().map(Arc::new).collect();
            self.uses += 1;
            self.heads.keep(Head::new(tokens, layout, scope, snapshots, pages, owner), self.uses, &self.limits);
        }
    }

    pub fn heads(&self) -> impl Iterator<Item = &Head> {
        self.heads.iter()
    }

    pub fn sequences(&self) -> impl Iterator<Item = (usize, &CachedSequence)> {
        self.entries.iter().map(|entry| (entry.tokens.len(), &entry.sequence))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn keep(&mut self, tokens: Vec<u32>, sequence: CachedSequence) {
        if sequence.state.position == 0 {
            return;
        }
        self.uses += 1;
        let layout = sequence.state.layout;
        let user = sequence.scope.user;
        let is_ours = |old: &CacheEntry| old.sequence.state.layout == layout && old.sequence.scope.user == user;
        // A sequence that this one continues has nothing that this one lacks, but may stay for longer.
        let may_go = |old: &CacheEntry| is_ours(old) && (old.sequence.speculative || !sequence.speculative);
        self.entries.retain(|old| !may_go(old) || !tokens.starts_with(&old.tokens));
        if !sequence.speculative {
            for old in self.entries.iter_mut().filter(|old| is_ours(old)) {
                // A conversation that comes back to it makes it needed again.
                old.left |= has_left(&old.tokens, old.sequence.scope.head_tokens, &tokens);
                old.saved |= old.left;
            }
        }
        if let Some(head) = Head::of(&tokens, &sequence) {
            self.heads.keep(head, self.uses, &self.limits);
        }
        self.entries.push(CacheEntry { tokens, sequence, used: self.uses, saved: false, left: false });
    }

    pub fn touch(&mut self, tokens: &[u32], layout: PageLayout, scope: ReuseScope) {
        self.uses += 1;
        let uses = self.uses;
        let ours = self.entries.iter_mut().filter(|entry| entry.sequence.state.layout == layout);
        let known =
            |entry: &CacheEntry| common_prefix(entry.sequence.scope.shown(&entry.tokens, &scope, tokens), tokens);
        let best = ours.map(|entry| (entry.sequence.reach(known(entry)).0, entry));
        if let Some((1.., entry)) = best.max_by_key(|(reached, _)| *reached) {
            entry.used = uses;
        }
    }

    /// Finds the sequence that takes a prompt furthest. `running` are those of running requests: a new request can
    /// branch from them, but not take them.
    pub fn find(
        &mut self,
        network: &Network,
        executor: &mut Executor,
        query: PrefixQuery,
        running: &[(&[u32], &CachedSequence)],
    ) -> PrefixMatch {
        let PrefixQuery { tokens, layout, limit, scope, .. } = query;
        self.uses += 1;
        self.read_if_worth_it(network, executor, query, running);
        let kept = self.entries.iter().map(|entry| (&entry.tokens[..], &entry.sequence));
        let mut known = 0;
        // The tokens of the sequence that agrees furthest, if the prompt differs from there on.
        let mut edited: Option<&[u32]> = None;
        let mut best: Option<(usize, usize)> = None;
        let mut fork = 0;
        for (at, (past, sequence)) in kept.chain(running.iter().copied()).enumerate() {
            if sequence.state.layout != layout {
                continue;
            }
            let past = query.shown(past, sequence);
            let common = common_prefix(past, tokens);
            // A running sequence may not have all of its given tokens yet.
            let changed = common < past.len().min(sequence.given_tokens);
            if common > known || (common == known && !changed) {
                (known, edited) = (common, changed.then_some(past));
            }
            if common < scope.head_tokens.min(sequence.scope.head_tokens) {
                fork = fork.max(common);
            }
            let (reached, _) = sequence.reach(common.min(limit));
            if reached > 0 && best.is_none_or(|(furthest, _)| reached > furthest) {
                best = Some((reached, at));
            }
        }
        let mut best_head: Option<(usize, &Head)> = None;
        for head in self.heads.iter().filter(|head| head.layout == layout) {
            let past = head.scope.shown(&head.tokens, &scope, tokens);
            let common = common_prefix(past, tokens);
            if common < scope.head_tokens.min(past.len()) {
                fork = fork.max(common);
            }
            if common > known {
                (known, edited) = (common, (common < past.len()).then_some(past));
            }
            let reached = head.reach(common.min(limit));
            let furthest = best_head.map(|(furthest, _)| furthest).or(best.map(|(furthest, _)| furthest));
            if reached > furthest.unwrap_or(0) {
                best_head = Some((reached, head));
            }
        }
        let reached = best_head.map(|(reached, _)| reached).or(best.map(|(reached, _)| reached)).unwrap_or(0);
        let is_edited =
            edited.is_some_and(|past| known < tokens.len() && (reached > 0 || continues_alike(past, tokens, known)));
        let reason = self.reason(query, known, reached, is_edited);
        let from_head =
            best_head.and_then(|(reached, head)| head.begin(network.state_shape, executor, &self.limits, reached));
        let from_past = best.filter(|_| from_head.is_none());
        let from_past = from_past.map(|(reached, at)| match at.checked_sub(self.entries.len()) {
            Some(running_at) => running[running_at].1.branch(network, executor, reached),
            None => self.begin_from(network, executor, at, reached, query),
        });
        if reached == scope.head_tokens && reached > 0 {
            self.heads.take_up(&tokens[..reached], layout, scope, self.uses);
        }
        let fork = Some(fork).filter(|fork| *fork >= reached.max(self.limits.snapshot_spacing_tokens));
        PrefixMatch { sequence: from_head.or(from_past), reason, fork }
    }

    fn reason(&self, query: PrefixQuery, known: usize, reached: usize, is_edited: bool) -> PrefillReason {
        let PrefixQuery { tokens, limit, .. } = query;
        let evicted = self.evicted.known(tokens, query.scope.user).min(limit);
        let others = self.disk.iter().flat_map(DiskCache::stored).filter(|stored| !stored.ours);
        let foreign = others.map(|stored| common_prefix(query.shown_of(stored), tokens)).max().unwrap_or(0).min(limit);
        let lost = known.min(limit).saturating_sub(reached);
        if evicted > reached.max(known) {
            PrefillReason::Evicted { known_tokens: evicted }
        } else if foreign > reached.max(known) && foreign >= self.worth_reading_tokens {
            PrefillReason::OtherModel { known_tokens: foreign }
        } else if lost > limit - known.min(limit) && (reached > 0 || known >= TEMPLATE_TOKENS) {
            PrefillReason::Evicted { known_tokens: known }
        } else if is_edited {
            PrefillReason::Edited { at: known }
        } else if reached == 0 {
            PrefillReason::Cold
        } else {
            PrefillReason::NewText
        }
    }

    /// Reads a sequence from disk if it takes the prompt far enough beyond those in memory, and only as far as it
    /// agrees with the prompt.
    fn read_if_worth_it(
        &mut self,
        network: &Network,
        executor: &Executor,
        query: PrefixQuery,
        running: &[(&[u32], &CachedSequence)],
    ) {
        let PrefixQuery { tokens, layout, limit, rights, .. } = query;
        let Some(disk) = &mut self.disk else { return };
        let kept = self.entries.iter().map(|entry| (&entry.tokens[..], &entry.sequence));
        let all = kept.chain(running.iter().copied()).filter(|(_, sequence)| sequence.state.layout == layout);
        let here =
            all.map(|(past, sequence)| sequence.reach(common_prefix(query.shown(past, sequence), tokens).min(limit)).0);
        let of_heads = self.heads.iter().filter(|head| head.layout == layout).map(|head| {
            let past = head.scope.shown(&head.tokens, &query.scope, tokens);
            head.reach(common_prefix(past, tokens).min(limit))
        });
        let here = here.chain(of_heads).max().unwrap_or(0);
        let kv = KvFormats::of(&layout);
        let reach = |stored: &StoredSequence| {
            let limit = common_prefix(query.shown_of(stored), tokens).min(limit);
            stored.positions.iter().rev().find(|position| **position <= limit).copied().unwrap_or(0)
        };
        let there = disk.stored().iter().enumerate().filter(|(_, stored)| stored.ours && stored.kv == kv);
        let best = there.map(|(at, stored)| (reach(stored), at)).max();
        let Some((reached, at)) = best.filter(|(reached, _)| *reached >= here + self.worth_reading_tokens) else {
            return;
        };
        let wanted = WantedFile { at, end: reached, rights, scope: query.scope };
        self.read(&network.state_shape, executor, wanted, running);
    }

    pub fn read_newest(&mut self, shape: &StateShape, executor: &Executor) {
        let Some(disk) = &self.disk else { return };
        let Some(at) = disk.newest() else { return };
        let stored = &disk.stored()[at];
        if let Some(&end) = stored.positions.last() {
            let wanted = WantedFile { at, end, rights: EvictionRights::Unneeded, scope: stored.scope() };
            self.read(shape, executor, wanted, &[]);
        }
    }

    fn read(
        &mut self,
        shape: &StateShape,
        executor: &Executor,
        wanted: WantedFile,
        running: &[(&[u32], &CachedSequence)],
    ) {
        let WantedFile { at, end: reached, rights, scope } = wanted;
        let Some(stored) = self.disk.as_ref().map(|disk| &disk.stored()[at]) else { return };
        let (owner, snapshot_bytes) = (stored.owner, shape.snapshot_bytes(stored.snapshots));
        let Ok(layout) = shape.layout(stored.kv) else { return };
        // Pages of another sequence with the same tokens are the same.
        let kept = self.entries.iter().map(|entry| (&entry.tokens[..], &entry.sequence));
        let all = kept.chain(running.iter().copied()).map(|(past, sequence)| (past, &sequence.state));
        let all = all.map(|(past, state)| (past, state.layout, &state.pages));
        let heads = self.heads.iter().map(|head| (&head.tokens[..], head.layout, &head.pages));
        let alike = all.chain(heads).filter(|(_, other, _)| *other == layout);
        let shared = alike
            .map(|(past, _, pages)| (common_prefix(past, &stored.tokens).min(reached) / PAGE_TOKENS, pages))
            .max_by_key(|(count, _)| *count);
        let shared: KvPages = shared.map_or_else(KvPages::new, |(count, pages)| pages[..count].to_vec());
        let new_pages = reached.div_ceil(PAGE_TOKENS) - shared.len();
        let bytes = new_pages * shape.page_bytes(&layout) + snapshot_bytes + shape.fixed_bytes();
        if !self.make_room(bytes, rights, &mut []) {
            return;
        }
        let Some(disk) = &mut self.disk else { return };
        // Earlier states stay on disk: few conversations go back to them.
        let Some(loaded) = disk.load(at, reached..=reached, shared, &self.meter, executor.cpu()) else { return };
        let LoadedSequence { tokens, snapshots, pages } = loaded;
        let Some(end) = snapshots.last() else { return };
        let state = end.restore(&pages, *shape, layout, &self.meter, executor.cpu());
        let snapshots = snapshots.into_iter().map(Arc::new).collect();
        let sequence = CachedSequence::new(state, self.limits.recurrence_log_tokens);
        let sequence = CachedSequence { snapshots, owner, scope, given_tokens: reached, ..sequence };
        self.entries.push(CacheEntry { tokens, sequence, used: self.uses, saved: true, left: false });
    }

    fn begin_from(
        &mut self,
        network: &Network,
        executor: &mut Executor,
        at: usize,
        reached: usize,
        query: PrefixQuery,
    ) -> CachedSequence {
        let is_ours = self.entries[at].sequence.scope.user == query.scope.user && !query.leaves_past;
        if is_ours && self.entries[at].sequence.state.position == reached {
            return self.entries.remove(at).sequence;
        }
        let sequence = self.entries[at].sequence.branch(network, executor, reached);
        if is_ours && self.entries[at].sequence.speculative {
            self.entries.remove(at);
        } else {
            self.entries[at].used = self.uses;
        }
        sequence
    }

    // Copies a GPU's snapshot to the host. For a reply that a user waits for, the least valuable ones there make room.
    fn moved(&mut self, snapshot: &Snapshot, rights: EvictionRights) -> Option<Arc<Snapshot>> {
        let most = self.limits.moved_snapshot_bytes.checked_sub(snapshot.bytes())?;
        self.meter.device()?;
        while self.meter.bytes(MemoryKind::MovedSnapshots) > most {
            if rights != EvictionRights::All {
                return None;
            }
            let (entry, old) = least_valuable_moved(&self.entries, self.uses)?;
            self.entries[entry].sequence.snapshots.remove(old);
        }
        snapshot.moved().map(Arc::new)
    }

    /// Evicts the least valuable parts until `bytes` more fit under the ceiling, and returns true if they do. `running`
    /// are the sequences of running requests, which only lose snapshots.
    pub fn make_room(&mut self, bytes: usize, rights: EvictionRights, running: &mut [&mut CachedSequence]) -> bool {
        while self.meter.used_bytes() + bytes > self.limits.memory_bytes {
            let needed = self.limits.max_sequences;
            // Heads go last: each saves more tokens than any other part, in every conversation to come.
            let Some(victim) = least_valuable(&self.entries, running, self.uses, rights, needed) else {
                if self.heads.drop_least(rights, None) {
                    continue;
                }
                return false;
            };
            match victim {
                Victim::Snapshot { entry, snapshot } => {
                    let taken = self.entries[entry].sequence.snapshots.remove(snapshot);
                    let moved = self.moved(&taken, rights);
                    self.entries[entry].sequence.put_back(moved);
                }
                Victim::Running { sequence, snapshot } => {
                    let taken = running[sequence].snapshots.remove(snapshot);
                    running[sequence].put_back(self.moved(&taken, rights));
                }
                Victim::RecurrenceLog { entry } => self.entries[entry].sequence.recurrence_log.clear(),
                Victim::Sequence { entry } => {
                    let entry = self.entries.remove(entry);
                    if !entry.sequence.speculative {
                        self.evicted.remember(&entry.tokens, entry.sequence.owner, entry.sequence.scope.user);
                    }
                }
            }
        }
        true
    }
}

/// Tests whether a prompt that differs from `past` at `from` soon has the same tokens again, as one that names another
/// time.
fn continues_alike(past: &[u32], tokens: &[u32], from: usize) -> bool {
    let Some(follows) = past.get(from + ALIKE_TOKENS..from + 2 * ALIKE_TOKENS) else { return false };
    let here = &tokens[from..tokens.len().min(from + 4 * ALIKE_TOKENS)];
    here.windows(ALIKE_TOKENS).any(|window| window == follows)
}

const ALIKE_TOKENS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_of_a_few_tokens_is_told_from_another_text() {
        let past: Vec<u32> = (0..200).collect();
        let changed = [&past[..10], &[900, 901, 902], &past[12..]].concat();
        assert!(continues_alike(&past, &changed, 10));
        let other: Vec<u32> = (0..200).map(|i| if i < 10 { i } else { i * 7 }).collect();
        assert!(!continues_alike(&past, &other, 10));
        assert!(!continues_alike(&past, &past[..5], 5) && !continues_alike(&past[..20], &changed, 10));
    }
}
