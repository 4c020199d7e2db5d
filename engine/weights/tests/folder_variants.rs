//! Every way in which Hugging Face folders of the family differ: all of them open, and to the same model.

use testing::folder;

use folder::{Files, Tensor};
use kernels::format::{Format, dequantize};
use serde_json::json;
use weights::{Ffn, LayerKind, Matrix, Mixer, ModelWeights};

fn load(files: &Files) -> ModelWeights {
    load_shards(files, 1)
}

fn load_shards(files: &Files, shards: usize) -> ModelWeights {
    let folder = tempfile::tempdir().unwrap();
    files.write(folder.path(), shards);
    // Read, not mapped: the folder goes away.
    weights::open(folder.path(), false).unwrap()
}

fn refused(files: &Files) -> String {
    let folder = tempfile::tempdir().unwrap();
    files.write(folder.path(), 1);
    weights::open(folder.path(), false).unwrap_err().to_string()
}

fn values(matrix: &Matrix) -> Vec<f32> {
    let mut out = vec![0.0; matrix.rows() * matrix.cols()];
    dequantize(matrix.format().unwrap(), matrix.data(), &mut out);
    out
}

/// Sample of a model's parts: enough to see that two ways of writing it lead to the same one.
fn same(a: &ModelWeights, b: &ModelWeights) {
    assert_eq!(a.shape, b.shape);
    assert_eq!(values(&a.embed), values(&b.embed));
    assert_eq!(a.output_norm, b.output_norm);
    for (a, b) in a.layers.iter().zip(&b.layers) {
        assert_eq!(a.ffn_norm, b.ffn_norm);
        match (&a.mixer, &b.mixer) {
            (Mixer::Delta(a), Mixer::Delta(b)) => {
                assert_eq!((&a.conv, &a.a_log_neg, &a.norm), (&b.conv, &b.a_log_neg, &b.norm));
                assert_eq!(values(&a.qkv), values(&b.qkv));
            }
            (Mixer::Attention(a), Mixer::Attention(b)) => assert_eq!(values(&a.q), values(&b.q)),
            _ => panic!("layers of different kinds"),
        }
        match (&a.ffn, &b.ffn) {
            (Ffn::Dense(a), Ffn::Dense(b)) => assert_eq!(values(&a.down), values(&b.down)),
            (Ffn::Moe(a), Ffn::Moe(b)) => {
                assert_eq!(a.experts.len(), b.experts.len());
                for (a, b) in a.experts.iter().zip(&b.experts) {
                    assert_eq!(values(&a.gate), values(&b.gate));
                    assert_eq!(values(&a.up), values(&b.up));
                    assert_eq!(values(&a.down), values(&b.down));
                }
            }
            _ => panic!("feed-forwards of different kinds"),
        }
    }
}

/// Layout of the makers: a multimodal checkpoint with the text model inside.
fn multimodal(name: &str) -> Files {
    let mut files = Files::reference(name);
    files.rename(|name| match name.strip_prefix("model.") {
        Some(rest) => format!("model.language_model.{rest}"),
        None => name.to_string(),
    });
    files.add("model.visual.blocks.0.attn.qkv.weight", &[6, 2]);
    files.add("model.visual.blocks.0.attn.qkv.bias", &[6]);
    files.add("model.visual.merger.norm.weight", &[2]);
    let mut text = files.config.take();
    let tied = text["tie_word_embeddings"].take();
    let kind = text["model_type"].as_str().unwrap().replace("_text", "");
    files.config = json!({
        "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": kind, "text_config": text,
        "tie_word_embeddings": tied, "vision_config": {"depth": 1, "hidden_size": 2, "num_hidden_layers": 99},
    });
    files
}

#[test]
fn multimodal_checkpoints_hold_the_text_model() {
    for name in ["dense-gva3", "dense-tied", "moe"] {
        let model = load(&multimodal(name));
        same(&model, &load(&Files::reference(name)));
        assert_eq!(model.notes, ["3 tensors of the vision encoder are skipped: this runs the text model"]);
    }
}

#[test]
fn shards_are_one_model() {
    let files = Files::reference("dense-gva2");
    same(&load_shards(&files, 4), &load(&files));
    same(&load_shards(&multimodal("moe"), 3), &load(&Files::reference("moe")));
}

#[test]
fn shards_that_are_missing_or_lead_elsewhere_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    Files::reference("dense-tied").write(folder.path(), 2);
    let open = || weights::open(folder.path(), true).unwrap_err().to_string();
    std::fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    assert!(open().contains("model-00002-of-00002.safetensors: is missing"), "{}", open());
    let index = folder.path().join("model.safetensors.index.json");
    for name in ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "", "config.json"] {
        std::fs::write(&index, json!({"weight_map": {"lm_head.weight": name}}).to_string()).unwrap();
        assert!(open().contains("'weight_map'"), "{name}: {}", open());
    }
    for damaged in ["{}", "[]", "{\"weight_map\": {}}", "{\"weight_map\": 5}", "\u{1}"] {
        std::fs::write(&index, damaged).unwrap();
        assert!(open().contains("index.json"), "{}", open());
    }
}

#[test]
fn weights_may_be_f16_or_f32_and_lie_anywhere() {
    let plain = load(&Files::reference("dense-tied"));
    let mut wide = Files::reference("dense-tied");
    for tensor in &mut wide.tensors {
        tensor.dtype = "F32".into();
        tensor.data = tensor.data.chunks(2).flat_map(|half| [0, 0, half[0], half[1]]).collect();
    }
    // One byte in front: now nothing is aligned.
    wide.tensors.insert(0, Tensor { name: "model.visual.x".into(), dtype: "U8".into(), shape: vec![1], data: vec![7] });
    let model = load(&wide);
    same(&model, &plain);
    assert_eq!(model.embed.format(), Some(Format::F32));
    assert_eq!(model.embed.data().as_ptr() as usize % 4, 0);

    let mut half = Files::reference("dense-tied");
    let norm = half.tensors.iter_mut().find(|tensor| tensor.name == "model.norm.weight").unwrap();
    norm.dtype = "F16".into();
    norm.data = norm.data.chunks(2).flat_map(|_| 0x3800u16.to_le_bytes()).collect();
    assert_eq!(load(&half).output_norm, [1.5; 64]);
}

#[test]
fn layer_types_or_an_interval() {
    let mut files = Files::reference("dense-gva2");
    files.config["layer_types"] = json!(null);
    same(&load(&files), &load(&Files::reference("dense-gva2")));
    files.config["full_attention_interval"] = json!(4);
    same(&load(&files), &load(&Files::reference("dense-gva2")));

    // Any pattern: here the attention layer comes first.
    let mut files = Files::reference("dense-gva2");
    files.config["layer_types"] = json!(["full_attention", "linear_attention", "linear_attention", "linear_attention"]);
    files.rename(|name| {
        let swapped = name.replace("layers.0.", "layers.x.").replace("layers.3.", "layers.0.");
        swapped.replace("layers.x.", "layers.3.")
    });
    use LayerKind::{Attention, Delta};
    assert_eq!(load(&files).shape.layers, [Attention, Delta, Delta, Delta]);
    files.config["layer_types"] = json!(["full_attention", "linear_attention"]);
    assert!(refused(&files).contains("'layer_types': found a list of 2, expected one for each of the 4 layers"));
    files.config["layer_types"] = json!(["full_attention", "linear_attention", "sliding_attention", "full_attention"]);
    assert!(refused(&files).contains("sliding_attention"));
}

#[test]
fn the_rotation_stands_where_older_files_have_it() {
    let mut files = Files::reference("dense-yarn");
    let mut rope = files.config["rope_parameters"].take();
    let object = files.config.as_object_mut().unwrap();
    object.remove("rope_parameters");
    object.insert("rope_theta".into(), rope["rope_theta"].take());
    object.insert("partial_rotary_factor".into(), rope["partial_rotary_factor"].take());
    object
        .insert("rope_scaling".into(), json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}));
    same(&load(&files), &load(&Files::reference("dense-yarn")));
    let mut by_kind = Files::reference("dense-yarn");
    let rope = by_kind.config["rope_parameters"].take();
    by_kind.config["rope_parameters"] = json!({"full_attention": rope});
    same(&load(&by_kind), &load(&Files::reference("dense-yarn")));
}

#[test]
fn yarn_with_all_its_keys() {
    let with = |key: &str, value: serde_json::Value| {
        let mut files = Files::reference("dense-yarn");
        files.config["rope_parameters"][key] = value;
        files
    };
    let yarn = |files: &Files| load(files).shape.rope.scaling.unwrap();
    assert_eq!(yarn(&with("beta_fast", json!(20))).beta_fast, 20.0);
    assert_eq!(yarn(&with("beta_slow", json!(2.5))).beta_slow, 2.5);
    assert!(!yarn(&with("truncate", json!(false))).truncate);
    assert_eq!(yarn(&with("attention_factor", json!(1.25))).magnitude, 1.25);
    let mut both = with("mscale", json!(1.0));
    both.config["rope_parameters"]["mscale_all_dim"] = json!(0.5);
    let expected = (0.1 * 4f32.ln() + 1.0) / (0.05 * 4f32.ln() + 1.0);
    assert!((yarn(&both).magnitude - expected).abs() < 1e-6);
    // The factor follows from the two windows where it is not given.
    assert_eq!(yarn(&with("factor", json!(null))).factor, 4.0);
    assert!(refused(&with("factor", json!(-1.0))).contains("YaRN's factor"));
    assert!(refused(&with("rope_type", json!("llama3"))).contains("'llama3'"));
    assert!(refused(&with("original_max_position_embeddings", json!(0))).contains("a number of tokens"));
}

#[test]
fn experts_may_be_separate() {
    let mut files = Files::reference("moe");
    for layer in 0..4 {
        let name = |part: &str| format!("model.layers.{layer}.mlp.experts.{part}");
        let (both, down) = (files.take(&name("gate_up_proj")), files.take(&name("down_proj")));
        let (count, rows, cols) = (8, 48usize, 64usize);
        for i in 0..count {
            let expert = &both.data[i * 4 * rows * cols..(i + 1) * 4 * rows * cols];
            let (gate, up) = expert.split_at(2 * rows * cols);
            let down = &down.data[i * 2 * rows * cols..(i + 1) * 2 * rows * cols];
            for (part, data, shape) in [("gate", gate, [48, 64]), ("up", up, [48, 64]), ("down", down, [64, 48])] {
                let name = name(&format!("{i}.{part}_proj.weight"));
                files.tensors.push(Tensor { name, dtype: "BF16".into(), shape: shape.to_vec(), data: data.to_vec() });
            }
        }
    }
    same(&load(&files), &load(&Files::reference("moe")));
    files.take("model.layers.2.mlp.experts.5.up_proj.weight");
    assert!(refused(&files).contains("'model.layers.2.mlp.experts.5.up_proj.weight': found no such tensor"));
}

fn with_prediction(prefix: &str) -> Files {
    let mut files = Files::reference("dense-gva2");
    for (name, dims) in [
        ("fc", vec![64, 128]),
        ("pre_fc_norm_embedding", vec![64]),
        ("pre_fc_norm_hidden", vec![64]),
        ("norm", vec![64]),
        ("layers.0.input_layernorm", vec![64]),
        ("layers.0.post_attention_layernorm", vec![64]),
        ("layers.0.self_attn.q_proj", vec![256, 64]),
        ("layers.0.self_attn.k_proj", vec![64, 64]),
        ("layers.0.self_attn.v_proj", vec![64, 64]),
        ("layers.0.self_attn.o_proj", vec![64, 128]),
        ("layers.0.self_attn.q_norm", vec![32]),
        ("layers.0.self_attn.k_norm", vec![32]),
        ("layers.0.mlp.gate_proj", vec![160, 64]),
        ("layers.0.mlp.up_proj", vec![160, 64]),
        ("layers.0.mlp.down_proj", vec![64, 160]),
    ] {
        files.add(&format!("{prefix}{name}.weight"), &dims);
    }
    files
}

#[test]
fn a_prediction_block_is_read() {
    for prefix in ["mtp.", "model.mtp.", "language_model.mtp."] {
        let mut files = with_prediction(prefix);
        let model = load(&files);
        assert_eq!((model.shape.mtp_blocks, &model.notes[..]), (1, &[][..]));
        let block = model.prediction.unwrap();
        assert_eq!((block.join.rows(), block.join.cols(), block.matrices().len()), (64, 128, 8));
        // A part that is missing is told.
        files.take(&format!("{prefix}pre_fc_norm_hidden.weight"));
        assert!(refused(&files).contains("pre_fc_norm_hidden.weight': found no such tensor"), "{}", refused(&files));
    }
    // A folder has the difference from one, which is zero here.
    let block = load(&with_prediction("mtp.")).prediction.unwrap();
    for norm in [&block.embed_norm, &block.state_norm, &block.output_norm, &block.attn_norm] {
        assert_eq!(norm[..], [1.0; 64]);
    }
}

#[test]
fn a_prediction_block_that_cannot_be_used_is_left_out_with_a_note() {
    let left_out = |files: &Files, why: &str| {
        let model = load(files);
        assert!(model.prediction.is_none() && model.shape.mtp_blocks == 0);
        assert!(model.notes.len() == 1 && model.notes[0].contains(why), "{:?}", model.notes);
    };
    let mut files = with_prediction("mtp.");
    files.tensors.last_mut().unwrap().dtype = "F8_E4M3".into();
    left_out(&files, "F8_E4M3");
    let mut files = with_prediction("mtp.");
    files.add("mtp.embed_tokens.weight", &[512, 64]);
    left_out(&files, "an embedding of its own");
    let mut files = with_prediction("mtp.");
    files.add("mtp.layers.1.input_layernorm.weight", &[64]);
    assert!(load(&files).prediction.is_some() && load(&files).notes[0].contains("the first is used"));
}

#[test]
fn the_head_may_be_stated_or_follow_from_the_tensors() {
    let mut tied = Files::reference("dense-tied");
    tied.config.as_object_mut().unwrap().remove("tie_word_embeddings");
    assert!(load(&tied).shape.tied);
    let mut own = Files::reference("dense-gva2");
    own.config.as_object_mut().unwrap().remove("tie_word_embeddings");
    assert!(!load(&own).shape.tied);
    own.config["tie_word_embeddings"] = json!(true);
    let model = load(&own);
    assert!(model.output.is_none() && model.notes[0].contains("lm_head.weight"));
    tied.config["tie_word_embeddings"] = json!(false);
    assert!(refused(&tied).contains("'lm_head.weight': found no such tensor, expected shape [512, 64]"));
}

#[test]
fn templates_and_end_tokens_come_from_where_they_are() {
    let mut files = Files::reference("dense-gva2");
    assert_eq!(load(&files).chat_template, None);
    files.tokenizer_config["chat_template"] = json!("in the configuration");
    assert_eq!(load(&files).chat_template.as_deref(), Some("in the configuration"));
    let named = json!([{"name": "tools", "template": "t"}, {"name": "default", "template": "the default"}]);
    files.tokenizer_config["chat_template"] = named;
    assert_eq!(load(&files).chat_template.as_deref(), Some("the default"));
    files.chat_template = Some("in its own file".into());
    assert_eq!(load(&files).chat_template.as_deref(), Some("in its own file"));

    files.generation_config = Some(json!({"eos_token_id": [505, 17]}));
    assert_eq!(load(&files).stop_tokens, [17, 503, 505]);
    files.generation_config = Some(json!({"eos_token_id": 4}));
    assert_eq!(load(&files).stop_tokens, [4, 503, 505]);
    files.generation_config = Some(json!({"eos_token_id": "four"}));
    assert!(refused(&files).contains("generation_config.json: key 'eos_token_id'"));
    files.generation_config = Some(json!({"eos_token_id": 512}));
    assert!(refused(&files).contains("less than 512"));
}

#[test]
fn what_is_not_of_the_family_gets_one_clear_line() {
    let with = |key: &str, value: serde_json::Value| {
        let mut files = Files::reference("dense-gva2");
        files.config[key] = value;
        refused(&files)
    };
    let llama = with("model_type", json!("llama"));
    assert!(
        llama.ends_with("architecture 'llama' is of no known family; known are Qwen3.5 (qwen35, qwen35moe)"),
        "{llama}"
    );
    assert!(with("model_type", json!("qwen3_next")).contains("'qwen3_next' is not supported"));
    assert!(with("quantization_config", json!({"quant_method": "fp8"})).contains("quantised by fp8"));
    assert!(with("attention_bias", json!(true)).contains("'attention_bias': found true"));
    assert!(with("attn_output_gate", json!(false)).contains("'attn_output_gate'"));
    assert!(with("hidden_act", json!("gelu")).contains("'gelu'"));

    let folder = tempfile::tempdir().unwrap();
    let open = || weights::open(folder.path(), true).unwrap_err().to_string();
    assert!(open().contains("holds no config.json"));
    std::fs::write(folder.path().join("config.json"), "{").unwrap();
    assert!(open().contains("config.json: is not valid JSON"));
    // Another family's folder lacks other things for good reasons: the family is named before what is missing.
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
    assert!(open().contains("'llama' is of no known family"));
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "qwen3_5_text"}"#).unwrap();
    assert!(open().contains("holds no tokenizer.json"));
    std::fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    assert!(open().contains("holds neither model.safetensors nor"));
    std::fs::write(folder.path().join("model.safetensors"), "").unwrap();
    assert!(open().contains("model.safetensors"));
    let nowhere = folder.path().join("nowhere");
    let error = weights::open(&nowhere, true).unwrap_err().to_string();
    assert!(error.starts_with(&nowhere.display().to_string()), "{error}");
}

#[test]
fn trellis_tiles_are_refused_with_a_way_out() {
    let mut files = Files::reference("dense-tied");
    files.rename(|name| name.replace("q_proj.weight", "q_proj.trellis"));
    let error = refused(&files);
    assert!(error.contains("trellis tiles (EXL3)") && error.contains("take the bf16 model"), "{error}");
}
