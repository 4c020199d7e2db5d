//! `reprise run` as a person uses it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tests::reprise::binary;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/reference/dense-wide")
}

fn run(args: &[&str]) -> Output {
    Command::new(binary()).arg("run").args(args).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let model = model();
    let output = run(&[&["--model", model.to_str().unwrap(), "--json"], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn streams_the_text_that_the_object_holds() {
    let model = model();
    let args = ["--prompt", "What time is it?", "--max-tokens", "12", "--seed", "5"];
    let object = json(&args);
    let output = run(&[&["--model", model.to_str().unwrap()], &args[..]].concat());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().trim_end_matches('\n'),
        object["content"].as_str().unwrap().trim_end_matches('\n')
    );
    assert_eq!(object["usage"]["completion_tokens"], object["tokens"].as_array().unwrap().len());
    assert!(object["timings"]["first_token_ms"].as_f64().unwrap() > 0.0);
    // The same seed, the same text; another, another.
    assert_eq!(json(&args)["tokens"], object["tokens"]);
    assert_ne!(
        json(&["--prompt", "What time is it?", "--max-tokens", "12", "--seed", "6"])["tokens"],
        object["tokens"]
    );
}

#[test]
fn a_prompt_of_tokens_and_a_stop_string() {
    let args = ["--tokens", "12,40,7,300", "--max-tokens", "30", "--temperature", "0", "--ignore-eos"];
    let whole = json(&args);
    assert_eq!((&whole["finish"], whole["tokens"].as_array().unwrap().len()), (&Value::from("length"), 30));
    let text = whole["content"].as_str().unwrap();
    // A stop string from the middle of the text, over whatever token borders it has.
    let middle: String = text.chars().skip(text.chars().count() / 2).take(3).collect();
    let stopped = json(&[&args[..], &["--stop", &middle]].concat());
    assert_eq!(stopped["finish"], "stop");
    assert_eq!(stopped["content"].as_str().unwrap(), &text[..text.find(&middle).unwrap()]);
}

#[test]
fn a_thinking_budget_is_enforced() {
    let object = json(&["--prompt", "Hello", "--thinking", "5", "--max-tokens", "40", "--seed", "1", "--ignore-eos"]);

    let tokenizer = std::fs::read_to_string(model().join("tokenizer.json")).unwrap();
    let tokenizer: Value = serde_json::from_str(&tokenizer).unwrap();
    let added = tokenizer["added_tokens"].as_array().unwrap();
    let close =
        added.iter().find(|token| token["content"] == "</think>").and_then(|token| token["id"].as_i64()).unwrap();
    let tokens: Vec<i64> = object["tokens"].as_array().unwrap().iter().map(|token| token.as_i64().unwrap()).collect();
    let at = tokens.iter().position(|token| *token == close).expect("the thought was closed");
    assert!(at <= 5 + 2, "closed at {at}");
}

#[test]
fn mistakes_get_one_clear_line() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let llama = tempfile::tempdir().unwrap();
    std::fs::write(
        llama.path().join("config.json"),
        r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}"#,
    )
    .unwrap();
    for (model, says) in [
        ("/nowhere/model.gguf", "no file"),
        (readme.to_str().unwrap(), "GGUF"),
        (llama.path().to_str().unwrap(), "llama"),
    ] {
        let output = run(&["--model", model, "--prompt", "x"]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
    }
    assert_eq!(run(&["--no-such-flag"]).status.code(), Some(2));
}
