//! APR files: ours read by their own reader, theirs and ours read as models.

use apr_format::v2::{AprV2Metadata, AprV2Reader, AprV2Writer, TensorDType};
use kernels::format::Format;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use testing::golden::reference_models;
use tools::apr::{AprTensor, AprWriter};
use tools::import::{FormatChoice, ImportOptions, TypeRule, WriteReport};
use tools::mixture::Mixture;
use tools::quantize::QuantizeOptions;
use weights::{Matrix, ModelWeights};

const MODELS: [&str; 6] = ["dense-wide", "dense-tied", "dense-gva2", "dense-gva3", "dense-yarn", "moe"];

fn metadata(folder: &Path) -> Value {
    let mut metadata = json!({ "model_type": "qwen3_5", "name": "reference" });
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        if let Ok(text) = std::fs::read_to_string(folder.join(name)) {
            metadata[name] = text.into();
        }
    }
    metadata
}

fn format_of(kind: Dtype) -> Format {
    match kind {
        Dtype::F32 => Format::F32,
        Dtype::F16 => Format::F16,
        Dtype::BF16 => Format::BF16,
        other => panic!("{other:?}"),
    }
}

fn written(folder: &Path) -> Vec<u8> {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.tensors().into_iter().map(|(name, tensor)| AprTensor {
        name,
        dims: tensor.shape().iter().map(|dim| *dim as u64).collect(),
        format: format_of(tensor.dtype()),
    });
    let mut tensors: Vec<AprTensor> = tensors.collect();
    let mut writer = AprWriter::new(Vec::new(), &metadata(folder), &mut tensors).unwrap();
    for tensor in &tensors {
        // In two pieces, as a stream brings them.
        let data = file.tensor(&tensor.name).unwrap().data();
        let (first, rest) = data.split_at(data.len() / 2);
        writer.write(first).unwrap();
        writer.write(rest).unwrap();
    }
    writer.finish().unwrap()
}

fn saved(folder: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join("model.apr");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn same(one: &ModelWeights, other: &ModelWeights) {
    assert_eq!(
        (&one.shape, &one.stop_tokens, &one.chat_template),
        (&other.shape, &other.stop_tokens, &other.chat_template)
    );
    let alike =
        |a: &Matrix, b: &Matrix| (a.rows(), a.format()) == (b.rows(), b.format()) && a.data()[..] == b.data()[..];
    assert!(one.matrices().zip(other.matrices()).all(|(a, b)| alike(a, b)));
    assert_eq!((one.matrices().count(), &one.output_norm), (other.matrices().count(), &other.output_norm));
}

#[test]
fn a_file_is_the_model_that_its_folder_is() {
    let folder = tempfile::tempdir().unwrap();
    for model in MODELS {
        let source = reference_models().join(model);
        let bytes = written(&source);
        let path = saved(&folder, &bytes);
        for mmap in [true, false] {
            same(&weights::open(&path, mmap).unwrap(), &weights::open(&source, true).unwrap());
        }
        read_by_theirs(&bytes, &source);
    }
}

/// Their reader finds the same bytes under the same names as the folder has.
fn read_by_theirs(bytes: &[u8], source: &Path) -> AprV2Reader {
    let theirs = AprV2Reader::from_bytes(bytes).unwrap();
    assert!(theirs.verify_alignment());
    let original = std::fs::read(source.join("model.safetensors")).unwrap();
    let original = SafeTensors::deserialize(&original).unwrap();
    assert_eq!(theirs.tensor_names().len(), original.len(), "{source:?}");
    for (name, tensor) in original.tensors() {
        assert_eq!(theirs.get_tensor_data(&name), Some(tensor.data()), "{source:?} {name}");
        assert_eq!(theirs.get_tensor(&name).unwrap().shape, tensor.shape(), "{source:?} {name}");
    }
    theirs
}

fn their_metadata(config: &Value) -> AprV2Metadata {
    let mut metadata = json!({ "model_type": "qwen3_5", "tied_embeddings": true });
    for (theirs, of_checkpoint) in [
        ("hidden_size", "hidden_size"),
        ("num_layers", "num_hidden_layers"),
        ("num_heads", "num_attention_heads"),
        ("num_kv_heads", "num_key_value_heads"),
        ("vocab_size", "vocab_size"),
        ("intermediate_size", "intermediate_size"),
        ("max_position_embeddings", "max_position_embeddings"),
        ("rms_norm_eps", "rms_norm_eps"),
        ("head_dim", "head_dim"),
    ] {
        metadata[theirs] = config[of_checkpoint].clone();
    }
    let rope = &config["rope_parameters"];
    metadata["rope_theta"] = rope["rope_theta"].clone();
    let mut linear =
        json!({ "partial_rotary_factor": rope["partial_rotary_factor"], "mrope_section": rope["mrope_section"] });
    for key in [
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    ] {
        linear[key] = config[key].clone();
    }
    let kinds = config["layer_types"].as_array().unwrap();
    let first = kinds.iter().position(|kind| kind == "full_attention").unwrap();
    linear["full_attention_interval"] = json!(first + 1);
    metadata["linear_attn_hparams"] = linear;
    serde_json::from_value(metadata).unwrap()
}

#[test]
fn a_file_of_their_writer_with_its_tokenizer_beside() {
    let source = reference_models().join("dense-tied");
    let bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let config: Value = serde_json::from_str(&std::fs::read_to_string(source.join("config.json")).unwrap()).unwrap();
    let config = if config["text_config"].is_object() { &config["text_config"] } else { &config };
    let mut writer = AprV2Writer::new(their_metadata(config));
    for (name, tensor) in file.tensors() {
        let kind = match tensor.dtype() {
            Dtype::F32 => TensorDType::F32,
            Dtype::BF16 => TensorDType::BF16,
            other => panic!("{other:?}"),
        };
        writer.add_tensor(name, kind, tensor.shape().to_vec(), tensor.data().to_vec());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = saved(&folder, &writer.write().unwrap());
    let alone = weights::open(&path, true).unwrap_err().to_string();
    assert!(alone.contains("tokenizer.json"), "{alone}");
    std::fs::copy(source.join("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
    let (theirs, original) = (weights::open(&path, true).unwrap(), weights::open(&source, true).unwrap());
    assert_eq!(theirs.shape, original.shape);
    assert!(theirs.matrices().zip(original.matrices()).all(|(a, b)| a.data()[..] == b.data()[..]));
}

#[test]
fn damaged_files_are_errors_that_name_the_file() {
    let whole = written(&reference_models().join("dense-tied"));
    let folder = tempfile::tempdir().unwrap();
    let index_at = u64::from_le_bytes(whole[24..32].try_into().unwrap()) as usize;
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        // What a header says is looked at, too: its sum is right.
        let mut sum = crc32fast::Hasher::new();
        sum.update(&bytes[..40]);
        sum.update(&bytes[44..64]);
        bytes[40..44].copy_from_slice(&sum.finalize().to_le_bytes());
        bytes
    };
    let name = u16::from_le_bytes([whole[index_at], whole[index_at + 1]]) as usize;
    let kind_at = index_at + 2 + name;
    let mut unsummed = whole.clone();
    unsummed[12] ^= 1;
    for (word, bytes) in [
        ("is cut short", whole[..60].to_vec()),
        ("version 1", with(&|bytes| bytes[4] = 1)),
        ("checksum", unsummed),
        ("compressed", with(&|bytes| bytes[6] |= 1)),
        ("encrypted", with(&|bytes| bytes[6] |= 4)),
        ("one part", with(&|bytes| bytes[6] |= 16)),
        ("stored by columns", with(&|bytes| bytes[7] |= 8)),
        ("cut short", with(&|bytes| bytes[16] = 0xff)),
        ("metadata", with(&|bytes| bytes[20..24].copy_from_slice(&(20_u32 << 20).to_le_bytes()))),
        ("damaged metadata", with(&|bytes| bytes[64] = b'x')),
        ("before its index", with(&|bytes| bytes[32..40].copy_from_slice(&70_u64.to_le_bytes()))),
        ("expected 4 bytes", with(&|bytes| bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes()))),
        ("name has", with(&|bytes| bytes[index_at..index_at + 2].copy_from_slice(&9999_u16.to_le_bytes()))),
        ("not UTF-8", with(&|bytes| bytes[index_at + 2] = 0xff)),
        ("dimensions", with(&|bytes| bytes[kind_at + 1] = 200)),
        ("a dimension of 0", with(&|bytes| bytes[kind_at + 2..kind_at + 10].fill(0))),
        ("bytes", with(&|bytes| bytes[kind_at + 2] ^= 1)),
        ("is the file complete", whole[..whole.len() - 20_000].to_vec()),
        ("APR's own q8", with(&|bytes| bytes[kind_at] = 129)),
    ] {
        let path = saved(&folder, &bytes);
        let error = weights::open(&path, true).expect_err(word).to_string();
        assert!(error.contains(word) && error.contains("model.apr"), "{word}: {error}");
    }
    // Any one byte: an error or a model, and never a panic.
    for at in (0..whole.len()).step_by(whole.len() / 300) {
        let path = saved(&folder, &with(&|bytes| bytes[at] ^= 0x55));
        let _ = weights::open(&path, false);
    }
}

fn import(source: &Path, out: &Path, mixture: Option<Mixture>) -> Result<WriteReport, tools::Error> {
    let choice = mixture.map(FormatChoice::Mixture);
    tools::import::import(
        &ImportOptions { source, out, choice, rules: &[], imatrix: None, threads: 2, dry_run: false },
        &mut |_| (),
    )
}

#[test]
fn an_imported_file_is_the_model_that_its_folder_is() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model.apr");
    for model in [&MODELS[..], &["dense-mtp"]].concat() {
        let source = reference_models().join(model);
        let report = import(&source, &out, None).unwrap();
        let bytes = std::fs::read(&out).unwrap();
        assert_eq!(report.bytes, bytes.len() as u64, "{model}");
        let (ours, of_folder) = (weights::open(&out, true).unwrap(), weights::open(&source, true).unwrap());
        same(&ours, &of_folder);
        assert_eq!(ours.prediction.is_some(), of_folder.prediction.is_some());
        let theirs = read_by_theirs(&bytes, &source);
        let metadata = theirs.metadata();
        assert_eq!(metadata.hidden_size, Some(ours.shape.hidden), "{model}");
        assert_eq!(metadata.num_layers, Some(ours.shape.layers.len()), "{model}");
        assert_eq!(metadata.rope_type, Some(2), "{model}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing unfinished is left");
}

#[test]
fn an_imported_file_has_the_types_of_the_format_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let (out, gguf) = (folder.path().join("model.apr"), folder.path().join("model.gguf"));
    let source = reference_models().join("dense-wide");
    let allowed = [Mixture::F32, Mixture::F16, Mixture::BF16, Mixture::Q4_K_M, Mixture::Q6_K];
    for mixture in Mixture::ALL {
        let Err(error) = import(&source, &out, Some(mixture)) else {
            assert!(allowed.contains(&mixture), "{}", mixture.name());
            // The same blocks as in a GGUF file, where rows lie in the same order.
            import(&source, &gguf, Some(mixture)).unwrap();
            let bytes = std::fs::read(&out).unwrap();
            let theirs = AprV2Reader::from_bytes(&bytes).unwrap();
            let theirs = theirs.get_tensor_data("model.layers.3.mlp.up_proj.weight").unwrap();
            let ours = weights::tensors_of(&gguf, true).unwrap();
            let ours = ours.iter().find(|tensor| tensor.name == "blk.3.ffn_up.weight").unwrap();
            assert!(theirs == &ours.data[..], "{}", mixture.name());
            std::fs::remove_file(&out).unwrap();
            continue;
        };
        let error = error.to_string();
        assert!(!allowed.contains(&mixture) && error.contains("give f32, f16, bf16, q4k or q6k"), "{error}");
        assert!(!out.exists());
    }
    // Rows that are no whole blocks stay numbers, and a limit of bytes holds as well.
    import(&reference_models().join("dense-tied"), &out, Some(Mixture::Q4_K_M)).unwrap();
    weights::open(&out, true).unwrap();
    let whole = std::fs::metadata(&out).unwrap().len();
    import(&source, &out, None).unwrap();
    let most = std::fs::metadata(&out).unwrap().len() / 2;
    let choice = Some(FormatChoice::Bytes(most));
    let options =
        ImportOptions { source: &source, out: &out, choice, rules: &[], imatrix: None, threads: 2, dry_run: false };
    let report = tools::import::import(&options, &mut |_| ()).unwrap();
    assert!(report.bytes <= most && report.formats.contains_key("q6_k"), "{whole} {report:?}");
    let imatrix = Some(Path::new("im.gguf"));
    let error = tools::import::import(&ImportOptions { imatrix, ..options.clone() }, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("an importance matrix is in GGUF's order"), "{error}");
    let rules = &[TypeRule::parse("up_proj=q8_0").unwrap()];
    let error = tools::import::import(&ImportOptions { rules, ..options }, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("an APR file has no type q8_0: give f32"), "{error}");
}

#[test]
fn a_file_is_a_source_as_a_folder_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for model in ["dense-gva2", "moe"] {
        let source = reference_models().join(model);
        import(&source, &path("model.apr"), None).unwrap();
        import(&source, &path("one.gguf"), Some(Mixture::Q8_0)).unwrap();
        let options = QuantizeOptions {
            source: &path("model.apr"),
            out: &path("other.gguf"),
            choice: FormatChoice::Mixture(Mixture::Q8_0),
            rules: &[],
            imatrix: None,
            threads: 2,
            dry_run: false,
        };
        tools::quantize::quantize(&options, &mut |_| ()).unwrap();
        let [one, other] = ["one.gguf", "other.gguf"].map(|name| weights::tensors_of(&path(name), true).unwrap());
        assert_eq!(one.len(), other.len());
        for (one, other) in one.iter().zip(&other) {
            assert!(one.name == other.name && one.data[..] == other.data[..], "{model} {}", one.name);
        }
    }
}

#[test]
fn a_writer_takes_what_the_format_has() {
    let tensor = |format| AprTensor { name: "a".into(), dims: vec![2, 256], format };
    for format in [Format::F32, Format::F16, Format::BF16, Format::Q4_K, Format::Q6_K] {
        let mut writer = AprWriter::new(Vec::new(), &json!({}), &mut [tensor(format)]).unwrap();
        let bytes = tensor(format).bytes().unwrap() as usize;
        writer.write(&vec![1; bytes - 1]).unwrap();
        assert!(writer.write(&[1, 1]).is_err());
    }
    assert!(AprWriter::new(Vec::new(), &json!({}), &mut [tensor(Format::Q8_0)]).is_err());
    let unfinished = AprWriter::new(Vec::new(), &json!({}), &mut [tensor(Format::F32)]).unwrap();
    assert!(unfinished.finish().is_err());
}
