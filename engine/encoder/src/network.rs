//! The network: tokens to a vector each. Every token looks at every other one.

use crate::Error;
use crate::config::Config;
use crate::tensors::{FileRows, Tensors};
use kernels::activation::gelu;
use kernels::cpu::{Cpu, DisjointParts};
use kernels::norm::layer_norm_in_place;
use kernels::product::{Activations, TurnedHalves, turned_products};
use std::io;

pub struct EncoderNetwork {
    pub config: Config,
    words: FileRows,     // [vocab, hidden]
    positions: Vec<f32>, // [positions, hidden], with the type of a first text
    begin: Scale,
    layers: Vec<Layer>,
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    after_attention: Scale,
    up: Linear,
    down: Linear,
    after: Scale,
}

struct Linear {
    weights: TurnedHalves,
    bias: Vec<f32>,
}

struct Scale {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

#[derive(Default)]
pub struct Scratch {
    x: Activations,
    attended: Activations,
    wide: Activations,
    parts: [Vec<f32>; 3],
}

impl EncoderNetwork {
    pub fn read(config: Config, file: &mut Tensors) -> Result<EncoderNetwork, Error> {
        let prefix = if file.has("bert.embeddings.word_embeddings.weight") { "bert." } else { "" };
        let (hidden, wide) = (config.hidden_size, config.intermediate_size);
        let words = file.rows(&format!("{prefix}embeddings.word_embeddings.weight"), [config.vocab_size, hidden])?;
        let table = |name: &str| format!("{prefix}embeddings.{name}_embeddings.weight");
        let mut positions = file.values(&table("position"), &[config.max_position_embeddings, hidden])?;
        let types = file.values(&table("token_type"), &[2, hidden])?;
        positions.chunks_exact_mut(hidden).for_each(|row| row.iter_mut().zip(&types).for_each(|(x, t)| *x += t));
        let begin = Scale::read(file, &format!("{prefix}embeddings.LayerNorm"), hidden)?;
        let layers = (0..config.num_hidden_layers).map(|layer| {
            let name = |part: &str| format!("{prefix}encoder.layer.{layer}.{part}");
            Ok(Layer {
                query: Linear::read(file, &name("attention.self.query"), hidden, hidden)?,
                key: Linear::read(file, &name("attention.self.key"), hidden, hidden)?,
                value: Linear::read(file, &name("attention.self.value"), hidden, hidden)?,
                attended: Linear::read(file, &name("attention.output.dense"), hidden, hidden)?,
                after_attention: Scale::read(file, &name("attention.output.LayerNorm"), hidden)?,
                up: Linear::read(file, &name("intermediate.dense"), wide, hidden)?,
                down: Linear::read(file, &name("output.dense"), hidden, wide)?,
                after: Scale::read(file, &name("output.LayerNorm"), hidden)?,
            })
        });
        let layers = layers.collect::<Result<_, Error>>()?;
        Ok(EncoderNetwork { config, words, positions, begin, layers })
    }

    /// Computes a row of `hidden` values for each token. A token beyond the vocabulary counts as its last one.
    pub fn run<'s>(&self, cpu: &Cpu, tokens: &[u32], scratch: &'s mut Scratch) -> io::Result<&'s [f32]> {
        let (hidden, eps) = (self.config.hidden_size, self.config.layer_norm_eps);
        let Scratch { x, attended, wide, parts: [first, second, third] } = scratch;
        let rows = tokens.len().min(self.config.max_position_embeddings);
        let positions = self.positions.chunks_exact(hidden);
        for ((token, position), out) in
            tokens.iter().zip(positions).zip(x.resize(rows, hidden).chunks_exact_mut(hidden))
        {
            out.copy_from_slice(position);
            self.words.add((*token as usize).min(self.config.vocab_size - 1), out)?;
        }
        self.begin.apply(cpu, x.all(), eps);
        for layer in &self.layers {
            [&mut *first, &mut *second, &mut *third].into_iter().for_each(|part| part.resize(rows * hidden, 0.0));
            let Layer { query, key, value, .. } = layer;
            let parts = [(query, &mut first[..]), (key, &mut second[..]), (value, &mut third[..])];
            turned_products(cpu, x, parts.map(|(linear, out)| (&linear.weights, out)));
            layer.query.shift(first);
            layer.key.shift(second);
            layer.value.shift(third);
            self.attend(cpu, [&first[..], &second[..], &third[..]], attended.resize(rows, hidden));
            layer.attended.apply(cpu, attended, first);
            add(x.all(), first);
            layer.after_attention.apply(cpu, x.all(), eps);
            layer.up.apply(cpu, x, second);
            gelu(cpu.level, second);
            wide.set(rows, layer.up.weights.rows(), second);
            layer.down.apply(cpu, wide, first);
            add(x.all(), first);
            layer.after.apply(cpu, x.all(), eps);
        }
        Ok(x.values())
    }

    fn attend(&self, cpu: &Cpu, [queries, keys, values]: [&[f32]; 3], out: &mut [f32]) {
        let hidden = self.config.hidden_size;
        let dim = hidden / self.config.num_attention_heads;
        let rows = out.len() / hidden;
        let scale = 1.0 / (dim as f32).sqrt();
        let out = DisjointParts::new(out);
        cpu.pool.run(self.config.num_attention_heads, |head| {
            let part = |row: usize| row * hidden + head * dim..row * hidden + (head + 1) * dim;
            let mut weights = vec![0.0f32; rows];
            for row in 0..rows {
                let query = &queries[part(row)];
                for (other, weight) in weights.iter_mut().enumerate() {
                    *weight = dot(query, &keys[part(other)]) * scale;
                }
                let largest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                weights.iter_mut().for_each(|weight| *weight = (*weight - largest).exp());
                let sum: f32 = weights.iter().sum();
                // SAFETY: this task alone writes this head's columns.
                let out = unsafe { out.part(row * hidden + head * dim, dim) };
                out.fill(0.0);
                for (other, weight) in weights.iter().enumerate() {
                    let share = weight / sum;
                    out.iter_mut().zip(&values[part(other)]).for_each(|(out, value)| *out += share * value);
                }
            }
        });
    }
}

impl Linear {
    fn read(file: &mut Tensors, name: &str, rows: usize, cols: usize) -> Result<Linear, Error> {
        let weights = TurnedHalves::new(rows, cols, &file.halves(&format!("{name}.weight"), &[rows, cols])?);
        Ok(Linear { weights, bias: file.values(&format!("{name}.bias"), &[rows])? })
    }

    fn apply(&self, cpu: &Cpu, x: &Activations, out: &mut Vec<f32>) {
        out.resize(x.rows() * self.weights.rows(), 0.0);
        turned_products(cpu, x, [(&self.weights, &mut out[..])]);
        self.shift(out);
    }

    fn shift(&self, out: &mut [f32]) {
        out.chunks_exact_mut(self.bias.len()).for_each(|row| add(row, &self.bias));
    }
}

impl Scale {
    fn read(file: &mut Tensors, name: &str, width: usize) -> Result<Scale, Error> {
        let weight = file.values(&format!("{name}.weight"), &[width])?;
        Ok(Scale { weight, bias: file.values(&format!("{name}.bias"), &[width])? })
    }

    fn apply(&self, cpu: &Cpu, x: &mut [f32], eps: f32) {
        layer_norm_in_place(cpu.level, x, &self.weight, &self.bias, eps);
    }
}

fn add(x: &mut [f32], more: &[f32]) {
    x.iter_mut().zip(more).for_each(|(x, more)| *x += more);
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (chunks, rest) = a.as_chunks::<8>();
    let (others, other_rest) = b.as_chunks::<8>();
    for (a, b) in chunks.iter().zip(others) {
        for at in 0..8 {
            sums[at] += a[at] * b[at];
        }
    }
    sums.iter().sum::<f32>() + rest.iter().zip(other_rest).map(|(a, b)| a * b).sum::<f32>()
}
