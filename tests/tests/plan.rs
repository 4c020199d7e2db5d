//! Output of `reprise plan`, with the real binary.

use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
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

// Sizes of the module.
const COLS: usize = 256;
const ROWS: usize = 512; // not a window: rows of a matrix

/// Writes an adapter of one module of the tiny model, with this rank.
fn adapter(folder: &Path, layer: usize, rank: usize) {
    std::fs::create_dir_all(folder).unwrap();
    let module = format!("base_model.model.model.layers.{layer}.mlp.up_proj");
    let (a, b) = (vec![0; 4 * rank * COLS], vec![0; 4 * ROWS * rank]);
    let tensors = BTreeMap::from([
        (format!("{module}.lora_A.weight"), TensorView::new(Dtype::F32, vec![rank, COLS], &a).unwrap()),
        (format!("{module}.lora_B.weight"), TensorView::new(Dtype::F32, vec![ROWS, rank], &b).unwrap()),
    ]);
    safetensors::serialize_to_file(tensors, None, &folder.join("adapter_model.safetensors")).unwrap();
    let config = format!(r#"{{"peft_type": "LORA", "r": {rank}, "lora_alpha": 2}}"#);
    std::fs::write(folder.join("adapter_config.json"), config).unwrap();
}

#[test]
fn a_plan_counts_what_the_service_would_hold() {
    let folder = tempfile::tempdir().unwrap();
    let file = tiny_model().display().to_string();
    let weights = |model: &str, sets: &[&str]| {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let report = planned(&folder, &[&["--model", model, "--windows", "200"][..], &sets].concat());
        (report["windows"][0]["weight_bytes"].as_u64().unwrap(), report)
    };
    let (plain, _) = weights(&file, &[]);
    adapter(&folder.path().join("voice"), 0, 2);
    let (adapted, report) = weights(&file, &["model.lora=[\"voice\"]"]);
    assert_eq!((adapted - plain, report.get("notes")), (4 * 2 * (COLS + ROWS) as u64, None));
    // One of another model is no reason to plan nothing.
    adapter(&folder.path().join("other"), 99, 2);
    let (bytes, report) = weights(&file, &["model.lora=[\"other\"]"]);
    assert_eq!(bytes, plain);
    assert!(report["notes"][0].as_str().unwrap().contains("other: tensor 'layers.99"), "{report}");

    // A block that drafts nothing is left out.
    let drafting = tests::house::files::root().join("tests/data/reference/dense-mtp").display().to_string();
    assert!(weights(&drafting, &["draft.mtp=0"]).0 < weights(&drafting, &["draft.mtp=2"]).0);

    // Every preset has its line, and no other formats stand where the reference precision keeps f32.
    let config = "[presets.kitchen]\nbase = \"qwen3.5-9b\"\nkv = { k = \"q8\", v = \"tq3\" }\n";
    std::fs::write(folder.path().join("reprise.toml"), config).unwrap();
    let report = planned(&folder, &["--model", "kitchen"]);
    let rows = report["windows"].as_array().unwrap();
    let own = rows.iter().find(|row| row["presets"].to_string().contains("\"kitchen\"")).expect("a row of kitchen");
    assert_eq!(own["kv"], serde_json::json!(["q8", "tq3"]));
    let (_, said) = plan(&folder, &["--model", "kitchen"]);
    assert!(said.contains("q8 and tq3") && said.contains("kitchen"), "{said}");
    let report = planned(&folder, &["--model", "kitchen", "--set", "engine.precision=f32"]);
    let rows = report["windows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["kv"] == serde_json::json!(["f32", "f32"])), "{report}");
}
