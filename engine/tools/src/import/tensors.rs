//! The tensors of a model under GGUF's names, in GGUF's order of value heads.

use kernels::format::Format;
use weights::{
    AttentionWeights, DeltaWeights, Ffn, HeadOrder, Matrix, Mixer, ModelWeights, MoeWeights, Shape, SwigluWeights,
};

use crate::mixture::is_matrix;
use crate::planned::{PlaceOrder, Planned, PlannedValues};

pub fn plan(model: &ModelWeights) -> Vec<Planned> {
    let mut list = List { shape: &model.shape, tensors: Vec::new() };
    list.matrix("token_embd.weight".into(), &model.embed);
    for (index, layer) in model.layers.iter().enumerate() {
        let name = |part: &str| format!("blk.{index}.{part}");
        list.floats(name("attn_norm.weight"), &layer.attn_norm);
        match &layer.mixer {
            Mixer::Attention(weights) => list.attention(&name, weights),
            Mixer::Delta(weights) => list.delta(&name, weights),
        }
        list.floats(name("post_attention_norm.weight"), &layer.ffn_norm);
        list.ffn(&name, &layer.ffn);
    }
    if let Some(block) = &model.prediction {
        let name = |part: &str| format!("blk.{}.{part}", model.layers.len());
        list.floats(name("attn_norm.weight"), &block.attn_norm);
        list.attention(&name, &block.attention);
        list.floats(name("post_attention_norm.weight"), &block.ffn_norm);
        list.ffn(&name, &block.ffn);
        list.matrix(name("nextn.eh_proj.weight"), &block.join);
        list.floats(name("nextn.enorm.weight"), &block.embed_norm);
        list.floats(name("nextn.hnorm.weight"), &block.state_norm);
        list.floats(name("nextn.shared_head_norm.weight"), &block.output_norm);
    }
    list.floats("output_norm.weight".into(), &model.output_norm);
    if let Some(output) = &model.output {
        list.matrix("output.weight".into(), output);
    }
    // A mixture decides about matrices; norms, convolutions and routers are f32 in every file.
    let others = list.tensors.iter_mut().filter(|tensor| !is_matrix(&tensor.name, &tensor.dims));
    others.for_each(|tensor| tensor.format = Format::F32);
    list.tensors
}

struct List<'a> {
    shape: &'a Shape,
    tensors: Vec<Planned>,
}

impl List<'_> {
    fn floats(&mut self, name: String, values: &[f32]) {
        self.tensors.push(Planned::new(name, vec![values.len() as u64], PlannedValues::Floats(values.to_vec())));
    }

    fn matrix(&mut self, name: String, matrix: &Matrix) {
        self.ordered(name, matrix, PlaceOrder::Kept, PlaceOrder::Kept);
    }

    fn ordered(&mut self, name: String, matrix: &Matrix, rows: PlaceOrder, cols: PlaceOrder) {
        let dims = vec![matrix.cols() as u64, matrix.rows() as u64];
        let values = PlannedValues::Matrices { stack: vec![matrix.clone()], rows, cols };
        self.tensors.push(Planned::new(name, dims, values));
    }

    fn stack<'m>(&mut self, name: String, matrices: impl Iterator<Item = &'m Matrix>) {
        let stack: Vec<Matrix> = matrices.cloned().collect();
        let Some(first) = stack.first() else { return };
        let dims = vec![first.cols() as u64, first.rows() as u64, stack.len() as u64];
        self.tensors.push(Planned::new(
            name,
            dims,
            PlannedValues::Matrices { stack, rows: PlaceOrder::Kept, cols: PlaceOrder::Kept },
        ));
    }

    /// Returns the order of value heads that are `width` long, behind what lies `before` them.
    fn heads(&self, before: usize, width: usize) -> PlaceOrder {
        let Shape { key_heads, value_heads, .. } = *self.shape;
        match self.shape.value_head_order {
            HeadOrder::Tiled => PlaceOrder::Kept,
            HeadOrder::Grouped => PlaceOrder::Tiled { before, key_heads, value_heads, width },
        }
    }

    fn attention(&mut self, name: &dyn Fn(&str) -> String, weights: &AttentionWeights) {
        self.matrix(name("attn_q.weight"), &weights.q);
        self.matrix(name("attn_k.weight"), &weights.k);
        self.matrix(name("attn_v.weight"), &weights.v);
        self.matrix(name("attn_output.weight"), &weights.o);
        self.floats(name("attn_q_norm.weight"), &weights.q_norm);
        self.floats(name("attn_k_norm.weight"), &weights.k_norm);
    }

    fn delta(&mut self, name: &dyn Fn(&str) -> String, weights: &DeltaWeights) {
        let Shape { key_heads, key_dim, value_dim, conv_kernel, .. } = *self.shape;
        let behind_keys = self.heads(2 * key_heads * key_dim, value_dim);
        let (by_head, by_value) = (self.heads(0, 1), self.heads(0, value_dim));
        self.ordered(name("attn_qkv.weight"), &weights.qkv, behind_keys, PlaceOrder::Kept);
        self.ordered(name("attn_gate.weight"), &weights.z, by_value, PlaceOrder::Kept);
        self.ordered(name("ssm_alpha.weight"), &weights.a, by_head, PlaceOrder::Kept);
        self.ordered(name("ssm_beta.weight"), &weights.b, by_head, PlaceOrder::Kept);
        self.ordered(name("ssm_out.weight"), &weights.out, PlaceOrder::Kept, by_value);
        let of_head = |values: &[f32]| -> Vec<f32> { (0..values.len()).map(|i| values[by_head.source(i)]).collect() };
        self.floats(name("ssm_a"), &of_head(&weights.a_log_neg));
        self.floats(name("ssm_dt.bias"), &of_head(&weights.dt_bias));
        self.floats(name("ssm_norm.weight"), &weights.norm);
        let channels = weights.conv.len() / conv_kernel;
        let taps = |channel: usize| &weights.conv[behind_keys.source(channel) * conv_kernel..][..conv_kernel];
        let conv = (0..channels).flat_map(|channel| taps(channel).to_vec()).collect();
        let dims = vec![conv_kernel as u64, channels as u64];
        self.tensors.push(Planned::new(name("ssm_conv1d.weight"), dims, PlannedValues::Floats(conv)));
    }

    fn ffn(&mut self, name: &dyn Fn(&str) -> String, ffn: &Ffn) {
        match ffn {
            Ffn::Dense(weights) => self.swiglu(name, "", weights),
            Ffn::Moe(moe) => self.moe(name, moe),
        }
    }

    fn swiglu(&mut self, name: &dyn Fn(&str) -> String, suffix: &str, weights: &SwigluWeights) {
        self.matrix(name(&format!("ffn_gate{suffix}.weight")), &weights.gate);
        self.matrix(name(&format!("ffn_up{suffix}.weight")), &weights.up);
        self.matrix(name(&format!("ffn_down{suffix}.weight")), &weights.down);
    }

    fn moe(&mut self, name: &dyn Fn(&str) -> String, moe: &MoeWeights) {
        self.matrix(name("ffn_gate_inp.weight"), &moe.router);
        self.stack(name("ffn_gate_exps.weight"), moe.experts.iter().map(|expert| &expert.gate));
        self.stack(name("ffn_up_exps.weight"), moe.experts.iter().map(|expert| &expert.up));
        self.stack(name("ffn_down_exps.weight"), moe.experts.iter().map(|expert| &expert.down));
        if let Some(shared) = &moe.shared {
            let dims = vec![shared.router.len() as u64, 1];
            let values = PlannedValues::Floats(shared.router.clone());
            self.tensors.push(Planned::new(name("ffn_gate_inp_shexp.weight"), dims, values));
            self.swiglu(name, "_shexp", &shared.expert);
        }
    }
}
