//! A linear layer: projections, convolution, gated delta rule, gated norm.

use std::cell::RefCell;
use std::ops::Range;

use kernels::activation::{sigmoid, softplus, times_silu};
use kernels::convolution::convolve;
use kernels::cpu::{Cpu, DisjointParts};
use kernels::delta::{DeltaHeads, DeltaRows, advance};
use kernels::norm::{l2_norm_in_place, rms_norm_in_place};
use kernels::product::Precision;
use weights::DeltaWeights;

use super::{Network, StepLane, Workspace, products_at};
use crate::recurrence_log::RecurrenceLog;
use crate::state::SequenceState;

/// Inside the root of the norm of queries and keys.
const L2_EPS: f32 = 1e-6;

impl Network {
    /// Reads `work.normed`, leaves the layer's contribution in `work.mixed`.
    pub(super) fn delta(
        &self,
        cpu: &Cpu,
        weights: &DeltaWeights,
        layer: usize,
        lanes: &mut [StepLane],
        work: &mut Workspace,
    ) {
        let heads = self.state_shape.heads;
        let (channels, values, value_heads) = (heads.channels(), heads.values(), heads.value_heads);
        let rows = work.normed.rows();
        self.products_into(cpu, &work.normed, [(&weights.qkv, &mut work.q), (&weights.z, &mut work.k)]);
        // A decay is an exponential and acts on all earlier tokens: its few rows are worth exact activations.
        products_at(cpu, Precision::F32, &work.normed, [(&weights.a, &mut work.decay), (&weights.b, &mut work.beta)]);
        for (decay, beta) in work.decay.chunks_exact_mut(value_heads).zip(work.beta.chunks_exact_mut(value_heads)) {
            for head in 0..value_heads {
                decay[head] = weights.a_log_neg[head] * softplus(decay[head] + weights.dt_bias[head]);
                beta[head] = sigmoid(beta[head]);
            }
        }
        let out = work.inner.resize(rows, values);
        let mut first = 0;
        for lane in lanes.iter_mut() {
            let last = first + lane.tokens.len();
            let qkv = &mut work.q[first * channels..last * channels];
            let decay = &work.decay[first * value_heads..last * value_heads];
            let beta = &work.beta[first * value_heads..last * value_heads];
            if let Some(recurrence_log) = &mut lane.recurrence_log {
                recurrence_log.write(cpu, layer, lane.state.position, [&*qkv, decay, beta], lane.tokens.len());
            }
            let out = &mut out[first * values..last * values];
            let mut inputs = RecurrenceInputs { qkv, decay, beta, drafts: lane.drafts };
            let (begin, mut done) = (lane.state.position, 0);
            let mut left = out;
            for snapshot in lane.snapshots.iter_mut() {
                let count = snapshot.position - begin - done;
                let (out, rest) = left.split_at_mut(count * values);
                let (now, later) = inputs.split_at(count, heads);
                self.recur(cpu, layer, lane.state.delta_layer(layer), now, out);
                snapshot.take_layer(cpu, layer, lane.state);
                (inputs, left, done) = (later, rest, done + count);
            }
            if !left.is_empty() {
                self.recur(cpu, layer, lane.state.delta_layer(layer), inputs, left);
            }
            first = last;
        }
        let out = DisjointParts::new(out);
        let z = &work.k;
        cpu.pool.run(rows, |row| {
            // SAFETY: each task takes its own row.
            let out = unsafe { out.part(row * values, values) };
            rms_norm_in_place(cpu.level, out, &weights.norm, self.shape().rms_eps);
            times_silu(cpu.level, out, &z[row * values..][..values]);
        });
        self.round(cpu, &mut work.inner);
        self.product(cpu, &work.inner, &weights.out, &mut work.mixed);
    }

    /// The part of a linear layer with a state: convolution, norms of queries and keys, delta rule. `memory`: the recurrent state
    /// and the convolution state.
    fn recur(
        &self,
        cpu: &Cpu,
        layer: usize,
        memory: (&mut [f32], &mut [f32]),
        inputs: RecurrenceInputs,
        out: &mut [f32],
    ) {
        let heads = self.state_shape.heads;
        let (channels, keys) = (heads.channels(), heads.keys());
        let RecurrenceInputs { qkv, decay, beta, drafts } = inputs;
        let (recurrent, memory) = memory;
        convolve(cpu, qkv, channels, &self.taps[layer], memory, drafts);
        let rows = qkv.len() / channels;
        let parts = DisjointParts::new(qkv);
        cpu.pool.run(rows, |row| {
            // SAFETY: each task takes its own row.
            let (q, k) = unsafe { parts.part(row * channels, 2 * keys) }.split_at_mut(keys);
            l2_norm_in_place(cpu.level, q, heads.key_dim, L2_EPS, 1.0 / (heads.key_dim as f32).sqrt());
            l2_norm_in_place(cpu.level, k, heads.key_dim, L2_EPS, 1.0);
        });
        advance(cpu, heads, DeltaRows { qkv, decay, beta, drafts }, recurrent, out);
    }

    /// Takes a state forward to `position` by running its recurrences on the logged inputs. The pages of the state must hold the
    /// keys and values already. Layers do not depend on each other here, so each is one task.
    pub fn replay(&self, cpu: &Cpu, state: &mut SequenceState, recurrence_log: &RecurrenceLog, position: usize) {
        let begin = std::mem::replace(&mut state.position, position);
        let (recurrent_values, conv_values) = (state.shape.recurrent(), state.shape.conv());
        let (recurrent, conv) = (DisjointParts::new(&mut state.recurrent), DisjointParts::new(&mut state.conv));
        cpu.pool.run(self.state_shape.delta_layers, |layer| {
            REPLAYED.with_borrow_mut(|rows| {
                for first in (begin..position).step_by(REPLAYED_TOGETHER) {
                    rows.take(
                        self.state_shape.heads,
                        recurrence_log,
                        layer,
                        first..position.min(first + REPLAYED_TOGETHER),
                    );
                    // SAFETY: each task takes the state of its own layer.
                    let memory = unsafe {
                        let recurrent = recurrent.part(layer * recurrent_values, recurrent_values);
                        (recurrent, conv.part(layer * conv_values, conv_values))
                    };
                    let (qkv, decay, beta) = (&mut rows.qkv, &rows.decay, &rows.beta);
                    let inputs = RecurrenceInputs { qkv, decay, beta, drafts: 0 };
                    self.recur(cpu, layer, memory, inputs, &mut rows.out);
                }
            });
        });
    }
}

/// Tokens that are replayed at a time, so that a task's copy of their inputs stays small.
const REPLAYED_TOGETHER: usize = 64; // not a window: tokens of a step

thread_local! {
    static REPLAYED: RefCell<ReplayedRows> = RefCell::default();
}

/// Rows of a recurrence log, copied together, and their outputs, which are not used.
#[derive(Default)]
struct ReplayedRows {
    qkv: Vec<f32>,
    decay: Vec<f32>,
    beta: Vec<f32>,
    out: Vec<f32>,
}

impl ReplayedRows {
    fn take(&mut self, heads: DeltaHeads, recurrence_log: &RecurrenceLog, layer: usize, positions: Range<usize>) {
        let (channels, value_heads) = (heads.channels(), heads.value_heads);
        [&mut self.qkv, &mut self.decay, &mut self.beta].into_iter().for_each(Vec::clear);
        for row in positions.filter_map(|position| recurrence_log.read(layer, position)) {
            self.qkv.extend_from_slice(&row[..channels]);
            self.decay.extend_from_slice(&row[channels..][..value_heads]);
            self.beta.extend_from_slice(&row[channels + value_heads..]);
        }
        self.out.resize(self.beta.len() / value_heads * heads.values(), 0.0);
    }
}

/// The inputs of a linear layer's recurrence: rows as in `kernels::delta::DeltaRows`, but before the convolution.
struct RecurrenceInputs<'a> {
    qkv: &'a mut [f32],
    decay: &'a [f32],
    beta: &'a [f32],
    /// The last rows, which the state does not pass.
    drafts: usize,
}

impl<'a> RecurrenceInputs<'a> {
    /// The first `count` tokens, and the others.
    fn split_at(self, count: usize, heads: DeltaHeads) -> (RecurrenceInputs<'a>, RecurrenceInputs<'a>) {
        let (qkv, later_qkv) = self.qkv.split_at_mut(count * heads.channels());
        let (decay, later_decay) = self.decay.split_at(count * heads.value_heads);
        let (beta, later_beta) = self.beta.split_at(count * heads.value_heads);
        (
            RecurrenceInputs { qkv, decay, beta, drafts: 0 },
            RecurrenceInputs { qkv: later_qkv, decay: later_decay, beta: later_beta, drafts: self.drafts },
        )
    }
}
