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

use crate::cpu::{Cpu, Level, Parts, level::levels, level::madd};
use crate::dense::{Block, add_product, rows_times_rows};
use crate::scratch::with_scratch;

/// Tokens that are worked on together.
const CHUNK: usize = 64;
/// Fewer tokens than this go one by one.
const WORTH_A_CHUNK: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// Which key head a value head reads: h % key_heads where files tile their value heads, else h / (values a key).
    pub tiled: bool,
}

impl Heads {
    pub fn key_head_of(&self, value_head: usize) -> usize {
        if self.tiled { value_head % self.key_heads } else { value_head / (self.value_heads / self.key_heads) }
    }

    /// Values of a row [q of all key heads | k of all key heads | v of all value heads].
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Values of q, and of k, of one token.
    pub fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Values of v, of the output and of δ of one token.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Values of the state: [value heads, key dim, value dim].
    pub fn state(&self) -> usize {
        self.value_heads * self.key_dim * self.value_dim
    }
}

/// What the rule reads, row by row.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// [rows, channels]: q and k of length one, q also scaled.
    pub qkv: &'a [f32],
    /// [rows, value heads]: g, the logarithm of the decay, never positive.
    pub decay: &'a [f32],
    /// [rows, value heads]
    pub beta: &'a [f32],
}

/// Advances the state over all rows. `out`: [rows, values].
pub fn advance(cpu: &Cpu, heads: Heads, rows: Rows, state: &mut [f32], out: &mut [f32]) {
    let count = rows.beta.len() / heads.value_heads;
    assert!(rows.qkv.len() == count * heads.channels() && rows.decay.len() == rows.beta.len());
    assert!(state.len() == heads.state() && out.len() == count * heads.values());
    let (state, out) = (Parts::new(state), Parts::new(out));
    let size = heads.key_dim * heads.value_dim;
    cpu.pool.run(heads.value_heads, |head| {
        // SAFETY: each task takes the state of its own head.
        let state = unsafe { state.part(head * size, size) };
        let job = Head { heads, rows, head, out };
        let mut done = 0;
        while done < count {
            let rest = count - done;
            if rest < WORTH_A_CHUNK {
                one(cpu.level, job, done, state);
                done += 1;
            } else {
                let tokens = rest.min(CHUNK);
                chunk(cpu.level, job, done, tokens, state);
                done += tokens;
            }
        }
    });
}

#[derive(Clone, Copy)]
struct Head<'a> {
    heads: Heads,
    rows: Rows<'a>,
    head: usize,
    out: Parts<'a, f32>,
}

impl<'a> Head<'a> {
    fn q(&self, row: usize) -> &'a [f32] {
        &self.rows.qkv[row * self.heads.channels() + self.heads.key_head_of(self.head) * self.heads.key_dim..]
    }

    fn k(&self, row: usize) -> &'a [f32] {
        &self.q(row)[self.heads.keys()..]
    }

    fn v(&self, row: usize) -> &'a [f32] {
        &self.rows.qkv[row * self.heads.channels() + 2 * self.heads.keys() + self.head * self.heads.value_dim..]
            [..self.heads.value_dim]
    }

    /// This head's part of a row of the output.
    #[allow(clippy::mut_from_ref)]
    fn out(&self, row: usize) -> &'a mut [f32] {
        let start = row * self.heads.values() + self.head * self.heads.value_dim;
        // SAFETY: only this head's task writes its columns, and it holds one row's part at a time.
        unsafe { self.out.part(start, self.heads.value_dim) }
    }
}

fn one(level: Level, job: Head, row: usize, state: &mut [f32]) {
    let value_dim = job.heads.value_dim;
    with_scratch(
        value_dim,
        |correction| levels!(level, one_body(job: Head<'_>, row: usize, state: &mut [f32], correction: &mut [f32])),
    );
}

#[inline(always)]
fn one_body<const FMA: bool>(job: Head<'_>, row: usize, state: &mut [f32], correction: &mut [f32]) {
    let (key_dim, value_dim) = (job.heads.key_dim, job.heads.value_dim);
    let (q, k, v) = (&job.q(row)[..key_dim], &job.k(row)[..key_dim], job.v(row));
    let at = row * job.heads.value_heads + job.head;
    let (decay, beta) = (job.rows.decay[at].exp(), job.rows.beta[at]);
    let out = job.out(row);
    // First pass: Sᵀk. Second: decay, correct and read.
    correction.fill(0.0);
    for (s, k) in state.chunks_exact(value_dim).zip(k) {
        for (sum, s) in correction.iter_mut().zip(s) {
            *sum = madd::<FMA>(*s, *k, *sum);
        }
    }
    for (correction, v) in correction.iter_mut().zip(v) {
        *correction = beta * (v - decay * *correction);
    }
    out.fill(0.0);
    for ((s, k), q) in state.chunks_exact_mut(value_dim).zip(k).zip(q) {
        for ((s, correction), out) in s.iter_mut().zip(correction.iter()).zip(out.iter_mut()) {
            *s = madd::<FMA>(*k, *correction, *s * decay);
            *out = madd::<FMA>(*s, *q, *out);
        }
    }
}

fn chunk(level: Level, job: Head, first: usize, tokens: usize, state: &mut [f32]) {
    let value_dim = job.heads.value_dim;
    with_scratch(
        tokens * (1 + 2 * tokens + 2 * value_dim),
        |scratch| levels!(level, chunk_body(job: Head<'_>, first: usize, tokens: usize, state: &mut [f32], scratch: &mut [f32])),
    );
}

#[inline(always)]
fn chunk_body<const FMA: bool>(job: Head<'_>, first: usize, n: usize, state: &mut [f32], scratch: &mut [f32]) {
    let heads = job.heads;
    let (key_dim, value_dim, channels) = (heads.key_dim, heads.value_dim, heads.channels());
    let (sums, scratch) = scratch.split_at_mut(n);
    let (kk, scratch) = scratch.split_at_mut(n * n);
    let (qk, scratch) = scratch.split_at_mut(n * n);
    let (delta, out) = scratch.split_at_mut(n * value_dim);
    let (q, k) = (Block { values: job.q(first), stride: channels }, Block { values: job.k(first), stride: channels });
    let s = Block { values: state, stride: value_dim };

    running_sums(job.rows.decay, heads.value_heads, job.head, first, sums);
    rows_times_rows::<FMA>(k, n, k, n, key_dim, kk, n);
    rows_times_rows::<FMA>(q, n, k, n, key_dim, qk, n);
    delta.fill(0.0);
    out.fill(0.0);
    add_product::<FMA>(k.values, channels, 1, n, s, value_dim, key_dim, delta, value_dim);
    add_product::<FMA>(q.values, channels, 1, n, s, value_dim, key_dim, out, value_dim);

    // The corrections, each from those before it.
    for t in 0..n {
        let beta = job.rows.beta[(first + t) * heads.value_heads + job.head];
        let from_state = sums[t].exp();
        let (before, own) = delta.split_at_mut(t * value_dim);
        let own = &mut own[..value_dim];
        for (own, v) in own.iter_mut().zip(job.v(first + t)) {
            *own = beta * (v - from_state * *own);
        }
        let weights = &mut kk[t * n..][..t];
        for (i, weight) in weights.iter_mut().enumerate() {
            *weight *= -beta * (sums[t] - sums[i]).exp();
        }
        add_product::<FMA>(weights, 0, 1, 1, Block { values: before, stride: value_dim }, value_dim, t, own, value_dim);
    }
    // The outputs: each sees the state and the corrections up to its own.
    for t in 0..n {
        let from_state = sums[t].exp();
        out[t * value_dim..][..value_dim].iter_mut().for_each(|out| *out *= from_state);
        for i in 0..n {
            let weight = &mut qk[t * n + i];
            *weight = if i <= t { *weight * (sums[t] - sums[i]).exp() } else { 0.0 };
        }
    }
    add_product::<FMA>(qk, n, 1, n, Block { values: delta, stride: value_dim }, value_dim, n, out, value_dim);
    for t in 0..n {
        job.out(first + t).copy_from_slice(&out[t * value_dim..][..value_dim]);
    }
    // The state behind the chunk.
    let last = sums[n - 1];
    for (delta, sum) in delta.chunks_exact_mut(value_dim).zip(sums.iter()) {
        let scale = (last - sum).exp();
        delta.iter_mut().for_each(|delta| *delta *= scale);
    }
    let decay = last.exp();
    state.iter_mut().for_each(|s| *s *= decay);
    add_product::<FMA>(
        k.values,
        1,
        channels,
        key_dim,
        Block { values: delta, stride: value_dim },
        value_dim,
        n,
        state,
        value_dim,
    );
}

/// G: running sums of g over the rows from `first` on.
fn running_sums(decay: &[f32], value_heads: usize, head: usize, first: usize, sums: &mut [f32]) {
    let mut sum = 0.0;
    for (t, out) in sums.iter_mut().enumerate() {
        sum += decay[(first + t) * value_heads + head];
        *out = sum;
    }
}

/// The definition, token by token, in f64.
pub fn reference(heads: Heads, rows: Rows, state: &mut [f32]) -> Vec<f32> {
    let count = rows.beta.len() / heads.value_heads;
    let mut out = vec![0.0; count * heads.values()];
    let (key_dim, value_dim) = (heads.key_dim, heads.value_dim);
    for head in 0..heads.value_heads {
        let size = key_dim * value_dim;
        let mut s: Vec<f64> = state[head * size..][..size].iter().map(|s| f64::from(*s)).collect();
        for t in 0..count {
            let row = &rows.qkv[t * heads.channels()..][..heads.channels()];
            let q = &row[heads.key_head_of(head) * key_dim..][..key_dim];
            let k = &row[heads.keys() + heads.key_head_of(head) * key_dim..][..key_dim];
            let v = &row[2 * heads.keys() + head * value_dim..][..value_dim];
            let decay = f64::from(rows.decay[t * heads.value_heads + head]).exp();
            let beta = f64::from(rows.beta[t * heads.value_heads + head]);
            s.iter_mut().for_each(|s| *s *= decay);
            for j in 0..value_dim {
                let read: f64 = (0..key_dim).map(|i| s[i * value_dim + j] * f64::from(k[i])).sum();
                let delta = beta * (f64::from(v[j]) - read);
                for i in 0..key_dim {
                    s[i * value_dim + j] += f64::from(k[i]) * delta;
                }
                let value: f64 = (0..key_dim).map(|i| s[i * value_dim + j] * f64::from(q[i])).sum();
                out[t * heads.values() + head * value_dim + j] = value as f32;
            }
        }
        state[head * size..][..size].iter_mut().zip(s).for_each(|(state, s)| *state = s as f32);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norm::l2_norm_in_place;
    use crate::testing::{assert_close, random};

    fn problem(heads: Heads, count: usize, seed: u64) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let mut qkv = random(count * heads.channels(), seed);
        for row in qkv.chunks_exact_mut(heads.channels()) {
            l2_norm_in_place(Level::Portable, &mut row[..2 * heads.keys()], heads.key_dim, 1e-6, 1.0);
        }
        let decay = random(count * heads.value_heads, seed + 1)
            .iter()
            .map(|x| -3.0 * (x + 1.0) * (x + 1.0) * (x + 1.0))
            .collect();
        let beta = random(count * heads.value_heads, seed + 2).iter().map(|x| (x + 1.0) / 2.0).collect();
        (qkv, decay, beta)
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
        for level in Level::ALL.into_iter().filter(|level| *level <= Level::detect()) {
            let cpu = Cpu::with_level(2, level);
            for (key_heads, value_heads, key_dim, value_dim, tiled) in shapes {
                let heads = Heads { key_heads, value_heads, key_dim, value_dim, tiled };
                for count in [1, 2, 5, 63, 64, 65, 150] {
                    let (qkv, decay, beta) = problem(heads, count, 7);
                    let rows = Rows { qkv: &qkv, decay: &decay, beta: &beta };
                    let start = random(heads.state(), 11);
                    let mut expected_state = start.clone();
                    let expected = reference(heads, rows, &mut expected_state);

                    let (mut state, mut out) = (start.clone(), vec![f32::NAN; expected.len()]);
                    advance(&cpu, heads, rows, &mut state, &mut out);
                    assert_close(&out, &expected, 1e-5);
                    assert_close(&state, &expected_state, 1e-5);
                }
            }
        }
    }
}
