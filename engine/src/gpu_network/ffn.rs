//! A feed-forward part: SwiGLU, dense or by experts.

use gpu::Error;
use gpu::activation::silu_times;
use gpu::product::{Experts, exact_product, product, product_of_experts, tile_rows};
use gpu::routing::{ArrangeArguments, GatherArguments, RouteArguments, arrange, gather, most_tiles, route};
use gpu::rows::RowsArguments;

use super::upload::{GpuFfn, GpuMoe, GpuSwiglu};
use super::{GpuNetwork, GpuStep, GpuWorkspace};

impl GpuNetwork {
    /// Adds the layer's contribution to `work.hidden`.
    pub(super) fn ffn(
        &self,
        ffn: &GpuFfn,
        normed: RowsArguments,
        step: &GpuStep,
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        match ffn {
            GpuFfn::Dense(weights) => self.swiglu(weights, normed, step, work, work.hidden.address(), true),
            GpuFfn::Moe(moe) => self.moe(moe, normed, step, work),
        }
    }

    fn swiglu(
        &self,
        weights: &GpuSwiglu,
        x: RowsArguments,
        step: &GpuStep,
        work: &GpuWorkspace,
        out: u64,
        accumulate: bool,
    ) -> Result<(), Error> {
        let (gate, up) = (work.gate.address(), work.up.address());
        product(&self.device, self.exactness, x, step.rows, &[(&weights.gate, gate), (&weights.up, up)], false)?;
        let inner = work.inner.arguments_of(weights.gate.rows, self.inner_forms(step.few));
        silu_times(&self.device, step.rows, gate, up, inner)?;
        product(&self.device, self.exactness, inner, step.rows, &[(&weights.down, out)], accumulate)
    }

    /// Computes pairs of a token and one of its experts. Many pairs are sorted by expert, so that the weights of each expert are
    /// read once for all its tokens.
    fn moe(&self, moe: &GpuMoe, x: RowsArguments, step: &GpuStep, work: &GpuWorkspace) -> Result<(), Error> {
        let (device, routing) = (&self.device, &work.moe);
        let (used, renormalise) =
            self.shape.moe.as_ref().map_or((moe.count, true), |shape| (shape.used, shape.renormalise));
        let pairs = step.rows * used;
        // Small differences decide which expert is chosen.
        let mut exact = vec![(&moe.router, routing.scores.address())];
        exact.extend(moe.shared.iter().map(|shared| (&shared.router, routing.shared_score.address())));
        exact_product(device, x, step.rows, &exact)?;
        // Pairs of few rows are not sorted: each reads its expert's weights for itself.
        let unsorted = |address: u64| if step.few { address } else { 0 };
        let of_route = RouteArguments {
            scores: routing.scores.address(),
            experts: routing.experts.address(),
            shares: routing.shares.address(),
            source: unsorted(routing.source.address()),
            place: unsorted(routing.place.address()),
            count: moe.count as u32,
            used: used as u32,
            renormalise: renormalise.into(),
            unused: 0,
        };
        route(device, step.rows, &of_route)?;
        // Most experts have few of the pairs.
        let tile = tile_rows(pairs / moe.count.max(1));
        if !step.few {
            let of_arrange = ArrangeArguments {
                experts: routing.experts.address(),
                source: routing.source.address(),
                of_row: routing.of_row.address(),
                place: routing.place.address(),
                tiles: routing.tiles.address(),
                pairs: pairs as u32,
                used: used as u32,
                count: moe.count as u32,
                tile_rows: tile as u32,
            };
            arrange(device, &of_arrange)?;
        }
        if let Some(shared) = &moe.shared {
            self.swiglu(&shared.expert, x, step, work, routing.shared.address(), false)?;
        }
        let width = moe.experts.gate.rows / moe.count.max(1);
        let experts = Experts {
            source: routing.source.address(),
            of_row: unsorted(routing.experts.address()),
            tiles: if step.few { 0 } else { routing.tiles.address() },
            rows_of_one: width as u32,
            most_tiles: most_tiles(pairs, moe.count, tile) as u32,
            tile_rows: tile as u32,
            unused: 0,
        };
        let (gate, up) = (work.gate.address(), work.up.address());
        let jobs = [(&moe.experts.gate, gate), (&moe.experts.up, up)];
        product_of_experts(device, self.exactness, x, pairs, experts, &jobs)?;
        let inner = work.inner.arguments_of(width, self.inner_forms(step.few));
        silu_times(device, pairs, gate, up, inner)?;
        let experts = Experts { source: 0, rows_of_one: self.shape.hidden as u32, ..experts };
        let jobs = [(&moe.experts.down, routing.answers.address())];
        product_of_experts(device, self.exactness, inner, pairs, experts, &jobs)?;
        let of_gather = GatherArguments {
            answers: routing.answers.address(),
            place: routing.place.address(),
            shares: routing.shares.address(),
            shared_answers: moe.shared.as_ref().map_or(0, |_| routing.shared.address()),
            shared_score: routing.shared_score.address(),
            out: work.hidden.address(),
            rows: step.rows as u32,
            cols: self.shape.hidden as u32,
            used: used as u32,
            unused: 0,
        };
        gather(device, &of_gather)
    }
}
