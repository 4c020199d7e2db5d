//! The tensors of a Hugging Face folder to layers.

use crate::error::Error;
use crate::model::{AttentionWeights, DeltaWeights, Expert, Ffn, Layer, Matrix, Mixer, MoeWeights, Shared};
use crate::shape::{LayerKind, Moe, Shape};
use crate::tensors::Tensors;

/// `prefix`: what stands before `layers.0`.
pub(crate) fn layer(
    tensors: &mut Tensors,
    shape: &Shape,
    prefix: &str,
    index: usize,
    kind: LayerKind,
) -> Result<Layer, Error> {
    let mut block = Block { tensors, shape, prefix: format!("{prefix}layers.{index}.") };
    Ok(Layer {
        attn_norm: block.norm("input_layernorm.weight", shape.hidden)?,
        mixer: match kind {
            LayerKind::Attention => Mixer::Attention(block.attention()?),
            LayerKind::Delta => Mixer::Delta(block.delta()?),
        },
        ffn_norm: block.norm("post_attention_layernorm.weight", shape.hidden)?,
        ffn: match &shape.moe {
            None => block.dense()?,
            Some(moe) => Ffn::Moe(block.moe(moe)?),
        },
    })
}

/// The norms of the family multiply with 1 + w.
pub(crate) fn norm(tensors: &mut Tensors, name: &str, len: usize) -> Result<Vec<f32>, Error> {
    let mut weights = tensors.values(name, &[len])?;
    weights.iter_mut().for_each(|weight| *weight += 1.0);
    Ok(weights)
}

struct Block<'a> {
    tensors: &'a mut Tensors,
    shape: &'a Shape,
    prefix: String,
}

impl Block<'_> {
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        self.tensors.matrix(&self.name(name), rows, cols)
    }

    fn values(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>, Error> {
        self.tensors.values(&self.name(name), dims)
    }

    fn norm(&mut self, name: &str, len: usize) -> Result<Vec<f32>, Error> {
        norm(self.tensors, &self.name(name), len)
    }

    fn attention(&mut self) -> Result<AttentionWeights, Error> {
        let Shape { hidden, q_heads, kv_heads, head_dim, .. } = *self.shape;
        Ok(AttentionWeights {
            q: self.matrix("self_attn.q_proj.weight", 2 * q_heads * head_dim, hidden)?,
            k: self.matrix("self_attn.k_proj.weight", kv_heads * head_dim, hidden)?,
            v: self.matrix("self_attn.v_proj.weight", kv_heads * head_dim, hidden)?,
            o: self.matrix("self_attn.o_proj.weight", hidden, q_heads * head_dim)?,
            q_norm: self.norm("self_attn.q_norm.weight", head_dim)?,
            k_norm: self.norm("self_attn.k_norm.weight", head_dim)?,
        })
    }

    fn delta(&mut self) -> Result<DeltaWeights, Error> {
        let Shape { hidden, value_heads, value_dim, conv_kernel, .. } = *self.shape;
        let (channels, values) = (self.shape.delta_channels(), self.shape.delta_values());
        let a_log = self.values("linear_attn.A_log", &[value_heads])?;
        Ok(DeltaWeights {
            qkv: self.matrix("linear_attn.in_proj_qkv.weight", channels, hidden)?,
            z: self.matrix("linear_attn.in_proj_z.weight", values, hidden)?,
            a: self.matrix("linear_attn.in_proj_a.weight", value_heads, hidden)?,
            b: self.matrix("linear_attn.in_proj_b.weight", value_heads, hidden)?,
            out: self.matrix("linear_attn.out_proj.weight", hidden, values)?,
            conv: self.values("linear_attn.conv1d.weight", &[channels, 1, conv_kernel])?,
            a_log_neg: a_log.iter().map(|&a_log| -f64::from(a_log).exp() as f32).collect(),
            dt_bias: self.values("linear_attn.dt_bias", &[value_heads])?,
            // The one norm that multiplies with w itself.
            norm: self.values("linear_attn.norm.weight", &[value_dim])?,
        })
    }

    fn dense(&mut self) -> Result<Ffn, Error> {
        let Shape { hidden, ffn, .. } = *self.shape;
        Ok(Ffn::Dense {
            gate: self.matrix("mlp.gate_proj.weight", ffn, hidden)?,
            up: self.matrix("mlp.up_proj.weight", ffn, hidden)?,
            down: self.matrix("mlp.down_proj.weight", hidden, ffn)?,
        })
    }

    fn moe(&mut self, moe: &Moe) -> Result<MoeWeights, Error> {
        let router = self.matrix("mlp.gate.weight", moe.experts, self.shape.hidden)?;
        let fused = self.tensors.has(&self.name("mlp.experts.gate_up_proj"));
        let experts = if fused { self.fused_experts(moe)? } else { self.separate_experts(moe)? };
        Ok(MoeWeights { router, experts, shared: self.shared(moe)? })
    }

    fn fused_experts(&mut self, moe: &Moe) -> Result<Vec<Expert>, Error> {
        let hidden = self.shape.hidden;
        let name = self.name("mlp.experts.gate_up_proj");
        let both = self.tensors.stack(&name, moe.experts, 2 * moe.expert_ffn, hidden)?;
        let downs = self.tensors.stack(&self.name("mlp.experts.down_proj"), moe.experts, hidden, moe.expert_ffn)?;
        let half = |both: &Matrix, first| {
            both.rows(first, moe.expert_ffn).ok_or_else(|| self.tensors.missing(&name, &[moe.expert_ffn, hidden]))
        };
        let expert = |(both, down)| Ok(Expert { gate: half(&both, 0)?, up: half(&both, moe.expert_ffn)?, down });
        both.into_iter().zip(downs).map(expert).collect()
    }

    fn separate_experts(&mut self, moe: &Moe) -> Result<Vec<Expert>, Error> {
        let hidden = self.shape.hidden;
        let mut experts = Vec::new();
        for i in 0..moe.experts {
            experts.push(Expert {
                gate: self.matrix(&format!("mlp.experts.{i}.gate_proj.weight"), moe.expert_ffn, hidden)?,
                up: self.matrix(&format!("mlp.experts.{i}.up_proj.weight"), moe.expert_ffn, hidden)?,
                down: self.matrix(&format!("mlp.experts.{i}.down_proj.weight"), hidden, moe.expert_ffn)?,
            });
        }
        Ok(experts)
    }

    fn shared(&mut self, moe: &Moe) -> Result<Option<Shared>, Error> {
        if moe.shared_ffn == 0 {
            return Ok(None);
        }
        let hidden = self.shape.hidden;
        Ok(Some(Shared {
            gate: self.matrix("mlp.shared_expert.gate_proj.weight", moe.shared_ffn, hidden)?,
            up: self.matrix("mlp.shared_expert.up_proj.weight", moe.shared_ffn, hidden)?,
            down: self.matrix("mlp.shared_expert.down_proj.weight", hidden, moe.shared_ffn)?,
            router: self.values("mlp.shared_expert_gate.weight", &[hidden])?,
        }))
    }
}
