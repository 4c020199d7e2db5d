//! Heads: the instructions and tools with which conversations begin.
//!
//! A client that begins a new conversation sends the same head again, tomorrow and from another room. So a head
//! outlives its conversations: it holds their pages and the snapshots at its end and at its forks, where another head
//! differs or may differ. While a conversation has these too, they are shared and the head takes no memory of its own.

use std::collections::HashSet;
use std::sync::Arc;

use kernels::attention::PageLayout;

use super::eviction::EvictionRights;
use crate::cached_sequence::CachedSequence;
use crate::executor::Executor;
use crate::limits::EngineLimits;
use crate::memory::MemoryKind;
use crate::request::{OwnerId, ReuseScope};
use crate::snapshot::Snapshot;
use crate::state::{KvPages, PAGE_TOKENS, StateShape};

/// Divisor of the ceiling that all heads together may take, so that conversations have room beside them.
const HEADS_PART: usize = 4;

const MOST_FORKS: usize = 2; // most snapshots of a head before its end, where other heads differ or may differ

pub(crate) struct Head {
    pub tokens: Vec<u32>,
    pub layout: PageLayout,
    pub scope: ReuseScope,
    pub snapshots: Vec<Arc<Snapshot>>, // ascending by position; the last is at the end
    pub pages: KvPages,
    is_open: bool, // true if a request without an owner used it, so that no deletion takes it away
    used: u64,
    is_proven: bool, // true if a second conversation has begun with it
}

impl Head {
    /// Builds a head whose pages hold the positions up to its last snapshot, at the end of `tokens`.
    pub fn new(
        tokens: Vec<u32>,
        layout: PageLayout,
        scope: ReuseScope,
        snapshots: Vec<Arc<Snapshot>>,
        pages: KvPages,
        owner: Option<OwnerId>,
    ) -> Head {
        Head { tokens, layout, scope, snapshots, pages, is_open: owner.is_none(), used: 0, is_proven: false }
    }

    pub fn of(tokens: &[u32], sequence: &CachedSequence) -> Option<Head> {
        let end = sequence.scope.head_tokens;
        let forks = sequence.fork.into_iter().filter(|fork| *fork < end);
        let at = |position: usize| sequence.snapshots.iter().find(|snapshot| snapshot.position == position).cloned();
        let mut snapshots: Vec<Arc<Snapshot>> = forks.filter_map(at).collect();
        snapshots.push(at(end)?);
        let pages = sequence.state.pages[..end.div_ceil(PAGE_TOKENS)].to_vec();
        let tokens = tokens.get(..end)?.to_vec();
        Some(Head::new(tokens, sequence.state.layout, sequence.scope, snapshots, pages, sequence.owner))
    }

    pub fn reach(&self, limit: usize) -> usize {
        let before = self.snapshots.iter().rev().find(|snapshot| snapshot.position <= limit);
        before.map_or(0, |snapshot| snapshot.position)
    }

    pub fn begin(
        &self,
        shape: StateShape,
        executor: &Executor,
        limits: &EngineLimits,
        reached: usize,
    ) -> Option<CachedSequence> {
        let snapshots: Vec<Arc<Snapshot>> =
            self.snapshots.iter().filter(|snapshot| snapshot.position <= reached).cloned().collect();
        let state = snapshots.last()?.restore(&self.pages, shape, self.layout, &executor.meter(), executor.cpu());
        let sequence = CachedSequence::new(state, limits.recurrence_log_tokens);
        Some(CachedSequence { snapshots, scope: self.scope, given_tokens: reached, ..sequence })
    }

    pub fn add_bytes(&self, seen: &mut HashSet<usize>, bytes: &mut [usize; MemoryKind::ALL.len()]) {
        for page in self.pages.iter().filter(|page| seen.insert(Arc::as_ptr(page) as usize)) {
            bytes[MemoryKind::Pages as usize] += page.bytes();
        }
        for snapshot in self.snapshots.iter().filter(|snapshot| seen.insert(Arc::as_ptr(snapshot) as usize)) {
            bytes[snapshot.kind() as usize] += snapshot.bytes();
        }
    }

    fn is_same(&self, other: &Head) -> bool {
        self.layout == other.layout && self.scope.user == other.scope.user && self.tokens == other.tokens
    }

    fn learn(&mut self, other: Head) {
        self.is_open |= other.is_open;
        for snapshot in other.snapshots {
            if !self.snapshots.iter().any(|known| known.position == snapshot.position) {
                self.snapshots.push(snapshot);
            }
        }
        self.snapshots.sort_by_key(|snapshot| snapshot.position);
        let many = self.snapshots.len().saturating_sub(1 + MOST_FORKS);
        self.snapshots.drain(..many);
    }
}

#[derive(Default)]
pub(crate) struct Heads(Vec<Head>);

impl Heads {
    pub fn iter(&self) -> impl Iterator<Item = &Head> {
        self.0.iter()
    }

    pub fn take_up(&mut self, tokens: &[u32], layout: PageLayout, scope: ReuseScope, uses: u64) {
        let ours =
            |head: &&mut Head| head.layout == layout && head.scope.user == scope.user && tokens == &head.tokens[..];
        if let Some(head) = self.0.iter_mut().find(ours) {
            (head.used, head.is_proven) = (uses, true);
        }
    }

    pub fn keep(&mut self, head: Head, uses: u64, limits: &EngineLimits) {
        if limits.heads == 0 || head.tokens.len() < limits.snapshot_spacing_tokens {
            return;
        }
        match self.0.iter_mut().find(|known| known.is_same(&head)) {
            Some(known) => {
                known.used = uses;
                known.learn(head);
            }
            None => self.0.push(Head { used: uses, ..head }),
        }
        while self.0.len() > limits.heads || self.bytes() > limits.memory_bytes / HEADS_PART {
            let spared = (self.0.len() > 1).then_some(uses);
            if !self.drop_least(EvictionRights::All, spared) {
                return;
            }
        }
    }

    /// Drops the head that is least likely to return, but none used at `spared`. Work that no user waits for drops only
    /// heads with which no second conversation began. Returns false if there was none.
    pub fn drop_least(&mut self, rights: EvictionRights, spared: Option<u64>) -> bool {
        let heads = self.0.iter().enumerate();
        let may_go =
            heads.filter(|(_, head)| (rights == EvictionRights::All || !head.is_proven) && Some(head.used) != spared);
        let least = may_go.min_by_key(|(_, head)| (head.is_proven, head.used)).map(|(at, _)| at);
        least.map(|at| self.0.remove(at)).is_some()
    }

    /// Drops the heads of owners, unless `is_held` finds a past that begins with one and is still there.
    pub fn forget(&mut self, is_held: impl Fn(&[u32]) -> bool) {
        self.0.retain(|head| head.is_open || is_held(&head.tokens));
    }

    pub fn snapshots_of(&self, tokens: &[u32], sequence: &CachedSequence) -> &[Arc<Snapshot>] {
        let (layout, scope) = (sequence.state.layout, sequence.scope);
        let ours = |head: &&Head| {
            head.layout == layout
                && head.scope.user == scope.user
                && head.tokens.len() == scope.head_tokens
                && tokens.starts_with(&head.tokens)
        };
        self.0.iter().find(ours).map_or(&[], |head| &head.snapshots)
    }

    /// Bytes of all heads. Parts shared with conversations count too: they stay when these go.
    fn bytes(&self) -> usize {
        let (mut seen, mut bytes) = (HashSet::new(), [0; MemoryKind::ALL.len()]);
        self.0.iter().for_each(|head| head.add_bytes(&mut seen, &mut bytes));
        bytes.iter().sum()
    }
}
