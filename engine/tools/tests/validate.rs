//! Model files that are right, and each way of being wrong with its finding.

use std::path::{Path, PathBuf};

use engine::Cpu;
use kernels::format::{Format, quantize};
use serde_json::json;
use testing::folder::Files;
use testing::gguf::{File, Value};
use tools::validate::{Against, TEXT, ValidateOptions, ValidationReport, validate};
use weights::family::Severity;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn reference(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/data/reference").join(name)
}

fn check_with(path: &Path, options: &ValidateOptions) -> ValidationReport {
    validate(path, options, &Cpu::new(2), &|_, _, _| ())
}

fn check(path: &Path) -> ValidationReport {
    check_with(path, &ValidateOptions { mmap: true, quality: true, against: None })
}

fn problems(report: &ValidationReport) -> Vec<String> {
    let problems = report.findings.iter().filter(|finding| finding.severity == Severity::Problem);
    problems.map(|finding| format!("{}: {}", finding.check, finding.says)).collect()
}

const FOLDERS: [&str; 7] = ["dense-tied", "dense-gva2", "dense-gva3", "dense-yarn", "dense-wide", "dense-mtp", "moe"];
const FILES: [&str; 8] = [
    "dense-tied.bf16",
    "dense-gva2.bf16",
    "dense-gva3.bf16",
    "dense-yarn.bf16",
    "dense-wide.bf16",
    "dense-wide.q8_0",
    "dense-wide.q4_k_m",
    "moe.bf16",
];

#[test]
fn every_model_of_the_repository_is_clean() {
    let files = FILES.map(|name| reference(&format!("gguf/{name}.gguf")));
    let all =
        FOLDERS.map(reference).into_iter().chain(files).chain([Path::new(ROOT).join("models/builtin/builtin.gguf")]);
    for path in all {
        let report = check(&path);
        assert!(report.ok, "{}: {:#?}", path.display(), problems(&report));
        assert!(report.parameters > 100_000 && report.tensors.len() > 30 && report.sha256.len() == 64);
        // Small models are no published size, and that is all that the checks may say of the tensors.
        let unusual = report.findings.iter().filter(|finding| finding.check == "contract").collect::<Vec<_>>();
        assert!(unusual.len() == 1 && unusual[0].says.starts_with("not a published size"), "{unusual:#?}");
        assert!(report.quality.is_some_and(|rows| rows.len() > 10));
    }
}

/// Checks a file, and returns its problems, of which there must be one.
fn wrong(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let report = check(&path);
    assert!(!report.ok);
    problems(&report).join("\n").replace(&path.display().to_string(), "FILE")
}

fn expect(what: &str, said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{what}: {part:?} is not in\n{said}");
    }
}

fn good() -> Vec<u8> {
    std::fs::read(reference("gguf/dense-tied.bf16.gguf")).unwrap()
}

#[test]
fn files_that_cannot_be_taken_apart() {
    let good = good();
    let with = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    for (what, file, parts) in [
        ("empty", Vec::new(), &["structure", "is not a GGUF file"][..]),
        ("wrong magic", with(0, b"GGML"), &["is not a GGUF file", "'GGML'"]),
        ("version 1", with(4, &1u32.to_le_bytes()), &["has GGUF version 1"]),
        ("tensor count", with(8, &u64::MAX.to_le_bytes()), &["tensors"]),
        ("key count", with(16, &1_000_000u64.to_le_bytes()), &["states 1000000 keys"]),
        ("cut in the header", good[..5000].to_vec(), &["tokenizer.ggml.tokens", "that is what the file can hold"]),
        ("cut in the data", good[..good.len() - 70_000].to_vec(), &["is the download complete?"]),
        ("html", b"<!DOCTYPE html><html>404".to_vec(), &["it begins with '<!DO'"]),
    ] {
        expect(what, &wrong(&file), parts);
    }
    let missing = check(&reference("no-such-file.gguf"));
    expect("missing", &problems(&missing).join(""), &["No such file"]);
}

fn taken_apart(name: &str) -> File {
    let contents = weights::contents(&reference(&format!("gguf/{name}.gguf")), false).unwrap();
    let weights::VocabSource::Gguf { tokens, types, merges, pre } = contents.vocab.unwrap() else { unreachable!() };
    let shape = contents.shape.unwrap();
    let mut file = File::default();
    let number = |number: usize| Value::U32(number as u32);
    file.set("general.architecture", Value::Text("qwen35".into()));
    for (key, value) in [
        ("block_count", shape.layers.len()),
        ("context_length", shape.native_ctx),
        ("embedding_length", shape.hidden),
        ("feed_forward_length", shape.ffn),
        ("attention.head_count", shape.q_heads),
        ("attention.head_count_kv", shape.kv_heads),
        ("attention.key_length", shape.head_dim),
        ("rope.dimension_count", shape.rope.dims),
        ("ssm.conv_kernel", shape.conv_kernel),
        ("ssm.state_size", shape.key_dim),
        ("ssm.group_count", shape.key_heads),
        ("ssm.time_step_rank", shape.value_heads),
        ("ssm.inner_size", shape.value_heads * shape.value_dim),
    ] {
        file.set(&format!("qwen35.{key}"), number(value));
    }
    file.set("qwen35.attention.layer_norm_rms_epsilon", Value::F32(shape.rms_eps));
    file.set("qwen35.rope.freq_base", Value::F32(shape.rope.theta as f32));
    file.set("tokenizer.ggml.model", Value::Text("gpt2".into()));
    file.set("tokenizer.ggml.pre", Value::Text(pre));
    file.set("tokenizer.ggml.tokens", Value::Texts(tokens));
    file.set("tokenizer.ggml.token_type", Value::U32s(types));
    file.set("tokenizer.ggml.merges", Value::Texts(merges));
    file.set("tokenizer.ggml.eos_token_id", Value::U32(contents.stop_tokens.unwrap()[0]));
    for tensor in &contents.tensors {
        file.add(&tensor.name, &tensor.dims.iter().map(|&dim| dim as u64).collect::<Vec<_>>(), &[]);
        let added = file.tensor(&tensor.name);
        (added.type_code, added.data) = (tensor.format.unwrap().to_gguf(), tensor.data.to_vec());
    }
    file
}

fn done(_: &mut File) {}

fn changed(change: impl FnOnce(&mut File)) -> String {
    let mut file = taken_apart("dense-tied.bf16");
    change(&mut file);
    wrong(&file.bytes())
}

fn set(file: &mut File, name: &str, at: usize, bytes: &[u8]) {
    file.tensor(name).data[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn the_file_that_is_changed_below_is_clean_as_it_is() {
    for name in ["dense-tied.bf16", "dense-wide.q8_0"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, taken_apart(name).bytes()).unwrap();
        assert!(check(&path).ok, "{name}: {:#?}", problems(&check(&path)));
    }
}

#[test]
fn tensors_that_are_missing_wrong_or_too_many() {
    let text = |text: &str| Value::Text(text.into());
    let q = "blk.3.attn_q.weight";
    type Change<'a> = Box<dyn FnOnce(&mut File) + 'a>;
    let cases: Vec<(&str, Change, &[&str])> = vec![
        (
            "missing",
            Box::new(|file| drop(file.take(q))),
            &["contract", "'blk.3.attn_q.weight' is missing", "[256, 64]"],
        ),
        ("missing norm", Box::new(|file| drop(file.take("output_norm.weight"))), &["'output_norm.weight' is missing"]),
        (
            "no gate",
            Box::new(|file| drop(file.take("blk.0.attn_gate.weight"))),
            &["'blk.0.attn_gate.weight' is missing"],
        ),
        ("no embedding", Box::new(|file| drop(file.take("token_embd.weight"))), &["token_embd.weight"]),
        (
            "wrong shape",
            Box::new(|file| file.tensor(q).dims = vec![64, 256]),
            &["'blk.3.attn_q.weight' has the shape [64, 256] and must have [256, 64]", "2 * q_heads * head_dim"],
        ),
        (
            "convolution over k alone",
            Box::new(|file| {
                file.take("blk.0.ssm_conv1d.weight");
                file.add("blk.0.ssm_conv1d.weight", &[128, 4], &[0.5; 512]);
            }),
            &["'blk.0.ssm_conv1d.weight' has the shape [128, 4]"],
        ),
        (
            "bias",
            Box::new(|file| done(file.add("blk.3.attn_q.bias", &[256], &[0.1; 256]))),
            &["attn_q.bias' is a bias"],
        ),
        ("unreadable type", Box::new(|file| file.tensor(q).type_code = 16), &["has the type iq2_xxs"]),
        (
            "offset",
            Box::new(|file| file.tensor(q).offset = Some(1 << 40)),
            &["blk.3.attn_q.weight", "offset 1099511627776"],
        ),
        ("overlap", Box::new(|file| file.tensor(q).offset = Some(0)), &["tensors that do not overlap"]),
        ("twice", Box::new(|file| done(file.add(q, &[1], &[0.0]))), &["the name twice"]),
        (
            "unknown architecture",
            Box::new(|file| done(file.set("general.architecture", text("llama")))),
            &["architecture 'llama' is of no known family", "take a model of a known family"],
        ),
        (
            "older sibling",
            Box::new(|file| done(file.set("general.architecture", text("qwen3next")))),
            &["older sibling"],
        ),
        (
            "rotation of the draft",
            Box::new(|file| done(file.set("qwen35.rope.freq_base", Value::F32(1e6)))),
            &["rope_theta is 1000000 (qwen35.rope.freq_base) and must be 10000000"],
        ),
        (
            "metadata of another size",
            Box::new(|file| done(file.set("qwen35.feed_forward_length", Value::U32(96)))),
            &["'blk.0.ffn_down.weight' has the shape [64, 160] and must have [64, 96]"],
        ),
        ("no key", Box::new(|file| done(file.remove("qwen35.ssm.group_count"))), &["key 'qwen35.ssm.group_count'"]),
    ];
    for (what, change, parts) in cases {
        expect(what, &changed(change), parts);
    }
}

#[test]
fn values_that_are_none() {
    let bf16 = |value: f32| ((value.to_bits() >> 16) as u16).to_le_bytes();
    let up = "blk.1.ffn_up.weight";
    let said = changed(|file| set(file, up, 2 * (64 * 3 + 5), &bf16(f32::NAN)));
    expect("NaN", &said, &["values", "'blk.1.ffn_up.weight' has 10240 values, 1 that are not a number", "at [3, 5]"]);
    let said = changed(|file| set(file, "output_norm.weight", 0, &f32::INFINITY.to_le_bytes()));
    expect("infinite", &said, &["'output_norm.weight' has 64 values, 1 that are infinite, the first at [0]"]);
    let said = changed(|file| file.tensor(up).data.fill(0));
    expect("dead", &said, &["'blk.1.ffn_up.weight' holds nothing but zeros"]);
    let said = changed(|file| set(file, "blk.0.ssm_a", 0, &0.5f32.to_le_bytes()));
    expect("A_log", &said, &["'blk.0.ssm_a' has values up to 0.5", "-exp(A_log)"]);

    let mut file = taken_apart("dense-wide.q8_0");
    set(&mut file, up, 0, &[0x00, 0x7c]); // an infinite half
    set(&mut file, up, 34, &[0x01, 0x7e]); // not a number
    expect("scales", &wrong(&file.bytes()), &["'blk.1.ffn_up.weight': the scales of 4 of 8192 groups are infinite"]);
}

#[test]
fn values_that_look_odd_are_warnings() {
    let mut file = taken_apart("dense-tied.bf16");
    let up = file.tensor("blk.1.ffn_up.weight");
    up.data = up.data.chunks(2).flat_map(|_| 0x3f80u16.to_le_bytes()).collect();
    file.tensor("blk.0.ssm_dt.bias").data.fill(0);
    let norm = file.tensor("blk.0.attn_norm.weight");
    norm.type_code = Format::Q8_0.to_gguf();
    norm.data = vec![0; Format::Q8_0.row_bytes(64).unwrap()];
    quantize(Format::Q8_0, &(0..64).map(|i| 1.0 + i as f32 / 64.0).collect::<Vec<_>>(), &mut norm.data);
    let own_norm = file.tensor("blk.1.attn_norm.weight");
    own_norm.data = (0..64u8).flat_map(|i| (f32::from(i % 2) * 0.02 - 0.01).to_le_bytes()).collect();
    file.add("blk.1.another.weight", &[2], &[1.0, 2.0]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    let report = check(&path);
    let said: Vec<&str> = report.findings.iter().map(|finding| &finding.says[..]).collect();
    let said = said.join("\n");
    assert!(report.ok, "{said}");
    expect(
        "warnings",
        &said,
        &[
            "all values of 'blk.1.ffn_up.weight' are 1",
            "'blk.0.ssm_dt.bias' holds nothing but zeros: right for a bias",
            "'blk.0.attn_norm.weight' is quantised to q8_0",
            "the factors of 'blk.1.attn_norm.weight' average",
            "'blk.1.another.weight' is no tensor of the family",
            "has no chat template",
        ],
    );
}

#[test]
fn vocabularies_and_templates_that_do_not_work() {
    let said = changed(|file| done(file.remove("tokenizer.ggml.tokens")));
    expect("no vocabulary", &said, &["vocabulary", "tokenizer.ggml.tokens", "no such key"]);
    let said = changed(|file| done(file.set("tokenizer.ggml.tokens", Value::Texts(vec!["a".into()]))));
    expect("short vocabulary", &said, &["1 tokens", "512, the rows of token_embd.weight"]);
    let said = changed(|file| done(file.set("tokenizer.ggml.pre", Value::Text("other".into()))));
    expect("splitting", &said, &["no tokenizer can be made of the vocabulary", "other"]);
    let said = changed(|file| {
        file.set("tokenizer.ggml.tokens", Value::Texts((0..512).map(|id| format!("t{id}")).collect()));
        file.set("tokenizer.ggml.merges", Value::Texts(Vec::new()));
    });
    expect("vocabulary without bytes", &said, &["vocabulary"]);
    let said = changed(|file| done(file.set("tokenizer.ggml.eos_token_id", Value::U32(9999))));
    expect("end token", &said, &["tokenizer.ggml.eos_token_id", "9999"]);
    let said = changed(|file| done(file.set("tokenizer.chat_template", Value::Text("{% for %}".into()))));
    expect("template", &said, &["template", "the chat template does not work"]);
    let said = changed(|file| done(file.set("tokenizer.chat_template", Value::Text("hello".into()))));
    expect("deaf template", &said, &["leaves out what the user says"]);
}

#[test]
fn folders_that_are_wrong() {
    let wrong = |change: &dyn Fn(&mut Files)| {
        let mut files = Files::reference("moe");
        change(&mut files);
        let folder = tempfile::tempdir().unwrap();
        files.write(folder.path(), 1);
        problems(&check(folder.path())).join("\n")
    };
    assert_eq!(wrong(&|_| ()), "");
    let router = "model.layers.0.mlp.gate.weight";
    let said = wrong(&|files| drop(files.take(router)));
    expect("missing", &said, &["'model.layers.0.mlp.gate.weight' is missing", "[8, 64], [experts, hidden]"]);
    let said = wrong(&|files| {
        let experts = files.tensors.iter_mut().find(|tensor| tensor.name.ends_with("0.mlp.experts.gate_up_proj"));
        experts.unwrap().shape = vec![8, 64, 96];
    });
    expect("experts", &said, &["has the shape [8, 64, 96] and must have [8, 96, 64]"]);
    let said = wrong(&|files| files.config["model_type"] = json!("llama"));
    expect("family", &said, &["architecture 'llama' is of no known family"]);
    let said = wrong(&|files| files.config["num_attention_heads"] = json!(8));
    expect("heads", &said, &["self_attn.q_proj.weight' has the shape [256, 64] and must have [512, 64]"]);
    let said = wrong(&|files| files.config["attention_bias"] = json!(true));
    expect("bias", &said, &["attention_bias"]);
    let said = wrong(&|files| files.config["rope_parameters"]["rope_theta"] = json!(1e6));
    expect("theta", &said, &["rope_theta is 1000000 (rope_parameters.rope_theta)"]);
    let said = wrong(&|files| files.tokenizer["model"]["vocab"] = json!({}));
    expect("vocabulary", &said, &["vocabulary"]);
}

#[test]
fn a_file_against_itself_its_folder_and_a_rounded_one() {
    let compare = |file: &Path, other: &Path| {
        let against = Some(Against { path: other, text: TEXT, tokens: 96 });
        let report = check_with(file, &ValidateOptions { mmap: true, quality: false, against });
        assert!(report.ok, "{:?}", problems(&report));
        report.against.unwrap()
    };
    let gguf = |name: &str| reference(&format!("gguf/{name}.gguf"));
    let itself = compare(&gguf("dense-gva2.bf16"), &gguf("dense-gva2.bf16"));
    assert_eq!((itself.text.kl_max, itself.text.same_top_share, itself.text.tokens), (0.0, 1.0, 96));
    assert_eq!(itself.text.perplexity, itself.text.other_perplexity);
    assert!(itself.tensors.len() > 40 && itself.tensors.iter().all(|tensor| tensor.error == 0.0));

    // A folder has value heads in another order, norms without one, and experts in other tensors.
    for name in ["dense-gva2", "dense-gva3", "moe"] {
        for (a, b) in
            [(gguf(&format!("{name}.bf16")), reference(name)), (reference(name), gguf(&format!("{name}.bf16")))]
        {
            let same = compare(&a, &b);
            let far = same.tensors.iter().find(|tensor| tensor.error > 1e-6);
            assert!(far.is_none(), "{name}: {far:?}");
            assert!(same.text.kl_max < 1e-6 && same.text.same_top_share > 0.98, "{name}: {:?}", same.text);
        }
    }

    let rounded = compare(&gguf("dense-wide.q8_0"), &reference("dense-wide"));
    assert!(rounded.text.kl_mean > 0.0 && rounded.text.kl_mean < 0.05, "{:?}", rounded.text);
    let worst = rounded.tensors.iter().map(|tensor| tensor.error).fold(0.0, f64::max);
    assert!(worst > 1e-4 && worst < 0.02, "{worst}");
    let coarse = compare(&gguf("dense-wide.q4_k_m"), &gguf("dense-wide.bf16"));
    assert!(coarse.text.kl_mean > 2.0 * rounded.text.kl_mean, "{:?}", coarse.text);
}

#[test]
fn a_file_of_another_model_cannot_be_compared() {
    let against = Some(Against { path: &reference("moe"), text: TEXT, tokens: 16 });
    let options = ValidateOptions { mmap: true, quality: false, against };
    let said = problems(&check_with(&reference("dense-tied"), &options)).join("\n");
    expect("other", &said, &["against", "is of another model"]);
    let against = Some(Against { path: &reference("dense-tied"), text: "", tokens: 16 });
    let said = problems(&check_with(&reference("dense-tied"), &ValidateOptions { against, ..options })).join("\n");
    expect("no text", &said, &["needs a text of two tokens or more"]);
}
