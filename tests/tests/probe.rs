//! `reprise probe` with the real binary: trials in processes of their own, under a limit of the system's.

use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// A model whose pages of keys and values are most of its memory.
const SHAPE: &str = r#"
name = "probed"
layers = 4
attention_every = 2
hidden = 64
ffn = 96
q_heads = 4
kv_heads = 2
head_dim = 64
rope_dims = 16
rope_sections = [3, 3, 2, 0]
rope_theta = 10000.0
key_heads = 2
value_heads = 2
key_dim = 32
value_dim = 32
conv_kernel = 4
rms_eps = 1e-6
vocab = 3000
native_ctx = 100000
tied = true
"#;

fn reprise(folder: &Path, arguments: &[&str]) -> Output {
    tests::reprise::command(folder).args(arguments).output().unwrap()
}

fn probed(folder: &Path, arguments: &[&str]) -> Value {
    let all = [&["probe", "--model", "model.gguf", "--json"], arguments].concat();
    let output = reprise(folder, &all);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_largest_window_is_found_where_memory_ends() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shape.toml"), SHAPE).unwrap();
    let made = reprise(folder.path(), &["synth", "--shape", "shape.toml", "--quant", "q8_0", "--out", "model.gguf"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    // Memory that the program alone has taken already.
    assert!(probed(folder.path(), &["--memory", "1KiB"])["window"].is_null());

    // A token of these formats takes 2 KiB in f32, half of it in f16.
    let [wide, narrow] = ["f32,f32", "f16,f16"].map(|kv| probed(folder.path(), &["--kv", kv, "--memory", "180MiB"]));
    let [of_wide, of_narrow] = [&wide, &narrow].map(|report| report["window"].as_u64().unwrap());
    assert!(of_wide % 256 == 0 && of_wide > 4000 && of_wide < 100_000, "{wide:#}");
    let ratio = of_narrow as f64 / of_wide as f64;
    assert!((1.6..2.6).contains(&ratio), "{of_narrow} and {of_wide}");
    for tried in wide["trials"].as_array().unwrap() {
        let fits = tried["failed"].is_null();
        assert_eq!(fits, tried["tokens"].as_u64().unwrap() <= of_wide, "{tried}");
        assert_eq!(fits, tried["used_bytes"].is_u64(), "{tried}");
    }
    let planned = wide["planned_window"].as_u64().unwrap();
    assert!(planned.abs_diff(of_wide) < of_wide / 10, "planned {planned}, found {of_wide}");

    let small = probed(folder.path(), &["--memory", "180MiB", "--lo", "256", "--hi", "512"]);
    assert_eq!((small["window"].as_u64(), small["trials"].as_array().unwrap().len()), (Some(512), 1));
    let none = probed(folder.path(), &["--memory", "10MiB", "--hi", "256"]);
    assert!(none["window"].is_null(), "{none:#}");
}

#[test]
fn wrong_arguments_are_no_trials() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, code, word) in [
        (&["probe", "--kv", "q8,q9"][..], 2, "q9"),
        (&["probe", "--memory", "much"], 2, "8GiB"),
        (&["probe", "--model", "nothing.gguf"], 1, "nothing.gguf"),
        (&["probe", "--model", "builtin", "--lo", "4096", "--hi", "256"], 2, "--lo"),
    ] {
        let output = reprise(folder.path(), arguments);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && words.contains(word), "{arguments:?}: {words}");
    }
}
