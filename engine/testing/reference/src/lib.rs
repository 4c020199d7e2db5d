//! The definition of every kernel: slices in, slices out, in f64 and never optimised.
//!
//! Kernels of all devices are held to these functions. The crate uses no other one, so that the unit tests of any crate
//! can use it.

mod values;

pub use values::{assert_close, distance, random, random_codes};

#[derive(Clone, Copy, Debug)]
pub struct DeltaShape {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// True: value head h reads key head h % key_heads; false: h / (value_heads / key_heads).
    pub tiled: bool,
}

/// Query rows of the attention: [rows, query heads, head dim], at strides.
#[derive(Clone, Copy, Debug)]
pub struct QueryRows<'a> {
    pub values: &'a [f32],
    pub stride: usize,
    pub head_stride: usize,
    pub q_heads: usize,
    pub rows: usize,
    pub first: usize,
}

/// Multiplies rows of activations [m, cols] by a matrix, whose row n `row` writes. Returns [m, rows].
pub fn product(x: &[f32], rows: usize, cols: usize, row: impl Fn(usize, &mut [f32])) -> Vec<f32> {
    let mut weights = vec![0.0; cols];
    let mut out = vec![0.0; x.len() / cols * rows];
    for n in 0..rows {
        row(n, &mut weights);
        for (m, x) in x.chunks_exact(cols).enumerate() {
            out[m * rows + n] = x.iter().zip(&weights).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() as f32;
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

pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32) -> Vec<f32> {
    let rows = x.chunks_exact(weight.len());
    rows.flat_map(|x| {
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (variance + f64::from(eps)).sqrt();
        let scaled = x.iter().zip(weight).zip(bias);
        scaled.map(move |((x, w), b)| ((f64::from(*x) - mean) * scale * f64::from(*w) + f64::from(*b)) as f32)
    })
    .collect()
}

pub fn gelu(x: &[f32]) -> Vec<f32> {
    let erf = |x: f64| {
        let x = x.clamp(-6.0, 6.0);
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
    };
    x.iter().map(|x| f64::from(*x)).map(|x| (0.5 * x * (1.0 + erf(x / 2.0f64.sqrt()))) as f32).collect()
}

pub fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
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

/// Advances the state token by token. Rows are [queries, keys, values] of all heads; `decay` and `beta` are [rows, value heads].
pub fn delta(shape: DeltaShape, qkv: &[f32], decay: &[f32], beta: &[f32], state: &mut [f32]) -> Vec<f32> {
    let DeltaShape { key_heads, value_heads, key_dim, value_dim, tiled } = shape;
    let (keys, values, size) = (key_heads * key_dim, value_heads * value_dim, key_dim * value_dim);
    let channels = 2 * keys + values;
    let count = beta.len() / value_heads;
    let mut out = vec![0.0; count * values];
    for head in 0..value_heads {
        let key_head = if tiled { head % key_heads } else { head / (value_heads / key_heads) };
        let mut s: Vec<f64> = state[head * size..][..size].iter().map(|s| f64::from(*s)).collect();
        for t in 0..count {
            let row = &qkv[t * channels..][..channels];
            let q = &row[key_head * key_dim..][..key_dim];
            let k = &row[keys + key_head * key_dim..][..key_dim];
            let v = &row[2 * keys + head * value_dim..][..value_dim];
            let factor = f64::from(decay[t * value_heads + head]).exp();
            let beta = f64::from(beta[t * value_heads + head]);
            s.iter_mut().for_each(|s| *s *= factor);
            for j in 0..value_dim {
                let read: f64 = (0..key_dim).map(|i| s[i * value_dim + j] * f64::from(k[i])).sum();
                let delta = beta * (f64::from(v[j]) - read);
                for i in 0..key_dim {
                    s[i * value_dim + j] += f64::from(k[i]) * delta;
                }
                let value: f64 = (0..key_dim).map(|i| s[i * value_dim + j] * f64::from(q[i])).sum();
                out[t * values + head * value_dim + j] = value as f32;
            }
        }
        state[head * size..][..size].iter_mut().zip(s).for_each(|(state, s)| *state = s as f32);
    }
    out
}

/// Attends to keys and values [positions, kv heads, dim], each row up to its own position.
pub fn attention((kv_heads, dim): (usize, usize), keys: &[f32], values: &[f32], queries: QueryRows) -> Vec<f32> {
    let group = queries.q_heads / kv_heads;
    let mut out = Vec::new();
    for row in 0..queries.rows {
        for head in 0..queries.q_heads {
            let q = &queries.values[row * queries.stride + head * queries.head_stride..][..dim];
            let at = |position: usize| (position * kv_heads + head / group) * dim;
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

// Multiplies rows with their signs and a Walsh-Hadamard matrix in natural order, normalised.
pub fn hadamard(rows: &[f32], signs: &[f32]) -> Vec<f32> {
    let width = signs.len();
    let row = |row: &[f32]| -> Vec<f32> {
        let of = |i: usize| -> f64 {
            let entry = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            (0..width).map(|j| entry(j) * f64::from(signs[j]) * f64::from(row[j])).sum()
        };
        (0..width).map(|i| (of(i) / (width as f64).sqrt()) as f32).collect()
    };
    rows.chunks_exact(width).flat_map(row).collect()
}

// Replaces the values of a rotated row, made normal, by the nearest of `levels` and of their mirror images, and gives the
// result the row's norm.
pub fn nearest_levels(row: &[f32], levels: &[f64]) -> Vec<f32> {
    let norm = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>().sqrt();
    let row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
    let unit = norm(&row) / (row.len() as f64).sqrt();
    let distance = |level: &f64, x: f64| (level - x.abs() / unit).abs();
    let nearest = |x: &f64| {
        let level = levels.iter().copied().min_by(|a, b| distance(a, *x).total_cmp(&distance(b, *x)));
        level.unwrap_or_default().copysign(*x)
    };
    let found: Vec<f64> = row.iter().map(nearest).collect();
    let scale = norm(&row) / norm(&found);
    found.iter().map(|level| (level * scale) as f32).collect()
}
