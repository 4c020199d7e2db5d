//! The gated delta rule: a state S [key dim, value dim] for each value head, that every token decays and corrects.
//!
//! For one head and token:  S ← e^g S;  δ = β (v − Sᵀk);  S ← S + k δᵀ;  o = Sᵀ q.
//!
//! Unrolled over a chunk with G the running sum of g:
//!
//! ```text
//! δ_t = β_t (v_t − e^{G_t} S₀ᵀ k_t − Σ_{i<t} e^{G_t−G_i} (k_i·k_t) δ_i)
//! o_t = e^{G_t} S₀ᵀ q_t + Σ_{i≤t} e^{G_t−G_i} (k_i·q_t) δ_i
//! S_n = e^{G_n} S₀ + Σ_i e^{G_n−G_i} k_i δ_iᵀ
//! ```
//!
//! so a chunk costs a few small matrix products and touches the state twice instead of twice a token.

use crate::cpu::{CpuLevel, DisjointParts, Lanes, at_level};
use crate::dense::{Block, add_product, transpose};
use crate::scratch::with_scratch;

const CHUNK: usize = 64; // tokens
/// Tokens of a chunk whose corrections are computed one by one, before those behind them use them together.
const STEP: usize = 16;
const WORTH_A_CHUNK: usize = 4; // fewer tokens go one by one

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeads {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// Mapping of value heads to key heads: h % key_heads where files tile their value heads, else h / (values a key).
    pub tiled: bool,
}

impl DeltaHeads {
    pub fn key_head_of(&self, value_head: usize) -> usize {
        if self.tiled { value_head % self.key_heads } else { value_head / (self.value_heads / self.key_heads) }
    }

    /// Values of a row [q of all key heads | k of all key heads | v of all value heads].
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    pub fn keys(&self) -> usize {
        // values of q, and of k, of one token
        self.key_heads * self.key_dim
    }

    pub fn values(&self) -> usize {
        // values of v, of the output and of δ of one token
        self.value_heads * self.value_dim
    }

    pub fn state(&self) -> usize {
        // values of the state: [value heads, key dim, value dim]
        self.value_heads * self.key_dim * self.value_dim
    }
}

#[derive(Clone, Copy)]
pub struct DeltaRows<'a> {
    /// [rows, channels]: q and k of length one, q also scaled.
    pub qkv: &'a [f32],
    pub decay: &'a [f32], // [rows, value heads]: g, the logarithm of the decay, never positive
    /// [rows, value heads]
    pub beta: &'a [f32],
    /// Last rows, which may turn out to be wrong: the state does not pass them.
    pub drafts: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct ValueHead<'a> {
    pub heads: DeltaHeads,
    pub head: usize,
    pub qkv: DisjointParts<'a, f32>,
    pub decay: &'a [f32],
    pub beta: &'a [f32],
    pub drafts: usize,
    pub out: DisjointParts<'a, f32>, // [rows, values]
}

/// Advances one head's state over all rows but drafts.
///
/// # Safety
/// This call alone has this head's part of the output, and its q, k and v are not written meanwhile.
pub(crate) unsafe fn advance(level: CpuLevel, job: ValueHead, state: &mut [f32]) {
    let count = job.beta.len() / job.heads.value_heads;
    let (mut done, kept) = (0, count - job.drafts);
    while done < kept {
        let rest = kept - done;
        if rest < WORTH_A_CHUNK {
            one(level, job, done, state);
            done += 1;
        } else {
            let tokens = rest.min(CHUNK);
            chunk(level, job, done, tokens, state);
            done += tokens;
        }
    }
    if job.drafts > 0 {
        with_scratch(state.len(), |copy| {
            copy.copy_from_slice(state);
            (kept..count).for_each(|row| one(level, job, row, copy));
        });
    }
}

impl<'a> ValueHead<'a> {
    fn q(&self, row: usize) -> &'a [f32] {
        let start = row * self.heads.channels() + self.heads.key_head_of(self.head) * self.heads.key_dim;
        // SAFETY: the caller of `advance` promised that no task writes it meanwhile; so below.
        unsafe { self.qkv.part(start, self.heads.key_dim) }
    }

    fn k(&self, row: usize) -> &'a [f32] {
        let start =
            row * self.heads.channels() + self.heads.keys() + self.heads.key_head_of(self.head) * self.heads.key_dim;
        // SAFETY: see above.
        unsafe { self.qkv.part(start, self.heads.key_dim) }
    }

    fn v(&self, row: usize) -> &'a [f32] {
        let start = row * self.heads.channels() + 2 * self.heads.keys() + self.head * self.heads.value_dim;
        // SAFETY: see above.
        unsafe { self.qkv.part(start, self.heads.value_dim) }
    }

    #[allow(clippy::mut_from_ref)]
    pub fn out(&self, row: usize) -> &'a mut [f32] {
        let start = row * self.heads.values() + self.head * self.heads.value_dim;
        // SAFETY: only this head's task writes its columns, and it holds one row's part at a time.
        unsafe { self.out.part(start, self.heads.value_dim) }
    }
}

fn one(level: CpuLevel, job: ValueHead, row: usize, state: &mut [f32]) {
    at_level!(level, one_body(job: ValueHead<'_>, row: usize, state: &mut [f32]))
}

/// Advances some columns of the state at a time, so that they are in the cache when they are read for the second time:
/// o = e^g S₀ᵀ q + (k·q) δ, therefore one reading gives both δ and o, and the next writes.
#[inline(always)]
fn one_body<L: Lanes>(job: ValueHead<'_>, row: usize, state: &mut [f32]) {
    let (key_dim, value_dim) = (job.heads.key_dim, job.heads.value_dim);
    let (q, k, v) = (&job.q(row)[..key_dim], &job.k(row)[..key_dim], job.v(row));
    let at = row * job.heads.value_heads + job.head;
    let (decay, beta) = (job.decay[at].exp(), job.beta[at]);
    let kq: f32 = k.iter().zip(q).map(|(k, q)| k * q).sum();
    let out = job.out(row);
    assert!(state.len() == key_dim * value_dim && v.len() == value_dim && out.len() == value_dim);
    const REGISTERS: usize = 4;
    let mut column = 0;
    while column + REGISTERS * L::COUNT <= value_dim {
        // SAFETY: the columns from `column` on end inside each row of the state, of v and of the output.
        unsafe {
            let (mut by_k, mut by_q) = ([L::splat(0.0); REGISTERS], [L::splat(0.0); REGISTERS]);
            let state = state.as_mut_ptr().add(column);
            for i in 0..key_dim {
                let (k, q) = (L::splat(*k.get_unchecked(i)), L::splat(*q.get_unchecked(i)));
                for r in 0..REGISTERS {
                    let s = L::load(state.add(i * value_dim + r * L::COUNT));
                    by_k[r] = L::madd(s, k, by_k[r]);
                    by_q[r] = L::madd(s, q, by_q[r]);
                }
            }
            let (scale, beta, kq) = (L::splat(decay), L::splat(beta), L::splat(kq));
            let mut delta = [L::splat(0.0); REGISTERS];
            for r in 0..REGISTERS {
                let at = column + r * L::COUNT;
                let known = L::mul(L::splat(-decay), by_k[r]);
                delta[r] = L::mul(beta, L::add(L::load(v.as_ptr().add(at)), known));
                L::store(out.as_mut_ptr().add(at), L::madd(kq, delta[r], L::mul(scale, by_q[r])));
            }
            for i in 0..key_dim {
                let k = L::splat(*k.get_unchecked(i));
                for r in 0..REGISTERS {
                    let place = state.add(i * value_dim + r * L::COUNT);
                    L::store(place, L::madd(k, delta[r], L::mul(L::load(place), scale)));
                }
            }
        }
        column += REGISTERS * L::COUNT;
    }
    for column in column..value_dim {
        let read = |by: &[f32]| (0..key_dim).map(|i| state[i * value_dim + column] * by[i]).sum::<f32>();
        let delta = beta * (v[column] - decay * read(k));
        out[column] = decay * read(q) + kq * delta;
        for i in 0..key_dim {
            let s = &mut state[i * value_dim + column];
            *s = *s * decay + k[i] * delta;
        }
    }
}

fn chunk(level: CpuLevel, job: ValueHead, first: usize, tokens: usize, state: &mut [f32]) {
    let (key_dim, value_dim) = (job.heads.key_dim, job.heads.value_dim);
    with_scratch(
        tokens * (2 * key_dim + 2 * value_dim + 1) + key_dim * CHUNK + 3 * CHUNK * CHUNK,
        |scratch| at_level!(level, chunk_body(job: ValueHead<'_>, first: usize, tokens: usize, state: &mut [f32], scratch: &mut [f32])),
    );
}

#[inline(always)]
fn chunk_body<L: Lanes>(job: ValueHead<'_>, first: usize, n: usize, state: &mut [f32], scratch: &mut [f32]) {
    let heads = job.heads;
    let (key_dim, value_dim) = (heads.key_dim, heads.value_dim);
    let (k, scratch) = scratch.split_at_mut(n * key_dim);
    let (q, scratch) = scratch.split_at_mut(n * key_dim);
    let (delta, scratch) = scratch.split_at_mut(n * value_dim);
    let (out, scratch) = scratch.split_at_mut(n * value_dim);
    let (sums, scratch) = scratch.split_at_mut(n);
    let (k_by_columns, scratch) = scratch.split_at_mut(key_dim * CHUNK);
    let (kk, scratch) = scratch.split_at_mut(CHUNK * CHUNK);
    let (qk, decays) = scratch.split_at_mut(CHUNK * CHUNK);

    // Rows of one head lie far apart, at a distance that makes them compete for the same few places of the cache.
    for t in 0..n {
        k[t * key_dim..][..key_dim].copy_from_slice(&job.k(first + t)[..key_dim]);
        q[t * key_dim..][..key_dim].copy_from_slice(&job.q(first + t)[..key_dim]);
    }
    transpose::<L>(Block { values: k, stride: key_dim }, n, key_dim, k_by_columns, CHUNK);
    running_sums(job.decay, heads.value_heads, job.head, first, sums);
    // e^{G_t−G_i} up to the diagonal; the columns up to the next multiple of STEP are not read.
    for t in 0..n {
        let row = &mut decays[t * CHUNK..][..n.min(t / STEP * STEP + STEP)];
        let own = sums[t];
        exp_of::<L>(row, own, sums);
    }
    // Each token looks at itself and those before it only.
    for start in (0..n).step_by(STEP) {
        let rows = STEP.min(n - start);
        let seen = start + rows;
        let by = Block { values: k_by_columns, stride: CHUNK };
        for (a, c) in [(&*k, &mut *kk), (&*q, &mut *qk)] {
            let (a, c) = (&a[start * key_dim..], &mut c[start * CHUNK..]);
            add_product::<L>(a, key_dim, 1, rows, by, seen, key_dim, 0.0, c, CHUNK);
        }
    }
    let s = Block { values: state, stride: value_dim };
    add_product::<L>(k, key_dim, 1, n, s, value_dim, key_dim, 0.0, delta, value_dim);
    add_product::<L>(q, key_dim, 1, n, s, value_dim, key_dim, 0.0, out, value_dim);

    for t in 0..n {
        let beta = job.beta[(first + t) * heads.value_heads + job.head];
        let from_state = sums[t].exp();
        for (own, v) in delta[t * value_dim..][..value_dim].iter_mut().zip(job.v(first + t)) {
            *own = beta * (v - from_state * *own);
        }
        out[t * value_dim..][..value_dim].iter_mut().for_each(|out| *out *= from_state);
        for i in 0..n.min(t / STEP * STEP + STEP) {
            let decay = decays[t * CHUNK + i];
            kk[t * CHUNK + i] *= -beta * decay;
            qk[t * CHUNK + i] *= if i <= t { decay } else { 0.0 };
        }
    }
    // The corrections, each from those before it: of earlier steps together, of its own step one by one.
    for start in (0..n).step_by(STEP) {
        let rows = STEP.min(n - start);
        let (before, own) = delta.split_at_mut(start * value_dim);
        let weights = &kk[start * CHUNK..];
        let before = Block { values: before, stride: value_dim };
        add_product::<L>(weights, CHUNK, 1, rows, before, value_dim, start, 1.0, own, value_dim);
        for t in 1..rows {
            let (before, own) = own.split_at_mut(t * value_dim);
            let before = Block { values: before, stride: value_dim };
            let weights = &weights[t * CHUNK + start..];
            add_product::<L>(weights, 0, 1, 1, before, value_dim, t, 1.0, own, value_dim);
        }
    }
    // The outputs: each sees the state and the corrections up to its own.
    for start in (0..n).step_by(STEP) {
        let rows = STEP.min(n - start);
        let corrections = Block { values: delta, stride: value_dim };
        let (weights, out) = (&qk[start * CHUNK..], &mut out[start * value_dim..]);
        add_product::<L>(weights, CHUNK, 1, rows, corrections, value_dim, start + rows, 1.0, out, value_dim);
    }
    for t in 0..n {
        job.out(first + t).copy_from_slice(&out[t * value_dim..][..value_dim]);
    }
    // The state behind the chunk.
    let last = sums[n - 1];
    for (delta, sum) in delta.chunks_exact_mut(value_dim).zip(sums.iter()) {
        let scale = (last - sum).exp();
        delta.iter_mut().for_each(|delta| *delta *= scale);
    }
    let corrections = Block { values: delta, stride: value_dim };
    add_product::<L>(k_by_columns, CHUNK, 1, key_dim, corrections, value_dim, n, last.exp(), state, value_dim);
}

#[inline(always)]
fn exp_of<L: Lanes>(row: &mut [f32], own: f32, sums: &[f32]) {
    for (out, sum) in row.iter_mut().zip(sums) {
        *out = L::exp_one((own - sum).min(0.0));
    }
}

fn running_sums(decay: &[f32], value_heads: usize, head: usize, first: usize, sums: &mut [f32]) {
    let mut sum = 0.0;
    for (t, out) in sums.iter_mut().enumerate() {
        sum += decay[(first + t) * value_heads + head];
        *out = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norm::l2_norm_in_place;
    use crate::testing;
    use crate::testing::{assert_close, random};

    fn problem(heads: DeltaHeads, count: usize, seed: u64) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let mut qkv = random(count * heads.channels(), seed);
        for row in qkv.chunks_exact_mut(heads.channels()) {
            l2_norm_in_place(CpuLevel::Portable, &mut row[..2 * heads.keys()], heads.key_dim, 1e-6, 1.0);
        }
        let decay = random(count * heads.value_heads, seed + 1)
            .iter()
            .map(|x| -3.0 * (x + 1.0) * (x + 1.0) * (x + 1.0))
            .collect();
        let beta = random(count * heads.value_heads, seed + 2).iter().map(|x| (x + 1.0) / 2.0).collect();
        (qkv, decay, beta)
    }

    fn advanced(level: CpuLevel, heads: DeltaHeads, rows: DeltaRows, state: &mut [f32]) -> Vec<f32> {
        let mut out = vec![f32::NAN; rows.beta.len() / heads.value_heads * heads.values()];
        let mut qkv = rows.qkv.to_vec();
        let DeltaRows { decay, beta, drafts, .. } = rows;
        let (qkv, parts) = (DisjointParts::new(&mut qkv), DisjointParts::new(&mut out));
        for (head, state) in state.chunks_exact_mut(heads.key_dim * heads.value_dim).enumerate() {
            let job = ValueHead { heads, head, qkv, decay, beta, drafts, out: parts };
            // SAFETY: one after the other.
            unsafe { advance(level, job, state) };
        }
        out
    }

    #[test]
    fn chunks_and_steps_are_the_reference() {
        let shapes = [
            (1, 1, 4, 4, false),
            (2, 4, 8, 16, true),
            (2, 4, 8, 16, false),
            (2, 6, 32, 33, true),
            (4, 4, 128, 128, false),
        ];
        for level in CpuLevel::available() {
            for (key_heads, value_heads, key_dim, value_dim, tiled) in shapes {
                let heads = DeltaHeads { key_heads, value_heads, key_dim, value_dim, tiled };
                for count in [1, 2, 5, 63, 64, 65, 150] {
                    let (qkv, decay, beta) = problem(heads, count, 7);
                    let rows = DeltaRows { qkv: &qkv, decay: &decay, beta: &beta, drafts: 0 };
                    let start = random(heads.state(), 11);
                    let mut expected_state = start.clone();
                    let expected = testing::delta(heads, rows, &mut expected_state);

                    let mut state = start.clone();
                    let out = advanced(level, heads, rows, &mut state);
                    assert_close(&out, &expected, 1e-5);
                    assert_close(&state, &expected_state, 1e-5);

                    // Drafts have outputs, and the state ignores them.
                    for drafts in [1, 3].into_iter().filter(|drafts| *drafts <= count) {
                        let kept = count - drafts;
                        let (kept_qkv, kept_gates) = (kept * heads.channels(), kept * value_heads);
                        let only = DeltaRows {
                            qkv: &qkv[..kept_qkv],
                            decay: &decay[..kept_gates],
                            beta: &beta[..kept_gates],
                            drafts: 0,
                        };
                        let mut expected_state = start.clone();
                        testing::delta(heads, only, &mut expected_state);
                        let mut state = start.clone();
                        let out = advanced(level, heads, DeltaRows { drafts, ..rows }, &mut state);
                        assert_close(&out, &expected, 1e-5);
                        assert_close(&state, &expected_state, 1e-5);
                    }
                }
            }
        }
    }
}
