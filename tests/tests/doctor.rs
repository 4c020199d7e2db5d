//! Findings of `reprise doctor`, with the real binary.

use serde_json::Value;
use std::process::Output;
use tempfile::TempDir;
use tests::service::tiny_model;

fn doctor(folder: &TempDir, args: &[&str]) -> (Output, String) {
    let mut command = tests::reprise::command(folder.path());
    // No GPU of the machine is asked for: what it says of it is not the same everywhere.
    let output = command.arg("doctor").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

fn finding<'a>(report: &'a Value, what: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["what"] == what).unwrap_or_else(|| panic!("no {what}: {report}"))
}

#[test]
fn a_machine_that_can_serve_is_told_with_all_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let model = format!("model.path={}", tiny_model().display());
    let (output, said) = doctor(&folder, &["--json", "--set", &model, "--set", "engine.device=cpu"]);
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((output.status.code(), &report["ok"]), (Some(0), &Value::Bool(true)), "{said}");
    assert!(finding(&report, "processor")["says"].as_str().unwrap().contains("threads"));
    assert!(finding(&report, "memory")["says"].as_str().unwrap().contains("MiB"));
    assert!(finding(&report, "model")["says"].as_str().unwrap().contains("tokens"));
    assert_eq!(finding(&report, "GPU")["says"], "engine.device is cpu: no GPU is used");
    // It only looks.
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_would_keep_the_service_from_starting_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let model = format!("model.path={}", tiny_model().display());
    let cases: [(&[&str], &str, &str); 4] = [
        (&["server.prot=1"], "configuration", "server.prot"),
        (&["model.path=nothing.gguf"], "model", "nothing.gguf"),
        (&["memory.total=900000GiB"], "memory", "memory.total"),
        (&["store.path=/dev/null/reprise.db"], "store", "cannot be written to"),
    ];
    for (sets, what, says) in cases {
        let mut args = vec!["--json", "--set", &model, "--set", "engine.device=cpu"];
        args.extend(sets.iter().flat_map(|set| ["--set", *set]));
        let (output, said) = doctor(&folder, &args);
        let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert_eq!((output.status.code(), &report["ok"]), (Some(1), &Value::Bool(false)), "{said}");
        let found = finding(&report, what);
        assert!(found["state"] == "problem" && found["says"].as_str().unwrap().contains(says), "{found}");
    }
}

/// An arm of an experiment that another model would have to answer.
#[test]
fn an_arm_of_another_model_is_a_problem_and_a_start_shows_no_screen() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[experiment]\nname = \"windows\"\narms = { \"qwen3.5-9b-32k\" = 1, \"qwen3.5-9b-64k\" = 1 }\n";
    std::fs::write(folder.path().join("reprise.toml"), file).unwrap();
    let cpu = ["--set", "engine.device=cpu", "--set", "model.preset=builtin"];
    let (output, said) = doctor(&folder, &[&["--json"], &cpu[..]].concat());
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let found = finding(&report, "presets");
    let says = "the arm \"qwen3.5-9b-32k\" of the experiment is no preset of the model that runs";
    assert!(output.status.code() == Some(1) && found["state"] == "problem", "{said}");
    assert!(found["says"].as_str().unwrap().starts_with(says), "{found}");
    let mut serve = tests::reprise::command(folder.path());
    let output = serve.args(["serve", "--port", "0", "--set", "wyoming.port=0"]).args(cpu).output().unwrap();
    assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{output:?}");
}

/// A GPU that is asked for and not there is a problem, one that only might be used is none.
#[test]
fn a_gpu_that_is_missing_matters_where_it_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let model = format!("model.path={}", tiny_model().display());
    let of = |device: &str| {
        let device = format!("engine.device={device}");
        let (output, said) = doctor(&folder, &["--json", "--set", &model, "--set", &device]);
        let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        (output.status.code(), finding(&report, "GPU").clone())
    };
    let (code, asked) = of("cuda");
    if asked["state"] == "good" {
        assert!(std::env::var_os("REQUIRE_CUDA").is_some() || asked["says"].as_str().unwrap().contains("free"));
        return println!("skipped: there is a GPU, {}", asked["says"]);
    }
    assert_eq!((code, asked["state"].as_str()), (Some(1), Some("problem")), "{asked}");
    let (code, auto) = of("auto");
    assert_eq!((code, auto["state"].as_str()), (Some(0), Some("note")), "{auto}");
    assert!(auto["says"].as_str().unwrap().starts_with("the CPU computes: "), "{auto}");
    let (output, said) = doctor(&folder, &["--set", &model]);
    assert!(output.status.success() && said.ends_with("nothing keeps the service from starting\n"), "{said}");
}
