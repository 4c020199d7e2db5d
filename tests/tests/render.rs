//! `reprise render` prints, to the byte, what transformers rendered, from a folder and from a GGUF file.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn data(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/data")).join(path)
}

fn cases(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(data(path)).unwrap()).unwrap()
}

fn render(model: &str, body: &Value, more: &[&str]) -> Output {
    let model = data(model);
    let mut child = Command::new(tests::reprise::binary())
        .args(["render", "--request", "-", "--model"])
        .arg(model)
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body.to_string().as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn error_of(output: &Output) -> String {
    assert!(!output.status.success());
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn prompts_are_those_that_transformers_renders() {
    let cases = cases("reference/prompts.json");
    for model in ["reference/dense-tied", "reference/gguf/dense-wide.q4_k_m.gguf"] {
        for case in cases.as_array().unwrap() {
            let body =
                json!({"messages": case["messages"], "tools": case["tools"], "chat_template_kwargs": case["options"]});
            let output = render(model, &body, &[]);
            assert!(output.status.success(), "{}: {}", case["name"], String::from_utf8_lossy(&output.stderr));
            assert_eq!(String::from_utf8(output.stdout).unwrap(), case["text"].as_str().unwrap(), "{}", case["name"]);
        }
    }
}

#[test]
fn bodies_as_clients_send_them_are_understood() {
    let cases = cases("reference-extra/more_prompts.json");
    let bodies: Vec<&Value> =
        cases["cases"].as_array().unwrap().iter().filter(|case| case["body"].is_object()).collect();
    assert!(bodies.len() >= 10);
    for case in bodies {
        let output = render("reference/moe", &case["body"], &[]);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), case["text"].as_str().unwrap(), "{}", case["name"]);
    }
}

#[test]
fn tokens_and_marks_come_with_the_text() {
    let body =
        json!({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end|>"}]});
    let from = |model| -> Value { serde_json::from_slice(&render(model, &body, &["--json"]).stdout).unwrap() };
    let (folder, file) = (from("reference/dense-tied"), from("reference/gguf/dense-tied.bf16.gguf"));
    assert_eq!(folder, file, "the same ids from both");
    assert!(
        folder["text"].as_str().unwrap().starts_with("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")
    );
    assert_eq!(folder["marks"].as_array().unwrap().len(), 3, "two messages and the open turn");
}

#[test]
fn what_cannot_be_rendered_is_one_clear_line() {
    let user = json!({"role": "user", "content": "x"});
    let late = json!({"messages": [user, {"role": "system", "content": "y"}]});
    let error = error_of(&render("reference/moe", &late, &[]));
    assert!(
        error.ends_with("error: the chat template refuses these messages: System message must be at the beginning.\n"),
        "{error}"
    );
    let error = error_of(&render("reference/moe", &json!({"messages": [{"role": "user", "content": 5}]}), &[]));
    assert!(error.contains("messages[0].content is a number"), "{error}");
    let error = error_of(&render("reference/no-such-model", &json!({"messages": [user]}), &[]));
    assert!(error.contains("no-such-model") && error.lines().count() == 1, "{error}");
}
