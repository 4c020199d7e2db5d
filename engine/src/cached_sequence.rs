//! Computed sequence of a running request, which the cache keeps when the request ends.

use std::collections::HashSet;
use std::sync::Arc;

use crate::executor::Executor;
use crate::limits::EngineLimits;
use crate::memory::MemoryKind;
use crate::network::Network;
use crate::recurrence_log::RecurrenceLog;
use crate::request::{OwnerId, ReuseScope};
use crate::snapshot::Snapshot;
use crate::state::{PAGE_TOKENS, SequenceState};

pub(crate) struct CachedSequence {
    pub state: SequenceState,
    pub snapshots: Vec<Arc<Snapshot>>, // ascending by position, none after the end
    pub recurrence_log: RecurrenceLog,
    /// True for a prompt that may never be asked for. The cache drops it first, and never writes it to disk.
    pub speculative: bool,
    pub unsaved: bool,          // true for a private request, of which the disk gets nothing
    pub owner: Option<OwnerId>, // owner with which `Engine::forget` drops it
    pub scope: ReuseScope,
    /// Number of tokens that came with the request. The opening of the reply and the reply follow. The next prompt may
    /// render these differently, which does not count as an edit.
    pub given_tokens: usize,
    /// Position where another conversation's head differs from this one's, or may differ.
    pub fork: Option<usize>,
}

/// Least distance of snapshots: fewer tokens are cheaper to compute again.
pub(crate) const SNAPSHOT_DISTANCE_TOKENS: usize = 8;

/// Distance of snapshots within the reach of the log: a replay of that many tokens takes a part of an ordinary turn.
pub(crate) fn near_distance(limits: &EngineLimits) -> usize {
    (limits.recurrence_log_tokens / 4).max(SNAPSHOT_DISTANCE_TOKENS)
}

pub(crate) fn common_prefix<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns true if a newer sequence has most of `old` beyond its first `head` tokens, which other conversations have
/// too: the conversation has left `old`.
pub(crate) fn has_left(old: &[u32], head: usize, newer: &[u32]) -> bool {
    let head = head.min(old.len());
    let own = old.len() - head;
    common_prefix(old, newer) >= head + (own / 4 * 3).max(1)
}

impl CachedSequence {
    pub fn new(state: SequenceState, recurrence_log_tokens: usize) -> CachedSequence {
        let recurrence_log = RecurrenceLog::new(&state.shape, recurrence_log_tokens, &state.meter);
        let (snapshots, speculative, owner, scope) = (Vec::new(), false, None, ReuseScope::default());
        CachedSequence {
            state,
            snapshots,
            recurrence_log,
            speculative,
            unsaved: false,
            owner,
            scope,
            given_tokens: 0,
            fork: None,
        }
    }

    /// Adds its bytes to `bytes`, by kind. Shared parts that are in `seen` already do not count.
    pub fn add_bytes(&self, seen: &mut HashSet<usize>, bytes: &mut [usize; MemoryKind::ALL.len()]) {
        bytes[MemoryKind::Live as usize] += self.state.own_bytes();
        for page in self.state.pages.iter().filter(|page| seen.insert(Arc::as_ptr(page) as usize)) {
            bytes[MemoryKind::Pages as usize] += page.bytes();
        }
        for snapshot in self.snapshots.iter().filter(|snapshot| seen.insert(Arc::as_ptr(snapshot) as usize)) {
            bytes[snapshot.kind() as usize] += snapshot.bytes();
        }
        for (_, size) in self.recurrence_log.segments().filter(|(segment, _)| seen.insert(*segment)) {
            bytes[MemoryKind::RecurrenceLogs as usize] += size;
        }
    }

    /// Finds the furthest position up to `limit` that a branch can start from without running the model, and the
    /// snapshot to restore for it. Without a snapshot the state itself is there.
    pub fn reach(&self, limit: usize) -> (usize, Option<&Arc<Snapshot>>) {
        if self.state.position <= limit {
            return (self.state.position, None);
        }
        let before = self.snapshots.iter().rev().find(|snapshot| snapshot.position <= limit);
        let covered = self.recurrence_log.covered();
        match before {
            Some(snapshot) if covered.start <= snapshot.position && limit <= covered.end => (limit, Some(snapshot)),
            Some(snapshot) => (snapshot.position, Some(snapshot)),
            None => (0, None),
        }
    }

    pub fn wants_snapshot(&self, limits: &EngineLimits) -> bool {
        let logged_from = self.recurrence_log.covered().start;
        self.snapshots.last().is_none_or(|last| {
            let distance = if logged_from <= last.position { near_distance(limits) } else { 1 };
            self.state.position >= last.position + distance
        })
    }

    /// Takes a snapshot of the state. There must be none at its position.
    pub fn take_snapshot(&mut self, executor: &Executor, limits: &EngineLimits) {
        self.thin(limits);
        self.snapshots.push(Arc::new(Snapshot::of(&self.state, limits.snapshots, executor.cpu())));
    }

    pub fn put_back(&mut self, moved: Option<Arc<Snapshot>>) {
        let before = |other: &Arc<Snapshot>| moved.as_ref().is_some_and(|moved| other.position < moved.position);
        let at = self.snapshots.partition_point(before);
        self.snapshots.splice(at..at, moved);
    }

    /// Drops snapshots whose neighbours lie near enough: the nearer to the end, the closer they may lie. The next
    /// snapshots reuse their memory.
    pub fn thin(&mut self, limits: &EngineLimits) {
        let end = self.state.position;
        let mut at = 0;
        while at + 1 < self.snapshots.len() {
            let position = self.snapshots[at].position;
            let before = at.checked_sub(1).map_or(0, |before| self.snapshots[before].position);
            let gap = self.snapshots[at + 1].position - before;
            let near_enough = ((end - position) / 4).min(limits.snapshot_spacing_tokens).max(near_distance(limits));
            let is_of_head = Some(position) == self.fork || position == self.scope.head_tokens;
            if gap <= near_enough && !is_of_head {
                self.snapshots.remove(at);
            } else {
                at += 1;
            }
        }
    }

    pub fn branch(&self, network: &Network, executor: &mut Executor, reached: usize) -> CachedSequence {
        let recurrence_log = self.recurrence_log.branch(reached);
        let snapshots = self.snapshots.iter().filter(|snapshot| snapshot.position <= reached).cloned().collect();
        let state = match self.reach(reached) {
            (_, Some(snapshot)) => {
                let SequenceState { pages, shape, layout, .. } = &self.state;
                let mut state = snapshot.restore(pages, *shape, *layout, &executor.meter(), executor.cpu());
                if reached > state.position {
                    // A replay computes no keys and values: those up to here are in the pages already.
                    state.pages = pages[..reached.div_ceil(PAGE_TOKENS)].to_vec();
                    executor.replay(network, &mut state, &self.recurrence_log, reached);
                }
                state
            }
            _ => self.state.branch(),
        };
        let given_tokens = self.given_tokens.min(reached);
        let CachedSequence { owner, scope, unsaved, .. } = *self;
        let (speculative, fork) = (false, None);
        CachedSequence { state, snapshots, recurrence_log, speculative, unsaved, owner, scope, given_tokens, fork }
    }

    pub fn check(&self, tokens: usize) -> Result<(), String> {
        let position = self.state.position;
        if tokens != position {
            return Err(format!("the state of a sequence of {tokens} tokens is at {position}"));
        }
        if self.state.pages.len() < position.div_ceil(PAGE_TOKENS) {
            return Err(format!("{} pages for {position} positions", self.state.pages.len()));
        }
        if !self.snapshots.is_sorted_by(|a, b| a.position < b.position) {
            return Err("snapshots out of order".to_string());
        }
        if self.snapshots.last().is_some_and(|last| last.position > position)
            || self.recurrence_log.covered().end > position
        {
            return Err(format!("a snapshot or the recurrence log goes past the end at {position}"));
        }
        Ok(())
    }
}
