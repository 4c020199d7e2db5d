//! Definitions of all kernels: in f64 and never optimised. Tests of several crates take this file in.

use kernels::attention::{PageLayout, Queries};
use kernels::delta::{DeltaHeads, DeltaRows};
use kernels::product::Weights;

pub fn product(x: &[f32], w: Weights) -> Vec<f32> {
    let mut row = vec![0.0; w.cols];
    let m = x.len() / w.cols;
    let mut out = vec![0.0; m * w.rows];
    for n in 0..w.rows {
        w.row(n, &mut row);
        for (m, x) in x.chunks_exact(w.cols).enumerate() {
            out[m * w.rows + n] = x.iter().zip(&row).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() as f32;
        }
    }
    out
}

pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let rows = x.chunks_exact(weight.len());
    rows.flat_map(|x| {
        let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        x.iter().zip(weight).map(move |(x, w)| (f64::from(*x) * scale * f64::from(*w)) as f32)
    })
    .collect()
}

pub fn l2_norm(x: &[f32], width: usize, eps: f32, scale: f32) -> Vec<f32> {
    x.chunks_exact(width)
        .flat_map(|x| {
            let sum = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
            let scale = f64::from(scale) / (sum + f64::from(eps)).sqrt();
            x.iter().map(move |x| (f64::from(*x) * scale) as f32)
        })
        .collect()
}

pub fn convolution(x: &[f32], channels: usize, taps: &[f32], memory: &[f32]) -> Vec<f32> {
    let past = memory.len() / channels;
    let all = [memory, x].concat();
    (0..x.len())
        .map(|i| {
            let (row, channel) = (i / channels, i % channels);
            let tap =
                |j: usize| f64::from(taps[j * channels + channel]) * f64::from(all[(row + j) * channels + channel]);
            let sum: f64 = (0..=past).map(tap).sum();
            (sum / (1.0 + (-sum).exp())) as f32
        })
        .collect()
}

pub fn delta(heads: DeltaHeads, rows: DeltaRows, state: &mut [f32]) -> Vec<f32> {
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

/// Computes attention on plain rows: keys and values are [positions, kv heads, head dim].
pub fn attention(layout: PageLayout, keys: &[f32], values: &[f32], queries: Queries) -> Vec<f32> {
    let dim = layout.head_dim;
    let group = queries.q_heads / layout.kv_heads;
    let mut out = Vec::new();
    for row in 0..queries.rows {
        for head in 0..queries.q_heads {
            let q = &queries.values[row * queries.stride + head * queries.head_stride..][..dim];
            let at = |position: usize| (position * layout.kv_heads + head / group) * dim;
            let scores: Vec<f64> = (0..=queries.first + row)
                .map(|position| {
                    let dot: f64 =
                        q.iter().zip(&keys[at(position)..][..dim]).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                    dot / (dim as f64).sqrt()
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
            out.extend((0..dim).map(|i| {
                let sum: f64 = scores
                    .iter()
                    .enumerate()
                    .map(|(position, score)| (score - largest).exp() * f64::from(values[at(position) + i]))
                    .sum();
                (sum / total) as f32
            }));
        }
    }
    out
}
