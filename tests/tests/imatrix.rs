//! `reprise imatrix` with the real binary: a matrix that quantisers take, and mistakes.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tests::reprise::command;

const TEXT: &str = "Good morning. Turn on the light in the kitchen. It is seven o'clock. What is the weather like? ";

fn reprise(folder: &Path, args: &[&str]) -> Output {
    command(folder).args(args).output().unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text"), TEXT.repeat(8)).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/builtin/builtin.gguf");
    std::fs::copy(model, folder.path().join("model.gguf")).unwrap();
    folder
}

#[test]
fn a_matrix_of_a_text_weights_what_is_quantised() {
    let folder = folder();
    let measured = |out: &str, more: &[&str]| -> Value {
        let args = ["imatrix", "--model", "model.gguf", "--text", "text", "--chunk", "32", "--json", "--out", out];
        let output = reprise(folder.path(), &[&args[..], more].concat());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(told.contains("chunks with") && told.contains(out), "it says first what it takes: {told}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let report = measured("one.gguf", &[]);
    let (chunks, tokens) = (report["chunks"].as_u64().unwrap(), report["tokens"].as_u64().unwrap());
    assert!(chunks >= 4 && tokens == 32 * chunks && report["tensors"].as_u64() > Some(30), "{report}");
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(report["bytes"], bytes("one.gguf").len());
    measured("again.gguf", &[]);
    assert!(bytes("one.gguf") == bytes("again.gguf"), "the same text and model, the same matrix");
    assert_eq!(measured("short.gguf", &["--chunks", "2"])["chunks"], 2);
    assert!(bytes("one.gguf") != bytes("short.gguf"));

    let quantize = |out: &str, more: &[&str]| {
        let output = reprise(folder.path(), &[&["quantize", "model.gguf", out, "q4_k_m"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = quantize("weighted.gguf", &["--imatrix", "one.gguf"]);
    // All but those of the block for prediction.
    assert!(said.contains("the importance matrix weights 46 tensors; 8 that it does not name"), "{said}");
    quantize("plain.gguf", &[]);
    assert!(bytes("weighted.gguf") != bytes("plain.gguf"));
}

#[test]
fn mistakes_are_told_and_leave_nothing() {
    let folder = folder();
    std::fs::write(folder.path().join("short"), "Hi.").unwrap();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--text", "text", "--out", "model.gguf", "--chunk", "32"], 1, "is the source itself; name another file"),
        (&["--text", "text", "--out", "text", "--chunk", "32"], 1, "is the source itself; name another file"),
        (&["--text", "short", "--out", "out"], 1, "has fewer tokens than --chunk 512: give a longer text"),
        (&["--text", "none", "--out", "out"], 1, "cannot read none"),
        (&["--text", "text", "--out", "out", "--chunk", "0"], 2, "number from 1 upwards"),
        (&["--text", "text", "--out", "no/folder/out", "--chunk", "32", "--chunks", "1"], 1, "no/folder/out"),
        (&["--text", "text"], 2, "--out"),
        (&["--text", "text", "--out", "out", "--chunk", "many"], 2, "many"),
    ];
    for (args, code, says) in cases {
        let output = reprise(folder.path(), &[&["imatrix", "--model", "model.gguf"], args].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && told.contains(says), "{args:?}: {told}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3, "the model and two texts");
}
