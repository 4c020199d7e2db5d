//! `reprise merge` and `reprise lora` by hand: exit codes, what is printed, what is left.

use std::path::{Path, PathBuf};
use std::process::Output;

use tests::house::files::root;
use tests::reprise::command;

fn reference(name: &str) -> PathBuf {
    root().join("tests/data/reference").join(name)
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder).args(args).output().unwrap()
}

fn succeeds(folder: &Path, args: &[&str]) -> serde_json::Value {
    let output = run(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// A folder with the models `base` and `fine`, of which the second is half way to another one.
fn models() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let models = [reference("dense-gva2"), reference("dense-gva2")];
    let recipe = |name: &str, weight: f64| {
        // The last projections of all layers become smaller: a change of full rank.
        let [one, other] = models.each_ref().map(|model| model.display());
        let scaled = format!("[{{filter: o_proj, value: {weight}}}, {{value: 0.5}}]");
        let text = format!(
            "merge_method: linear\nmodels:\n  - model: {one}\n    parameters: {{weight: {scaled}}}\n  \
             - model: {other}/.\n    parameters: {{weight: 0.5}}\nparameters: {{normalize: false}}\ndtype: float32\n"
        );
        std::fs::write(folder.path().join(name), text).unwrap();
    };
    recipe("base.yaml", 0.5);
    recipe("fine.yaml", 0.4);
    for name in ["base", "fine"] {
        let report = succeeds(folder.path(), &["merge", &format!("{name}.yaml"), "--out", name, "--json"]);
        assert_eq!(report["method"], "linear");
        assert!(report["tensors"].as_u64() > Some(40), "{report}");
    }
    folder
}

#[test]
fn a_change_goes_from_a_model_to_an_adapter_and_back() {
    let folder = models();
    let folder = folder.path();
    let report =
        succeeds(folder, &["lora", "extract", "base", "fine", "--energy", "0.9999", "--out", "adapter", "--json"]);
    assert_eq!(report["modules"], 1, "{report}");
    assert!(report["relative_error"].as_f64() < Some(0.011), "{report}");
    let report = succeeds(folder, &["lora", "merge", "base", "adapter", "--out", "merged", "--json"]);
    assert_eq!(report["modules"], 1, "{report}");
    let logits = |model: &str, more: &[&str]| {
        let args = ["logits", "--model", model, "--tokens", "1,2,3,4,5", "--out", "logits", "--precision", "f32"];
        succeeds(folder, &[&args, more].concat());
        let bytes = std::fs::read(folder.join("logits")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let data = file.tensor("logits").unwrap().data().to_vec();
        data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<f32>>()
    };
    let distance = |a: &[f32], b: &[f32]| {
        let square = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>();
        (square(&mut a.iter().zip(b).map(|(a, b)| a - b)) / square(&mut b.iter().copied())).sqrt()
    };
    let merged = logits("merged", &[]);
    assert!(distance(&logits("base", &["--lora", "adapter"]), &merged) < 1e-5);
    assert!(distance(&logits("base", &["--lora", "adapter:0.5", "--lora", "adapter:0.5"]), &merged) < 1e-5);
    assert!(distance(&logits("base", &[]), &merged) > 1e-4);
}

#[test]
fn mistakes_are_told_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("recipe.yaml"), "merge_method: della\nmodels: []\n").unwrap();
    let base = reference("dense-tied");
    let base = base.to_str().unwrap();
    for (args, code, what) in [
        (&["merge", "recipe.yaml", "--out", "out"][..], 1, "merge_method 'della' is not known here"),
        (&["merge", "none.yaml", "--out", "out"], 1, "none.yaml: "),
        (&["merge", "recipe.yaml", "--method", "best", "--out", "out"], 2, "give one of linear, task"),
        (&["lora", "extract", base, "none", "--rank", "4", "--out", "out"], 1, "none: is not there"),
        (&["lora", "extract", base, base, "--rank", "4", "--out", "out"], 1, "there is nothing to extract"),
        (&["lora", "extract", base, base, "--out", "out"], 2, "--rank"),
        (&["lora", "merge", base, "none", "--out", "out"], 1, "holds no adapter_config.json"),
        (&["lora", "merge", base, base, "--scale", "nan", "--out", "out"], 2, "give a number such as 0.5"),
        (
            &["logits", "--model", base, "--tokens", "1", "--out", "out", "--lora", "none"],
            1,
            "holds no adapter_config.json",
        ),
    ] {
        let output = run(folder, args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert!(told.contains(what), "{args:?}: {told}\nexpected: {what}");
        let left = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("out")).collect();
        assert!(left.is_empty(), "{args:?} left {left:?}");
    }
}
