//! A feed-forward part: SwiGLU, dense or by experts.

use gpu::Error;
use gpu::activation::silu_times;
use gpu::product::{Experts, tile_rows};
use gpu::routing::{ArrangeArguments, GatherArguments, RouteArguments, arrange, gather, most_tiles, route};
use gpu::rows::RowsArguments;

use super::upload::{GpuFfn, GpuMoe, GpuSwiglu};
use super::workspace::{Floats, Numbers};
use super::{GpuNetwork, GpuStep, GpuWorkspace};

impl GpuNetwork {
    pub(super) fn ffn(
        &self,
        ffn: &GpuFfn,
        normed: RowsArguments,
        step: &GpuStep,
        work: &GpuWorkspace,
    ) -> Result<(), Error> {
        match ffn {
            GpuFfn::Dense(weights) => self.swiglu(weights, normed, step, work, work.at(Floats::Hidden), true),
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
        let (gate, up) = (work.at(Floats::Gate), work.at(Floats::Up));
        self.product((x, step.rows), &[(&weights.gate, gate), (&weights.up, up)], false, work)?;
        let inner = work.inner.arguments_of(weights.gate.blocks.rows, self.forms(step.rows));
        silu_times(&self.device, step.rows, gate, up, inner)?;
        self.product((inner, step.rows), &[(&weights.down, out)], accumulate, work)
    }

    /// Computes pairs of a token and one of its experts. Many pairs are sorted by expert, so that the weights of each
    /// expert are read once for all its tokens.
    fn moe(&self, moe: &GpuMoe, x: RowsArguments, step: &GpuStep, work: &GpuWorkspace) -> Result<(), Error> {
        let device = &self.device;
        let (Some(shape), Some(experts)) = (&self.shape.moe, moe.experts.first()) else { return Ok(()) };
        let (count, used) = (shape.experts, shape.used);
        let pairs = step.rows * used;
        // Small differences decide which expert is chosen.
        let mut exact = vec![(&moe.router, work.at(Floats::Scores))];
        exact.extend(moe.shared.iter().map(|shared| (&shared.router, work.at(Floats::SharedScore))));
        self.exact_product((x, step.rows), &exact, work)?;
        // Pairs of few rows stay unsorted: each reads its expert's weights for itself.
        let unsorted = |address: u64| if step.few { address } else { 0 };
        let of_route = RouteArguments {
            scores: work.at(Floats::Scores),
            experts: work.numbers_at(Numbers::Experts),
            shares: work.at(Floats::Shares),
            source: unsorted(work.numbers_at(Numbers::Source)),
            place: unsorted(work.numbers_at(Numbers::PlaceOfPair)),
            count: count as u32,
            used: used as u32,
            renormalise: shape.renormalise.into(),
            unused: 0,
        };
        route(device, step.rows, &of_route)?;
        // Most experts have few of the pairs.
        let tile = tile_rows(pairs / count);
        if !step.few {
            let of_arrange = ArrangeArguments {
                experts: work.numbers_at(Numbers::Experts),
                source: work.numbers_at(Numbers::Source),
                of_row: work.numbers_at(Numbers::OfRow),
                place: work.numbers_at(Numbers::PlaceOfPair),
                tiles: work.numbers_at(Numbers::Tiles),
                pairs: pairs as u32,
                used: used as u32,
                count: count as u32,
                tile_rows: tile as u32,
            };
            arrange(device, &of_arrange)?;
        }
        if let Some(shared) = &moe.shared {
            self.swiglu(&shared.expert, x, step, work, work.at(Floats::Shared), false)?;
        }
        let width = experts.gate.blocks.rows / count;
        let pairs_of = Experts {
            source: work.numbers_at(Numbers::Source),
            of_row: unsorted(work.numbers_at(Numbers::Experts)),
            tiles: if step.few { 0 } else { work.numbers_at(Numbers::Tiles) },
            rows_of_one: width as u32,
            most_tiles: most_tiles(pairs, count, tile) as u32,
            tile_rows: tile as u32,
            unused: 0,
        };
        let (gate, up) = (work.at(Floats::Gate), work.at(Floats::Up));
        let jobs = [(&experts.gate, gate), (&experts.up, up)];
        self.product_of_experts((x, pairs), pairs_of, &jobs, work)?;
        let inner = work.inner.arguments_of(width, self.forms(step.rows));
        silu_times(device, pairs, gate, up, inner)?;
        let pairs_of = Experts { source: 0, rows_of_one: self.shape.hidden as u32, ..pairs_of };
        let jobs = [(&experts.down, work.at(Floats::Answers))];
        self.product_of_experts((inner, pairs), pairs_of, &jobs, work)?;
        let of_gather = GatherArguments {
            answers: work.at(Floats::Answers),
            place: work.numbers_at(Numbers::PlaceOfPair),
            shares: work.at(Floats::Shares),
            shared_answers: moe.shared.as_ref().map_or(0, |_| work.at(Floats::Shared)),
            shared_score: work.at(Floats::SharedScore),
            out: work.at(Floats::Hidden),
            rows: step.rows as u32,
            cols: self.shape.hidden as u32,
            used: used as u32,
            unused: 0,
        };
        gather(device, &of_gather)
    }
}
