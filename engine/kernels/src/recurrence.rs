//! The part of a linear layer that has a state: convolution, norms of queries and keys, the delta rule, the gated norm
//! of its outputs. One task computes all of it for a key head and the value heads that read it, so that a token is one
//! job.

use crate::activation::times_silu;
use crate::convolution::{Strip, convolve};
use crate::cpu::{Cpu, DisjointParts};
use crate::delta::{DeltaHeads, ValueHead, advance};
use crate::norm::{l2_norm_in_place, rms_norm_in_place};

const L2_EPS: f32 = 1e-6; // inside the root of the norm of queries and keys

pub struct RecurrenceRows<'a> {
    /// [rows, channels]: q, k and v before the convolution. Used up afterwards.
    pub qkv: &'a mut [f32],
    pub decay: &'a [f32], // [rows, value heads]: the logarithm of the decay
    pub beta: &'a [f32],  // [rows, value heads]
    /// Last rows, which may turn out to be wrong: the state does not pass them.
    pub drafts: usize,
}

pub struct RecurrenceState<'a> {
    pub recurrent: &'a mut [f32], // [value head, key dim, value dim]
    pub conv: &'a mut [f32],      // [kernel - 1, channels], oldest first
}

#[derive(Clone, Copy)]
pub struct OutputGate<'a> {
    pub z: &'a [f32],    // [rows, values]
    pub norm: &'a [f32], // [value dim]
    pub eps: f32,
}

/// Advances the state over all rows but drafts. `taps`: [kernel, channels], oldest first. `out`: [rows, values].
pub fn recur(
    cpu: &Cpu,
    heads: DeltaHeads,
    taps: &[f32],
    rows: RecurrenceRows,
    state: RecurrenceState,
    gate: Option<OutputGate>,
    out: &mut [f32],
) {
    let RecurrenceRows { qkv, decay, beta, drafts } = rows;
    let (channels, count) = (heads.channels(), beta.len() / heads.value_heads);
    assert!(qkv.len() == count * channels && decay.len() == beta.len() && drafts <= count);
    assert!(state.recurrent.len() == heads.state() && out.len() == count * heads.values());
    assert!(taps.len() == state.conv.len() + channels && taps.len().is_multiple_of(channels));
    assert!(gate.is_none_or(|gate| gate.z.len() == out.len() && gate.norm.len() == heads.value_dim));
    let (qkv, out) = (DisjointParts::new(qkv), DisjointParts::new(out));
    let (recurrent, memory) = (DisjointParts::new(state.recurrent), DisjointParts::new(state.conv));
    let (key_dim, value_dim) = (heads.key_dim, heads.value_dim);
    cpu.pool.run(heads.key_heads, |key_head| {
        let value_heads = (0..heads.value_heads).filter(|head| heads.key_head_of(*head) == key_head);
        let (q, k) = (key_head * key_dim, heads.keys() + key_head * key_dim);
        let values = value_heads.clone().map(|head| (2 * heads.keys() + head * value_dim, value_dim));
        for (first, width) in [(q, key_dim), (k, key_dim)].into_iter().chain(values) {
            let kept = count - drafts;
            // SAFETY: each task takes the channels of its own heads.
            unsafe { convolve(cpu.level, Strip { x: qkv, memory, taps, channels, first, width, rows: count, kept }) };
        }
        for (first, scale) in [(q, 1.0 / (key_dim as f32).sqrt()), (k, 1.0)] {
            for row in 0..count {
                // SAFETY: as above.
                let part = unsafe { qkv.part(row * channels + first, key_dim) };
                l2_norm_in_place(cpu.level, part, key_dim, L2_EPS, scale);
            }
        }
        for head in value_heads {
            // SAFETY: each task takes the states and outputs of its own heads.
            let state = unsafe { recurrent.part(head * key_dim * value_dim, key_dim * value_dim) };
            let job = ValueHead { heads, head, qkv, decay, beta, drafts, out };
            // SAFETY: as above.
            unsafe { advance(cpu.level, job, state) };
            let Some(OutputGate { z, norm, eps }) = gate else { continue };
            for row in 0..count {
                let out = job.out(row);
                rms_norm_in_place(cpu.level, out, norm, eps);
                times_silu(cpu.level, out, &z[row * heads.values() + head * value_dim..][..value_dim]);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuLevel;
    use crate::delta::DeltaRows;
    use crate::testing;
    use crate::testing::{assert_close, random};

    #[test]
    fn as_its_parts_one_after_the_other() {
        let shapes = [
            (1, 1, 4, 4, false),
            (2, 4, 8, 16, true),
            (2, 4, 8, 16, false),
            (3, 6, 32, 40, true),
            (4, 4, 128, 128, false),
        ];
        for level in CpuLevel::available() {
            let cpu = Cpu::with_level(2, level);
            for (key_heads, value_heads, key_dim, value_dim, tiled) in shapes {
                let heads = DeltaHeads { key_heads, value_heads, key_dim, value_dim, tiled };
                for (count, drafts) in [(1, 0), (3, 2), (9, 1), (70, 0)] {
                    let x = random(count * heads.channels(), 1);
                    let decay: Vec<f32> = random(count * value_heads, 2).iter().map(|x| -0.2 * (x + 1.0)).collect();
                    let beta: Vec<f32> = random(count * value_heads, 3).iter().map(|x| (x + 1.0) / 2.0).collect();
                    let (taps, z) = (random(4 * heads.channels(), 4), random(count * heads.values(), 5));
                    let norm = random(value_dim, 6);
                    let (conv, recurrent) = (random(3 * heads.channels(), 7), random(heads.state(), 8));

                    let mut qkv = reference::convolution(&x, heads.channels(), &taps, &conv);
                    for row in qkv.chunks_exact_mut(heads.channels()) {
                        let (q, rest) = row.split_at_mut(heads.keys());
                        q.copy_from_slice(&reference::l2_norm(q, key_dim, L2_EPS, 1.0 / (key_dim as f32).sqrt()));
                        let k = &mut rest[..heads.keys()];
                        k.copy_from_slice(&reference::l2_norm(k, key_dim, L2_EPS, 1.0));
                    }
                    let rows = DeltaRows { qkv: &qkv, decay: &decay, beta: &beta, drafts: 0 };
                    let mut expected = testing::delta(heads, rows, &mut recurrent.clone());
                    expected = reference::rms_norm(&expected, &norm, 1e-6);
                    expected.iter_mut().zip(&z).for_each(|(out, z)| *out *= z / (1.0 + (-z).exp()));
                    // The state of the rows that are no drafts.
                    let kept = count - drafts;
                    let rows = DeltaRows {
                        qkv: &qkv[..kept * heads.channels()],
                        decay: &decay[..kept * value_heads],
                        beta: &beta[..kept * value_heads],
                        drafts: 0,
                    };
                    let mut expected_state = recurrent.clone();
                    testing::delta(heads, rows, &mut expected_state);
                    let inputs = [&conv[..], &x[..kept * heads.channels()]].concat();

                    let (mut qkv, mut out) = (x.clone(), vec![f32::NAN; expected.len()]);
                    let start = (recurrent.clone(), conv.clone());
                    let (mut recurrent, mut conv) = start.clone();
                    recur(
                        &cpu,
                        heads,
                        &taps,
                        RecurrenceRows { qkv: &mut qkv, decay: &decay, beta: &beta, drafts },
                        RecurrenceState { recurrent: &mut recurrent, conv: &mut conv },
                        Some(OutputGate { z: &z, norm: &norm, eps: 1e-6 }),
                        &mut out,
                    );
                    assert_close(&out, &expected, 2e-5);
                    let (mut again, mut of_none) = (x.clone(), (start.0.clone(), start.1.clone()));
                    let rows = RecurrenceRows { qkv: &mut again, decay: &decay, beta: &beta, drafts };
                    let state = RecurrenceState { recurrent: &mut of_none.0, conv: &mut of_none.1 };
                    recur(&cpu, heads, &taps, rows, state, None, &mut out);
                    assert_eq!((&of_none.0, &of_none.1), (&recurrent, &conv), "without a gate");
                    assert_close(&recurrent, &expected_state, 1e-5);
                    assert_eq!(conv, inputs[inputs.len() - conv.len()..]);
                }
            }
        }
    }
}
