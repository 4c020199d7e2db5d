//! `POST /v1/completions` of the real binary beside `reprise logits`: a harness measures what the model computes.

use serde_json::{Value, json};
use std::process::Command;
use tests::reprise::binary;
use tests::service::{Service, tiny_model};

/// Computes the log probabilities of these tokens but the first with `reprise logits`.
fn expected(tokens: &[u32]) -> Vec<f64> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.safetensors");
    let list = tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new(binary());
    command.args(["logits", "--precision", "f32", "--tokens", &list, "--model"]).arg(tiny_model());
    let output = command.arg("--out").arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = std::fs::read(&out).unwrap();
    let file = safetensors::SafeTensors::deserialize(&file).unwrap();
    let logits = file.tensor("logits").unwrap();
    let vocab = logits.shape()[1];
    let values = logits.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    let values: Vec<f64> = values.map(f64::from).collect();
    let of_row = |(row, next): (&[f64], &u32)| {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row[*next as usize] - most - row.iter().map(|logit| (logit - most).exp()).sum::<f64>().ln()
    };
    values.chunks_exact(vocab).zip(&tokens[1..]).map(of_row).collect()
}

async fn ask(service: &Service, body: &Value) -> Value {
    let headers = [("content-type", "application/json")];
    let (status, answer) = service.http("POST", "/v1/completions", &headers, &body.to_string()).await;
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(&answer).unwrap()
}

fn logprobs(choice: &Value) -> Vec<f64> {
    let all = choice["logprobs"]["token_logprobs"].as_array().unwrap();
    assert_eq!(all[0], Value::Null);
    all[1..].iter().map(|logprob| logprob.as_f64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loglikelihoods_are_those_of_the_logits() {
    let service = Service::start(&["--set", "engine.precision=f32"]).await;
    let prompts: Vec<Vec<u32>> =
        [3_u32, 120, 41, 77].iter().map(|many| (0..*many).map(|at| 7 * at % 450).collect()).collect();
    let body = json!({ "prompt": prompts, "echo": true, "max_tokens": 0, "logprobs": 1, "temperature": 0 });
    let whole = ask(&service, &body).await;
    let choices = whole["choices"].as_array().unwrap();
    assert_eq!(choices.len(), prompts.len());
    for (choice, tokens) in choices.iter().zip(&prompts) {
        let (ours, theirs) = (logprobs(choice), expected(tokens));
        assert_eq!((ours.len(), choice["finish_reason"].as_str()), (theirs.len(), Some("length")));
        let (sum, other): (f64, f64) = (ours.iter().sum(), theirs.iter().sum());
        assert!((sum - other).abs() < 1e-4 * theirs.len() as f64, "{sum} and {other}");
        assert!(ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() < 1e-4), "{ours:?} {theirs:?}");
    }
    // With one token more, and one prompt at a time, nothing of the prompt changes.
    let body = json!({ "prompt": prompts[1], "echo": true, "max_tokens": 1, "logprobs": 1, "temperature": 0 });
    let one = ask(&service, &body).await;
    let (ours, batched) = (logprobs(&one["choices"][0]), logprobs(&choices[1]));
    assert_eq!(ours.len(), batched.len() + 1);
    assert!(ours.iter().zip(&batched).all(|(a, b)| (a - b).abs() < 1e-4));
    // A text has the tokens of its echo.
    let text = "The light is on.";
    let body = json!({ "prompt": [text, "Ho."], "echo": true, "max_tokens": 0, "logprobs": 0 });
    let whole = ask(&service, &body).await;
    let names = whole["choices"][0]["logprobs"]["tokens"].as_array().unwrap();
    assert_eq!(names.iter().map(|name| name.as_str().unwrap()).collect::<String>(), text);
    assert_eq!(whole["choices"][1]["text"], "Ho.");
    assert_eq!(whole["usage"]["completion_tokens"], 0);
    service.stop().await;
}
