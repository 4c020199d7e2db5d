//! A linear layer: projections, convolution, gated delta rule, gated norm.

use std::cell::RefCell;
use std::ops::Range;

use kernels::activation::{sigmoid, softplus};
use kernels::cpu::{Cpu, DisjointParts};
use kernels::delta::DeltaHeads;
use kernels::product::Precision;
use kernels::recurrence::{OutputGate, RecurrenceRows, RecurrenceState, recur};
use weights::DeltaWeights;

use super::{Network, StepLane, Workspace, products_at};
use crate::recurrence_log::RecurrenceLog;
use crate::state::SequenceState;

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
        let matrices = [
            (self.precision, &weights.qkv, &mut work.q),
            (self.precision, &weights.z, &mut work.k),
            // A decay is an exponential and acts on all earlier tokens: its few rows are worth exact activations.
            (Precision::F32, &weights.a, &mut work.decay),
            (Precision::F32, &weights.b, &mut work.beta),
        ];
        self.watch(&work.normed, &matrices.each_ref().map(|(_, matrix, _)| *matrix));
        products_at(cpu, &work.normed, matrices);
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
            let mut inputs = RecurrenceRows { qkv, decay, beta, drafts: lane.drafts };
            let gate = OutputGate { z: &work.k[first * values..], norm: &weights.norm, eps: self.shape().rms_eps };
            let (begin, mut done) = (lane.state.position, 0);
            let mut left = out;
            let recur = |state: &mut SequenceState, rows: RecurrenceRows, done: usize, out: &mut [f32]| {
                let (recurrent, conv) = state.delta_layer(layer);
                let gate = OutputGate { z: &gate.z[done * values..][..out.len()], ..gate };
                recur(cpu, heads, &self.taps[layer], rows, RecurrenceState { recurrent, conv }, Some(gate), out);
            };
            for snapshot in lane.snapshots.iter_mut() {
                let count = snapshot.position - begin - done;
                let (out, rest) = left.split_at_mut(count * values);
                let (now, later) = split_at(inputs, count, heads);
                recur(lane.state, now, done, out);
                snapshot.take_layer(cpu, layer, lane.state);
                (inputs, left, done) = (later, rest, done + count);
            }
            if !left.is_empty() {
                recur(lane.state, inputs, done, left);
            }
            first = last;
        }
        self.round(cpu, &mut work.inner);
        self.product(cpu, &work.inner, &weights.out, &mut work.mixed);
    }

    /// Advances a state to `position` by running its recurrences on the logged inputs. The pages of the state must hold
    /// the keys and values already. Layers do not depend on each other here, so each is one task.
    pub fn replay(&self, cpu: &Cpu, state: &mut SequenceState, recurrence_log: &RecurrenceLog, position: usize) {
        let begin = std::mem::replace(&mut state.position, position);
        state.outputs.clear();
        let (recurrent_values, conv_values) = (state.shape.recurrent(), state.shape.conv());
        let (recurrent, conv) =
            (DisjointParts::new(state.recurrent.host_mut()), DisjointParts::new(state.conv.host_mut()));
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
                    let state = unsafe {
                        let recurrent = recurrent.part(layer * recurrent_values, recurrent_values);
                        RecurrenceState { recurrent, conv: conv.part(layer * conv_values, conv_values) }
                    };
                    let ReplayedRows { qkv, decay, beta, out } = rows;
                    let (heads, taps) = (self.state_shape.heads, &self.taps[layer]);
                    recur(cpu, heads, taps, RecurrenceRows { qkv, decay, beta, drafts: 0 }, state, None, out);
                }
            });
        });
    }
}

/// Tokens of one round of a replay, few enough that a task's copy of their inputs stays small.
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

fn split_at(rows: RecurrenceRows<'_>, count: usize, heads: DeltaHeads) -> (RecurrenceRows<'_>, RecurrenceRows<'_>) {
    let RecurrenceRows { qkv, decay, beta, drafts } = rows;
    let (qkv, later_qkv) = qkv.split_at_mut(count * heads.channels());
    let (decay, later_decay) = decay.split_at(count * heads.value_heads);
    let (beta, later_beta) = beta.split_at(count * heads.value_heads);
    (
        RecurrenceRows { qkv, decay, beta, drafts: 0 },
        RecurrenceRows { qkv: later_qkv, decay: later_decay, beta: later_beta, drafts },
    )
}
