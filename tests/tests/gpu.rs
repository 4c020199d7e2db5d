//! The real binary with a stand-in for a GPU's driver: from the start of the service to the end of the GPU.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::client::PATIENCE;
use tests::service::{Service, tiny_model, try_http};
use tokio::time::timeout;

/// The stand-in's folder; none where there is no compiler for it, which a line says.
fn stand_in() -> Option<PathBuf> {
    let folder = std::env::temp_dir().join("reprise-gpu-tests");
    let example = tests::reprise::build(&["--example", "stand_in"]).unwrap();
    let output = Command::new(example).arg(folder).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("g++: ") {
        println!("skipped: {error}");
        return None;
    }
    assert!(output.status.success(), "{error}");
    Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

#[test]
fn the_doctor_tries_the_gpu() {
    let Some(libraries) = stand_in() else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = format!("model.path={}", tiny_model().display());
    let mut command = tests::reprise::command(folder.path());
    command.env("LD_LIBRARY_PATH", libraries).args([
        "doctor",
        "--json",
        "--set",
        &model,
        "--set",
        "engine.device=cuda",
    ]);
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let said: Vec<&str> = findings.iter().filter_map(|finding| finding["says"].as_str()).collect();
    assert_eq!(report["ok"], true, "{report}");
    for says in ["a stand-in for a GPU, compute capability 9.0", "right, to ", "for conversations"] {
        assert!(said.iter().any(|line| line.contains(says)), "{says}: {said:?}");
    }
}

/// A GPU breaks in the middle of a reply, and this process can never use it again: the service begins anew in its own place and
/// the conversation goes on from what was on disk.
#[tokio::test]
async fn a_service_outlives_a_gpu_that_it_cannot_open_again() {
    let Some(libraries) = stand_in() else { return };
    let folder = tempfile::tempdir().unwrap();
    let breaks = folder.path().join("breaks");
    let variables: [(&str, &Path); 2] = [("LD_LIBRARY_PATH", &libraries), ("STAND_IN_BREAKS_FOR", &breaks)];
    let sets = [
        "engine.device=cuda",
        "engine.reopen_s=0",
        "engine.reopen_tries=2",
        "engine.max_sequences=2",
        "engine.gpu_prefill_chunk_tokens=64",
        "memory.disk_min_tokens=16",
        "memory.disk_idle_s=0",
    ];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
    let port = free_port();
    let service = Service::with_environment(folder, &variables, &[&sets[..], &["--port", &port]].concat()).await;
    assert!(service.screen.contains("on a stand-in for a GPU"), "{}", service.screen);
    let mut messages = json!([{"role": "user", "content": "Good morning. Is it cold in the north?"}]);
    let first = ask(&service.address, &messages).await.expect("it answers");
    messages.as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": first["choices"][0]["message"]["content"]}),
        json!({"role": "user", "content": "And in the south?"}),
    ]);
    let is_written = || {
        let files = std::fs::read_dir(service.folder().join("data/state")).ok().into_iter().flatten().flatten();
        files.into_iter().any(|file| file.path().extension().is_some_and(|extension| extension == "line"))
    };
    let written = async {
        while !is_written() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, written).await.expect("what was computed is written");

    std::fs::write(&breaks, "").unwrap();
    let lost = ask(&service.address, &messages).await.expect_err("it breaks");
    assert!(lost.contains("what it held is lost") && lost.contains("ask again"), "{lost}");
    // A client that waits has to do no more than to ask again.
    let again = async {
        loop {
            match ask(&service.address, &messages).await {
                Ok(reply) => break reply,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    };
    let again = timeout(PATIENCE, again).await.expect("it begins anew");
    assert!(!breaks.exists());
    let cached = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > 16, "what was written was read: {again}");
}

fn free_port() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// A reply, or what is said instead, by the service or by the system where there is no service just now.
async fn ask(address: &str, messages: &Value) -> Result<Value, String> {
    let body = json!({"messages": messages, "max_tokens": 4, "temperature": 0}).to_string();
    let headers = [("content-type", "application/json")];
    match try_http(address, "POST", "/v1/chat/completions", &headers, &body).await {
        Ok((200, body)) => serde_json::from_str(&body).map_err(|error| format!("{error}: {body}")),
        Ok((status, body)) => Err(format!("{status}: {body}")),
        Err(error) => Err(error.to_string()),
    }
}
