//! Every way in which GGUF files of the family differ: all of them open, and to the same model.

use testing::{gguf, tiny};

use std::path::{Path, PathBuf};

use gguf::{File, Tensor, Value};
use weights::{
    AttentionWeights, Ffn, HeadOrder, LayerKind, Matrix, Mixer, ModelBytes, ModelWeights, SwigluWeights, VocabSource,
};

fn load(file: &File) -> ModelWeights {
    weights::gguf::from_bytes(Path::new("tiny.gguf"), ModelBytes::copy_of(&file.bytes())).unwrap()
}

fn refused(file: &File) -> String {
    weights::gguf::from_bytes(Path::new("tiny.gguf"), ModelBytes::copy_of(&file.bytes())).unwrap_err().to_string()
}

fn attention(model: &ModelWeights, layer: usize) -> &AttentionWeights {
    match &model.layers[layer].mixer {
        Mixer::Attention(weights) => weights,
        Mixer::Delta(_) => panic!("layer {layer} is linear"),
    }
}

fn experts(model: &ModelWeights, layer: usize) -> &[SwigluWeights] {
    match &model.layers[layer].ffn {
        Ffn::Moe(weights) => &weights.experts,
        Ffn::Dense(_) => panic!("layer {layer} is dense"),
    }
}

fn same(a: &Matrix, b: &Matrix) {
    assert_eq!((a.format(), a.rows(), a.cols()), (b.format(), b.rows(), b.cols()));
    assert_eq!(&a.data()[..], &b.data()[..]);
}

fn fused(file: &mut File, name: &str, parts: &[&str]) {
    let parts: Vec<Tensor> = parts.iter().map(|part| file.take(part)).collect();
    let stacks = if parts[0].dims.len() == 3 { parts[0].dims[0] } else { 1 };
    let mut dims = parts[0].dims.clone();
    let rows = dims.len() - 2;
    dims[rows] = parts.iter().map(|part| part.dims[rows]).sum();
    let mut data = Vec::new();
    for stack in 0..stacks as usize {
        for part in &parts {
            let len = part.data.len() / stacks as usize;
            data.extend(&part.data[stack * len..(stack + 1) * len]);
        }
    }
    file.tensors.push(Tensor { name: name.into(), dims, type_code: 0, data, offset: None });
}

#[test]
fn the_plain_models_open() {
    use LayerKind::{Attention, Delta};
    let dense = load(&tiny::dense());
    assert_eq!(dense.shape.layers, [Delta, Delta, Attention, Delta]);
    assert_eq!((dense.shape.arch.as_str(), dense.name.as_str()), ("qwen35", "tiny"));
    assert!(dense.notes.is_empty(), "{:?}", dense.notes);
    assert_eq!(dense.stop_tokens, [7, 9]);
    let moe = load(&tiny::moe());
    assert_eq!(experts(&moe, 3).len(), 3);
    assert_eq!(moe.shape.arch, "qwen35moe");
}

#[test]
fn version_2_is_read_alike_and_version_1_is_not() {
    let three = load(&tiny::dense());
    let two = load(&File { version: 2, ..tiny::dense() });
    assert_eq!(two.shape, three.shape);
    same(&two.embed, &three.embed);
    assert!(refused(&File { version: 1, ..tiny::dense() }).contains("version 1"));
    assert!(refused(&File { version: 3u32.swap_bytes(), ..tiny::dense() }).contains("big-endian"));
}

#[test]
fn fused_attention_is_cut_into_q_k_v() {
    let plain = load(&tiny::dense());
    let mut file = tiny::dense();
    fused(&mut file, "blk.2.attn_qkv.weight", &["blk.2.attn_q.weight", "blk.2.attn_k.weight", "blk.2.attn_v.weight"]);
    let model = load(&file);
    let (fused, plain) = (attention(&model, 2), attention(&plain, 2));
    same(&fused.q, &plain.q);
    same(&fused.k, &plain.k);
    same(&fused.v, &plain.v);
}

#[test]
fn fused_experts_are_cut_into_gate_and_up() {
    let plain = load(&tiny::moe());
    let mut file = tiny::moe();
    for block in 0..tiny::LAYERS {
        let name = |part: &str| format!("blk.{block}.ffn_{part}_exps.weight");
        fused(&mut file, &name("gate_up"), &[&name("gate"), &name("up")]);
    }
    for file in [&file, file.clone().remove("qwen35moe.expert_feed_forward_length")] {
        let model = load(file);
        for (a, b) in experts(&model, 1).iter().zip(experts(&plain, 1)) {
            same(&a.gate, &b.gate);
            same(&a.up, &b.up);
            same(&a.down, &b.down);
        }
    }
}

#[test]
fn widths_of_experts_may_be_left_out() {
    let mut file = tiny::moe();
    file.remove("qwen35moe.expert_feed_forward_length").remove("qwen35moe.expert_shared_feed_forward_length");
    assert_eq!(load(&file).shape, load(&tiny::moe()).shape);
}

#[test]
fn a_model_without_shared_expert() {
    let mut file = tiny::moe();
    file.set("qwen35moe.expert_shared_feed_forward_length", Value::U32(0));
    file.tensors.retain(|tensor| !tensor.name.contains("shexp"));
    let model = load(&file);
    assert_eq!(model.shape.moe.unwrap().shared_ffn, 0);
    assert!(matches!(&model.layers[0].ffn, Ffn::Moe(moe) if moe.shared.is_none()));
}

#[test]
fn without_output_the_head_is_tied() {
    let mut file = tiny::dense();
    file.take("output.weight");
    let model = load(&file);
    assert!(model.shape.tied && model.output.is_none());
    assert!(!load(&tiny::dense()).shape.tied);
}

#[test]
fn the_pattern_comes_from_flags_or_head_counts_or_an_interval() {
    use LayerKind::{Attention, Delta};
    let flags = load(&tiny::dense()).shape.layers;
    let numbers = Value::U32s(vec![1, 1, 0, 1]);
    assert_eq!(load(tiny::dense().set("qwen35.attention.recurrent_layers", numbers)).shape.layers, flags);

    // As another converter writes it: a list of head counts, 0 where a layer has none.
    let mut file = tiny::dense();
    file.remove("qwen35.attention.recurrent_layers");
    file.set("qwen35.attention.head_count_kv", Value::U32s(vec![0, 0, 1, 0]));
    let model = load(&file);
    assert_eq!((model.shape.layers, model.shape.kv_heads), (flags, 1));

    let mut file = tiny::dense();
    file.remove("qwen35.attention.recurrent_layers").set("qwen35.full_attention_interval", Value::U32(3));
    assert_eq!(load(&file).shape.layers, [Delta, Delta, Attention, Delta]);
    // Nothing said means every fourth; then this file lacks a tensor, and the message says which.
    file.remove("qwen35.full_attention_interval");
    assert!(refused(&file).contains("'blk.2.attn_qkv.weight'"), "{}", refused(&file));
}

fn with_prediction() -> File {
    let mut file = tiny::dense();
    file.set("qwen35.block_count", Value::U32(5)).set("qwen35.nextn_predict_layers", Value::U32(1));
    file.set("qwen35.attention.recurrent_layers", Value::Bools(vec![true, true, false, true, false]));
    tiny::prediction(&mut file, 4);
    file
}

#[test]
fn a_prediction_block_is_read() {
    let plain = load(&tiny::dense());
    assert!(plain.prediction.is_none() && plain.shape.mtp_blocks == 0);
    let mut file = with_prediction();
    let model = load(&file);
    assert_eq!((model.shape.mtp_blocks, model.layers.len()), (1, 4));
    assert_eq!(model.shape.layers, plain.shape.layers);
    assert!(model.notes.is_empty(), "{:?}", model.notes);
    let block = model.prediction.unwrap();
    assert_eq!((block.join.rows(), block.join.cols()), (8, 16));
    assert_eq!(block.matrices().len(), 8);
    assert_eq!((block.attention.q.rows() as u64, block.attention.k.rows() as u64), (tiny::Q_ROWS, tiny::KV_ROWS));
    let first = |file: &File, name: &str| {
        let at = file.tensors.iter().position(|tensor| tensor.name == name).unwrap();
        f32::from_le_bytes(file.tensors[at].data[..4].try_into().unwrap())
    };
    for (norm, name) in
        [(&block.embed_norm, "enorm"), (&block.state_norm, "hnorm"), (&block.output_norm, "shared_head_norm")]
    {
        assert_eq!(norm[0], first(&file, &format!("blk.4.nextn.{name}.weight")));
    }
    // One last norm for both.
    file.take("blk.4.nextn.shared_head_norm.weight");
    let model = load(&file);
    assert_eq!(model.prediction.unwrap().output_norm, model.output_norm);
}

#[test]
fn a_prediction_block_may_be_in_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, file: &File| std::fs::write(folder.path().join(name), file.bytes()).unwrap();
    let open = || weights::gguf::open(&folder.path().join("tiny-q4.gguf"), true).unwrap();
    put("tiny-q4.gguf", &tiny::dense());
    let plain = open();
    assert!(plain.prediction.is_none() && plain.notes.is_empty(), "{:?}", plain.notes);
    // One of another model, one that is no GGUF, and the right one, which has the model's embedding once more.
    let whole = with_prediction();
    let mut block = with_prediction();
    block.tensors.retain(|tensor| tensor.name.starts_with("blk.4.") || tensor.name == "token_embd.weight");
    let mut other = with_prediction();
    other.set("qwen35.block_count", Value::U32(9));
    put("mtp-a.gguf", &other);
    std::fs::write(folder.path().join("mtp-b.gguf"), b"no model").unwrap();
    let notes = open().notes;
    assert!(notes.len() == 2 && notes[0] == "mtp-a.gguf was made for another model", "{notes:?}");
    assert!(notes[1].starts_with("mtp-b.gguf is left out: "), "{notes:?}");
    put("MTP-tiny-q8.gguf", &block);
    let model = open();
    assert_eq!(model.notes, ["multi-token prediction is in MTP-tiny-q8.gguf"]);
    assert_eq!((model.shape.mtp_blocks, model.layers.len()), (1, 4));
    let (found, expected) = (model.prediction.unwrap(), load(&whole).prediction.unwrap());
    assert_eq!((&found.join.data()[..], &found.output_norm), (&expected.join.data()[..], &expected.output_norm));
    assert_ne!(model.fingerprint, plain.fingerprint, "a past of one has no keys of the other's block");
    // A file that has its own needs no other.
    put("tiny-q4.gguf", &whole);
    assert!(open().notes.is_empty());
    // A block that ends too early.
    put("tiny-q4.gguf", &tiny::dense());
    let bytes = block.bytes();
    std::fs::write(folder.path().join("MTP-tiny-q8.gguf"), &bytes[..bytes.len() - 40]).unwrap();
    let model = open();
    assert!(
        model.prediction.is_none() && model.notes[0].starts_with("MTP-tiny-q8.gguf is left out"),
        "{:?}",
        model.notes
    );
}

#[test]
fn a_prediction_block_that_cannot_be_used_is_left_out_with_a_note() {
    let note = |file: &File| {
        let model = load(file);
        assert!(model.prediction.is_none() && model.shape.mtp_blocks == 0);
        let [note] = &model.notes[..] else { panic!("{:?}", model.notes) };
        note.clone()
    };
    let mut none = with_prediction();
    none.tensors.retain(|tensor| !tensor.name.starts_with("blk.4."));
    assert!(note(&none).contains("states 1 block(s)"));
    let mut own = with_prediction();
    tiny::tensor(&mut own, "blk.4.nextn.embed_tokens.weight", &[tiny::VOCAB, tiny::HIDDEN]);
    assert!(note(&own).contains("embedding or a head of its own"));
    // Of two blocks the first is used.
    let mut two = with_prediction();
    two.set("qwen35.block_count", Value::U32(6)).set("qwen35.nextn_predict_layers", Value::U32(2));
    two.set("qwen35.attention.recurrent_layers", Value::Bools(vec![true, true, false, true, false, false]));
    tiny::prediction(&mut two, 5);
    let model = load(&two);
    assert!(model.prediction.is_some() && model.notes[0].contains("of 2 blocks"), "{:?}", model.notes);
}

#[test]
fn a_prediction_block_with_a_part_missing_or_of_another_shape_is_refused() {
    for name in ["nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "attn_q", "attn_k_norm", "ffn_down", "attn_norm"] {
        let name = format!("blk.4.{name}.weight");
        let mut file = with_prediction();
        file.take(&name);
        assert!(refused(&file).contains(&format!("'{name}': found no such tensor")), "{}", refused(&file));
    }
    let mut file = with_prediction();
    file.take("blk.4.nextn.eh_proj.weight");
    tiny::tensor(&mut file, "blk.4.nextn.eh_proj.weight", &[tiny::HIDDEN, tiny::HIDDEN]);
    assert!(refused(&file).contains("found shape [8, 8], expected shape [8, 16]"), "{}", refused(&file));
    file.set("qwen35.nextn_predict_layers", Value::U32(5));
    assert!(refused(&file).contains("nextn_predict_layers"));
}

#[test]
fn files_of_other_converters() {
    let mut file = tiny::dense();
    for block in [0, 1, 3] {
        file.tensor(&format!("blk.{block}.ssm_dt.bias")).name = format!("blk.{block}.ssm_dt");
    }
    file.set("qwen35.mrope_sections", Value::I32s(vec![1, 0, 0]))
        .set("qwen35.rope.mrope_interleaved", Value::Bool(true));
    file.set("qwen35.attention.head_count_kv", Value::U32s(vec![0, 0, 1, 0]));
    file.set("tokenizer.ggml.eos_token_ids", Value::I32s(vec![9, 7, 8]));
    tiny::tensor(&mut file, "v.blk.0.attn_q.weight", &[4, 4]);
    tiny::tensor(&mut file, "v.patch_embed.bias", &[4]);
    let flagged = load(file.set("qwen35.ssm.v_head_reordered", Value::Bool(true)));
    assert_eq!(flagged.shape, load(&tiny::dense()).shape);
    assert_eq!(flagged.shape.value_head_order, HeadOrder::Tiled);
    assert_eq!(flagged.stop_tokens, [7, 8, 9]);
    assert_eq!(flagged.notes.len(), 1);
    assert!(flagged.notes[0].starts_with("2 tensors of the vision encoder"), "{}", flagged.notes[0]);
    let plain = load(file.set("qwen35.ssm.v_head_reordered", Value::Bool(false)));
    assert_eq!(plain.shape.value_head_order, HeadOrder::Grouped);
}

#[test]
fn yarn_with_all_its_keys() {
    let mut file = tiny::dense();
    file.set("qwen35.rope.scaling.type", Value::Text("yarn".into()));
    assert!(refused(&file).contains("rope.scaling.factor"));
    file.set("qwen35.rope.scaling.factor", Value::F32(4.0));
    let scaling = |file: &File| load(file).shape.rope.scaling.unwrap();
    assert_eq!(scaling(&file).original_ctx, 64);
    assert!((scaling(&file).magnitude - 1.138_629_4).abs() < 1e-5);
    file.set("qwen35.rope.scaling.original_context_length", Value::U32(16));
    file.set("qwen35.rope.scaling.yarn_beta_fast", Value::F32(30.0));
    file.set("qwen35.rope.scaling.yarn_beta_slow", Value::F32(2.0));
    file.set("qwen35.rope.scaling.attn_factor", Value::F32(2.0));
    let all = scaling(&file);
    assert_eq!((all.factor, all.original_ctx, all.beta_fast, all.beta_slow, all.truncate), (4.0, 16, 30.0, 2.0, true));
    assert!((all.magnitude - 2.0 * 1.138_629_4).abs() < 1e-5);
    file.set("qwen35.rope.scaling.yarn_attn_factor", Value::F32(1.5));
    assert_eq!(scaling(&file).magnitude, 1.5);
    file.set("qwen35.rope.scaling.yarn_ext_factor", Value::F32(0.0));
    assert!(refused(&file).contains("yarn_ext_factor"));
    let mut none = tiny::dense();
    assert!(load(none.set("qwen35.rope.scaling.type", Value::Text("none".into()))).shape.rope.scaling.is_none());
    assert!(refused(none.set("qwen35.rope.scaling.type", Value::Text("longrope".into()))).contains("'longrope'"));
}

#[test]
fn vectors_come_in_any_float_and_matrices_in_blocks() {
    let mut file = tiny::dense();
    let half = |file: &mut File, name: &str, code: u32, one: u16| {
        let tensor = file.tensor(name);
        tensor.data = (0..tiny::HIDDEN).flat_map(|_| one.to_le_bytes()).collect();
        tensor.type_code = code;
    };
    half(&mut file, "output_norm.weight", 1, 0x3c00);
    half(&mut file, "blk.0.attn_norm.weight", 30, 0x3f80);
    let model = load(&file);
    assert_eq!(model.output_norm, [1.0; 8]);
    assert_eq!(model.layers[0].attn_norm, [1.0; 8]);
}

#[test]
fn a_set_opens_by_any_of_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let whole = tiny::dense();
    let paths = write_parts(folder.path(), &split(&whole, 3));
    let plain = load(&whole);
    let mut fingerprints = Vec::new();
    for path in &paths {
        for mmap in [true, false] {
            let model = weights::open(path, mmap).unwrap();
            assert_eq!(model.shape, plain.shape);
            same(&model.embed, &plain.embed);
            assert!(matches!(&model.vocab, VocabSource::Gguf { tokens, .. } if tokens.len() == 10));
            fingerprints.push(model.fingerprint);
        }
    }
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 1);

    let open = |path: &Path| weights::open(path, true).unwrap_err().to_string();
    std::fs::rename(&paths[1], folder.path().join("away")).unwrap();
    assert!(open(&paths[0]).contains("part 2 of 3"), "{}", open(&paths[0]));
    std::fs::copy(&paths[2], &paths[1]).unwrap();
    assert!(open(&paths[0]).contains("'split.no'"), "{}", open(&paths[0]));
    assert!(open(&folder.path().join("away")).contains("-0000X-of-00003.gguf"));
}

#[test]
fn a_set_with_a_tensor_too_few_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = split(&tiny::dense(), 2);
    parts[1].tensors.pop();
    let paths = write_parts(folder.path(), &parts);
    let error = weights::open(&paths[0], true).unwrap_err().to_string();
    assert!(error.contains("'split.tensors.count'"), "{error}");
    let error =
        weights::gguf::from_bytes(Path::new("one"), ModelBytes::copy_of(&parts[0].bytes())).unwrap_err().to_string();
    assert!(error.contains("one of 2 parts"), "{error}");
}

fn split(whole: &File, parts: usize) -> Vec<File> {
    let chunks = whole.tensors.chunks(whole.tensors.len().div_ceil(parts)).enumerate();
    let part = |(i, tensors): (usize, &[Tensor])| {
        let mut part = if i == 0 { whole.clone() } else { File::default() };
        part.tensors = tensors.to_vec();
        part.set("split.no", Value::U32(i as u32)).set("split.count", Value::U32(parts as u32));
        part.set("split.tensors.count", Value::I32(whole.tensors.len() as i32));
        part
    };
    chunks.map(part).collect()
}

fn write_parts(folder: &Path, parts: &[File]) -> Vec<PathBuf> {
    let path = |i: usize| folder.join(format!("tiny-{:05}-of-{:05}.gguf", i + 1, parts.len()));
    parts.iter().enumerate().for_each(|(i, part)| std::fs::write(path(i), part.bytes()).unwrap());
    (0..parts.len()).map(path).collect()
}

#[test]
fn another_family_gets_one_clear_line() {
    let arch = |arch: &str| refused(tiny::dense().set("general.architecture", Value::Text(arch.into())));
    assert_eq!(
        arch("llama"),
        "tiny.gguf: architecture 'llama' is of no known family; known are Qwen3.5 (qwen35, qwen35moe)"
    );
    assert!(arch("qwen3next").contains("'qwen3next' is not supported"));
    assert!(arch("clip").contains("vision encoder"));
    assert!(refused(tiny::dense().set("general.type", Value::Text("adapter".into()))).contains("adapter"));
    let mut bias = tiny::dense();
    tiny::tensor(&mut bias, "blk.2.attn_q.bias", &[tiny::Q_ROWS]);
    assert!(refused(&bias).contains("'blk.2.attn_q.bias'"));
    let mut unknown = tiny::dense();
    tiny::tensor(&mut unknown, "something.else", &[3]);
    assert_eq!(load(&unknown).notes, ["1 tensors are not used, the first of them 'something.else'"]);
    let mut iq = tiny::dense();
    iq.tensor("blk.1.ffn_up.weight").type_code = 16;
    assert!(refused(&iq).contains("found type iq2_xxs (16), expected one of f32"), "{}", refused(&iq));
}

#[test]
fn bytes_of_types_that_are_not_read_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = tiny::dense();
    let mut add = |name: &str, dims: &[u64], type_code: u32, bytes: usize| {
        let data = (0..bytes).map(|byte| byte as u8).collect();
        file.tensors.push(Tensor { name: name.into(), dims: dims.into(), type_code, data, offset: None });
    };
    add("two.bits", &[3, 512], 16, 3 * 2 * 66);
    add("numbers", &[5], 26, 5 * 4);
    add("of the future", &[5], 99, 32);
    let path = folder.path().join("x.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    let tensors = weights::tensors_of(&path, true).unwrap();
    let bytes = |name: &str| tensors.iter().find(|tensor| tensor.name == name).unwrap().data.len();
    assert_eq!([bytes("two.bits"), bytes("numbers"), bytes("of the future")], [396, 20, 0]);

    let shard = folder.path().join("x.safetensors");
    let header = r#"{"scale":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[0,6]}}"#;
    std::fs::write(&shard, testing::folder::with_header(header, &[1, 2, 3, 4, 5, 6])).unwrap();
    let tensors = weights::tensors_of(&shard, true).unwrap();
    assert_eq!((tensors[0].format, &tensors[0].data[..]), (None, &[1, 2, 3, 4, 5, 6][..]));
}

#[test]
fn the_fingerprint_sees_weights_and_keys() {
    let plain = load(&tiny::dense()).fingerprint;
    assert_eq!(load(&tiny::dense()).fingerprint, plain);
    let mut other = tiny::dense();
    other.tensor("blk.3.ffn_down.weight").data[5] ^= 1;
    assert_ne!(load(&other).fingerprint, plain);
    assert_ne!(load(tiny::dense().set("qwen35.rope.freq_base", Value::F32(1e6))).fingerprint, plain);
}
