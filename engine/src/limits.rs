//! Limits of the engine.

use kernels::format::Format;

use crate::error::Error;
use crate::memory::MemoryMeter;
use crate::recurrence_log::RecurrenceLog;
use crate::state::{KvFormats, PAGE_TOKENS, StateShape};

/// Prompt tokens of a step whose log probabilities are reported: each takes a row of logits, which is a megabyte for a
/// vocabulary of 250,000 tokens.
pub const MOST_SCORED_TOKENS: usize = 24;

/// Snapshots that the host has room for where a conversation's own count there: those of several conversations.
const MOVED_AT_LEAST: usize = 8;

#[derive(Clone, Copy, Debug)]
pub struct EngineLimits {
    /// Prompt tokens of one step. A new request or a cancel waits for one step at most.
    pub prefill_chunk_tokens: usize,
    pub max_sequences: usize,
    pub max_waiting: usize,
    /// Tokens of one request that may have a logit bias. Each costs time at every token of the reply.
    pub max_logit_bias: usize,
    /// Ceiling over the pages, snapshots, recurrence logs and states of all sequences, running or cached.
    pub memory_bytes: usize,
    /// Memory of the host for snapshots that a GPU has no room for.
    pub moved_snapshot_bytes: usize,
    /// Format of recurrent states in snapshots: one of `snapshot::FORMATS`.
    pub snapshots: Format,
    pub snapshot_spacing_tokens: usize,
    /// Last tokens of a sequence to which a later request can go back exactly.
    pub recurrence_log_tokens: usize,
    /// Number of heads (instructions with tools) that outlive their conversations: the most recent ones.
    pub heads: usize,
}

impl EngineLimits {
    pub fn bytes_of(&self, shape: &StateShape, kv: KvFormats, tokens: usize) -> Result<usize, Error> {
        let pages = tokens.div_ceil(PAGE_TOKENS) + 1;
        let log = RecurrenceLog::new(shape, self.recurrence_log_tokens, &MemoryMeter::default());
        // A state that another turn branches from, and its log, count with the snapshots: they go first where memory is short.
        let states = shape.fixed_bytes() + self.snapshots_at_once(shape) * shape.snapshot_bytes(self.snapshots);
        let logs = log.bytes_of(self.recurrence_log_tokens);
        Ok(pages * shape.page_bytes(&shape.layout(kv)?) + states + logs)
    }

    // The snapshot to go back to, unless it moves to the host, and one that a step takes.
    pub fn snapshots_at_once(&self, shape: &StateShape) -> usize {
        let may_move = self.moved_snapshot_bytes >= MOVED_AT_LEAST * shape.snapshot_bytes(self.snapshots);
        if may_move { 1 } else { 2 }
    }
}
