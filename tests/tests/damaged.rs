//! Damaged and wrong input of every command that reads or writes model files: a clear error, exit code 1, no panic, and nothing
//! under a final name or beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use safetensors::tensor::{Dtype, TensorView};
use tests::house::files::root;
use tests::reprise::command;

/// Input that is damaged: its name, what is done to a folder with whole ones, and what the errors say.
struct Damaged {
    what: &'static str,
    input: &'static str,
    damage: fn(&Path),
    says: &'static str,
    commands: &'static [&'static [&'static str]],
}

const QUANTIZE: &[&str] = &["quantize", "IN", "out.gguf", "q8_0"];
const FIT: &[&str] = &["quantize", "IN", "out.gguf", "--bytes", "200MiB"];
const IMPORT: &[&str] = &["import", "IN", "--out", "out.gguf"];
const IMPORT_APR: &[&str] = &["import", "IN", "--out", "out.apr", "--quantize", "f16"];
const IMATRIX: &[&str] = &["imatrix", "--model", "IN", "--text", "text", "--out", "out.gguf", "--chunk", "8"];
const RUN: &[&str] = &["run", "--model", "IN", "--prompt", "Hi", "--max-tokens", "1"];
const LOGITS: &[&str] = &["logits", "--model", "IN", "--tokens", "1,2", "--out", "out"];
const VALIDATE: &[&str] = &["validate", "IN"];
const TENSORS: &[&str] = &["tensors", "IN"];
const PLAN: &[&str] = &["plan", "--model", "IN"];
const PROBE: &[&str] = &["probe", "--model", "IN", "--lo", "256", "--hi", "256"];
const QA: &[&str] = &["qa", "IN", "--tokens", "16", "--json"];
const EXTRACT: &[&str] = &["lora", "extract", "IN", "whole", "--rank", "2", "--out", "out"];
const EXTRACT_FROM: &[&str] = &["lora", "extract", "whole", "IN", "--rank", "2", "--out", "out.gguf"];
const MERGE_BASE: &[&str] = &["lora", "merge", "IN", "adapter", "--out", "out"];
const MERGE_ADAPTER: &[&str] = &["lora", "merge", "whole", "IN", "--out", "out"];
const WITH_ADAPTER: &[&str] = &["logits", "--model", "whole", "--tokens", "1,2", "--out", "out", "--lora", "IN"];
const MERGE: &[&str] = &["merge", "IN", "--out", "out"];
const WITH_IMATRIX: &[&str] = &["quantize", "whole.gguf", "out.gguf", "q4_k_m", "--imatrix", "IN"];

/// Commands that read a model to its last metadata.
const READERS: &[&[&str]] = &[QUANTIZE, FIT, IMATRIX, RUN, LOGITS, VALIDATE, PLAN, PROBE, QA];
const READERS_OF_FOLDERS: &[&[&str]] = &[IMPORT, IMPORT_APR, QUANTIZE, IMATRIX, RUN, LOGITS, VALIDATE, PLAN, PROBE, QA];

fn reference(name: &str) -> PathBuf {
    root().join("tests/data/reference").join(name)
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

fn place_of(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).unwrap()
}

/// Puts a part of the same length in the place of another, the first one of its kind.
fn replace(path: &Path, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    rewrite(path, |bytes| {
        let at = place_of(bytes, from);
        bytes[at..at + to.len()].copy_from_slice(to);
    });
}

fn gguf(folder: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    rewrite(&folder.join("in.gguf"), change);
}

fn apr(folder: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    rewrite(&folder.join("in.apr"), change);
}

fn shard(folder: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    rewrite(&folder.join("in/model.safetensors"), change);
}

fn config(folder: &Path, from: &str, to: &str) {
    let path = folder.join("in/config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

const MODULE: &str = "base_model.model.model.layers.0.mlp.up_proj";

/// Writes an adapter of the dense models: [rank, columns] and [rows, rank] of one module.
fn adapter(folder: &Path, module: &str, [a, b]: [[usize; 2]; 2], value: f32) {
    std::fs::create_dir_all(folder).unwrap();
    let bytes = |dims: [usize; 2]| value.to_le_bytes().repeat(dims[0] * dims[1]);
    let (of_a, of_b) = (bytes(a), bytes(b));
    let tensors = BTreeMap::from([
        (format!("{module}.lora_A.weight"), TensorView::new(Dtype::F32, a.to_vec(), &of_a).unwrap()),
        (format!("{module}.lora_B.weight"), TensorView::new(Dtype::F32, b.to_vec(), &of_b).unwrap()),
    ]);
    safetensors::serialize_to_file(tensors, None, &folder.join("adapter_model.safetensors")).unwrap();
    std::fs::write(folder.join("adapter_config.json"), r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 2}"#).unwrap();
}

const FITS: [[usize; 2]; 2] = [[2, 64], [160, 2]];

fn adapter_config(folder: &Path, json: &str) {
    std::fs::write(folder.join("in-adapter/adapter_config.json"), json).unwrap();
}

fn recipe(folder: &Path, text: &str) {
    std::fs::write(folder.join("in.yaml"), text).unwrap();
}

/// Makes a folder of whole files under the names of the table: a model as a folder, GGUF and APR file, an adapter, an importance
/// matrix.
fn whole() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["whole", "in"] {
        std::fs::create_dir(path(name)).unwrap();
        for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
            std::fs::copy(reference("dense-tied").join(file), path(name).join(file)).unwrap();
        }
    }
    for name in ["whole.gguf", "in.gguf"] {
        std::fs::copy(reference("gguf/dense-tied.bf16.gguf"), path(name)).unwrap();
    }
    std::fs::write(path("text"), "Good morning. The light is on. ".repeat(20)).unwrap();
    for name in ["adapter", "in-adapter"] {
        adapter(&path(name), MODULE, FITS, 0.1);
    }
    let made = run(folder.path(), &["import", "whole", "--out", "in.apr"]);
    assert!(made.status.success(), "{made:?}");
    let imatrix = ["imatrix", "--model", "whole", "--text", "text", "--out", "in.imatrix", "--chunk", "32"];
    let made = run(folder.path(), &imatrix);
    assert!(made.status.success(), "{made:?}");
    folder
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder).args(args).output().unwrap()
}

fn listing(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn check(table: &[Damaged]) {
    let folder = whole();
    let kept = tempfile::tempdir().unwrap();
    for Damaged { what, input, damage, says, commands } in table {
        // Each case damages a fresh copy of its input.
        let (whole, backup) = (folder.path().join(input), kept.path().join(input));
        if whole.exists() && !backup.exists() {
            copy(&whole, &backup);
        }
        if backup.exists() {
            copy(&backup, &whole);
        }
        damage(folder.path());
        let before = listing(folder.path());
        for args in *commands {
            let args: Vec<&str> = args.iter().map(|arg| if *arg == "IN" { *input } else { *arg }).collect();
            let output = run(folder.path(), &args);
            let told =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.code(), Some(1), "{what}, {args:?}: {told}");
            assert!(!told.contains("panicked"), "{what}, {args:?}: {told}");
            assert!(told.contains(says), "{what}, {args:?}: {told}\nexpected: {says}");
            assert_eq!(listing(folder.path()), before, "{what}, {args:?} leaves a file");
        }
    }
}

/// Copies a file, or a folder of files, in the place of another.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        let _ = std::fs::remove_dir_all(to);
        std::fs::create_dir(to).unwrap();
        for name in listing(from) {
            std::fs::copy(from.join(&name), to.join(name)).unwrap();
        }
        return;
    }
    std::fs::copy(from, to).unwrap();
}

fn damaged(
    what: &'static str,
    input: &'static str,
    damage: fn(&Path),
    says: &'static str,
    commands: &'static [&'static [&'static str]],
) -> Damaged {
    Damaged { what, input, damage, says, commands }
}

#[test]
fn gguf_files() {
    let of = |what, damage, says, commands| damaged(what, "in.gguf", damage, says, commands);
    check(&[
        of("cut in the middle", |f| gguf(f, |b| b.truncate(b.len() / 2)), "is the download complete?", READERS),
        of("cut in the head", |f| gguf(f, |b| b.truncate(1000)), "in.gguf", READERS),
        of("empty", |f| gguf(f, Vec::clear), "is not a GGUF file", READERS),
        of(
            "another kind of file",
            |f| gguf(f, |b| b[..4].copy_from_slice(b"PK\x03\x04")),
            "is not a GGUF file",
            READERS,
        ),
        of("a number of tensors that lies", |f| gguf(f, |b| b[8..16].fill(0xff)), "in.gguf", &[QUANTIZE, RUN, TENSORS]),
        of("a number of keys that lies", |f| gguf(f, |b| b[16..24].fill(0xff)), "in.gguf", &[QUANTIZE, RUN, TENSORS]),
        of("another family", |f| replace(&f.join("in.gguf"), b"qwen35", b"qwen99"), "architecture 'qwen99'", READERS),
        of(
            "a missing tensor",
            |f| replace(&f.join("in.gguf"), b"blk.0.ffn_up", b"blk.0.ffn_ux"),
            "blk.0.ffn_up.weight",
            READERS,
        ),
        of(
            "a shape that lies",
            |f| {
                gguf(f, |b| {
                    let name = b"blk.0.ffn_up.weight";
                    let dims = place_of(b, name) + name.len() + 4;
                    b[dims] += 1;
                });
            },
            "blk.0.ffn_up.weight",
            READERS,
        ),
        of(
            "a place outside of the file",
            |f| {
                gguf(f, |b| {
                    let name = b"blk.0.ffn_up.weight";
                    let offset = place_of(b, name) + name.len() + 4 + 16 + 4;
                    b[offset + 6] = 0x7f;
                });
            },
            "blk.0.ffn_up.weight",
            &[QUANTIZE, RUN, VALIDATE, TENSORS],
        ),
        of(
            "a value that is not a number",
            |f| {
                gguf(f, |b| {
                    let end = b.len();
                    b[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
                });
            },
            "NaN",
            &[QUANTIZE, VALIDATE],
        ),
        of(
            "a matrix of none",
            |f| {
                gguf(f, |b| {
                    let end = b.len();
                    b[end - 4096..].fill(0xff);
                })
            },
            "in.gguf",
            &[QUANTIZE, QA],
        ),
    ]);
}

#[test]
fn folders() {
    let of = |what, damage, says, commands| damaged(what, "in", damage, says, commands);
    check(&[
        of(
            "cut at the end",
            |f| shard(f, |b| b.truncate(b.len() - 100)),
            "is the download complete?",
            READERS_OF_FOLDERS,
        ),
        of(
            "cut in the head",
            |f| shard(f, |b| b.truncate(100)),
            "cut short",
            &[IMPORT, RUN, TENSORS, EXTRACT, EXTRACT_FROM],
        ),
        of(
            "a size of the head that lies",
            |f| shard(f, |b| b[..8].fill(0xff)),
            "not safetensors",
            &[IMPORT, RUN, TENSORS, MERGE_BASE],
        ),
        of("a head that is none", |f| shard(f, |b| b[8] = b'x'), "damaged header", READERS_OF_FOLDERS),
        of(
            "a shape that lies",
            |f| replace(&f.join("in/model.safetensors"), b"[512,64]", b"[513,64]"),
            "[513, 64]",
            READERS_OF_FOLDERS,
        ),
        of(
            "a missing tensor",
            |f| replace(&f.join("in/model.safetensors"), b"layers.0.mlp.up_proj", b"layers.0.mlp.up_prox"),
            "layers.0.mlp.up_pro",
            &[IMPORT, IMPORT_APR, QUANTIZE, FIT, IMATRIX, RUN, LOGITS, VALIDATE, PROBE, QA, EXTRACT, EXTRACT_FROM],
        ),
        of(
            "a value that is not a number",
            |f| {
                shard(f, |b| {
                    let end = b.len();
                    b[end - 2..].copy_from_slice(&0x7fc0u16.to_le_bytes());
                })
            },
            "NaN",
            &[IMPORT, IMPORT_APR, QUANTIZE, VALIDATE],
        ),
        of("a configuration that is no JSON", |f| config(f, "{", "("), "is not valid JSON", READERS_OF_FOLDERS),
        of("another family", |f| config(f, "qwen3_5", "llama"), "is of no known family", READERS_OF_FOLDERS),
        of(
            "another number of layers",
            |f| config(f, "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5"),
            "layer_types",
            READERS_OF_FOLDERS,
        ),
        of(
            "no configuration",
            |f| std::fs::remove_file(f.join("in/config.json")).unwrap(),
            "holds no config.json",
            READERS_OF_FOLDERS,
        ),
        of(
            "no tokenizer",
            |f| std::fs::remove_file(f.join("in/tokenizer.json")).unwrap(),
            "holds no tokenizer.json",
            READERS_OF_FOLDERS,
        ),
        of(
            "a tokenizer that is none",
            |f| std::fs::write(f.join("in/tokenizer.json"), "[1").unwrap(),
            "tokenizer.json",
            &[IMPORT, IMPORT_APR, RUN, VALIDATE],
        ),
        of(
            "no tensors",
            |f| std::fs::remove_file(f.join("in/model.safetensors")).unwrap(),
            "model.safetensors",
            &[IMPORT, RUN, TENSORS, EXTRACT, MERGE_BASE],
        ),
    ]);
}

#[test]
fn apr_files() {
    let of = |what, damage, says, commands| damaged(what, "in.apr", damage, says, commands);
    check(&[
        of("cut in the middle", |f| apr(f, |b| b.truncate(b.len() / 2)), "in.apr", READERS_OF_FOLDERS),
        of("cut in the head", |f| apr(f, |b| b.truncate(40)), "is cut short", READERS_OF_FOLDERS),
        of("another version", |f| apr(f, |b| b[4] = 3), "is no APR file of version 2", &[IMPORT, RUN, TENSORS]),
        of("a head that was changed", |f| apr(f, |b| b[8] ^= 1), "has a damaged header", &[IMPORT, RUN, TENSORS]),
        of("metadata that are none", |f| apr(f, |b| b[64] = b'x'), "has damaged metadata", READERS_OF_FOLDERS),
        of(
            "a value that is not a number",
            |f| {
                apr(f, |b| {
                    let end = b.len() - 4;
                    b[end - 130..end].fill(0xff);
                })
            },
            "is NaN",
            &[IMPORT, IMPORT_APR, QUANTIZE],
        ),
    ]);
}

#[test]
fn adapters() {
    let of = |what, damage, says, commands| damaged(what, "in-adapter", damage, says, commands);
    const BOTH: &[&[&str]] = &[MERGE_ADAPTER, WITH_ADAPTER];
    check(&[
        of(
            "no configuration",
            |f| std::fs::remove_file(f.join("in-adapter/adapter_config.json")).unwrap(),
            "holds no adapter_config.json",
            BOTH,
        ),
        of("another kind", |f| adapter_config(f, r#"{"peft_type": "IA3"}"#), "key 'peft_type'", BOTH),
        of(
            "a part that is not applied",
            |f| adapter_config(f, r#"{"peft_type": "LORA", "r": 2, "use_dora": true}"#),
            "key 'use_dora'",
            BOTH,
        ),
        of("a rank that lies", |f| adapter_config(f, r#"{"peft_type": "LORA", "r": 3}"#), "expected rank 3", BOTH),
        of(
            "a rank that is a part of one",
            |f| adapter_config(f, r#"{"peft_type": "LORA", "r": 2, "rank_pattern": {"up_proj": 0.5}}"#),
            "key 'rank_pattern'",
            BOTH,
        ),
        of("a configuration that is no JSON", |f| adapter_config(f, "r: 2"), "is not valid JSON", BOTH),
        of(
            "for another base",
            |f| adapter(&f.join("in-adapter"), MODULE, [[2, 32], [160, 2]], 0.1),
            "for another base",
            BOTH,
        ),
        of(
            "for another layer",
            |f| adapter(&f.join("in-adapter"), "base_model.model.model.layers.99.mlp.up_proj", FITS, 0.1),
            "for another base",
            BOTH,
        ),
        of("values that are none", |f| adapter(&f.join("in-adapter"), MODULE, FITS, f32::NAN), "NaN", BOTH),
        of(
            "cut",
            |f| rewrite(&f.join("in-adapter/adapter_model.safetensors"), |b| b.truncate(b.len() - 9)),
            "is the download complete?",
            BOTH,
        ),
        damaged("a model for an adapter", "in.gguf", |_| (), "key 'general.type'", BOTH),
        damaged("a cut file of an adapter", "in.gguf", |f| gguf(f, |b| b.truncate(999)), "in.gguf", BOTH),
    ]);
}

#[test]
fn recipes_and_importance_matrices() {
    let of = |what, damage, says| damaged(what, "in.yaml", damage, says, &[MERGE]);
    let matrix = |what, damage, says| damaged(what, "in.imatrix", damage, says, &[WITH_IMATRIX]);
    check(&[
        of(
            "an unknown method",
            |f| recipe(f, "merge_method: della\nmodels: []\n"),
            "merge_method 'della' is not known here",
        ),
        of("no YAML", |f| recipe(f, "merge_method: [\n"), "is no recipe"),
        of("no models", |f| recipe(f, "merge_method: linear\n"), "has to have either 'models' or 'slices'"),
        of(
            "a model that is not there",
            |f| {
                recipe(
                    f,
                    "merge_method: linear\nmodels:\n  - model: whole\n    parameters: {weight: 1}\n  - model: gone\n    parameters: {weight: 1}\n",
                )
            },
            "gone",
        ),
        of(
            "an unknown parameter",
            |f| {
                recipe(
                    f,
                    "merge_method: linear\nmodels:\n  - model: whole\n    parameters: {wieght: 1}\n  - model: in\n",
                )
            },
            "the parameter 'wieght' is not known here",
        ),
        of(
            "no base",
            |f| recipe(f, "merge_method: ties\nmodels:\n  - model: whole\n  - model: in\n"),
            "has no base_model",
        ),
        matrix(
            "a text for a matrix",
            |f| std::fs::write(f.join("in.imatrix"), "of importance").unwrap(),
            "is no importance matrix",
        ),
        matrix("a cut matrix", |f| rewrite(&f.join("in.imatrix"), |b| b.truncate(b.len() / 2)), "in.imatrix"),
        damaged("a model for a matrix", "in.gguf", |_| (), "but no importance matrix", &[WITH_IMATRIX]),
    ]);
}
