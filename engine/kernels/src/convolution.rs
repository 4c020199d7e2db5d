//! Causal depthwise convolution with SiLU, and the inputs it remembers.

use crate::cpu::{Cpu, DisjointParts, Lanes, at_level};

/// Channels that one task works on.
const CHANNELS_OF_A_TASK: usize = 256;

/// Replaces `x` [rows, channels] by silu(convolution).
///
/// `taps`: [kernel, channels], oldest first. `memory`: [kernel - 1, channels], the inputs before the first row, oldest
/// first; afterwards those before the next row. The last rows are `drafts`, which are not remembered.
pub fn convolve(cpu: &Cpu, x: &mut [f32], channels: usize, taps: &[f32], memory: &mut [f32], drafts: usize) {
    let past = memory.len() / channels;
    assert!(x.len().is_multiple_of(channels) && taps.len() == (past + 1) * channels && memory.len() == past * channels);
    let rows = x.len() / channels;
    let kept = rows - drafts;
    let (x, memory) = (DisjointParts::new(x), DisjointParts::new(memory));
    cpu.pool.run(channels.div_ceil(CHANNELS_OF_A_TASK), |task| {
        let first = task * CHANNELS_OF_A_TASK;
        let job =
            Job { x, memory, taps, channels, first, width: CHANNELS_OF_A_TASK.min(channels - first), rows, kept, past };
        at_level!(cpu.level, body(job: Job<'_>))
    });
}

#[derive(Clone, Copy)]
struct Job<'a> {
    x: DisjointParts<'a, f32>,
    memory: DisjointParts<'a, f32>,
    taps: &'a [f32],
    channels: usize,
    first: usize,
    width: usize,
    rows: usize,
    kept: usize,
    past: usize,
}

impl<'a> Job<'a> {
    /// This task's inputs `row` rows from the beginning; negative rows are memory.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    fn inputs(&self, row: isize) -> &'a mut [f32] {
        let (parts, row) = if row < 0 { (&self.memory, row + self.past as isize) } else { (&self.x, row) };
        // SAFETY: a task touches its own channels only, and never asks for the same row twice at a time.
        unsafe { parts.part(row as usize * self.channels + self.first, self.width) }
    }
}

#[inline(always)]
fn body<L: Lanes>(job: Job<'_>) {
    // From the last row back, each row is replaced after all later rows have read it; what the next call has to
    // remember is put aside before.
    let mut remembered = [0.0f32; 8 * CHANNELS_OF_A_TASK];
    let remembered = &mut remembered[..job.past * job.width];
    for (i, row) in remembered.chunks_exact_mut(job.width).enumerate() {
        row.copy_from_slice(job.inputs(job.kept as isize - job.past as isize + i as isize));
    }
    let tap = |i: usize| &job.taps[i * job.channels + job.first..][..job.width];
    for row in (0..job.rows as isize).rev() {
        let out = job.inputs(row);
        for (out, tap) in out.iter_mut().zip(tap(job.past)) {
            *out *= tap;
        }
        for back in 1..=job.past {
            let earlier = job.inputs(row - back as isize);
            for ((out, earlier), tap) in out.iter_mut().zip(earlier).zip(tap(job.past - back)) {
                *out = L::madd_one(*earlier, *tap, *out);
            }
        }
        out.iter_mut().for_each(|out| *out = L::silu_one(*out));
    }
    for (i, row) in remembered.chunks_exact(job.width).enumerate() {
        job.inputs(i as isize - job.past as isize).copy_from_slice(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuLevel;
    use crate::reference;
    use crate::testing::{assert_close, random};

    #[test]
    fn in_pieces_as_in_one_and_as_defined() {
        for level in CpuLevel::available() {
            let cpu = Cpu::with_level(2, level);
            for (rows, channels, kernel) in [(1, 5, 4), (2, 300, 4), (9, 257, 4), (7, 16, 2)] {
                let (x, taps) = (random(rows * channels, 1), random(channels * kernel, 2));
                let start = random(channels * (kernel - 1), 3);
                let (mut whole, mut memory) = (x.clone(), start.clone());
                convolve(&cpu, &mut whole, channels, &taps, &mut memory, 0);
                assert_close(&whole, &reference::convolution(&x, channels, &taps, &start), 1e-6);

                let (mut pieces, mut memory_of_pieces) = (x.clone(), start.clone());
                for piece in pieces.chunks_mut(2 * channels) {
                    convolve(&cpu, piece, channels, &taps, &mut memory_of_pieces, 0);
                }
                assert_close(&whole, &pieces, 1e-6);
                assert_eq!(memory, memory_of_pieces);
            }
        }
    }
}
