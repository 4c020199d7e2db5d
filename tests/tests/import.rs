//! `reprise import` and `reprise quantize`: what they print, and their exit codes.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tests::reprise::command;

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/reference").join(name)
}

fn reprise(folder: &Path, args: &[&str]) -> Output {
    command(folder).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_checkpoint_becomes_a_file_and_a_smaller_one() {
    let folder = tempfile::tempdir().unwrap();
    let source = reference("dense-wide");
    let source = source.to_str().unwrap();
    let imported = reprise(folder.path(), &["import", source, "--out", "whole.gguf", "--json"]);
    assert_eq!(imported.status.code(), Some(0), "{}", text(&imported.stderr));
    let report: Value = serde_json::from_slice(&imported.stdout).unwrap();
    let bytes = std::fs::metadata(folder.path().join("whole.gguf")).unwrap().len();
    assert_eq!((report["file"].as_str(), report["bytes"].as_u64()), (Some("whole.gguf"), Some(bytes)));

    let args = ["quantize", "whole.gguf", "small.gguf", "Q4_K_M", "--type", "ffn_down=q8_0"];
    let planned = reprise(folder.path(), &[&args[..], &["--dry-run"]].concat());
    assert!(text(&planned.stdout).contains("blk.0.ffn_down.weight"), "{}", text(&planned.stdout));
    assert!(!folder.path().join("small.gguf").exists());
    let written = reprise(folder.path(), &args);
    assert_eq!(written.status.code(), Some(0), "{}", text(&written.stderr));
    assert!(text(&written.stdout).starts_with("small.gguf: "), "{}", text(&written.stdout));
    assert!(std::fs::metadata(folder.path().join("small.gguf")).unwrap().len() < bytes / 2);
}

#[test]
fn a_file_has_the_size_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["quantize", "builtin.gguf", "small.gguf", "--bytes", "3.5MiB", "--json"];
    std::fs::copy(reference("../../../models/builtin/builtin.gguf"), folder.path().join("builtin.gguf")).unwrap();
    let written = reprise(folder.path(), &args);
    assert_eq!(written.status.code(), Some(0), "{}", text(&written.stderr));
    let report: Value = serde_json::from_slice(&written.stdout).unwrap();
    let bytes = std::fs::metadata(folder.path().join("small.gguf")).unwrap().len();
    assert!(bytes <= 7 << 19 && report["bytes"] == bytes, "{report:#}");
    let run = reprise(folder.path(), &["run", "--model", "small.gguf", "--prompt", "Hello", "--max-tokens", "4"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
}

/// Every command that takes a model takes a file of this form.
#[test]
fn an_apr_file_is_a_model_to_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let succeeds = |args: &[&str]| {
        let output = reprise(folder.path(), args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    succeeds(&["import", reference("dense-wide").to_str().unwrap(), "--out", "m.apr", "--quantize", "q4k"]);
    std::fs::write(folder.path().join("text"), "Good morning. The light is on. ".repeat(40)).unwrap();
    let tensors = succeeds(&["tensors", "m.apr", "--stats"]);
    assert!(tensors.contains("Q4_K") && tensors.contains("model.layers.0.mlp.up_proj.weight"), "{tensors}");
    let said = succeeds(&["validate", "m.apr", "--quality", "--against", "m.apr", "--tokens", "16"]);
    assert!(said.contains("clean: 0 problems"), "{said}");
    succeeds(&["logits", "--model", "m.apr", "--tokens", "1,2,3", "--out", "logits"]);
    succeeds(&["imatrix", "--model", "m.apr", "--text", "text", "--out", "im.gguf", "--chunk", "32"]);
    succeeds(&["quantize", "m.apr", "m.gguf", "q8_0"]);
    succeeds(&["import", "m.apr", "--out", "again.apr", "--quantize", "f16"]);
    succeeds(&["plan", "--model", "m.apr"]);
    succeeds(&["qa", "m.apr", "--tokens", "16"]);
    succeeds(&["run", "--model", "m.apr", "--prompt", "Hello", "--max-tokens", "2"]);
    succeeds(&["probe", "--model", "m.apr", "--lo", "256", "--hi", "256"]);
}

#[test]
fn mistakes_have_exit_codes_and_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let source = reference("dense-tied");
    let source = source.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["import", "nowhere", "--out", "x.gguf"], 1, "nowhere"),
        (&["import", source, "--out", "x.apr", "--quantize", "q8_0"], 1, "give f32, f16, bf16, q4k or q6k"),
        (&["quantize", source, "x.gguf", "--bytes", "some"], 2, "give a size such as 4.6GiB"),
        (&["quantize", source, "x.gguf", "q8_0", "--bytes", "1MiB"], 2, "cannot be used with"),
        (&["quantize", source, "x.gguf", "--bytes", "1KiB"], 1, "1024 are allowed"),
        (&["import", source, "--out", "x.gguf", "--quantize", "q3"], 2, "give one of f32, f16, bf16, q4_0"),
        (&["quantize", source, "x.gguf", "q8_0", "--type", "ffn=q9"], 2, "no type 'q9'"),
        (&["quantize", source, "x.gguf", "q8_0", "--imatrix", "none.gguf"], 1, "none.gguf"),
        (&["quantize", source], 2, "required"),
    ];
    for (args, code, expected) in cases {
        let output = reprise(folder.path(), args);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert!(told.contains(expected), "{args:?}: {told}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
