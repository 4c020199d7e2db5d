//! Causal depthwise convolution with SiLU, and the inputs it remembers.

use crate::cpu::{CpuLevel, DisjointParts, Lanes, at_level};

const TOGETHER: usize = 256; // channels that a pass works on
const BLOCK: usize = 64; // channels of them in registers

#[derive(Clone, Copy)]
pub(crate) struct Strip<'a> {
    pub x: DisjointParts<'a, f32>, // [rows, channels]
    /// [kernel - 1, channels], the inputs before the first row, oldest first; afterwards those before the next row.
    pub memory: DisjointParts<'a, f32>,
    pub taps: &'a [f32], // [kernel, channels], oldest first
    pub channels: usize,
    pub first: usize,
    pub width: usize,
    pub rows: usize,
    pub kept: usize, // number of rows that the memory keeps; the others are drafts
}

/// # Safety
/// Strips that run at the same time have different channels or rows.
pub(crate) unsafe fn convolve(level: CpuLevel, strip: Strip) {
    for first in (strip.first..strip.first + strip.width).step_by(TOGETHER) {
        let strip = Strip { first, width: TOGETHER.min(strip.first + strip.width - first), ..strip };
        at_level!(level, body(strip: Strip<'_>));
    }
}

impl<'a> Strip<'a> {
    fn past(&self) -> usize {
        self.taps.len() / self.channels - 1
    }

    /// Returns this strip's inputs `row` rows from the beginning; negative rows are memory.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    fn inputs(&self, row: isize) -> &'a mut [f32] {
        let (parts, row) = if row < 0 { (&self.memory, row + self.past() as isize) } else { (&self.x, row) };
        // SAFETY: no other strip has these channels, and `body` never asks for the same row twice at a time.
        unsafe { parts.part(row as usize * self.channels + self.first, self.width) }
    }
}

#[inline(always)]
fn body<L: Lanes>(strip: Strip<'_>) {
    let past = strip.past();
    // From the last row back, each row is replaced after all later rows have read it. The inputs that the next call
    // needs are saved first.
    let mut remembered = [0.0f32; 8 * TOGETHER];
    let remembered = &mut remembered[..past * strip.width];
    for (i, row) in remembered.chunks_exact_mut(strip.width).enumerate() {
        row.copy_from_slice(strip.inputs(strip.kept as isize - past as isize + i as isize));
    }
    let tap = |i: usize| &strip.taps[i * strip.channels + strip.first..][..strip.width];
    for row in (0..strip.rows as isize).rev() {
        let out = strip.inputs(row);
        let whole = out.len() - out.len() % BLOCK;
        for first in (0..whole).step_by(BLOCK) {
            // A block stays in registers from its inputs to its output.
            let block =
                |values: &[f32]| <[f32; BLOCK]>::try_from(&values[first..first + BLOCK]).unwrap_or([0.0; BLOCK]);
            let (mut sum, taps) = (block(out), block(tap(past)));
            for lane in 0..BLOCK {
                sum[lane] *= taps[lane];
            }
            for back in 1..=past {
                let (earlier, taps) = (block(strip.inputs(row - back as isize)), block(tap(past - back)));
                for lane in 0..BLOCK {
                    sum[lane] = L::madd_one(earlier[lane], taps[lane], sum[lane]);
                }
            }
            sum.iter_mut().for_each(|sum| *sum = L::silu_one(*sum));
            out[first..first + BLOCK].copy_from_slice(&sum);
        }
        for at in whole..out.len() {
            let mut sum = out[at] * tap(past)[at];
            for back in 1..=past {
                sum = L::madd_one(strip.inputs(row - back as isize)[at], tap(past - back)[at], sum);
            }
            out[at] = L::silu_one(sum);
        }
    }
    for (i, row) in remembered.chunks_exact(strip.width).enumerate() {
        strip.inputs(i as isize - past as isize).copy_from_slice(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};

    fn convolved(level: CpuLevel, x: &mut [f32], taps: &[f32], memory: &mut [f32], channels: usize) {
        let rows = x.len() / channels;
        let (x, memory) = (DisjointParts::new(x), DisjointParts::new(memory));
        // SAFETY: it is the only one.
        unsafe { convolve(level, Strip { x, memory, taps, channels, first: 0, width: channels, rows, kept: rows }) };
    }

    #[test]
    fn in_pieces_as_in_one_and_as_defined() {
        for level in CpuLevel::available() {
            for (rows, channels, kernel) in [(1, 5, 4), (2, 300, 4), (9, 257, 4), (7, 16, 2)] {
                let (x, taps) = (random(rows * channels, 1), random(channels * kernel, 2));
                let start = random(channels * (kernel - 1), 3);
                let (mut whole, mut memory) = (x.clone(), start.clone());
                convolved(level, &mut whole, &taps, &mut memory, channels);
                assert_close(&whole, &reference::convolution(&x, channels, &taps, &start), 1e-6);

                let (mut pieces, mut memory_of_pieces) = (x.clone(), start.clone());
                for piece in pieces.chunks_mut(2 * channels) {
                    convolved(level, piece, &taps, &mut memory_of_pieces, channels);
                }
                assert_close(&whole, &pieces, 1e-6);
                assert_eq!(memory, memory_of_pieces);
            }
        }
    }
}
