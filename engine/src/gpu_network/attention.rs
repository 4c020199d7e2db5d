//! An attention layer: gated queries, norms of heads, rotation, keys and values in pages.

use gpu::Error;
use gpu::attention::{AttentionHeads, PastParts, PrepareArguments, Spread, attend, combine, prepare};
use gpu::rows::RowsArguments;

use super::upload::GpuAttention;
use super::workspace::Floats;
use super::{GpuNetwork, GpuStep, GpuWorkspace};
use crate::state::ROTATION_SEED;

impl GpuNetwork {
    pub(super) fn prepare(
        &self,
        weights: &GpuAttention,
        layer: usize,
        normed: RowsArguments,
        step: &GpuStep,
        work: &GpuWorkspace,
    ) -> Result<AttentionHeads, Error> {
        let (device, shape) = (&self.device, &self.shape);
        let jobs =
            [(&weights.q, work.at(Floats::Q)), (&weights.k, work.at(Floats::K)), (&weights.v, work.at(Floats::V))];
        self.product((normed, step.rows), &jobs, false, work)?;
        let heads = AttentionHeads {
            lanes: step.at.lanes,
            lane_of_row: step.at.lane_of_row,
            q: work.at(Floats::Q),
            q_heads: shape.q_heads as u32,
            kv_heads: shape.kv_heads as u32,
            dim: shape.head_dim as u32,
            layer: layer as u32,
            seed: ROTATION_SEED,
        };
        let of_prepare = PrepareArguments {
            heads,
            k: work.at(Floats::K),
            v: work.at(Floats::V),
            q_norm: weights.q_norm.address(),
            k_norm: weights.k_norm.address(),
            turns: work.at(Floats::Turns),
            pairs: self.frequencies.len() as u32,
            eps: shape.rms_eps,
        };
        prepare(device, step.rows, &of_prepare)?;
        Ok(heads)
    }

    pub(super) fn attention(
        &self,
        weights: &GpuAttention,
        layer: usize,
        normed: RowsArguments,
        step: &GpuStep,
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        let heads = self.prepare(weights, layer, normed, step, work)?;
        let (device, shape) = (&self.device, &self.shape);
        let shape = (shape.q_heads, shape.kv_heads, shape.head_dim);
        let spread = Spread::new(device.processors(), step.lanes, step.longest, shape);
        let parts = PastParts { partial: work.at(Floats::Partial), stats: work.at(Floats::Stats) };
        attend(device, heads, step.lanes, step.rows, spread, parts)?;
        let inner = work.inner.arguments_of(shape.0 * shape.2, self.forms(step.rows));
        combine(device, heads, (step.rows, step.turns), spread.splits, parts, inner)?;
        self.product((inner, step.rows), &[(&weights.o, work.at(Floats::Hidden))], true, work)
    }
}
