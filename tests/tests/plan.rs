//! Output of `reprise plan`, with the real binary.

use serde_json::Value;
use std::process::Output;
use tempfile::TempDir;
use tests::service::tiny_model;

fn plan(folder: &TempDir, args: &[&str]) -> (Output, String) {
    let mut command = tests::reprise::command(folder.path());
    // No GPU of the machine is asked for: what it says of it is not the same everywhere.
    let output = command.args(["plan", "--set", "engine.device=cpu"]).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

fn planned(folder: &TempDir, args: &[&str]) -> Value {
    let (output, said) = plan(folder, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn row<'a>(report: &'a Value, ctx_size: u64, kv: [&str; 2]) -> &'a Value {
    let rows = report["windows"].as_array().unwrap();
    let found = rows.iter().find(|row| row["ctx_size"] == ctx_size && row["kv"] == serde_json::json!(kv));
    found.unwrap_or_else(|| panic!("no window of {ctx_size} in {kv:?}: {report}"))
}

#[test]
fn a_newer_release_of_a_shape_is_planned_by_it() {
    let folder = tempfile::tempdir().unwrap();
    for (preset, shape) in [("qwen3.6-27b", "Qwen3.5-27B"), ("qwen3.6-35b-a3b", "Qwen3.5-35B-A3B")] {
        let report = planned(&folder, &["--model", preset, "--set", "memory.total=64GiB"]);
        assert!(report["instead"].as_str().unwrap().contains(&format!("{shape} in q4_k_m")), "{report}");
    }
}

/// A home chooses before it fetches five gigabytes: the preset is enough.
#[test]
fn a_model_that_is_not_there_yet_is_planned_by_its_shape() {
    let folder = tempfile::tempdir().unwrap();
    let memory = ["--model", "qwen3.5-9b", "--set", "memory.total=16GiB"];
    // The presets' own windows.
    const SMALL: u64 = 16_384; // not a window: an expected row
    const LARGE: u64 = 262_144; // not a window: an expected row
    let report = planned(&folder, &memory);
    assert!(report["instead"].as_str().unwrap().contains("Qwen3.5-9B in q4_k_m"), "{report}");
    let (small, large) = (row(&report, SMALL, ["f16", "f16"]), row(&report, LARGE, ["f16", "f16"]));
    // 32 KiB a token in f16, by the model's arithmetic.
    assert_eq!((small["kv_bytes"].as_u64(), large["kv_bytes"].as_u64()), (Some(SMALL << 15), Some(LARGE << 15)));
    assert_eq!(small["presets"], serde_json::json!(["qwen3.5-9b-16k"]));
    assert!(small["full_conversations"].as_u64() > Some(5), "{small}");
    let q8 = row(&report, LARGE, ["q8", "q8"]);
    assert!(q8["needed_bytes"].as_u64() < large["needed_bytes"].as_u64(), "{q8}");

    // A card that has not room for all of it gets fewer layers, and one that has not room for a state leaves all to the CPU.
    let gpu = |size: &str| planned(&folder, &[&memory[..], &["--gpu-memory", size]].concat());
    let roomy = gpu("24GiB");
    assert_eq!(row(&roomy, SMALL, ["q8", "q8"])["gpu"]["host_bytes"], 0);
    let shared = gpu("4GiB");
    let on_gpu = &row(&shared, SMALL, ["q8", "q8"])["gpu"];
    assert!(
        on_gpu["layers"].as_u64() < on_gpu["of_layers"].as_u64() && on_gpu["host_bytes"].as_u64() > Some(0),
        "{on_gpu}"
    );
    let small = gpu("1GiB");
    assert!(small["gpu"].is_null() && small["notes"][0].as_str().unwrap().contains("does not fit"), "{small}");
    // What the CPU has of it needs room too.
    let little = planned(&folder, &["--model", "qwen3.5-9b", "--gpu-memory", "4GiB", "--set", "memory.total=1GiB"]);
    assert_eq!(row(&little, SMALL, ["q8", "q8"])["full_conversations"], 0);

    let (_, said) = plan(&folder, &memory);
    assert!(
        said.contains("is not here; planned with the shape Qwen3.5-9B") && said.contains(" fit  qwen3.5-9b-16k"),
        "{said}"
    );
    let (_, said) = plan(&folder, &["--model", "qwen3.5-9b", "--set", "memory.total=4GiB"]);
    assert!(said.contains("too much"), "{said}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_file_is_planned_without_being_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let file = tiny_model().display().to_string();
    let report = planned(&folder, &["--model", &file, "--windows", "300,200"]);
    let sizes: Vec<u64> =
        report["windows"].as_array().unwrap().iter().filter_map(|row| row["ctx_size"].as_u64()).collect();
    assert_eq!(sizes, [200, 300, 200, 300, 200, 300, 200, 300]);
    assert_eq!((&report["gpu"], report.get("instead")), (&Value::Null, None));

    // Without a window it is the service's own, which is no larger than the model's.
    let own = planned(&folder, &["--model", &file]);
    let most = own["windows"].as_array().unwrap().iter().filter_map(|row| row["ctx_size"].as_u64()).max();
    assert!(most <= own["native_ctx"].as_u64(), "{own}");

    for (args, code, says) in [
        (&["--model", &file, "--windows", "9999999"][..], 2, "is larger than the model's own"),
        (&["--model", "nothing"], 1, "no file, folder or preset"),
        (&["--shape", "9B"], 2, "--quant"),
        (&["--gpu-memory", "24GB"], 2, "did you mean \"24GiB\""),
    ] {
        let (output, _) = plan(&folder, args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && error.contains(says), "{args:?}: {error}");
    }
}
