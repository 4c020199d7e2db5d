//! The tensors of a GGUF file to layers.

use crate::error::Error;
use crate::model::{AttentionWeights, DeltaWeights, Expert, Ffn, Layer, Matrix, Mixer, MoeWeights, Shared};
use crate::shape::{LayerKind, Moe, Shape};
use crate::tensors::Tensors;

pub(crate) fn layer(tensors: &mut Tensors, shape: &Shape, index: usize, kind: LayerKind) -> Result<Layer, Error> {
    let mut block = Block { tensors, shape, index };
    Ok(Layer {
        attn_norm: block.norm("attn_norm", shape.hidden)?,
        mixer: match kind {
            LayerKind::Attention => Mixer::Attention(block.attention()?),
            LayerKind::Delta => Mixer::Delta(block.delta()?),
        },
        ffn_norm: block.norm("post_attention_norm", shape.hidden)?,
        ffn: match &shape.moe {
            None => block.dense()?,
            Some(moe) => Ffn::Moe(block.moe(moe)?),
        },
    })
}

struct Block<'a> {
    tensors: &'a mut Tensors,
    shape: &'a Shape,
    index: usize,
}

impl Block<'_> {
    fn name(&self, name: &str) -> String {
        format!("blk.{}.{name}.weight", self.index)
    }

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        self.tensors.matrix(&self.name(name), rows, cols)
    }

    fn norm(&mut self, name: &str, len: usize) -> Result<Vec<f32>, Error> {
        self.tensors.values(&self.name(name), &[len])
    }

    fn attention(&mut self) -> Result<AttentionWeights, Error> {
        let Shape { hidden, q_heads, kv_heads, head_dim, .. } = *self.shape;
        let (q_rows, kv_rows) = (2 * q_heads * head_dim, kv_heads * head_dim);
        let fused = self.name("attn_qkv");
        let (q, k, v) = if self.tensors.has(&fused) {
            let all = self.tensors.matrix(&fused, q_rows + 2 * kv_rows, hidden)?;
            let part =
                |first, count| all.rows(first, count).ok_or_else(|| self.tensors.missing(&fused, &[count, hidden]));
            (part(0, q_rows)?, part(q_rows, kv_rows)?, part(q_rows + kv_rows, kv_rows)?)
        } else {
            (
                self.matrix("attn_q", q_rows, hidden)?,
                self.matrix("attn_k", kv_rows, hidden)?,
                self.matrix("attn_v", kv_rows, hidden)?,
            )
        };
        Ok(AttentionWeights {
            q,
            k,
            v,
            o: self.matrix("attn_output", hidden, q_heads * head_dim)?,
            q_norm: self.norm("attn_q_norm", head_dim)?,
            k_norm: self.norm("attn_k_norm", head_dim)?,
        })
    }

    fn delta(&mut self) -> Result<DeltaWeights, Error> {
        let Shape { hidden, value_heads, value_dim, conv_kernel, .. } = *self.shape;
        let (channels, values) = (self.shape.delta_channels(), self.shape.delta_values());
        let index = self.index;
        // Converters do not agree whether these two end in a suffix.
        let a = self.tensors.one_of(&[format!("blk.{index}.ssm_a"), format!("blk.{index}.ssm_a.weight")]);
        let dt = self.tensors.one_of(&[format!("blk.{index}.ssm_dt.bias"), format!("blk.{index}.ssm_dt")]);
        Ok(DeltaWeights {
            qkv: self.matrix("attn_qkv", channels, hidden)?,
            z: self.matrix("attn_gate", values, hidden)?,
            a: self.matrix("ssm_alpha", value_heads, hidden)?,
            b: self.matrix("ssm_beta", value_heads, hidden)?,
            out: self.matrix("ssm_out", hidden, values)?,
            conv: self.tensors.values(&self.name("ssm_conv1d"), &[channels, conv_kernel])?,
            a_log_neg: self.tensors.values(&a, &[value_heads])?,
            dt_bias: self.tensors.values(&dt, &[value_heads])?,
            norm: self.norm("ssm_norm", value_dim)?,
        })
    }

    fn dense(&mut self) -> Result<Ffn, Error> {
        let Shape { hidden, ffn, .. } = *self.shape;
        Ok(Ffn::Dense {
            gate: self.matrix("ffn_gate", ffn, hidden)?,
            up: self.matrix("ffn_up", ffn, hidden)?,
            down: self.matrix("ffn_down", hidden, ffn)?,
        })
    }

    fn moe(&mut self, moe: &Moe) -> Result<MoeWeights, Error> {
        let hidden = self.shape.hidden;
        let router = self.matrix("ffn_gate_inp", moe.experts, hidden)?;
        let downs = self.tensors.stack(&self.name("ffn_down_exps"), moe.experts, hidden, moe.expert_ffn)?;
        let fused = self.name("ffn_gate_up_exps");
        let (gates, ups) = if self.tensors.has(&fused) {
            let both = self.tensors.stack(&fused, moe.experts, 2 * moe.expert_ffn, hidden)?;
            let half = |first| {
                let halves = both.iter().map(|both| both.rows(first, moe.expert_ffn));
                halves
                    .collect::<Option<Vec<_>>>()
                    .ok_or_else(|| self.tensors.missing(&fused, &[moe.expert_ffn, hidden]))
            };
            (half(0)?, half(moe.expert_ffn)?)
        } else {
            (
                self.tensors.stack(&self.name("ffn_gate_exps"), moe.experts, moe.expert_ffn, hidden)?,
                self.tensors.stack(&self.name("ffn_up_exps"), moe.experts, moe.expert_ffn, hidden)?,
            )
        };
        let experts = gates.into_iter().zip(ups).zip(downs).map(|((gate, up), down)| Expert { gate, up, down });
        Ok(MoeWeights { router, experts: experts.collect(), shared: self.shared(moe)? })
    }

    fn shared(&mut self, moe: &Moe) -> Result<Option<Shared>, Error> {
        if moe.shared_ffn == 0 {
            return Ok(None);
        }
        let hidden = self.shape.hidden;
        Ok(Some(Shared {
            gate: self.matrix("ffn_gate_shexp", moe.shared_ffn, hidden)?,
            up: self.matrix("ffn_up_shexp", moe.shared_ffn, hidden)?,
            down: self.matrix("ffn_down_shexp", hidden, moe.shared_ffn)?,
            router: self.norm("ffn_gate_inp_shexp", hidden)?,
        }))
    }
}
