//! The seeds of the fuzzers: the smallest models that have everything. `--ignored` writes them; the other test sees to
//! it that those in the repository still open.

use testing::{folder, tiny};

use std::path::PathBuf;

use folder::Tensor;
use serde_json::{Value, json};
use weights::ModelBytes;
use weights::hf::Folder;

fn seeds() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds"))
}

#[test]
#[ignore = "writes files into the repository"]
fn write() {
    let write = |name: &str, bytes: &[u8]| {
        let path = seeds().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write("gguf/dense.gguf", &tiny::dense().bytes());
    write("gguf/moe.gguf", &tiny::moe().bytes());
    write("safetensors/dense.safetensors", &folder::safetensors(&tensors()));
    write("config/dense.json", config().to_string().as_bytes());
    let mut multimodal = json!({"model_type": "qwen3_5", "text_config": config(), "tie_word_embeddings": true});
    multimodal["text_config"]["rope_parameters"] = json!({
        "rope_type": "yarn", "rope_theta": 1e7, "partial_rotary_factor": 0.5, "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
        "original_max_position_embeddings": 16, "attention_factor": 1.1, "mscale": 1.0, "mscale_all_dim": 1.0, "truncate": false,
    });
    let named = r#"{"chat_template":[{"name":"default","template":"x"}]}"#;
    write("config/multimodal", format!("{multimodal}\0{named}\0{{\"eos_token_id\":[1,2]}}").as_bytes());
}

#[test]
fn the_seeds_open() {
    for name in ["dense", "moe"] {
        let path = seeds().join(format!("gguf/{name}.gguf"));
        let bytes = ModelBytes::copy_of(&std::fs::read(&path).unwrap());
        weights::gguf::from_bytes(&path, bytes).unwrap();
    }
    for name in ["dense.json", "multimodal"] {
        let text = std::fs::read(seeds().join("config").join(name)).unwrap();
        let mut parts = text.split(|&byte| byte == 0).map(<[u8]>::to_vec);
        let shard = std::fs::read(seeds().join("safetensors/dense.safetensors")).unwrap();
        let model = weights::hf::load(Folder {
            path: "seed".into(),
            config: parts.next().unwrap(),
            shards: vec![("seed/model.safetensors".into(), ModelBytes::copy_of(&shard))],
            tokenizer: b"{}".to_vec(),
            tokenizer_config: parts.next(),
            generation_config: parts.next(),
            chat_template: None,
        });
        assert_eq!(model.unwrap().layers.len(), 2, "{name}");
    }
}

fn config() -> Value {
    json!({
        "model_type": "qwen3_5_text", "hidden_size": 4, "intermediate_size": 3, "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"], "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 4, "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 2,
        "linear_value_head_dim": 2, "linear_conv_kernel_dim": 3, "vocab_size": 5, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 64, "tie_word_embeddings": true, "hidden_act": "silu", "attention_bias": false,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5}, "eos_token_id": 3,
    })
}

fn tensors() -> Vec<Tensor> {
    let mut shapes: Vec<(String, Vec<u64>)> =
        vec![("embed_tokens.weight".into(), vec![5, 4]), ("norm.weight".into(), vec![4])];
    for layer in 0..2 {
        for (name, shape) in [
            ("input_layernorm.weight", vec![4]),
            ("post_attention_layernorm.weight", vec![4]),
            ("mlp.gate_proj.weight", vec![3, 4]),
            ("mlp.up_proj.weight", vec![3, 4]),
            ("mlp.down_proj.weight", vec![4, 3]),
        ] {
            shapes.push((format!("layers.{layer}.{name}"), shape));
        }
    }
    for (name, shape) in [
        ("in_proj_qkv.weight", vec![8, 4]),
        ("in_proj_z.weight", vec![4, 4]),
        ("in_proj_a.weight", vec![2, 4]),
        ("in_proj_b.weight", vec![2, 4]),
        ("out_proj.weight", vec![4, 4]),
        ("conv1d.weight", vec![8, 1, 3]),
        ("A_log", vec![2]),
        ("dt_bias", vec![2]),
        ("norm.weight", vec![2]),
    ] {
        shapes.push((format!("layers.0.linear_attn.{name}"), shape));
    }
    for (name, shape) in [
        ("q_proj.weight", vec![16, 4]),
        ("k_proj.weight", vec![4, 4]),
        ("v_proj.weight", vec![4, 4]),
        ("o_proj.weight", vec![4, 8]),
        ("q_norm.weight", vec![4]),
        ("k_norm.weight", vec![4]),
    ] {
        shapes.push((format!("layers.1.self_attn.{name}"), shape));
    }
    let tensor = |(name, shape): (String, Vec<u64>)| {
        let data = vec![0x3c; 2 * shape.iter().product::<u64>() as usize];
        Tensor { name: format!("model.{name}"), dtype: "BF16".into(), shape, data }
    };
    shapes.into_iter().map(tensor).collect()
}
