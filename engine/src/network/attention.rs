//! An attention layer: gated queries, norms of heads, rotation, keys and values in pages.

use kernels::activation::times_sigmoid;
use kernels::attention::{Queries, attend};
use kernels::cpu::{Cpu, DisjointParts};
use kernels::norm::rms_norm_in_place;
use kernels::rotation::rotate;
use weights::AttentionWeights;

use super::{Network, StepLane, Workspace};

impl Network {
    /// Reads `work.normed`, leaves the layer's contribution in `work.mixed`.
    pub(super) fn attention(
        &self,
        cpu: &Cpu,
        weights: &AttentionWeights,
        layer: usize,
        lanes: &mut [StepLane],
        work: &mut Workspace,
    ) {
        let shape = self.shape();
        let (dim, q_heads, kv_width) = (shape.head_dim, shape.q_heads, shape.kv_heads * shape.head_dim);
        let stride = q_heads * 2 * dim;
        let rows = work.normed.rows();
        let outputs = [(&weights.q, &mut work.q), (&weights.k, &mut work.k), (&weights.v, &mut work.v)];
        self.products_into(cpu, &work.normed, outputs);
        {
            let (q, k) = (DisjointParts::new(&mut work.q), DisjointParts::new(&mut work.k));
            let (turns, width) = (&work.turns, self.rotation.dims());
            cpu.pool.run(rows, |row| {
                let turns = &turns[row * width..][..width];
                // SAFETY: each task takes its own rows.
                let (q, k) = unsafe { (q.part(row * stride, stride), k.part(row * kv_width, kv_width)) };
                let turn = |head: &mut [f32], norm: &[f32]| {
                    rms_norm_in_place(cpu.level, head, norm, shape.rms_eps);
                    rotate(head, turns);
                };
                q.chunks_exact_mut(2 * dim).for_each(|head| turn(&mut head[..dim], &weights.q_norm));
                k.chunks_exact_mut(dim).for_each(|head| turn(head, &weights.k_norm));
            });
        }
        let out = work.inner.resize(rows, q_heads * dim);
        let mut first = 0;
        for lane in lanes.iter_mut() {
            let count = lane.tokens.len();
            for (i, row) in (first..first + count).enumerate() {
                let range = row * kv_width..(row + 1) * kv_width;
                let (keys, values) = (&work.k[range.clone()], &work.v[range]);
                lane.state.write(cpu.level, layer, lane.state.position + i, keys, values);
            }
            let state = &*lane.state;
            let queries = Queries {
                values: &work.q[first * stride..][..count * stride],
                stride,
                head_stride: 2 * dim,
                q_heads,
                rows: count,
                first: state.position,
            };
            let out = &mut out[first * q_heads * dim..][..count * q_heads * dim];
            attend(cpu, state.layout, &state.pages, layer * state.layout.bytes(), queries, out);
            first += count;
        }
        let out = DisjointParts::new(out);
        let q = &work.q;
        cpu.pool.run(rows, |row| {
            // SAFETY: each task takes its own row.
            let out = unsafe { out.part(row * q_heads * dim, q_heads * dim) };
            for (head, out) in out.chunks_exact_mut(dim).enumerate() {
                times_sigmoid(cpu.level, out, &q[row * stride + head * 2 * dim + dim..][..dim]);
            }
        });
        self.round(cpu, &mut work.inner);
        self.product(cpu, &work.inner, &weights.o, &mut work.mixed);
    }
}
