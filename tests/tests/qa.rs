//! `reprise qa` with the real binary: one report of all checks.

use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn qa(folder: &Path, arguments: &[&str]) -> Output {
    tests::reprise::command(folder).arg("qa").args(arguments).output().unwrap()
}

#[test]
fn the_built_in_model_holds_all_checks() {
    let folder = tempfile::tempdir().unwrap();
    let output = qa(folder.path(), &["builtin", "--json", "--tokens", "64", "--html", "report.html"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    // Several checks open the model, which says once what it is.
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("note: this is the built-in model").count(), 1);
    assert!(output.status.success() && report["holds"] == true, "{report:#}");
    let checks: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(checks, ["opens", "file", "one answer in every way", "rounding", "replies", "speed"]);
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && !page.contains("<script") && !page.contains("http"), "{page}");
    for check in checks {
        assert!(page.contains(check), "{check}");
    }
}

#[test]
fn a_damaged_model_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/reference/dense-tied");
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(source.join(file), folder.path().join(file)).unwrap();
    }
    let weights = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let end = bytes.len();
    bytes[end - 4096..].fill(0xff); // numbers that are none
    std::fs::write(&weights, bytes).unwrap();
    let output = qa(folder.path(), &[".", "--json", "--tokens", "16"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["holds"]), (Some(1), &Value::Bool(false)), "{report:#}");

    let output = qa(folder.path(), &["nothing.gguf", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), report["checks"].as_array().unwrap().len()), (Some(1), 1));
    assert_eq!(qa(folder.path(), &[]).status.code(), Some(2));
    // A page that could not be written is told before the checks.
    let output = qa(folder.path(), &["builtin", "--html", "missing/report.html"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.starts_with("error: there is no folder missing"), "{said}");
}
