//! `reprise tensors` and `reprise validate` as scripts use them: exit codes, JSON, tables.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tests::reprise::command;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/reference").join(name)
}

fn reprise(words: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    command(folder.path()).args(words).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn exit_codes_say_whether_a_file_can_be_trusted() {
    let good = data("gguf/dense-wide.q8_0.gguf");
    let clean = reprise(&["validate", text(&good), "--json"]);
    assert_eq!(clean.status.code(), Some(0), "{clean:?}");
    let report = json(&clean);
    assert_eq!((report["ok"].as_bool(), report["architecture"].as_str()), (Some(true), Some("qwen35")));
    assert_eq!(report["tensors"][0]["sha256"].as_str().map(str::len), Some(64));

    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.gguf");
    let bytes = std::fs::read(&good).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let broken = reprise(&["validate", text(&cut)]);
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    let said = String::from_utf8_lossy(&broken.stdout);
    assert!(said.contains("PROBLEM structure") && said.contains("do not use this file: 1 problem"), "{said}");

    let missing = folder.path().join("none.gguf");
    for words in [
        &["validate"][..],
        &["validate", text(&missing)],
        &["validate", text(&good), "--text", "t.txt"],
        &["validate", text(&good), "--against", text(&missing)],
        &["validate", text(&good), "--against", text(&good), "--tokens", "1"],
    ] {
        let wrong = reprise(words);
        assert_eq!(wrong.status.code(), Some(2), "{words:?}: {wrong:?}");
    }
}

#[test]
fn the_built_in_model_is_clean_and_agrees_with_itself() {
    let output = reprise(&["validate", "builtin", "--quality", "--against", "builtin", "--tokens", "32"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for part in ["clean: 0 problems", "KL mean 0.000000", "same likeliest token 100.0 %", "blk.N.attn_q.weight"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("reading ") && told.contains("predicts 32 tokens at most"),
        "it says first what it takes: {told}"
    );
}

#[test]
fn tensors_are_listed_with_and_without_their_values() {
    for file in [data("moe"), data("moe/model.safetensors"), data("gguf/moe.bf16.gguf")] {
        let plain = reprise(&["tensors", text(&file)]);
        let said = String::from_utf8_lossy(&plain.stdout);
        assert!(plain.status.success() && said.contains("8 × 64 × 48") && said.contains("tensors, "), "{plain:?}");
        let list = json(&reprise(&["tensors", text(&file), "--stats", "--json", "--only", "norm"]));
        let tensors = list["tensors"].as_array().unwrap();
        assert!(tensors.len() > 8);
        for tensor in tensors {
            assert!(tensor["name"].as_str().unwrap().contains("norm"));
            let counted: u64 = tensor["stats"]["histogram"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
            assert_eq!(Some(counted), tensor["stats"]["values"].as_u64());
        }
    }
    let table = reprise(&["tensors", text(&data("moe")), "--stats", "--only", "q_proj"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains('█'), "{table:?}");
    let wrong = reprise(&["tensors", text(&data("README.md"))]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("is not a GGUF file"), "{wrong:?}");
}
