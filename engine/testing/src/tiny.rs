//! The smallest models that have everything: two linear layers, an attention layer, a linear layer.

use crate::gguf::{File, Value};

pub const HIDDEN: u64 = 8;
pub const FFN: u64 = 12;
pub const VOCAB: u64 = 10;
pub const LAYERS: u32 = 4;
const Q_HEADS: u64 = 2;
const KV_HEADS: u64 = 1;
const HEAD_DIM: u64 = 4;
const KEY_HEADS: u64 = 2;
const VALUE_HEADS: u64 = 4;
const STATE: u64 = 4;
const KERNEL: u64 = 4;
pub const EXPERTS: u64 = 3;
pub const EXPERT_FFN: u64 = 6;
const SHARED_FFN: u64 = 5;

/// Rows of q with its gate, of k, and of v.
pub const Q_ROWS: u64 = 2 * Q_HEADS * HEAD_DIM;
pub const KV_ROWS: u64 = KV_HEADS * HEAD_DIM;
const VALUES: u64 = VALUE_HEADS * STATE;
const CHANNELS: u64 = 2 * KEY_HEADS * STATE + VALUES;

pub fn dense() -> File {
    let mut file = start("qwen35");
    file.set("qwen35.feed_forward_length", Value::U32(FFN as u32));
    for block in 0..LAYERS {
        mixer(&mut file, block);
        dense_ffn(&mut file, block);
    }
    file
}

pub fn moe() -> File {
    let mut file = start("qwen35moe");
    for (key, value) in [
        ("expert_count", EXPERTS),
        ("expert_used_count", 2),
        ("expert_feed_forward_length", EXPERT_FFN),
        ("expert_shared_feed_forward_length", SHARED_FFN),
    ] {
        file.set(&format!("qwen35moe.{key}"), Value::U32(value as u32));
    }
    for block in 0..LAYERS {
        mixer(&mut file, block);
        for (name, dims) in [
            ("ffn_gate_inp", vec![EXPERTS, HIDDEN]),
            ("ffn_gate_exps", vec![EXPERTS, EXPERT_FFN, HIDDEN]),
            ("ffn_up_exps", vec![EXPERTS, EXPERT_FFN, HIDDEN]),
            ("ffn_down_exps", vec![EXPERTS, HIDDEN, EXPERT_FFN]),
            ("ffn_gate_inp_shexp", vec![1, HIDDEN]),
            ("ffn_gate_shexp", vec![SHARED_FFN, HIDDEN]),
            ("ffn_up_shexp", vec![SHARED_FFN, HIDDEN]),
            ("ffn_down_shexp", vec![HIDDEN, SHARED_FFN]),
        ] {
            tensor(&mut file, &format!("blk.{block}.{name}.weight"), &dims);
        }
    }
    file
}

/// A tensor of values that are all different and depend on its name.
pub fn tensor(file: &mut File, name: &str, dims: &[u64]) {
    let seed = name.bytes().fold(17u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into())) % 1000;
    let values: Vec<f32> = (0..dims.iter().product()).map(|i: u64| seed as f32 + i as f32 / 1024.0).collect();
    file.add(name, dims, &values);
}

pub fn attention(file: &mut File, block: u32) {
    for (name, dims) in [
        ("attn_q", vec![Q_ROWS, HIDDEN]),
        ("attn_k", vec![KV_ROWS, HIDDEN]),
        ("attn_v", vec![KV_ROWS, HIDDEN]),
        ("attn_output", vec![HIDDEN, Q_HEADS * HEAD_DIM]),
        ("attn_q_norm", vec![HEAD_DIM]),
        ("attn_k_norm", vec![HEAD_DIM]),
    ] {
        tensor(file, &format!("blk.{block}.{name}.weight"), &dims);
    }
}

pub fn prediction(file: &mut File, block: u32) {
    norms(file, block);
    attention(file, block);
    dense_ffn(file, block);
    tensor(file, &format!("blk.{block}.nextn.eh_proj.weight"), &[HIDDEN, 2 * HIDDEN]);
    for part in ["enorm", "hnorm", "shared_head_norm"] {
        tensor(file, &format!("blk.{block}.nextn.{part}.weight"), &[HIDDEN]);
    }
}

pub fn norms(file: &mut File, block: u32) {
    tensor(file, &format!("blk.{block}.attn_norm.weight"), &[HIDDEN]);
    tensor(file, &format!("blk.{block}.post_attention_norm.weight"), &[HIDDEN]);
}

pub fn dense_ffn(file: &mut File, block: u32) {
    tensor(file, &format!("blk.{block}.ffn_gate.weight"), &[FFN, HIDDEN]);
    tensor(file, &format!("blk.{block}.ffn_up.weight"), &[FFN, HIDDEN]);
    tensor(file, &format!("blk.{block}.ffn_down.weight"), &[HIDDEN, FFN]);
}

fn mixer(file: &mut File, block: u32) {
    norms(file, block);
    // The pattern of these models: the third layer of four is attention, unlike the family's fourth.
    if block == 2 {
        attention(file, block);
        return;
    }
    for (name, dims) in [
        ("attn_qkv.weight", vec![CHANNELS, HIDDEN]),
        ("attn_gate.weight", vec![VALUES, HIDDEN]),
        ("ssm_alpha.weight", vec![VALUE_HEADS, HIDDEN]),
        ("ssm_beta.weight", vec![VALUE_HEADS, HIDDEN]),
        ("ssm_conv1d.weight", vec![CHANNELS, KERNEL]),
        ("ssm_a", vec![VALUE_HEADS]),
        ("ssm_dt.bias", vec![VALUE_HEADS]),
        ("ssm_norm.weight", vec![STATE]),
        ("ssm_out.weight", vec![HIDDEN, VALUES]),
    ] {
        tensor(file, &format!("blk.{block}.{name}"), &dims);
    }
}

fn start(arch: &str) -> File {
    let mut file = File::default();
    file.set("general.architecture", Value::Text(arch.into())).set("general.name", Value::Text("tiny".into()));
    for (key, value) in [
        ("block_count", LAYERS.into()),
        ("context_length", 64),
        ("embedding_length", HIDDEN),
        ("attention.head_count", Q_HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("attention.key_length", HEAD_DIM),
        ("attention.value_length", HEAD_DIM),
        ("rope.dimension_count", 2),
        ("ssm.conv_kernel", KERNEL),
        ("ssm.state_size", STATE),
        ("ssm.group_count", KEY_HEADS),
        ("ssm.time_step_rank", VALUE_HEADS),
        ("ssm.inner_size", VALUES),
    ] {
        file.set(&format!("{arch}.{key}"), Value::U32(value as u32));
    }
    file.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), Value::F32(1e-6));
    file.set(&format!("{arch}.rope.freq_base"), Value::F32(1e7));
    file.set(&format!("{arch}.attention.recurrent_layers"), Value::Bools(vec![true, true, false, true]));
    let tokens = ["a", "b", "c", "d", "e", "f", "ab", "<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    file.set("tokenizer.ggml.model", Value::Text("gpt2".into()));
    file.set("tokenizer.ggml.pre", Value::Text("qwen35".into()));
    file.set("tokenizer.ggml.tokens", Value::Texts(tokens.map(String::from).to_vec()));
    file.set("tokenizer.ggml.token_type", Value::I32s(vec![1, 1, 1, 1, 1, 1, 1, 3, 3, 3]));
    file.set("tokenizer.ggml.merges", Value::Texts(vec!["a b".into()]));
    file.set("tokenizer.ggml.eos_token_id", Value::U32(9));
    tensor(&mut file, "token_embd.weight", &[VOCAB, HIDDEN]);
    tensor(&mut file, "output_norm.weight", &[HIDDEN]);
    tensor(&mut file, "output.weight", &[VOCAB, HIDDEN]);
    file
}
