//! What the recurrences of a sequence consumed for its last tokens. From a snapshot and the log behind it the state at
//! any later token is rebuilt by running the recurrences alone: a barge-in goes back to the very word.

use std::ops::Range;
use std::sync::Arc;

use crate::memory::{MemoryKind, MemoryMeter, MeteredBuffer};
use crate::state::StateShape;

/// Tokens of one piece.
const PIECE: usize = 16;

/// The last tokens, in pieces that branches share. A row holds a token's inputs of one layer's convolution, its decays
/// and its betas.
pub struct RecurrenceLog {
    /// Tokens that are remembered, to the next piece.
    capacity: usize,
    width: usize,
    layers: usize,
    pieces: Vec<LogPiece>,
    meter: MemoryMeter,
}

#[derive(Clone)]
struct LogPiece {
    /// Positions that count; one branch may have written further than another reads.
    range: Range<usize>,
    /// [layer, position in the piece, width]
    rows: Arc<MeteredBuffer<f32>>,
}

impl RecurrenceLog {
    pub fn new(shape: &StateShape, capacity: usize, meter: &MemoryMeter) -> RecurrenceLog {
        let width = width(shape);
        RecurrenceLog { capacity, width, layers: shape.delta_layers, pieces: Vec::new(), meter: meter.clone() }
    }

    pub fn piece_bytes(shape: &StateShape) -> usize {
        shape.delta_layers * PIECE * width(shape) * size_of::<f32>()
    }

    /// The same past up to `end`, with the memory shared.
    pub fn branch(&self, end: usize) -> RecurrenceLog {
        let before = self.pieces.iter().filter(|piece| piece.range.start < end);
        let pieces =
            before.map(|piece| LogPiece { range: piece.range.start..piece.range.end.min(end), ..piece.clone() });
        RecurrenceLog { pieces: pieces.collect(), meter: self.meter.clone(), ..*self }
    }

    /// Positions whose tokens are there: from a snapshot at `start` or later, any position up to `end` can be reached.
    pub fn covered(&self) -> Range<usize> {
        match (self.pieces.first(), self.pieces.last()) {
            (Some(first), Some(last)) => first.range.start..last.range.end,
            _ => 0..0,
        }
    }

    /// Bytes that would be free without this log.
    pub fn own_bytes(&self) -> usize {
        let own = self.pieces.iter().filter(|piece| Arc::strong_count(&piece.rows) == 1);
        own.map(|piece| piece.rows.bytes()).sum()
    }

    /// Each piece's address and its bytes.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, usize)> {
        self.pieces.iter().map(|piece| (Arc::as_ptr(&piece.rows) as usize, piece.rows.bytes()))
    }

    /// The most that `count` more tokens allocate.
    pub fn bytes_of(&self, count: usize) -> usize {
        let pieces = if self.capacity == 0 { 0 } else { count.min(self.capacity).div_ceil(PIECE) + 1 };
        pieces * PIECE * self.layers * self.width * size_of::<f32>()
    }

    /// Makes room for `count` tokens from `position` on. The oldest are forgotten, and all where these do not follow.
    pub fn begin(&mut self, position: usize, count: usize) {
        if self.covered().end != position {
            self.pieces.clear();
        }
        let end = position + count;
        // Of more tokens than fit only the last are written.
        let mut next = position.max(end.saturating_sub(self.capacity));
        while next < end {
            let open = self.pieces.last_mut().filter(|last| {
                last.range.end == next && last.range.len() < PIECE && Arc::strong_count(&last.rows) == 1
            });
            let written = match open {
                Some(last) => {
                    let written = (PIECE - last.range.len()).min(end - next);
                    last.range.end += written;
                    written
                }
                None => {
                    let rows =
                        Arc::new(self.meter.unwritten(MemoryKind::RecurrenceLogs, self.layers * PIECE * self.width));
                    let written = PIECE.min(end - next);
                    self.pieces.push(LogPiece { range: next..next + written, rows });
                    written
                }
            };
            next += written;
        }
        self.pieces.retain(|piece| piece.range.end + self.capacity > end);
    }

    /// Writes one token of one layer: inputs, decays, betas. `begin` made room, or chose to forget it.
    pub fn write(&mut self, layer: usize, position: usize, parts: [&[f32]; 3]) {
        let width = self.width;
        let Some(piece) = self.pieces.iter_mut().rev().find(|piece| piece.range.contains(&position)) else { return };
        let at = (layer * PIECE + position - piece.range.start) * width;
        let Some(rows) = Arc::get_mut(&mut piece.rows) else { return };
        let mut row = &mut rows[at..at + width];
        for part in parts {
            let (own, rest) = row.split_at_mut(part.len());
            own.copy_from_slice(part);
            row = rest;
        }
    }

    /// One token of one layer, as it was written.
    pub fn read(&self, layer: usize, position: usize) -> Option<&[f32]> {
        let piece = self.pieces.iter().rev().find(|piece| piece.range.contains(&position))?;
        let at = (layer * PIECE + position - piece.range.start) * self.width;
        Some(&piece.rows[at..at + self.width])
    }

    /// On a device: where the first layer's row of a token lies, 0 where it is not kept. `begin` made it this log's own
    /// before it is written.
    pub(crate) fn address(&self, position: usize) -> Result<u64, gpu::Error> {
        let Some(piece) = self.pieces.iter().rev().find(|piece| piece.range.contains(&position)) else { return Ok(0) };
        let row = (position - piece.range.start) * self.width * size_of::<f32>();
        Ok(piece.rows.address()? + row as u64)
    }

    /// Values from a token's row of one layer to that of the next.
    pub(crate) fn layer_values(shape: &StateShape) -> usize {
        PIECE * width(shape)
    }

    pub fn clear(&mut self) {
        self.pieces.clear();
    }
}

fn width(shape: &StateShape) -> usize {
    shape.heads.channels() + 2 * shape.heads.value_heads
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::delta::Heads;

    fn log(capacity: usize, meter: &MemoryMeter) -> RecurrenceLog {
        let heads = Heads { key_heads: 1, value_heads: 1, key_dim: 1, value_dim: 1, tiled: false };
        let shape = StateShape { attention_layers: 0, delta_layers: 2, heads, conv_past: 3, kv_heads: 1, head_dim: 1 };
        RecurrenceLog::new(&shape, capacity, meter)
    }

    fn feed(log: &mut RecurrenceLog, positions: Range<usize>, chunk: usize, sign: f32) {
        for start in positions.clone().step_by(chunk) {
            let end = (start + chunk).min(positions.end);
            log.begin(start, end - start);
            for layer in 0..2 {
                for position in start..end {
                    let value = sign * (position * 10 + layer) as f32;
                    log.write(layer, position, [&[value, value, value], &[value], &[value]]);
                }
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
            assert!(covered.len() >= capacity && covered.len() <= capacity + PIECE, "{covered:?} of {capacity}");
            assert!(capacity == 0 || covered.end == 200);
            holds(&log, 1.0);
            drop(log);
            assert_eq!(meter.used_bytes(), 0);
        }
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
        // Tokens of another past begin anew.
        feed(&mut second, 10..12, 1, -1.0);
        assert_eq!(second.covered(), 10..12);
        holds(&second, -1.0);
    }
}
