//! Inputs of a sequence's recurrences for its last tokens. From a snapshot and the log after it the state at any logged
//! token is rebuilt by running the recurrences alone, so that a request after a barge-in continues from the exact word.

use std::ops::Range;
use std::sync::Arc;

use kernels::cpu::{Cpu, DisjointParts};

use crate::memory::{MemoryKind, MemoryMeter, MeteredBuffer};
use crate::state::StateShape;

/// Tokens that a log holds together.
pub const SEGMENT_TOKENS: usize = 16;

/// Length of a log that is not halved for the reply.
const SHORT_LOG_TOKENS: usize = 64; // not a window: tokens of a log

/// The last tokens, in segments that branches of a sequence share. A row is one token of one layer: the inputs of the
/// convolution, the decays and the betas.
pub struct RecurrenceLog {
    capacity: usize, // tokens to keep, rounded up to whole segments
    width: usize,
    layers: usize,
    /// Position before which logging is a waste: later tokens will push these out before a request goes back.
    worth_from: usize,
    segments: Vec<LogSegment>,
    meter: MemoryMeter,
}

#[derive(Clone)]
struct LogSegment {
    /// Positions of this log in `rows`. Another branch that shares the rows may have written more.
    range: Range<usize>,
    rows: Arc<MeteredBuffer<f32>>, // [layer, position in the segment, width]
}

impl RecurrenceLog {
    pub fn new(shape: &StateShape, capacity: usize, meter: &MemoryMeter) -> RecurrenceLog {
        let width = width(shape);
        let (layers, segments) = (shape.delta_layers, Vec::new());
        RecurrenceLog { capacity, width, layers, worth_from: 0, segments, meter: meter.clone() }
    }

    pub fn segment_bytes(shape: &StateShape) -> usize {
        shape.delta_layers * SEGMENT_TOKENS * width(shape) * size_of::<f32>()
    }

    /// Returns a log of the same tokens up to `end`. It shares the memory.
    pub fn branch(&self, end: usize) -> RecurrenceLog {
        let before = self.segments.iter().filter(|segment| segment.range.start < end);
        let segments = before
            .map(|segment| LogSegment { range: segment.range.start..segment.range.end.min(end), ..segment.clone() });
        RecurrenceLog { segments: segments.collect(), meter: self.meter.clone(), worth_from: 0, ..*self }
    }

    /// Prepares for a prompt of `tokens` tokens. The first ones of a long prompt are not logged: the reply would push
    /// them out.
    pub fn expect(&mut self, tokens: usize) {
        self.worth_from = RecurrenceLog::worth_from(tokens, self.capacity);
    }

    /// Position of a prompt's first logged token, if the prompt is computed at once: the other half of a long log is
    /// for the reply.
    pub fn worth_from(prompt: usize, capacity: usize) -> usize {
        prompt.saturating_sub(capacity.min((capacity / 2).max(SHORT_LOG_TOKENS)))
    }

    /// Logged positions: a snapshot at `start` or later can advance to any position up to `end`.
    pub fn covered(&self) -> Range<usize> {
        match (self.segments.first(), self.segments.last()) {
            (Some(first), Some(last)) => first.range.start..last.range.end,
            _ => 0..0,
        }
    }

    pub fn own_bytes(&self) -> usize {
        let own = self.segments.iter().filter(|segment| Arc::strong_count(&segment.rows) == 1);
        own.map(|segment| segment.rows.bytes()).sum()
    }

    pub fn segments(&self) -> impl Iterator<Item = (usize, usize)> {
        // address and bytes of each
        self.segments.iter().map(|segment| (Arc::as_ptr(&segment.rows) as usize, segment.rows.bytes()))
    }

    pub fn bytes_of(&self, count: usize) -> usize {
        let segments = if self.capacity == 0 { 0 } else { count.min(self.capacity).div_ceil(SEGMENT_TOKENS) + 1 };
        segments * SEGMENT_TOKENS * self.layers * self.width * size_of::<f32>()
    }

    /// Makes room for `count` tokens from `position` on and drops the oldest ones. A `position` that is not the end of
    /// the log drops all of it.
    pub fn begin(&mut self, position: usize, count: usize) {
        let end = position + count;
        // If more tokens come than fit, only the last ones are written.
        let mut next = position.max(end.saturating_sub(self.capacity)).max(self.worth_from.min(end));
        if self.covered().end != position || next > position {
            self.segments.clear();
        }
        // Dropped segments make room for the next ones.
        self.segments.retain(|segment| segment.range.end + self.capacity > end);
        while next < end {
            let open = self.segments.last_mut().filter(|last| {
                last.range.end == next && last.range.len() < SEGMENT_TOKENS && Arc::strong_count(&last.rows) == 1
            });
            let written = match open {
                Some(last) => {
                    let written = (SEGMENT_TOKENS - last.range.len()).min(end - next);
                    last.range.end += written;
                    written
                }
                None => {
                    let rows = Arc::new(
                        self.meter.unwritten(MemoryKind::RecurrenceLogs, self.layers * SEGMENT_TOKENS * self.width),
                    );
                    let written = SEGMENT_TOKENS.min(end - next);
                    self.segments.push(LogSegment { range: next..next + written, rows });
                    written
                }
            };
            next += written;
        }
    }

    /// Writes the tokens of one layer from `position` on: inputs, decays, betas. Tokens for which `begin` kept no room
    /// are ignored.
    pub fn write(&mut self, cpu: &Cpu, layer: usize, position: usize, parts: [&[f32]; 3], count: usize) {
        let width = self.width;
        let all = position..position + count;
        let mut written: Vec<(Range<usize>, DisjointParts<f32>)> = Vec::new();
        for segment in self.segments.iter_mut().rev().take_while(|segment| segment.range.end > position) {
            let (first, begin) = (segment.range.start, segment.range.start.max(all.start));
            let end = segment.range.end.min(all.end);
            if let Some(rows) = Arc::get_mut(&mut segment.rows).filter(|_| begin < end) {
                let at = (layer * SEGMENT_TOKENS + begin - first) * width;
                written.push((begin..end, DisjointParts::new(&mut rows.host_mut()[at..at + (end - begin) * width])));
            }
        }
        cpu.pool.run(written.len(), |number| {
            let (tokens, rows) = &written[number];
            // SAFETY: each task takes the rows of its own segment.
            let rows = unsafe { rows.part(0, tokens.len() * width) };
            for (token, mut row) in tokens.clone().zip(rows.chunks_exact_mut(width)) {
                for part in parts {
                    let of_token = part.len() / count;
                    let (own, rest) = row.split_at_mut(of_token);
                    own.copy_from_slice(&part[(token - position) * of_token..][..of_token]);
                    row = rest;
                }
            }
        });
    }

    pub fn read(&self, layer: usize, position: usize) -> Option<&[f32]> {
        let segment = self.segments.iter().rev().find(|segment| segment.range.contains(&position))?;
        let at = (layer * SEGMENT_TOKENS + position - segment.range.start) * self.width;
        Some(&segment.rows.host()[at..at + self.width])
    }

    /// Address on a device of a token's row of the first layer; 0: the token is not logged. `begin` has made the row
    /// this log's own before a kernel writes it.
    pub(crate) fn address(&self, position: usize) -> Result<u64, gpu::Error> {
        let Some(segment) = self.segments.iter().rev().find(|segment| segment.range.contains(&position)) else {
            return Ok(0);
        };
        let row = (position - segment.range.start) * self.width * size_of::<f32>();
        Ok(segment.rows.address()? + row as u64)
    }

    pub(crate) fn layer_values(shape: &StateShape) -> usize {
        SEGMENT_TOKENS * width(shape)
    }

    pub fn truncate(&mut self, end: usize) {
        self.segments.retain(|segment| segment.range.start < end);
        if let Some(last) = self.segments.last_mut() {
            last.range.end = last.range.end.min(end);
        }
    }

    pub fn clear(&mut self) {
        self.segments.clear();
    }
}

fn width(shape: &StateShape) -> usize {
    shape.heads.channels() + 2 * shape.heads.value_heads
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::delta::DeltaHeads;

    fn log(capacity: usize, meter: &MemoryMeter) -> RecurrenceLog {
        let heads = DeltaHeads { key_heads: 1, value_heads: 1, key_dim: 1, value_dim: 1, tiled: false };
        let shape = StateShape { attention_layers: 0, delta_layers: 2, heads, conv_past: 3, kv_heads: 1, head_dim: 1 };
        RecurrenceLog::new(&shape, capacity, meter)
    }

    fn feed(log: &mut RecurrenceLog, positions: Range<usize>, chunk: usize, sign: f32) {
        for start in positions.clone().step_by(chunk) {
            let end = (start + chunk).min(positions.end);
            log.begin(start, end - start);
            for layer in 0..2 {
                let values: Vec<f32> = (start..end).map(|position| sign * (position * 10 + layer) as f32).collect();
                let inputs: Vec<f32> = values.iter().flat_map(|value| [*value; 3]).collect();
                log.write(&Cpu::new(2), layer, start, [&inputs, &values, &values], end - start);
            }
        }
    }

    #[track_caller]
    fn holds(log: &RecurrenceLog, sign: f32) {
        for position in log.covered() {
            for layer in 0..2 {
                assert_eq!(log.read(layer, position), Some(&[sign * (position * 10 + layer) as f32; 5][..]));
            }
        }
    }

    #[test]
    fn remembers_the_last_tokens_whatever_the_chunks() {
        for (capacity, chunk) in [(20, 1), (20, 7), (20, 64), (100, 33), (0, 5)] {
            let meter = MemoryMeter::default();
            let mut log = log(capacity, &meter);
            feed(&mut log, 3..200, chunk, 1.0);
            let covered = log.covered();
            assert!(
                covered.len() >= capacity && covered.len() <= capacity + SEGMENT_TOKENS,
                "{covered:?} of {capacity}"
            );
            assert!(capacity == 0 || covered.end == 200);
            holds(&log, 1.0);
            drop(log);
            assert_eq!(meter.used_bytes(), 0);
        }
    }

    #[test]
    fn what_a_prompt_would_push_out_again_is_not_written() {
        let meter = MemoryMeter::default();
        let mut log = log(32, &meter);
        log.expect(100);
        feed(&mut log, 0..60, 30, 1.0);
        assert_eq!((log.covered(), meter.used_bytes()), (0..0, 0));
        feed(&mut log, 60..100, 30, 1.0);
        assert_eq!(log.covered(), 68..100);
        feed(&mut log, 100..150, 1, 1.0);
        assert!(log.covered().len() >= 32 && log.covered().end == 150, "{:?}", log.covered());
        holds(&log, 1.0);
    }

    #[test]
    fn what_is_truncated_is_written_anew() {
        let meter = MemoryMeter::default();
        let mut log = log(64, &meter);
        feed(&mut log, 0..14, 5, -1.0);
        log.truncate(0);
        assert_eq!((log.covered(), meter.used_bytes()), (0..0, 0));
        feed(&mut log, 0..14, 5, 1.0);
        feed(&mut log, 14..20, 6, -1.0);
        log.truncate(15);
        assert_eq!(log.covered(), 0..15);
        feed(&mut log, 15..40, 3, 1.0);
        assert_eq!(log.read(0, 14), Some(&[-140.0; 5][..]));
        log.truncate(14);
        feed(&mut log, 14..40, 3, 1.0);
        holds(&log, 1.0);
    }

    #[test]
    fn branches_share_and_do_not_disturb_each_other() {
        let meter = MemoryMeter::default();
        let mut first = log(64, &meter);
        feed(&mut first, 0..40, 9, 1.0);
        let before = meter.used_bytes();
        let mut second = first.branch(21);
        assert_eq!((second.covered(), meter.used_bytes()), (0..21, before));
        feed(&mut second, 21..50, 5, 1.0);
        feed(&mut first, 40..60, 5, 1.0);
        holds(&first, 1.0);
        holds(&second, 1.0);
        // Tokens of another past replace the log.
        feed(&mut second, 10..12, 1, -1.0);
        assert_eq!(second.covered(), 10..12);
        holds(&second, -1.0);
    }
}
