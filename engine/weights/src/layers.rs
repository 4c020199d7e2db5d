//! Makes layers of the tensors of a model's files. Code here names tensors as GGUF does; the model's family has a folder's
//! names.

use crate::error::Error;
use crate::family::Family;
use crate::matrix::Matrix;
use crate::model::{
    AttentionWeights, DeltaWeights, Ffn, Layer, Mixer, MoeWeights, PredictionBlock, SharedExpert, SwigluWeights,
};
use crate::shape::{LayerKind, Moe, Shape};
use crate::tensors::Tensors;

#[derive(Clone, Copy)]
pub(crate) enum Source {
    Gguf,
    Folder(&'static Family),
}

pub(crate) fn layer(
    tensors: &mut Tensors,
    shape: &Shape,
    source: Source,
    prefix: String,
    kind: LayerKind,
) -> Result<Layer, Error> {
    let mut block = Block { tensors, shape, source, prefix };
    Ok(Layer {
        attn_norm: block.norm("attn_norm.weight", shape.hidden)?,
        mixer: match kind {
            LayerKind::Attention => Mixer::Attention(block.attention()?),
            LayerKind::Delta => Mixer::Delta(block.delta()?),
        },
        ffn_norm: block.norm("post_attention_norm.weight", shape.hidden)?,
        ffn: block.ffn()?,
    })
}

/// Reads the first block for multi-token prediction. The prefixes are those of its layer's names and of its other names.
/// `trunk_norm`: the model's last norm.
pub(crate) fn prediction(
    tensors: &mut Tensors,
    shape: &Shape,
    source: Source,
    [prefix, own]: [String; 2],
    trunk_norm: &[f32],
) -> Result<PredictionBlock, Error> {
    let hidden = shape.hidden;
    let names = ["eh_proj.weight", "enorm.weight", "hnorm.weight", "shared_head_norm.weight"];
    let [join, embed_norm, state_norm, output_norm] = names.map(|name| match source {
        Source::Gguf => format!("{own}{name}"),
        Source::Folder(family) => format!("{own}{}", family.prediction_tensor(name)),
    });
    // Some files have one last norm for both.
    let is_shared = matches!(source, Source::Gguf) && !tensors.has(&output_norm);
    let mut block = Block { tensors, shape, source, prefix };
    Ok(PredictionBlock {
        join: block.tensors.matrix(&join, hidden, 2 * hidden)?,
        embed_norm: norm(block.tensors, source, &embed_norm, hidden)?,
        state_norm: norm(block.tensors, source, &state_norm, hidden)?,
        attn_norm: block.norm("attn_norm.weight", hidden)?,
        attention: block.attention()?,
        ffn_norm: block.norm("post_attention_norm.weight", hidden)?,
        ffn: block.ffn()?,
        output_norm: match is_shared {
            true => trunk_norm.to_vec(),
            false => norm(block.tensors, source, &output_norm, hidden)?,
        },
    })
}

pub(crate) fn norm(tensors: &mut Tensors, source: Source, name: &str, len: usize) -> Result<Vec<f32>, Error> {
    let mut weights = tensors.values(name, &[len])?;
    if matches!(source, Source::Folder(family) if family.folder_norms_are_offsets) {
        weights.iter_mut().for_each(|weight| *weight += 1.0);
    }
    Ok(weights)
}

struct Block<'a> {
    tensors: &'a mut Tensors,
    shape: &'a Shape,
    source: Source,
    prefix: String,
}

impl Block<'_> {
    fn name(&self, name: &str) -> String {
        match self.source {
            Source::Gguf => format!("{}{name}", self.prefix),
            Source::Folder(family) => format!("{}{}", self.prefix, family.layer_tensor(name)),
        }
    }

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        self.tensors.matrix(&self.name(name), rows, cols)
    }

    fn values(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>, Error> {
        self.tensors.values(&self.name(name), dims)
    }

    fn norm(&mut self, name: &str, len: usize) -> Result<Vec<f32>, Error> {
        norm(self.tensors, self.source, &self.name(name), len)
    }

    fn attention(&mut self) -> Result<AttentionWeights, Error> {
        let Shape { hidden, q_heads, kv_heads, head_dim, .. } = *self.shape;
        let (q_rows, kv_rows) = (2 * q_heads * head_dim, kv_heads * head_dim);
        let fused = self.name("attn_qkv.weight");
        let (q, k, v) = if matches!(self.source, Source::Gguf) && self.tensors.has(&fused) {
            let all = self.tensors.matrix(&fused, q_rows + 2 * kv_rows, hidden)?;
            let part =
                |first, count| all.part(first, count).ok_or_else(|| self.tensors.missing(&fused, &[count, hidden]));
            (part(0, q_rows)?, part(q_rows, kv_rows)?, part(q_rows + kv_rows, kv_rows)?)
        } else {
            (
                self.matrix("attn_q.weight", q_rows, hidden)?,
                self.matrix("attn_k.weight", kv_rows, hidden)?,
                self.matrix("attn_v.weight", kv_rows, hidden)?,
            )
        };
        Ok(AttentionWeights {
            q,
            k,
            v,
            o: self.matrix("attn_output.weight", hidden, q_heads * head_dim)?,
            q_norm: self.norm("attn_q_norm.weight", head_dim)?,
            k_norm: self.norm("attn_k_norm.weight", head_dim)?,
        })
    }

    fn delta(&mut self) -> Result<DeltaWeights, Error> {
        let Shape { hidden, value_heads, value_dim, conv_kernel, .. } = *self.shape;
        let (channels, values) = (self.shape.delta_channels(), self.shape.delta_values());
        // Converters do not agree whether these two end in a suffix.
        let a = self.tensors.one_of(&[self.name("ssm_a"), self.name("ssm_a.weight")]);
        let dt = self.tensors.one_of(&[self.name("ssm_dt.bias"), self.name("ssm_dt")]);
        Ok(DeltaWeights {
            qkv: self.matrix("attn_qkv.weight", channels, hidden)?,
            z: self.matrix("attn_gate.weight", values, hidden)?,
            a: self.matrix("ssm_alpha.weight", value_heads, hidden)?,
            b: self.matrix("ssm_beta.weight", value_heads, hidden)?,
            out: self.matrix("ssm_out.weight", hidden, values)?,
            conv: self.values("ssm_conv1d.weight", &[channels, conv_kernel])?,
            a_log_neg: self.a_log_neg(&a, value_heads)?,
            dt_bias: self.tensors.values(&dt, &[value_heads])?,
            // The one norm that is the factor itself in both.
            norm: self.values("ssm_norm.weight", &[value_dim])?,
        })
    }

    fn a_log_neg(&mut self, name: &str, len: usize) -> Result<Vec<f32>, Error> {
        let mut values = self.tensors.values(name, &[len])?;
        if matches!(self.source, Source::Folder(_)) {
            values.iter_mut().for_each(|a| *a = -f64::from(*a).exp() as f32);
        }
        Ok(values)
    }

    /// Reads a feed-forward whose names end in `suffix`: a dense layer's, or that of the expert that every token visits.
    fn swiglu(&mut self, suffix: &str, width: usize) -> Result<SwigluWeights, Error> {
        let hidden = self.shape.hidden;
        Ok(SwigluWeights {
            gate: self.matrix(&format!("ffn_gate{suffix}.weight"), width, hidden)?,
            up: self.matrix(&format!("ffn_up{suffix}.weight"), width, hidden)?,
            down: self.matrix(&format!("ffn_down{suffix}.weight"), hidden, width)?,
        })
    }

    fn ffn(&mut self) -> Result<Ffn, Error> {
        Ok(match &self.shape.moe {
            None => Ffn::Dense(self.swiglu("", self.shape.ffn)?),
            Some(moe) => Ffn::Moe(self.moe(moe)?),
        })
    }

    fn moe(&mut self, moe: &Moe) -> Result<MoeWeights, Error> {
        let router = self.matrix("ffn_gate_inp.weight", moe.experts, self.shape.hidden)?;
        let fused = self.tensors.has(&self.name("ffn_gate_up_exps.weight"));
        let experts = match self.source {
            Source::Folder(_) if !fused => self.separate_experts(moe)?,
            _ => self.stacked_experts(moe, fused)?,
        };
        let shared = match moe.shared_ffn {
            0 => None,
            width => Some(SharedExpert {
                expert: self.swiglu("_shexp", width)?,
                router: self.values("ffn_gate_inp_shexp.weight", &[self.shape.hidden])?,
            }),
        };
        Ok(MoeWeights { router, experts, shared })
    }

    /// Reads experts whose matrices lie behind each other, those of gate and up in one tensor or in two.
    fn stacked_experts(&mut self, moe: &Moe, fused: bool) -> Result<Vec<SwigluWeights>, Error> {
        let (hidden, width) = (self.shape.hidden, moe.expert_ffn);
        let [down, both, gate, up] = ["ffn_down_exps", "ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps"]
            .map(|n| self.name(&format!("{n}.weight")));
        let mut stack = |name: &str, rows, cols| self.tensors.stack(name, moe.experts, rows, cols);
        let downs = stack(&down, hidden, width)?;
        let (gates, ups) = if fused {
            let all = stack(&both, 2 * width, hidden)?;
            let half = |first| {
                let halves = all.iter().map(|both| both.part(first, width)).collect::<Option<Vec<_>>>();
                halves.ok_or_else(|| self.tensors.missing(&both, &[width, hidden]))
            };
            (half(0)?, half(width)?)
        } else {
            (stack(&gate, width, hidden)?, stack(&up, width, hidden)?)
        };
        let experts = gates.into_iter().zip(ups).zip(downs);
        Ok(experts.map(|((gate, up), down)| SwigluWeights { gate, up, down }).collect())
    }

    fn separate_experts(&mut self, moe: &Moe) -> Result<Vec<SwigluWeights>, Error> {
        let (hidden, width) = (self.shape.hidden, moe.expert_ffn);
        let name = |prefix: &str, expert: usize, part: &str| format!("{prefix}mlp.experts.{expert}.{part}_proj.weight");
        let mut expert = |expert| {
            let mut matrix = |part, rows, cols| self.tensors.matrix(&name(&self.prefix, expert, part), rows, cols);
            Ok(SwigluWeights {
                gate: matrix("gate", width, hidden)?,
                up: matrix("up", width, hidden)?,
                down: matrix("down", hidden, width)?,
            })
        };
        (0..moe.experts).map(&mut expert).collect()
    }
}
