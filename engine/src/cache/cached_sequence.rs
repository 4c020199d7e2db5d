//! One past that was computed, and what must hold between its parts.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use kernels::format::Format;

use crate::executor::Executor;
use crate::memory::{MemoryKind, MemoryMeter, MeteredBuffer};
use crate::network::Network;
use crate::recurrence_log::RecurrenceLog;
use crate::request::OwnerId;
use crate::snapshot::Snapshot;
use crate::state::{PAGE_TOKENS, SequenceState};

/// One past: `state` stands at its end.
pub(crate) struct CachedSequence {
    pub state: SequenceState,
    /// Ascending by position, none behind the end.
    pub snapshots: Vec<Arc<Snapshot>>,
    pub recurrence_log: RecurrenceLog,
    /// Made for something that may never be said: given up as soon as something better is known.
    pub speculative: bool,
    /// With whom it goes when it is to be forgotten.
    pub owner: Option<OwnerId>,
    /// So many tokens came with the request; behind them are the opening of a reply and what was made of it, which comes
    /// back as history in another form without that anybody changed it.
    pub given_tokens: usize,
}

impl CachedSequence {
    /// Adds up what it holds, by kind, but for parts that were seen before: sequences share them.
    pub fn add_bytes(&self, seen: &mut HashSet<usize>, bytes: &mut [usize; MemoryKind::ALL.len()]) {
        bytes[MemoryKind::Live as usize] += self.state.own_bytes();
        for page in self.state.pages.iter().filter(|page| seen.insert(Arc::as_ptr(page) as usize)) {
            bytes[MemoryKind::Pages as usize] += page.bytes();
        }
        for snapshot in self.snapshots.iter().filter(|snapshot| seen.insert(Arc::as_ptr(snapshot) as usize)) {
            bytes[MemoryKind::Snapshots as usize] += snapshot.bytes();
        }
        for (_, size) in self.recurrence_log.pieces().filter(|(piece, _)| seen.insert(*piece)) {
            bytes[MemoryKind::RecurrenceLogs as usize] += size;
        }
    }

    /// The furthest position up to `limit` that can be reached without the model, and the snapshot to start from.
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

    /// Remembers the present state, once.
    pub fn take_snapshot(&mut self, format: Format) {
        if self.snapshots.last().is_none_or(|last| last.position < self.state.position) {
            self.snapshots.push(Arc::new(self.state.snapshot(format)));
        }
    }

    /// A new sequence from a position that `reach` found.
    pub fn branch(&self, network: &Network, executor: &mut Executor, reached: usize) -> CachedSequence {
        let recurrence_log = self.recurrence_log.branch(reached);
        let snapshots = self.snapshots.iter().filter(|snapshot| snapshot.position <= reached).cloned().collect();
        let state = match self.reach(reached) {
            (_, Some(snapshot)) => {
                let mut state = SequenceState::at(
                    snapshot,
                    &self.state.pages,
                    self.state.shape,
                    self.state.layout,
                    &executor.meter(),
                    executor.cpu(),
                );
                if reached > state.position {
                    // The pages hold more positions than the snapshot: those up to here are part of the past as well.
                    state.pages = self.state.pages[..reached.div_ceil(PAGE_TOKENS)].to_vec();
                    executor.replay(network, &mut state, &self.recurrence_log, reached);
                }
                state
            }
            _ => self.state.branch(),
        };
        let given_tokens = self.given_tokens.min(reached);
        CachedSequence { state, snapshots, recurrence_log, speculative: false, owner: self.owner, given_tokens }
    }

    /// What must hold between the parts.
    fn check(&self, tokens: usize) -> Result<(), String> {
        let position = self.state.position;
        if tokens != position {
            return Err(format!("a sequence of {tokens} tokens stands at {position}"));
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
            return Err(format!("a snapshot or a recurrence log behind the end at {position}"));
        }
        Ok(())
    }
}

/// Checksums of what no one may write any more, from the check before. Costs a reading of all memory, so that debug
/// builds and tests have it.
#[derive(Default)]
pub(crate) struct MemoryChecksums {
    pages: HashMap<usize, (Weak<MeteredBuffer<u8>>, u32)>,
    snapshots: HashMap<usize, (Weak<Snapshot>, u32)>,
}

impl MemoryChecksums {
    /// Adds up what sequences hold, shared parts once, compares with what the meter counted, and finds what was written to
    /// although others read it.
    pub fn check<'a>(
        &mut self,
        sequences: impl Iterator<Item = (usize, &'a CachedSequence)>,
        meter: &MemoryMeter,
        budget_bytes: usize,
    ) -> Result<(), String> {
        self.pages.retain(|_, (page, _)| page.strong_count() > 0);
        self.snapshots.retain(|_, (snapshot, _)| snapshot.strong_count() > 0);
        let mut seen = HashSet::new();
        // Pages and snapshots that nobody writes to any more: shared ones are summed up once.
        let mut summed = HashSet::new();
        let mut bytes = [0usize; MemoryKind::ALL.len()];
        for (tokens, sequence) in sequences {
            sequence.check(tokens)?;
            sequence.add_bytes(&mut seen, &mut bytes);
            for (number, page) in sequence.state.pages.iter().enumerate() {
                let at = Arc::as_ptr(page) as usize;
                if (number + 1) * PAGE_TOKENS <= sequence.state.position && summed.insert(at) {
                    let now = crc32fast::hash(&page.on_host().map_err(|error| error.to_string())?);
                    let (_, sum) = self.pages.entry(at).or_insert_with(|| (Arc::downgrade(page), now));
                    if *sum != now {
                        return Err(format!("page {number} of a sequence of {tokens} tokens was written to"));
                    }
                }
            }
            for snapshot in sequence.snapshots.iter().filter(|snapshot| summed.insert(Arc::as_ptr(snapshot) as usize)) {
                let at = Arc::as_ptr(snapshot) as usize;
                let now = crc32fast::hash(&snapshot.recurrent.on_host().map_err(|error| error.to_string())?);
                let (_, sum) = self.snapshots.entry(at).or_insert_with(|| (Arc::downgrade(snapshot), now));
                if *sum != now {
                    return Err(format!("the snapshot at {} was written to", snapshot.position));
                }
            }
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
}
