//! Tensors of a random model, and their values.

use std::sync::Arc;

use super::random::RandomStream;
use super::vocabulary::{Loudness, Vocabulary};
use super::{MoeShape, SynthOptions, SynthShape};
use crate::gguf_writer::TensorInfo;
use crate::mixture::MixtureModel;

pub struct TensorPlan {
    pub info: TensorInfo,
    fill: Fill,
    stream: RandomStream,
}

enum Fill {
    Normal {
        deviation: f32,
    },
    /// The deviation of each row.
    Rows {
        deviations: Arc<Vec<f32>>,
    },
    Uniform {
        low: f32,
        high: f32,
    },
    /// Values as `Uniform`, with either sign.
    SignedUniform {
        low: f32,
        high: f32,
    },
    /// Negative, with sizes spread evenly over the orders of magnitude between the two.
    Decay {
        least: f32,
        most: f32,
    },
}

impl TensorPlan {
    pub fn cols(&self) -> u64 {
        self.info.dims[0]
    }

    pub fn values(&self) -> u64 {
        self.info.dims.iter().product()
    }

    pub fn fill(&self, first_row: u64, out: &mut [f32]) {
        let cols = self.cols();
        let first = first_row * cols;
        let numbered = out.iter_mut().zip(first..);
        match &self.fill {
            Fill::Normal { deviation } => numbered.for_each(|(v, i)| *v = deviation * self.stream.normal(i)),
            Fill::Uniform { low, high } => {
                numbered.for_each(|(v, i)| *v = low + (high - low) * self.stream.uniform(i));
            }
            Fill::SignedUniform { low, high } => {
                let signed = |i| (2.0 * self.stream.uniform(i) - 1.0) * (high - low);
                numbered.for_each(|(v, i)| *v = signed(i) + low.copysign(signed(i)));
            }
            Fill::Decay { least, most } => {
                numbered.for_each(|(v, i)| *v = -least * (most / least).powf(self.stream.uniform(i)));
            }
            Fill::Rows { deviations } => {
                for (row, out) in (first_row..).zip(out.chunks_mut(cols as usize)) {
                    let deviation = deviations[row as usize];
                    if deviation == 0.0 {
                        out.fill(0.0);
                        continue;
                    }
                    let numbered = out.iter_mut().zip(row * cols..);
                    numbered.for_each(|(v, i)| *v = deviation * self.stream.normal(i));
                }
            }
        }
    }
}

pub fn plan(options: &SynthOptions, vocabulary: &Vocabulary) -> Vec<TensorPlan> {
    let shape = &options.shape;
    let mut list = List { options, plans: Vec::new() };
    let loudness = |quiet_rows_are_small: bool, size: f32| {
        let deviation = |loudness: &Loudness| match *loudness {
            Loudness::Silent => 0.0,
            Loudness::Quiet if quiet_rows_are_small => 0.35 * size,
            Loudness::Quiet => size,
            Loudness::Loud(gain) if quiet_rows_are_small => gain * size,
            Loudness::Loud(_) => size,
        };
        Fill::Rows { deviations: Arc::new(vocabulary.loudness.iter().map(deviation).collect()) }
    };
    let (hidden, vocab) = (shape.hidden, shape.vocab);
    // Where the head is the embedding, the row of a control token is small: it can still be read, because the first
    // thing a block does is to normalise it.
    list.add("token_embd.weight".into(), &[hidden, vocab], loudness(shape.tied, 1.0));
    for layer in 0..shape.blocks() {
        list.add_layer(layer, shape);
    }
    if shape.mtp {
        let name = |part: &str| format!("blk.{}.nextn.{part}.weight", shape.layers);
        list.add_matrix(name("eh_proj"), &[2 * hidden, hidden], GAIN);
        ["enorm", "hnorm", "shared_head_norm"].into_iter().for_each(|part| list.add(name(part), &[hidden], NORM));
    }
    // The logits of words have a deviation of about 3: by the last norm where the head is the embedding, else by the
    // head. In the first case half of the factors are negative, or each token would be its own likeliest successor.
    let head = 3.0 / (hidden as f32).sqrt();
    if shape.tied {
        list.add("output_norm.weight".into(), &[hidden], Fill::SignedUniform { low: 0.6 * head, high: 1.4 * head });
    } else {
        list.add("output_norm.weight".into(), &[hidden], NORM);
        list.add("output.weight".into(), &[hidden, vocab], loudness(true, head));
    }
    list.plans
}

fn of_model(shape: &SynthShape) -> MixtureModel {
    MixtureModel {
        layers: shape.layers,
        tied: shape.tied,
        queries_per_key: shape.q_heads / shape.kv_heads,
        has_importance: false,
    }
}

const NORM: Fill = Fill::Uniform { low: 0.6, high: 1.4 };

/// Scale of queries and keys with which attention picks some positions out of thousands, where it would else average.
const SHARP_NORM: Fill = Fill::Uniform { low: 0.9, high: 2.1 };

struct List<'a> {
    options: &'a SynthOptions,
    plans: Vec<TensorPlan>,
}

impl List<'_> {
    fn add(&mut self, name: String, dims: &[usize], fill: Fill) {
        let shape = &self.options.shape;
        let dims: Vec<u64> = dims.iter().map(|&dim| dim as u64).collect();
        let format = self.options.mixture.format_of(&name, &dims, &of_model(shape));
        let stream = RandomStream::new(self.options.seed, &name);
        self.plans.push(TensorPlan { info: TensorInfo { name, dims, format }, fill, stream });
    }

    /// A matrix that leaves the size of its input about as it was, times `gain`.
    fn add_matrix(&mut self, name: String, dims: &[usize], gain: f32) {
        let deviation = gain / (dims[0] as f32).sqrt();
        self.add(name, dims, Fill::Normal { deviation });
    }

    fn add_layer(&mut self, layer: usize, shape: &SynthShape) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let hidden = shape.hidden;
        // All blocks together add about as much as the embedding brought. Much more, and each random layer amplifies the
        // rounding errors of those before, so that no two engines agree; much less, and the text runs in circles.
        let out_gain = 1.4 / (2.0 * shape.layers as f32).sqrt();
        self.add(name("attn_norm.weight"), &[hidden], NORM);
        if shape.is_attention(layer) {
            let (queries, keys) = (shape.q_heads * shape.head_dim, shape.kv_heads * shape.head_dim);
            self.add_matrix(name("attn_q.weight"), &[hidden, 2 * queries], GAIN);
            self.add_matrix(name("attn_k.weight"), &[hidden, keys], GAIN);
            self.add_matrix(name("attn_v.weight"), &[hidden, keys], GAIN);
            self.add(name("attn_q_norm.weight"), &[shape.head_dim], SHARP_NORM);
            self.add(name("attn_k_norm.weight"), &[shape.head_dim], SHARP_NORM);
            self.add_matrix(name("attn_output.weight"), &[queries, hidden], out_gain);
        } else {
            let (channels, values) = (shape.delta_channels(), shape.delta_values());
            self.add_matrix(name("attn_qkv.weight"), &[hidden, channels], GAIN);
            self.add_matrix(name("attn_gate.weight"), &[hidden, values], GAIN);
            self.add_matrix(name("ssm_alpha.weight"), &[hidden, shape.value_heads], GAIN);
            self.add_matrix(name("ssm_beta.weight"), &[hidden, shape.value_heads], GAIN);
            // Some heads forget within a token, some remember for thousands.
            self.add(name("ssm_a"), &[shape.value_heads], Fill::Decay { least: 0.02, most: 8.0 });
            self.add(name("ssm_dt.bias"), &[shape.value_heads], Fill::Uniform { low: -4.0, high: 1.0 });
            self.add(name("ssm_conv1d.weight"), &[shape.conv_kernel, channels], Fill::Normal { deviation: 0.5 });
            self.add(name("ssm_norm.weight"), &[shape.value_dim], Fill::Uniform { low: 0.5, high: 1.5 });
            self.add_matrix(name("ssm_out.weight"), &[values, hidden], out_gain);
        }
        self.add(name("post_attention_norm.weight"), &[hidden], NORM);
        match &shape.moe {
            None => {
                self.add_matrix(name("ffn_gate.weight"), &[hidden, shape.ffn], GAIN);
                self.add_matrix(name("ffn_up.weight"), &[hidden, shape.ffn], GAIN);
                self.add_matrix(name("ffn_down.weight"), &[shape.ffn, hidden], out_gain);
            }
            Some(moe) => self.add_experts(name, hidden, moe, out_gain),
        }
    }

    fn add_experts(&mut self, name: impl Fn(&str) -> String, hidden: usize, moe: &MoeShape, out_gain: f32) {
        let (experts, ffn, shared) = (moe.experts, moe.expert_ffn, moe.shared_ffn);
        // A rounding error can choose another expert. With decided shares and experts that speak low, that changes the
        // sum little.
        self.add_matrix(name("ffn_gate_inp.weight"), &[hidden, experts], 2.0 * GAIN);
        self.add_matrix(name("ffn_gate_exps.weight"), &[hidden, ffn, experts], GAIN);
        self.add_matrix(name("ffn_up_exps.weight"), &[hidden, ffn, experts], GAIN);
        self.add_matrix(name("ffn_down_exps.weight"), &[ffn, hidden, experts], 0.5 * out_gain);
        if shared > 0 {
            self.add_matrix(name("ffn_gate_inp_shexp.weight"), &[hidden], GAIN);
            self.add_matrix(name("ffn_gate_shexp.weight"), &[hidden, shared], GAIN);
            self.add_matrix(name("ffn_up_shexp.weight"), &[hidden, shared], GAIN);
            self.add_matrix(name("ffn_down_shexp.weight"), &[shared, hidden], out_gain);
        }
    }
}

/// Large enough that every part of the arithmetic shows in the logits.
const GAIN: f32 = 1.6;
