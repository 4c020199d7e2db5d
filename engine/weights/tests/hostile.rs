//! Damaged and hostile files: each is an error that names the file, the key or the tensor, and what was expected;
//! none is a panic.

use testing::{folder, gguf, tiny};

use std::path::Path;

use folder::{Files, with_header};
use gguf::{File, Value};
use proptest::prelude::*;
use serde_json::json;
use weights::{Error, ModelBytes, ModelWeights};

fn open_bytes(bytes: &[u8]) -> Result<ModelWeights, Error> {
    weights::gguf::from_bytes(Path::new("bad.gguf"), ModelBytes::copy_of(bytes))
}

fn dense(change: impl FnOnce(&mut File)) -> String {
    let mut file = tiny::dense();
    change(&mut file);
    open_bytes(&file.bytes()).expect_err("opens").to_string()
}

fn moe(change: impl FnOnce(&mut File)) -> String {
    let mut file = tiny::moe();
    change(&mut file);
    open_bytes(&file.bytes()).expect_err("opens").to_string()
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    assert!(!message.contains('\n') && message.len() < 500, "{message}");
    assert!(message.starts_with("bad"), "{message}");
    for part in parts {
        assert!(message.contains(part), "'{part}' is not in: {message}");
    }
}

/// One list of one kind of number, as raw bytes after the list's type code.
fn raw_list(element: u32, count: u64, bytes: &[u8]) -> Value {
    let mut raw = element.to_le_bytes().to_vec();
    raw.extend(count.to_le_bytes());
    raw.extend(bytes);
    Value::Raw(9, raw)
}

#[test]
fn files_that_are_something_else() {
    for (bytes, found) in
        [(&b""[..], "''"), (b"GG", "'GG'"), (b"PK\x03\x04 a zip", "'PK\\u{3}\\u{4}'"), (b"\n{", "'\\n{'")]
    {
        says(&open_bytes(bytes).unwrap_err().to_string(), &["bad.gguf: is not a GGUF file", found]);
    }
    says(&open_bytes(b"GGUF").unwrap_err().to_string(), &["cut short", "the version"]);
    says(&open_bytes(b"GGUF\x09\0\0\0").unwrap_err().to_string(), &["version 9", "2 and 3"]);
}

#[test]
fn counts_beyond_the_file() {
    for count in [u64::MAX, u64::MAX / 2, 1 << 40, 100_000] {
        says(&dense(|file| file.tensor_count = Some(count)), &[&format!("states {count} tensors")]);
        says(&dense(|file| file.key_count = Some(count)), &[&format!("states {count} keys")]);
    }
    // A count that the bytes could hold, and that the keys do not bear out.
    says(&dense(|file| file.key_count = Some(file.keys.len() as u64 + 3)), &["bad.gguf"]);
    says(&dense(|file| file.tensor_count = Some(file.tensors.len() as u64 + 1)), &["bad.gguf"]);
    for count in [u64::MAX, 1 << 61, 1 << 33, 1_000_000] {
        for element in [0, 4, 8, 10, 12] {
            let message = dense(|file| {
                file.set("qwen35.some.list", raw_list(element, count, &[]));
            });
            says(&message, &["'qwen35.some.list'", &format!("a list of {count}"), "at most"]);
        }
        let message = dense(|file| {
            file.set("general.name", Value::Raw(8, count.to_le_bytes().to_vec()));
        });
        says(&message, &["cut short", "key 'general.name'", &format!("takes {count} bytes")]);
    }
}

#[test]
fn values_of_wrong_types() {
    let cases: &[(&str, Value, &str)] = &[
        ("general.architecture", Value::U32(5), "found 5, expected a string"),
        ("qwen35.block_count", Value::Text("four".into()), "found the string 'four', expected a whole number"),
        ("qwen35.block_count", Value::I32(-4), "found -4"),
        ("qwen35.block_count", Value::Bool(true), "found true"),
        ("qwen35.block_count", Value::F32(4.0), "found 4"),
        ("qwen35.block_count", Value::U64(u64::MAX), "expected fewer than the file's"),
        ("qwen35.block_count", Value::U32(0), "expected 1 or more"),
        ("qwen35.embedding_length", Value::U32s(vec![8]), "a list of 1 of type u32"),
        ("qwen35.rope.freq_base", Value::Text("x".into()), "expected a finite number"),
        ("qwen35.rope.freq_base", Value::F32(f32::NAN), "expected a finite number"),
        ("qwen35.attention.recurrent_layers", Value::Text("yes".into()), "a list of whole numbers"),
        ("qwen35.attention.recurrent_layers", Value::U32s(vec![1, 2, 0, 1]), "flags, 0 or 1"),
        ("qwen35.attention.recurrent_layers", Value::I32s(vec![1, -1, 0, 1]), "not negative"),
        ("qwen35.attention.recurrent_layers", Value::Bools(vec![true; 3]), "one for each of the 4 blocks"),
        ("qwen35.attention.head_count_kv", Value::U32s(vec![1, 1, 2, 1]), "one number for all"),
        ("qwen35.attention.head_count_kv", Value::U32s(vec![]), "expected 1 or more"),
        ("qwen35.ssm.v_head_reordered", Value::U32(2), "expected true or false"),
        ("tokenizer.ggml.tokens", Value::U32s(vec![1; 10]), "expected a list of strings"),
        ("tokenizer.ggml.tokens", Value::Texts(vec!["a".into()]), "expected 10, the rows of token_embd.weight"),
        ("tokenizer.ggml.token_type", Value::I32s(vec![1; 9]), "one for each of the 10 tokens"),
        ("tokenizer.ggml.token_type", Value::I32s(vec![-1; 10]), "not negative"),
        ("tokenizer.ggml.merges", Value::Text("a b".into()), "expected a list of strings"),
        ("tokenizer.ggml.eos_token_id", Value::U32(10), "less than 10"),
        ("tokenizer.ggml.eos_token_ids", Value::I32s(vec![3, 99]), "less than 10"),
        ("general.alignment", Value::U32(0), "a power of two"),
        ("general.alignment", Value::U32(33), "a power of two"),
        ("general.alignment", Value::U32(4), "8 or more"),
        ("general.alignment", Value::U64(u64::MAX), "a power of two"),
        ("split.count", Value::U64(u64::MAX), "at most 99999 parts"),
    ];
    for (key, value, expected) in cases {
        let message = dense(|file| {
            file.set(key, value.clone());
        });
        says(&message, &[&format!("key '{key}'"), expected]);
    }
}

#[test]
fn values_that_are_no_values() {
    let set = |value: Value| {
        dense(|file| {
            file.set("some.key", value);
        })
    };
    says(&set(Value::Raw(13, vec![])), &["key 'some.key'", "type 13", "0 to 12"]);
    says(&set(Value::Raw(u32::MAX, vec![])), &["key 'some.key'"]);
    says(&set(Value::Raw(7, vec![2])), &["key 'some.key'", "a bool, 0 or 1"]);
    says(&set(raw_list(7, 2, &[1, 3])), &["key 'some.key'", "a list of bool"]);
    says(&set(raw_list(9, 1, &[0; 24])), &["key 'some.key'", "a list of lists"]);
    says(&set(raw_list(44, 1, &[0; 24])), &["key 'some.key'", "type 44"]);
    let mut broken = 2u64.to_le_bytes().to_vec();
    broken.extend([0xff, 0xfe]);
    says(&set(Value::Raw(8, broken.clone())), &["key 'some.key'", "not UTF-8"]);
    says(&set(raw_list(8, 1, &broken)), &["key 'some.key'", "not UTF-8"]);
    // A key's own name.
    let mut bytes = tiny::dense().bytes();
    let at = bytes.windows(12).position(|window| window == b"general.name").unwrap();
    bytes[at + 3] = 0xff;
    says(&open_bytes(&bytes).unwrap_err().to_string(), &["the name of a key", "not UTF-8"]);
}

#[test]
fn names_twice() {
    let key = dense(|file| file.keys.push(("general.name".into(), Value::Text("again".into()))));
    says(&key, &["key 'general.name'", "twice"]);
    let tensor = dense(|file| tiny::tensor(file, "output.weight", &[tiny::VOCAB, tiny::HIDDEN]));
    says(&tensor, &["tensor 'output.weight'", "twice"]);
}

#[test]
fn tensors_that_cannot_be() {
    type Change = fn(&mut gguf::Tensor);
    let cases: &[(Change, &str)] = &[
        (|t| t.dims = vec![], "0 dimensions"),
        (|t| t.dims = vec![1, 1, 1, 10, 8], "5 dimensions"),
        (|t| t.dims = vec![10, 0], "none of length 0"),
        (|t| t.dims = vec![u64::MAX, 8], "whose size fits into memory"),
        (|t| t.dims = vec![1 << 62, 8], "whose size fits into memory"),
        (|t| t.dims = vec![1 << 31, 1 << 31, 1 << 31, 8], "whose size fits into memory"),
        (|t| t.dims = vec![1 << 40, 8], "is the download complete?"),
        (|t| t.dims = vec![9, 8], "expected shape [10, 8]"),
        (|t| t.dims = vec![8, 10], "expected shape [10, 8]"),
        (|t| t.dims = vec![80], "expected shape [10, 8]"),
        (|t| t.type_code = 31, "found type 31"),
        (|t| t.type_code = u32::MAX, "found type 4294967295"),
        (|t| t.type_code = 8, "rows of whole blocks: q8_0 has 32 values in one"),
        (|t| t.type_code = 12, "rows of whole blocks: q4_k has 256 values in one"),
        (|t| t.offset = Some(u64::MAX), "offset 18446744073709551615"),
        (|t| t.offset = Some(u64::MAX - 31), "offset"),
        (|t| t.offset = Some(1 << 40), "the data's length"),
        (|t| t.offset = Some(8), "a multiple of 32"),
        (|t| t.offset = Some(0), "tensors that do not overlap"),
    ];
    for (change, expected) in cases {
        let message = dense(|file| change(file.tensor("output.weight")));
        says(&message, &["'output.weight'", expected]);
    }
    says(&dense(|file| file.tensor("blk.0.ssm_a").dims = vec![2, 2]), &["'blk.0.ssm_a'", "expected shape [4]"]);
    says(
        &moe(|file| file.tensor("blk.1.ffn_up_exps.weight").dims = vec![6, 3, 8]),
        &["'blk.1.ffn_up_exps.weight'", "[3, 6, 8]"],
    );
}

#[test]
fn every_tensor_is_needed() {
    for file in [tiny::dense(), tiny::moe()] {
        for name in file.tensors.iter().map(|tensor| tensor.name.clone()).filter(|name| name != "output.weight") {
            let mut file = file.clone();
            file.take(&name);
            let message = open_bytes(&file.bytes()).expect_err(&name).to_string();
            says(&message, &[&format!("'{name}'"), "no such tensor", "shape ["]);
        }
    }
}

#[test]
fn every_stated_size_is_checked() {
    for file in [tiny::dense(), tiny::moe()] {
        for (key, value) in file.keys.clone() {
            let Value::U32(number) = value else { continue };
            // The window and the end token are the two that no tensor bears out; the pattern has its own test.
            if key.contains("context_length") || key.contains("eos_token") || key.contains("used_count") {
                continue;
            }
            for wrong in [0, number.wrapping_sub(1), number + 1, 2 * number, 1 << 23, u32::MAX] {
                // One rotated dimension more or less is not seen in any tensor; an odd number is.
                let rotated = key.ends_with("rope.dimension_count") && wrong == 4;
                // Zero is how files say that there is no such thing, or leave a width to the tensors.
                let unsaid = key.ends_with("expert_feed_forward_length") || key.ends_with("shared_feed_forward_length");
                if wrong == number || rotated || (unsaid && wrong == 0) {
                    continue;
                }
                let mut file = file.clone();
                file.set(&key, Value::U32(wrong));
                let message = open_bytes(&file.bytes()).map(|_| ()).expect_err(&format!("{key} = {wrong}")).to_string();
                says(&message, &[]);
            }
            let mut file = file.clone();
            file.remove(&key);
            let optional = [
                "rope.dimension_count",
                "value_length",
                "expert_feed_forward_length",
                "expert_shared_feed_forward_length",
            ];
            if !optional.iter().any(|optional| key.ends_with(optional)) {
                let message = open_bytes(&file.bytes()).map(|_| ()).expect_err(&key).to_string();
                says(&message, &[&format!("'{key}'"), "no such key"]);
            }
        }
    }
    for (key, value) in [("context_length", u32::MAX), ("rope.dimension_count", 0), ("rope.dimension_count", 6)] {
        says(
            &dense(|file| {
                file.set(&format!("qwen35.{key}"), Value::U32(value));
            }),
            &[],
        );
    }
    for used in [0, 4, u32::MAX] {
        says(
            &moe(|file| {
                file.set("qwen35moe.expert_used_count", Value::U32(used));
            }),
            &["expert"],
        );
    }
    for eps in [0.0, -1.0] {
        let key = "qwen35.attention.layer_norm_rms_epsilon";
        says(
            &dense(|file| {
                file.set(key, Value::F32(eps));
            }),
            &["epsilon"],
        );
    }
}

#[test]
fn cut_anywhere_it_is_refused() {
    let whole = tiny::dense().bytes();
    // What is behind the last tensor is padding: all before it counts.
    let last = tiny::dense().tensors.last().unwrap().data.len();
    let end = whole.len() - (last.next_multiple_of(32) - last);
    assert!(open_bytes(&whole[..end]).is_ok());
    for len in (0..end).step_by(7).chain(end - 40..end) {
        let message = open_bytes(&whole[..len]).map(|_| ()).expect_err(&format!("{len} bytes")).to_string();
        says(&message, &[]);
    }
}

fn header(header: &str, data: &[u8]) -> String {
    shard(&with_header(header, data))
}

fn shard(bytes: &[u8]) -> String {
    let config = Files::reference("dense-tied").config;
    load_folder(config.to_string().into_bytes(), bytes).expect_err("opens").to_string()
}

fn load_folder(config: Vec<u8>, shard: &[u8]) -> Result<ModelWeights, Error> {
    weights::hf::load(weights::hf::Folder {
        path: "bad".into(),
        config,
        shards: vec![("bad/model.safetensors".into(), ModelBytes::copy_of(shard))],
        tokenizer: b"{}".to_vec(),
        tokenizer_config: None,
        generation_config: None,
        chat_template: None,
    })
}

#[test]
fn safetensors_headers() {
    says(&shard(b""), &["bad/model.safetensors: is not a safetensors file: it has 0 bytes"]);
    for length in [u64::MAX, u64::MAX - 7, 1 << 50, 100] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{}");
        says(&shard(&bytes), &[&format!("a header of {length} bytes in a file of 10")]);
    }
    for damaged in ["", "{", "[]", "5", "{\"x\": 5}", "{\"x\": {}}", "\u{0}"] {
        says(&header(damaged, &[]), &["bad/model.safetensors: has a damaged header"]);
    }
    says(&header(&"[".repeat(100_000), &[]), &["damaged header"]);
    says(&header(&"{\"a\":".repeat(100_000), &[]), &["damaged header"]);
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        let name = "model.norm.weight";
        header(
            &format!("{{\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}"),
            &[0; 64],
        )
    };
    let tensor = "bad/model.safetensors: tensor 'model.norm.weight': found ";
    says(&entry("BF16", "[64]", "[0,128]"), &[tensor, "bytes 0 to 128", "inside the 64 bytes"]);
    says(&entry("BF16", "[64]", "[32,0]"), &[tensor, "bytes 32 to 0"]);
    says(&entry("BF16", "[64]", "[0,18446744073709551615]"), &[tensor]);
    says(&entry("BF16", "[64]", "[0,64]"), &[tensor, "64 bytes for shape [64] of BF16, expected 128 bytes"]);
    says(&entry("F32", "[0]", "[0,0]"), &[tensor, "no dimension of length 0"]);
    says(&entry("F32", "[9223372036854775807,9223372036854775807]", "[0,64]"), &[tensor, "fits into memory"]);
    for wrong in ["[-1]", "[1.5]", "\"x\"", "[18446744073709551616]", "5"] {
        says(&entry("F32", wrong, "[0,4]"), &["damaged header"]);
    }
    for wrong in ["[0]", "[0,1,2]", "[-1,4]", "{}", "null"] {
        says(&entry("F32", "[1]", wrong), &["damaged header"]);
    }
    let one = "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}";
    says(&header(&format!("{{\"a\":{one},\"a\":{one}}}"), &[0; 64]), &["tensor 'a'", "twice"]);
    says(&header(&format!("{{\"a\":{one},\"b\":{one}}}"), &[0; 64]), &["do not overlap"]);
    says(&header("{}", &[]), &["'num_hidden_layers': found 4"]);
}

#[test]
fn types_that_the_model_cannot_have() {
    let mut files = Files::reference("dense-tied");
    let tensor = files.tensors.iter_mut().find(|tensor| tensor.name == "model.layers.1.mlp.up_proj.weight").unwrap();
    tensor.dtype = "F8_E4M3".into();
    tensor.data.truncate(tensor.data.len() / 2);
    let config = files.config.to_string().into_bytes();
    let message = load_folder(config, &folder::safetensors(&files.tensors)).unwrap_err().to_string();
    says(
        &message,
        &["bad/model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight': found type F8_E4M3, expected one of f32"],
    );
}

#[test]
fn every_tensor_of_a_folder_is_needed() {
    for name in ["dense-gva2", "moe"] {
        let files = Files::reference(name);
        let config = files.config.to_string().into_bytes();
        for tensor in files.tensors.iter().map(|tensor| tensor.name.clone()) {
            let mut less = files.clone();
            less.take(&tensor);
            let message = load_folder(config.clone(), &folder::safetensors(&less.tensors)).unwrap_err().to_string();
            // Without the fused experts the separate ones are looked for.
            let looked_for = tensor.replace("gate_up_proj", "0.gate_proj.weight");
            says(&message, &[&format!("'{looked_for}'"), "no such tensor"]);
        }
    }
}

#[test]
fn configurations_that_cannot_be() {
    let files = Files::reference("moe");
    let shard = folder::safetensors(&files.tensors);
    let numbers =
        files.config.as_object().unwrap().iter().filter(|(_, value)| value.is_u64()).map(|(key, _)| key.clone());
    // These say nothing about this model's tensors.
    let free = [
        "chunk_size_feed_forward",
        "max_position_embeddings",
        "pad_token_id",
        "intermediate_size",
        "num_experts_per_tok",
    ];
    for key in numbers.filter(|key| !free.contains(&&key[..])) {
        for wrong in [
            json!(-1),
            json!(u64::MAX),
            json!(1u64 << 60),
            json!(1.5),
            json!("5"),
            json!({}),
            json!([{}]),
            json!(true),
            json!(7777),
        ] {
            let mut config = files.config.clone();
            config[&key] = wrong.clone();
            let message =
                load_folder(config.to_string().into_bytes(), &shard).map(|_| ()).expect_err(&format!("{key}: {wrong}"));
            says(&message.to_string(), &[]);
        }
    }
    for (key, wrong, expected) in [
        ("text_config", json!(5), "'text_config': found 5"),
        ("model_type", json!(null), "'model_type': found no such key"),
        ("model_type", json!(["qwen3_5"]), "'model_type': found a list of 1"),
        ("layer_types", json!("all"), "'layer_types'"),
        ("rope_parameters", json!("x"), "'rope_parameters'"),
        ("rope_parameters", json!({"rope_theta": "x"}), "'rope_theta'"),
        ("rope_parameters", json!({}), "'rope_theta': found no such key"),
        ("rope_parameters", json!({"rope_theta": 1e7, "partial_rotary_factor": 2}), "'partial_rotary_factor'"),
        ("rope_parameters", json!({"rope_theta": 1e7, "rope_type": 3}), "'rope_type'"),
        ("rms_norm_eps", json!(0), "epsilon"),
        ("rms_norm_eps", json!(1e-60), "epsilon"),
        ("num_experts_per_tok", json!(9), "uses 9 of 8 experts"),
        ("max_position_embeddings", json!(u64::MAX), "window"),
        ("mlp_only_layers", json!([1]), "'mlp_only_layers'"),
        ("full_attention_interval", json!(0), ""),
    ] {
        let mut config = files.config.clone();
        config[key] = wrong.clone();
        if key == "full_attention_interval" {
            config["layer_types"] = json!(null);
        }
        let message =
            load_folder(config.to_string().into_bytes(), &shard).map(|_| ()).expect_err(&format!("{key}: {wrong}"));
        says(&message.to_string(), &[expected]);
    }
    for json in ["", "5", "[]", "{}", "nul", "\u{0}"] {
        says(&load_folder(json.into(), &shard).unwrap_err().to_string(), &["bad/config.json"]);
    }
}

#[test]
fn kept_inputs_are_refused() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile"));
    let files = Files::reference("dense-tied");
    let config = files.config.to_string().into_bytes();
    let shard = folder::safetensors(&files.tensors);
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let opened = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gguf") => open_bytes(&bytes),
            Some("safetensors") => load_folder(config.clone(), &bytes),
            Some("json") => load_folder(bytes, &shard),
            other => panic!("{}: no reader for {other:?}", path.display()),
        };
        says(&opened.map(|_| ()).expect_err(&path.display().to_string()).to_string(), &[]);
        count += 1;
    }
    assert!(count >= 20, "{count} inputs in {}", folder.display());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), is_moe: bool) {
        let mut bytes = if is_moe { tiny::moe() } else { tiny::dense() }.bytes();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = open_bytes(&bytes);
    }

    #[test]
    fn changed_fields_never_panic(at in any::<prop::sample::Index>(), value in prop::sample::select(vec![0u64, 1, 7, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX - 31, u64::MAX])) {
        let mut bytes = tiny::moe().bytes();
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let _ = open_bytes(&bytes);
    }

    #[test]
    fn cut_files_never_panic(at in any::<prop::sample::Index>()) {
        let bytes = tiny::moe().bytes();
        let _ = open_bytes(&bytes[..at.index(bytes.len())]);
    }

    #[test]
    fn changed_headers_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut: bool) {
        let files = Files::reference("dense-tied");
        let mut bytes = folder::safetensors(&files.tensors);
        let end = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        for (at, value) in &changes {
            let at = at.index(end);
            bytes[at] = *value;
        }
        if cut {
            bytes.truncate(changes[0].0.index(bytes.len()));
        }
        let _ = load_folder(files.config.to_string().into_bytes(), &bytes);
    }

    #[test]
    fn changed_configurations_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), 0x20u8..0x7f), 1..6)) {
        let files = Files::reference("moe");
        let mut config = files.config.to_string().into_bytes();
        for (at, value) in changes {
            let at = at.index(config.len());
            config[at] = value;
        }
        let _ = load_folder(config, &folder::safetensors(&files.tensors));
    }
}
