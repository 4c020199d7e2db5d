//! Adapters and merges with models of every form: folders, GGUF and APR files, and stacks of experts.

use std::path::{Path, PathBuf};

use crate::adapted::{logits, reference_with_adapter};
use crate::folders::{Values, data, distance, listing, values_of, write, write_model};
use reference::random;
use tools::import::{FormatChoice, ImportOptions};
use tools::lora::{AdapterMerge, AdapterMergeReport, ExtractOptions, ExtractReport, Extraction, LowRankSize};
use tools::merge::{MergeOptions, MergePlan, MergeReport};
use tools::mixture::Mixture;

fn import(source: &Path, out: &Path, mixture: Mixture) {
    let choice = Some(FormatChoice::Mixture(mixture));
    let options = ImportOptions { source, out, choice, rules: &[], imatrix: None, threads: 2, dry_run: false };
    tools::import::import(&options, &mut |_| ()).unwrap();
}

fn merge(base: &Path, adapter: &Path, out: &Path) -> Result<AdapterMergeReport, String> {
    let merge = AdapterMerge::new(base, adapter, 1.0, false).map_err(|error| error.to_string())?;
    merge.run(out, 2, &mut |_, _| ()).map_err(|error| error.to_string())
}

fn extract(base: &Path, fine: &Path, rank: usize, out: &Path) -> Result<ExtractReport, String> {
    let [base, fine, out] = [base, fine, out].map(Path::to_path_buf);
    let options = ExtractOptions { base, fine, out, size: LowRankSize::Rank(rank), threads: 1 };
    let extraction = Extraction::new(options).map_err(|error| error.to_string())?;
    extraction.run(&mut |_, _| ()).map_err(|error| error.to_string())
}

/// Removes what a step before has left under this name.
fn free(path: PathBuf) -> PathBuf {
    let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
    path
}

fn golden_experts(part: &str) -> Values {
    let all = values_of(&data().join("experts.safetensors")).into_iter();
    all.filter_map(|(name, value)| Some((name.strip_prefix(part)?.to_owned(), value))).collect()
}

#[test]
fn stacked_experts_merge_as_peft_merges_them() {
    let folder = tempfile::tempdir().unwrap();
    let [base, adapter, merged] = ["base", "adapter", "merged"].map(|name| folder.path().join(name));
    write_model(&base, &golden_experts("base/"));
    write(&adapter, "adapter_model", &golden_experts("adapter/"));
    std::fs::copy(data().join("experts_config.json"), adapter.join("adapter_config.json")).unwrap();
    let report = merge(&base, &adapter, &merged).unwrap();
    assert_eq!(report.modules, 3 * 3);
    let (merged, expected) = (values_of(&merged), golden_experts("lora/"));
    assert_eq!(expected.len(), 2);
    for (name, (_, values)) in &expected {
        let far = distance(&merged[name].1, values);
        println!("{name}: {far:.1e}");
        assert!(far <= 1e-6, "{name}: {far:e}");
        assert!(distance(values, &golden_experts("base/")[name].1) > 1e-1);
    }
}

/// Adds a change of this rank to the matrices whose names have one of these parts, of a stack to each expert.
fn changed(base: &Values, parts: &[&str], rank: usize) -> Values {
    let mut changed = base.clone();
    let matrices = changed.iter_mut().filter(|(name, _)| parts.iter().any(|part| name.contains(part)));
    for ((_, (dims, values)), seed) in matrices.zip(100..) {
        let [rows, cols] = dims[dims.len() - 2..] else { panic!() };
        for (expert, values) in (0..).zip(values.chunks_mut(rows * cols)) {
            let (a, b) = (random(rank * cols, seed + 1000 * expert), random(rows * rank, seed + 1000 * expert + 500));
            for (at, value) in values.iter_mut().enumerate() {
                *value += 0.01 * (0..rank).map(|k| b[at / cols * rank + k] * a[k * cols + at % cols]).sum::<f32>();
            }
        }
    }
    changed
}

fn experts(folder: &Path) -> [PathBuf; 2] {
    let model = testing::golden::reference_models().join("moe");
    let base = values_of(&model);
    let fine = changed(&base, &["experts.gate_up_proj", "experts.down_proj", "layers.3.self_attn.q_proj"], 2);
    let folders = ["base", "fine"].map(|name| folder.join(name));
    for (path, values) in folders.iter().zip([&base, &fine]) {
        write_model(path, values);
        for text in ["config.json", "tokenizer.json"] {
            std::fs::copy(model.join(text), path.join(text)).unwrap();
        }
    }
    folders
}

#[test]
fn stacked_experts_are_extracted_in_both_forms() {
    let folder = tempfile::tempdir().unwrap();
    let [base, fine] = experts(folder.path());
    let (expected, _) = logits(&fine, &[]);
    let (without, _) = logits(&base, &[]);
    assert!(distance(&without, &expected) > 1e-2, "the change makes no difference");
    for out in ["peft", "change.gguf"].map(|name| folder.path().join(name)) {
        let report = extract(&base, &fine, 2, &out).unwrap();
        // Eight experts with two matrices each in four layers, and one of attention.
        assert_eq!((report.modules, report.largest_rank, report.left_out.len()), (4 * 8 * 2 + 1, 2, 0));
        assert!(report.relative_error <= 1e-3, "{report:?}");
        let (ours, _) = logits(&base, &[(&out, 1.0)]);
        let far = distance(&ours, &expected);
        println!("{}: {far:.1e}", out.display());
        assert!(far <= 1e-5, "{}: {far:e}", out.display());
        let merged = folder.path().join("merged");
        merge(&base, &out, &merged).unwrap();
        for ((name, (_, values)), (_, fine)) in values_of(&merged).iter().zip(values_of(&fine).values()) {
            let far = distance(values, fine);
            assert!(far <= 1e-6, "{name}: {far:e}");
        }
        std::fs::remove_dir_all(&merged).unwrap();
    }
    let text = std::fs::read_to_string(folder.path().join("peft/adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["target_parameters"], serde_json::json!(["experts.down_proj", "experts.gate_up_proj"]));
    assert_eq!(config["target_modules"], serde_json::json!(["q_proj"]));
}

#[test]
fn experts_of_gguf_files_are_extracted_too() {
    let folder = tempfile::tempdir().unwrap();
    let models = experts(folder.path());
    let files = ["base.gguf", "fine.gguf"].map(|name| folder.path().join(name));
    models.iter().zip(&files).for_each(|(model, file)| import(model, file, Mixture::F32));
    let (expected, _) = logits(&files[1], &[]);
    for out in ["peft", "change.gguf"].map(|name| folder.path().join(name)) {
        let report = extract(&files[0], &files[1], 2, &out).unwrap();
        assert_eq!((report.modules, report.left_out.len()), (4 * 8 * 3 + 1, 0));
        for base in [&files[0], &models[0]] {
            let far = distance(&logits(base, &[(&out, 1.0)]).0, &expected);
            assert!(far <= 1e-5, "{} on {}: {far:e}", out.display(), base.display());
        }
        let merged = free(folder.path().join("merged.gguf"));
        merge(&files[0], &out, &merged).unwrap();
        let far = distance(&logits(&merged, &[]).0, &expected);
        assert!(far <= 1e-5, "{}: {far:e}", out.display());
    }
}

#[test]
fn an_adapter_merges_into_every_form_and_from_every_form() {
    let folder = tempfile::tempdir().unwrap();
    reference_with_adapter(folder.path());
    let path = |name: &str| folder.path().join(name);
    import(&path("base"), &path("base.gguf"), Mixture::F32);
    import(&path("base"), &path("base.apr"), Mixture::F32);
    merge(&path("base"), &path("adapter"), &path("merged")).unwrap();
    let (expected, _) = logits(&path("merged"), &[]);
    assert!(distance(&logits(&path("base"), &[]).0, &expected) > 1e-2);
    for (base, out) in [
        ("base", "1.gguf"),
        ("base", "2.apr"),
        ("base.apr", "3"),
        ("base.apr", "4.apr"),
        ("base.apr", "5.gguf"),
        ("base.gguf", "6.gguf"),
    ] {
        let report = merge(&path(base), &path("adapter"), &path(out)).unwrap();
        assert!(report.modules == 31 && report.notes.is_empty(), "{report:?}");
        let far = distance(&logits(&path(out), &[]).0, &expected);
        println!("{base} to {out}: {far:.1e}");
        assert!(far <= 1e-5, "{base} to {out}: {far:e}");
    }
    // A quantised file keeps its types; what an adapter adds is rounded with the rest.
    import(&path("base"), &path("q8.gguf"), Mixture::Q8_0);
    let report = merge(&path("q8.gguf"), &path("adapter"), &path("7.gguf")).unwrap();
    assert_eq!(report.notes.len(), 1, "{report:?}");
    let types = |name: &str| {
        let file = weights::gguf::GgufFile::open(&path(name), true).unwrap();
        file.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.type_name.clone())).collect::<Vec<_>>()
    };
    assert_eq!(types("7.gguf"), types("q8.gguf"));
    let far = distance(&logits(&path("7.gguf"), &[]).0, &expected);
    let rounding = distance(&logits(&path("q8.gguf"), &[]).0, &logits(&path("base"), &[]).0);
    assert!(far <= 3.0 * rounding, "{far:e}, and the quantised base is {rounding:e} away");
    let error = merge(&path("base.gguf"), &path("adapter"), &path("8")).unwrap_err();
    assert!(error.contains("give a name that ends in .gguf"), "{error}");
    assert!(!path("8").exists());
}

#[test]
fn the_change_between_two_files_is_extracted_in_any_form() {
    let folder = tempfile::tempdir().unwrap();
    reference_with_adapter(folder.path());
    let path = |name: &str| folder.path().join(name);
    merge(&path("base"), &path("adapter"), &path("fine")).unwrap();
    for model in ["base", "fine"] {
        import(&path(model), &path(&format!("{model}.gguf")), Mixture::F32);
        import(&path(model), &path(&format!("{model}.apr")), Mixture::F32);
    }
    let (expected, _) = logits(&path("fine"), &[]);
    for (end, other) in [("", ".apr"), (".apr", ".apr"), (".apr", ""), (".gguf", ".gguf")] {
        for out in ["peft", "change.gguf"] {
            let [of, fine] = [format!("base{end}"), format!("fine{other}")].map(|name| path(&name));
            let report = extract(&of, &fine, 3, &free(path(out))).unwrap();
            assert_eq!((report.modules, report.left_out.len()), (31, 0));
            for base in ["base", "base.gguf", "base.apr"] {
                let far = distance(&logits(&path(base), &[(&path(out), 1.0)]).0, &expected);
                assert!(far <= 1e-5, "{end}{other}, {out} on {base}: {far:e}");
            }
            // An adapter knows its base, and a base in another form is none to compare with.
            merge(&path("base.gguf"), &path(out), &free(path("again.gguf"))).unwrap();
            let again = merge(&path(&format!("fine{end}")), &path(out), &path(&format!("wrong{end}")));
            assert!(again.unwrap_err().contains("was extracted from another base"));
        }
    }
    let error = extract(&path("base"), &path("fine.gguf"), 3, &path("mixed")).unwrap_err();
    assert!(error.contains("give models of one form"), "{error}");
    assert!(!path("mixed").exists());
}

fn merge_models(recipe: &Path, out: &Path) -> Result<MergeReport, String> {
    let (recipe, out) = (recipe.to_path_buf(), out.to_path_buf());
    let plan = MergePlan::new(MergeOptions { recipe, method: None, out, seed: 7, search: Vec::new() });
    let plan = plan.map_err(|error| error.to_string())?;
    plan.run(&mut |_, _| ()).map_err(|error| error.to_string())
}

/// Merges of files are merges of the folders that they were made of, in all that GGUF holds in another way too: norms and decays.
#[test]
fn models_merge_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    reference_with_adapter(folder.path());
    let path = |name: &str| folder.path().join(name);
    let base = values_of(&path("base"));
    for (model, seed) in [("one", 1), ("two", 2)] {
        let mut values = base.clone();
        for ((_, value), at) in values.iter_mut().zip(0..) {
            let noise = random(value.1.len(), seed * 1000 + at);
            value.1.iter_mut().zip(noise).for_each(|(value, noise)| *value += 0.05 * noise);
        }
        write_model(&path(model), &values);
        for text in ["config.json", "tokenizer.json"] {
            std::fs::copy(path("base").join(text), path(model).join(text)).unwrap();
        }
    }
    for model in ["base", "one", "two"] {
        import(&path(model), &path(&format!("{model}.gguf")), Mixture::F32);
        import(&path(model), &path(&format!("{model}.apr")), Mixture::F32);
    }
    for (method, parameters) in [
        ("linear", "normalize: false"),
        ("task_arithmetic", "lambda: 0.9"),
        ("ties", "density: 0.4"),
        ("slerp", "t: [{filter: linear_attn, value: [0.2, 0.8]}, {value: 0.4}]"),
    ] {
        let recipe = |end: &str| {
            let models =
                ["one", "two"].map(|model| format!("  - model: {model}{end}\n    parameters: {{weight: 0.6}}\n"));
            let base = if method == "slerp" { "one" } else { "base" };
            let base = if method == "linear" { String::new() } else { format!("base_model: {base}{end}\n") };
            let text =
                format!("merge_method: {method}\n{base}models:\n{}parameters: {{{parameters}}}\n", models.concat());
            let recipe = path(&format!("recipe{end}.yaml"));
            std::fs::write(&recipe, text).unwrap();
            recipe
        };
        merge_models(&recipe(""), &free(path("merged"))).unwrap();
        import(&path("merged"), &path("expected.gguf"), Mixture::F32);
        let expected = values_of(&path("expected.gguf"));
        for (end, out) in [("", "merged.gguf"), ("", "merged.apr"), (".apr", "again.apr"), (".gguf", "merged.gguf")] {
            let report = merge_models(&recipe(end), &free(path(out))).unwrap();
            assert_eq!(report.tensors, base.len());
            if out.ends_with(".apr") {
                import(&path(out), &path("merged.gguf"), Mixture::F32);
            }
            let found = values_of(&path("merged.gguf"));
            assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
            for (name, (_, values)) in &found {
                let far = distance(values, &expected[name].1);
                assert!(far <= 1e-6, "{method} of {end} to {out}: {name} is {far:e} away");
            }
        }
        let left: Vec<String> = listing(folder.path()).into_iter().filter(|name| name.contains("part")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let error = merge_models(&path("recipe.gguf.yaml"), &path("folder")).unwrap_err();
    assert!(error.contains("GGUF files are merged into a GGUF file"), "{error}");
}

/// Swapped arguments must not cost a model.
#[test]
fn no_file_is_replaced_by_a_merged_model_or_an_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    reference_with_adapter(folder.path());
    let (base, adapter) = (path("base"), path("adapter"));
    let adapter_file = path("adapter.gguf");
    import(&base, &path("base.gguf"), Mixture::F32);
    import(&base, &path("fine.gguf"), Mixture::F32);
    std::fs::write(&adapter_file, "someone's").unwrap();
    let recipe = "merge_method: linear\nmodels:\n  - model: base.gguf\n    parameters: {weight: 1}\n  - model: fine.gguf\n    \
                  parameters: {weight: 1}\n";
    std::fs::write(path("recipe.yaml"), recipe).unwrap();
    let before = ["base.gguf", "fine.gguf", "adapter.gguf"].map(|name| std::fs::read(path(name)).unwrap());
    for out in ["base.gguf", "fine.gguf", "adapter.gguf"] {
        let options =
            MergeOptions { recipe: path("recipe.yaml"), method: None, out: path(out), seed: 0, search: Vec::new() };
        let merged = MergePlan::new(options).and_then(|plan| plan.run(&mut |_, _| ()));
        let errors = [
            extract(&path("base.gguf"), &path("fine.gguf"), 2, &path(out)).map(drop).unwrap_err(),
            merge(&path("base.gguf"), &adapter, &path(out)).map(drop).unwrap_err(),
            merge(&base, &adapter, &path(out)).map(drop).unwrap_err(),
            merged.map(drop).unwrap_err().to_string(),
        ];
        assert!(errors.iter().all(|error| error.contains("is there already: give another name")), "{errors:?}");
    }
    assert!(before == ["base.gguf", "fine.gguf", "adapter.gguf"].map(|name| std::fs::read(path(name)).unwrap()));
}
