//! A linear layer: projections, convolution, gated delta rule, gated norm.

use gpu::Error;
use gpu::convolution::{Convolve, Gates, ReadTrail, convolve, gates, read_trail};
use gpu::delta::{Delta as Rule, advance};
use gpu::lanes::Lane;
use gpu::norm::{NormHeads, norm_heads_gated};
use gpu::product::{exact_product, product};
use gpu::rows::RowsArguments;

use super::upload::{Delta, Mixer};
use super::{GpuNetwork, GpuState, GpuWorkspace, Step};

impl GpuNetwork {
    /// Adds the layer's contribution to `work.hidden`.
    pub(super) fn delta(
        &self,
        weights: &Delta,
        layer: usize,
        normed: RowsArguments,
        step: &Step,
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        let device = &self.device;
        let heads = self.state_shape.heads;
        let jobs = [(&weights.qkv, work.q.address()), (&weights.z, work.k.address())];
        product(device, self.reading, normed, step.rows, &jobs, false)?;
        // A decay is an exponential, and acts on all that was said: its few rows are worth exact activations.
        let exact = [(&weights.a, work.decay.address()), (&weights.b, work.beta.address())];
        exact_product(device, normed, step.rows, &exact)?;
        let of_gates = Gates {
            decay: work.decay.address(),
            beta: work.beta.address(),
            a_log_neg: weights.a_log_neg.address(),
            dt_bias: weights.dt_bias.address(),
            lanes: work.lanes.address(),
            lane_of_row: work.lane_of_row.address(),
            trail: layer as u64,
            rows: step.rows as u32,
            heads: heads.value_heads as u32,
            channels: heads.channels() as u32,
            trail_width: (heads.channels() + 2 * heads.value_heads) as u32,
        };
        gates(device, &of_gates)?;
        self.recur(weights, layer, step.lanes, step.longest, work)?;
        let inner = work.inner.arguments_of(heads.values(), self.forms(step.few));
        let of_norm = NormHeads {
            x: work.out.address(),
            weight: weights.norm.address(),
            gate: work.k.address(),
            to: inner,
            dim: heads.value_dim as u32,
            eps: self.shape.rms_eps,
        };
        norm_heads_gated(device, step.rows, &of_norm)?;
        product(device, self.reading, inner, step.rows, &[(&weights.out, work.hidden.address())], true)
    }

    /// Convolution and delta rule: all of a linear layer that remembers. Reads `work.q`, `decay` and `beta`.
    fn recur(
        &self,
        weights: &Delta,
        layer: usize,
        lanes: usize,
        longest: usize,
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        let (shape, heads) = (&self.state_shape, self.state_shape.heads);
        let of_convolution = Convolve {
            x: work.q.address(),
            out: work.convolved.address(),
            taps: weights.taps.address(),
            lanes: work.lanes.address(),
            memory: (layer * shape.conv()) as u64,
            trail: layer as u64,
            channels: heads.channels() as u32,
            past: shape.conv_past as u32,
            keys: heads.keys() as u32,
            key_dim: heads.key_dim as u32,
            rows_of_block: 0,
            trail_width: (heads.channels() + 2 * heads.value_heads) as u32,
        };
        convolve(&self.device, lanes, longest, of_convolution)?;
        let of_rule = Rule {
            qkv: work.convolved.address(),
            decay: work.decay.address(),
            beta: work.beta.address(),
            out: work.out.address(),
            lanes: work.lanes.address(),
            chunks: 0,
            state: (layer * shape.recurrent()) as u64,
            key_heads: heads.key_heads as u32,
            value_heads: heads.value_heads as u32,
            key_dim: heads.key_dim as u32,
            value_dim: heads.value_dim as u32,
            tiled: heads.tiled.into(),
            most_chunks: 0,
        };
        advance(&self.device, lanes, longest, &work.chunks, of_rule)
    }

    /// Takes a state forward to `position` by its recurrences alone, with what its trail remembers of the tokens
    /// between. The pages of the state must hold their keys and values already.
    pub fn replay(&self, state: &mut GpuState, position: usize, work: &mut GpuWorkspace) -> Result<(), Error> {
        let (rows, heads) = (position - state.position, self.state_shape.heads);
        let covered = state.covered();
        assert!(covered.start <= state.position && position <= covered.end, "a replay beyond the trail");
        if rows == 0 {
            return Ok(());
        }
        work.reserve(&self.shape, &self.device, rows, 1, 0)?;
        // What is replayed is in the trail already.
        work.lanes.write(0, &[Lane { trail: 0, first: 0, count: rows as u32, ..state.as_lane() }])?;
        let (ring, trail_rows) = state.ring();
        let linear = self.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::Delta(weights) => Some(weights),
            Mixer::Attention(_) => None,
        });
        for (layer, weights) in linear.enumerate() {
            let of_trail = ReadTrail {
                trail: ring,
                x: work.q.address(),
                decay: work.decay.address(),
                beta: work.beta.address(),
                first_row: (layer * trail_rows) as u64,
                position: state.position as u32,
                trail_rows: trail_rows as u32,
                channels: heads.channels() as u32,
                heads: heads.value_heads as u32,
            };
            read_trail(&self.device, rows, &of_trail)?;
            self.recur(weights, layer, 1, rows, work)?;
        }
        state.moved_to(position);
        Ok(())
    }
}
