//! The metadata of a random model, under the ecosystem's keys.

use super::SynthOptions;
use super::vocabulary::Vocabulary;
use crate::gguf_writer::GgufValue;

/// The family's template, as its published models carry it.
const CHAT_TEMPLATE: &str = include_str!("../../data/chat_template.jinja");

pub fn of(options: &SynthOptions, vocabulary: &Vocabulary) -> Vec<(String, GgufValue)> {
    let shape = &options.shape;
    let arch = shape.arch();
    let number = |value: usize| GgufValue::U32(value as u32);
    let text = |value: &str| GgufValue::Text(value.to_string());
    let mut list = vec![
        ("general.architecture".to_string(), text(arch)),
        ("general.type".to_string(), text("model")),
        ("general.name".to_string(), GgufValue::Text(format!("{} random (seed {})", shape.name, options.seed))),
        ("general.quantization_version".to_string(), GgufValue::U32(2)),
        ("general.file_type".to_string(), GgufValue::U32(options.mixture.file_type())),
    ];
    let mut own = |key: &str, value: GgufValue| list.push((format!("{arch}.{key}"), value));
    own("block_count", number(shape.blocks()));
    if shape.mtp {
        own("nextn_predict_layers", number(1));
    }
    own("context_length", number(shape.native_ctx));
    own("embedding_length", number(shape.hidden));
    if shape.ffn > 0 {
        own("feed_forward_length", number(shape.ffn));
    }
    own("attention.head_count", number(shape.q_heads));
    own("attention.head_count_kv", number(shape.kv_heads));
    own("attention.key_length", number(shape.head_dim));
    own("attention.value_length", number(shape.head_dim));
    own("attention.layer_norm_rms_epsilon", GgufValue::F32(shape.rms_eps));
    own("rope.dimension_count", number(shape.rope_dims));
    own("rope.dimension_sections", GgufValue::I32s(shape.rope_sections.clone()));
    own("rope.freq_base", GgufValue::F32(shape.rope_theta));
    own("ssm.conv_kernel", number(shape.conv_kernel));
    own("ssm.state_size", number(shape.key_dim));
    own("ssm.group_count", number(shape.key_heads));
    own("ssm.time_step_rank", number(shape.value_heads));
    own("ssm.inner_size", number(shape.delta_values()));
    own("full_attention_interval", number(shape.attention_every));
    let recurrent = (0..shape.blocks()).map(|layer| !shape.is_attention(layer)).collect();
    own("attention.recurrent_layers", GgufValue::Bools(recurrent));
    if let Some(moe) = &shape.moe {
        own("expert_count", number(moe.experts));
        own("expert_used_count", number(moe.used));
        own("expert_feed_forward_length", number(moe.expert_ffn));
        if moe.shared_ffn > 0 {
            own("expert_shared_feed_forward_length", number(moe.shared_ffn));
        }
    }
    let mut tokenizer = |key: &str, value: GgufValue| list.push((format!("tokenizer.{key}"), value));
    tokenizer("ggml.model", text("gpt2"));
    tokenizer("ggml.pre", text("qwen35"));
    tokenizer("ggml.tokens", GgufValue::Texts(vocabulary.tokens.clone()));
    tokenizer("ggml.token_type", GgufValue::I32s(vocabulary.types.clone()));
    tokenizer("ggml.merges", GgufValue::Texts(vocabulary.merges.clone()));
    tokenizer("ggml.eos_token_id", GgufValue::U32(vocabulary.end_of_turn));
    tokenizer("ggml.padding_token_id", GgufValue::U32(vocabulary.end_of_text));
    tokenizer("ggml.add_bos_token", GgufValue::Bool(false));
    tokenizer("chat_template", text(CHAT_TEMPLATE));
    list
}
