//! A feed-forward part: SwiGLU, dense or by experts.

use kernels::activation::{sigmoid, silu_times, top_of_softmax};
use kernels::cpu::{Cpu, DisjointParts};
use kernels::product::Activations;
use weights::{Ffn, MoeWeights, SwigluWeights};

use super::{Network, Workspace};

impl Network {
    /// Reads `work.normed`, leaves the layer's contribution in `work.mixed`.
    pub(super) fn ffn(&self, cpu: &Cpu, ffn: &Ffn, work: &mut Workspace) {
        match ffn {
            Ffn::Dense(weights) => {
                let Workspace { normed, inner, mixed, gate, up, .. } = work;
                self.swiglu(cpu, normed, weights, (gate, up, inner), mixed);
            }
            Ffn::Moe(moe) => self.moe(cpu, moe, work),
        }
    }

    fn swiglu(
        &self,
        cpu: &Cpu,
        x: &Activations,
        weights: &SwigluWeights,
        (gates, ups, inner): (&mut Vec<f32>, &mut Vec<f32>, &mut Activations),
        out: &mut [f32],
    ) {
        self.products_into(cpu, x, [(&weights.gate, &mut *gates), (&weights.up, &mut *ups)]);
        let width = weights.gate.rows();
        let rows = DisjointParts::new(inner.resize(x.rows(), width));
        let (gates, ups) = (&*gates, &*ups);
        cpu.pool.run(x.rows(), |row| {
            // SAFETY: each task takes its own row.
            let inner = unsafe { rows.part(row * width, width) };
            inner.copy_from_slice(&gates[row * width..][..width]);
            silu_times(cpu.level, inner, &ups[row * width..][..width]);
        });
        self.round(cpu, inner);
        self.product(cpu, inner, &weights.down, out);
    }

    /// Computes the experts. Tokens are grouped by expert, so that the weights of each expert are read once for all its
    /// tokens.
    fn moe(&self, cpu: &Cpu, moe: &MoeWeights, work: &mut Workspace) {
        let Workspace { normed, inner, mixed, gate: gates, up: ups, moe: routing, .. } = work;
        let hidden = normed.cols();
        let (used, renormalise) =
            self.shape().moe.as_ref().map_or((moe.experts.len(), true), |moe| (moe.used, moe.renormalise));
        self.products_into(cpu, normed, [(&moe.router, &mut routing.scores)]);
        routing.rows.resize_with(moe.experts.len(), Vec::new);
        routing.shares.resize_with(moe.experts.len(), Vec::new);
        routing.rows.iter_mut().for_each(Vec::clear);
        routing.shares.iter_mut().for_each(Vec::clear);
        for (row, scores) in routing.scores.chunks_exact(moe.experts.len()).enumerate() {
            let lead = top_of_softmax(scores, used, renormalise, &mut routing.top);
            routing.least_lead = Some(routing.least_lead.map_or(lead, |least| least.min(lead)));
            for &(expert, share) in &routing.top {
                routing.rows[expert].push(row);
                routing.shares[expert].push(share);
            }
        }
        match &moe.shared {
            Some(shared) => {
                self.swiglu(cpu, normed, &shared.expert, (gates, ups, inner), mixed);
                for (x, out) in normed.values().chunks_exact(hidden).zip(mixed.chunks_exact_mut(hidden)) {
                    let share = sigmoid(x.iter().zip(&shared.router).map(|(x, w)| x * w).sum());
                    out.iter_mut().for_each(|out| *out *= share);
                }
            }
            None => mixed.fill(0.0),
        }
        for (expert, (rows, shares)) in moe.experts.iter().zip(routing.rows.iter().zip(&routing.shares)) {
            if rows.is_empty() {
                continue;
            }
            normed.gather(cpu, rows, &mut routing.gathered);
            routing.out.resize(rows.len() * hidden, 0.0);
            self.swiglu(cpu, &routing.gathered, expert, (gates, ups, inner), &mut routing.out);
            for ((row, share), from) in rows.iter().zip(shares).zip(routing.out.chunks_exact(hidden)) {
                let to = &mut mixed[row * hidden..][..hidden];
                to.iter_mut().zip(from).for_each(|(to, from)| *to += share * from);
            }
        }
    }
}
