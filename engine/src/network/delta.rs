//! A linear layer: projections, convolution, gated delta rule, gated norm.

use kernels::activation::{sigmoid, softplus, times_silu};
use kernels::convolution::convolve;
use kernels::cpu::{Cpu, Parts};
use kernels::delta::{Rows, advance};
use kernels::norm::{l2_norm_in_place, rms_norm_in_place};
use weights::DeltaWeights;

use super::{Lane, Network, Workspace, exact_product};

/// Inside the root of the norm of queries and keys.
const L2_EPS: f32 = 1e-6;

impl Network {
    /// Reads `work.normed`, leaves the layer's contribution in `work.mixed`.
    pub(super) fn delta(
        &self,
        cpu: &Cpu,
        weights: &DeltaWeights,
        layer: usize,
        lanes: &mut [Lane],
        work: &mut Workspace,
    ) {
        let heads = self.heads();
        let (channels, values, value_heads) = (heads.channels(), heads.values(), heads.value_heads);
        let rows = work.normed.rows();
        self.product_into(cpu, &work.normed, &weights.qkv, &mut work.q);
        self.product_into(cpu, &work.normed, &weights.z, &mut work.k);
        // A decay is an exponential, and acts on all that was said: its few rows are worth exact activations.
        exact_product(cpu, &work.normed, &weights.a, &mut work.decay);
        exact_product(cpu, &work.normed, &weights.b, &mut work.beta);
        for (decay, beta) in work.decay.chunks_exact_mut(value_heads).zip(work.beta.chunks_exact_mut(value_heads)) {
            for head in 0..value_heads {
                decay[head] = weights.a_log_neg[head] * softplus(decay[head] + weights.dt_bias[head]);
                beta[head] = sigmoid(beta[head]);
            }
        }
        let mut first = 0;
        for lane in lanes.iter_mut() {
            let count = lane.tokens.len();
            let size = lane.state.shape.conv();
            let memory = &mut lane.state.conv[layer * size..][..size];
            convolve(cpu, &mut work.q[first * channels..][..count * channels], channels, &self.taps[layer], memory);
            first += count;
        }
        {
            let qkv = Parts::new(&mut work.q);
            let keys = heads.keys();
            cpu.pool.run(rows, |row| {
                // SAFETY: each task takes its own row.
                let (q, k) = unsafe { qkv.part(row * channels, 2 * keys) }.split_at_mut(keys);
                l2_norm_in_place(cpu.level, q, heads.key_dim, L2_EPS, 1.0 / (heads.key_dim as f32).sqrt());
                l2_norm_in_place(cpu.level, k, heads.key_dim, L2_EPS, 1.0);
            });
        }
        let out = work.inner.resize(rows, values);
        work.corrections.resize(rows * values, 0.0);
        let mut first = 0;
        for lane in lanes.iter_mut() {
            let count = lane.tokens.len();
            let size = heads.state();
            let rows = Rows {
                qkv: &work.q[first * channels..][..count * channels],
                decay: &work.decay[first * value_heads..][..count * value_heads],
                beta: &work.beta[first * value_heads..][..count * value_heads],
            };
            let range = first * values..(first + count) * values;
            let state = &mut lane.state.recurrent[layer * size..][..size];
            advance(cpu, heads, rows, state, &mut out[range.clone()], &mut work.corrections[range]);
            first += count;
        }
        let out = Parts::new(out);
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
}
