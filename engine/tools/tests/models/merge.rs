//! Merges against mergekit's results, and recipes and models that do not fit.

use std::path::Path;

use crate::folders::{Values, distance, listing, values_of, write_model};
use crate::goldens::{golden, golden_models};
use tools::merge::{MergeMethod, MergeOptions, MergePlan, MergeReport};

fn merge(folder: &Path, recipe: &str, method: Option<&str>) -> Result<MergeReport, String> {
    let options = MergeOptions {
        recipe: folder.join(recipe),
        method: method.map(|name| MergeMethod::from_name(name).unwrap()),
        out: folder.join("out"),
        seed: 7,
        search: Vec::new(),
    };
    let plan = MergePlan::new(options).map_err(|error| error.to_string())?;
    plan.run(&mut |_, _| ()).map_err(|error| error.to_string())
}

type Damage = Box<dyn Fn(&Path)>;

#[test]
fn each_method_gives_what_mergekit_gives() {
    for method in ["linear", "task", "ties", "dare", "dare_ties", "slerp"] {
        let folder = golden_models();
        let report = merge(folder.path(), &format!("{method}.yaml"), None).unwrap();
        assert_eq!((report.method, report.tensors), (method, 6));
        let (ours, expected) = (values_of(&folder.path().join("out")), golden(&format!("{method}/")));
        assert_eq!(ours.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        let mut farthest = 0.0f64;
        for (name, (dims, values)) in &ours {
            assert_eq!(*dims, expected[name].0);
            let far = distance(values, &expected[name].1);
            assert!(far <= 1e-6, "{method}, {name}: {far:e}");
            farthest = farthest.max(far);
            // A method that changes nothing would be near as well.
            let base = &golden("base/")[name].1;
            assert!(distance(values, base) > 1e-3, "{method}, {name}");
        }
        println!("{method}: {farthest:.1e}");
        let files = ["config.json", "mergekit_config.yml", "model.safetensors", "tokenizer.json"];
        assert_eq!(listing(&folder.path().join("out")), files);
        let config = std::fs::read_to_string(folder.path().join("out/config.json")).unwrap();
        assert!(config.contains(r#""dtype": "float32""#), "{config}");
    }
}

#[test]
fn another_seed_drops_other_values() {
    let folder = golden_models();
    let options = |seed| MergeOptions {
        recipe: folder.path().join("dare.yaml"),
        method: None,
        out: folder.path().join(format!("out-{seed}")),
        seed,
        search: Vec::new(),
    };
    for seed in [7, 8] {
        MergePlan::new(options(seed)).unwrap().run(&mut |_, _| ()).unwrap();
    }
    let [seven, eight] = [7, 8].map(|seed| values_of(&folder.path().join(format!("out-{seed}"))));
    assert!(seven.iter().all(|(name, (_, values))| distance(values, &eight[name].1) > 1e-3));
}

#[test]
fn a_flag_chooses_the_method_in_the_recipes_place() {
    let folder = golden_models();
    let report = merge(folder.path(), "ties.yaml", Some("task")).unwrap();
    assert_eq!(report.method, "task");
}

#[test]
fn parts_that_only_the_base_has_are_kept() {
    let folder = golden_models();
    let mut base = golden("base/");
    base.insert("mtp.norm.weight".into(), (vec![2], vec![1.0, 2.0]));
    write_model(&folder.path().join("base"), &base);
    let report = merge(folder.path(), "ties.yaml", None).unwrap();
    assert!(report.notes[0].starts_with("1 tensors that not all models have are taken from"), "{:?}", report.notes);
    assert_eq!(values_of(&folder.path().join("out"))["mtp.norm.weight"].1, [1.0, 2.0]);
}

#[test]
fn recipes_and_models_that_do_not_fit_leave_nothing_behind() {
    let up = "model.layers.1.mlp.up_proj.weight";
    type Change = fn(&Path);
    let recipe = |from: &'static str, to: &'static str| {
        move |folder: &Path| {
            let path = folder.join("ties.yaml");
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{from}");
            std::fs::write(path, text.replacen(from, to, 1)).unwrap();
        }
    };
    fn change_b(folder: &Path, change: impl Fn(&mut Values)) {
        let mut values = golden("b/");
        change(&mut values);
        write_model(&folder.join("b"), &values);
    }
    let cases: Vec<(Damage, &str)> = vec![
        (Box::new(recipe(": ties", ": della")), "merge_method 'della' is not known here; known are linear, task"),
        (Box::new(recipe("- model: b", "- model: c")), "c: is not there"),
        (Box::new(recipe("density: 0.5", "density: 1.5")), "'a' has the density 1.5, which is a share from 0 to 1"),
        (Box::new(recipe("weight: 0.6, ", "")), "'a' has no weight for the tensor"),
        (Box::new(recipe("weight: 0.6", "weight: heavy")), "parameter 'weight': found \"heavy\", expected a number"),
        (Box::new(recipe("weight: 0.6", "wight: 0.6")), "the parameter 'wight' is not known here"),
        (Box::new(recipe("base_model: base\n", "")), "has no base_model, which the method ties needs"),
        (Box::new(recipe("dtype: float32", "dtype: int8")), "the type 'int8' is not known here"),
        (Box::new(recipe("dtype", "dype")), "is no recipe"),
        (Box::new(recipe("merge_method: ties", "merge_method: [ties")), "is no recipe"),
        (Box::new(recipe("- model: b", "- model: a")), "has the model 'a' twice"),
        (
            Box::new(|folder| change_b(folder, |values| drop(values.remove("model.norm.weight")))),
            "b: tensor 'model.norm.weight' is missing",
        ),
        (
            Box::new(move |folder| change_b(folder, |values| values.get_mut(up).unwrap().0 = vec![24, 32])),
            "b: tensor 'model.layers.1.mlp.up_proj.weight' has the shape [24, 32]",
        ),
        (
            Box::new(move |folder| change_b(folder, |values| values.get_mut(up).unwrap().1[5] = f32::NAN)),
            "tensor 'model.layers.1.mlp.up_proj.weight' has the value NaN at 5",
        ),
        (
            Box::new(|folder| {
                change_b(folder, |values| drop(values.insert("model.more".into(), (vec![1], vec![1.0]))))
            }),
            "b: has the tensor 'model.more', which",
        ),
        (
            Box::new(|folder| {
                let path = folder.join("b/model.safetensors");
                let bytes = std::fs::read(&path).unwrap();
                std::fs::write(path, &bytes[..bytes.len() - 9]).unwrap();
            }),
            "is the download complete?",
        ),
        (Box::new((|folder| drop(std::fs::create_dir(folder.join("out")))) as Change), "out: is there already"),
    ];
    for (change, what) in cases {
        let folder = golden_models();
        change(folder.path());
        let before = listing(folder.path());
        let error = merge(folder.path(), "ties.yaml", None).unwrap_err();
        assert!(error.contains(what), "{error}\nexpected: {what}");
        assert_eq!(listing(folder.path()), before, "{what}");
    }
}

#[test]
fn weights_that_sum_to_nothing_are_refused_where_they_divide() {
    let folder = golden_models();
    let recipe = |normalize: bool| {
        let models = ["a", "b"].map(|model| format!("  - model: {model}\n")).concat();
        let parameters = format!("parameters: {{ weight: 0, normalize: {normalize} }}\n");
        let text = format!("merge_method: linear\nmodels:\n{models}{parameters}");
        std::fs::write(folder.path().join("zero.yaml"), text).unwrap();
    };
    recipe(true);
    let error = merge(folder.path(), "zero.yaml", None).unwrap_err();
    assert!(error.contains("the weights sum to 0, and 'normalize' divides by their sum"), "{error}");
    assert!(!folder.path().join("out").exists());
    recipe(false);
    merge(folder.path(), "zero.yaml", None).unwrap();
    assert!(values_of(&folder.path().join("out")).values().all(|(_, values)| values.iter().all(|value| *value == 0.0)));
}

/// Models of two matrices merge, and no file for an engine can be made of them.
#[test]
fn a_file_that_cannot_be_made_leaves_nothing() {
    let folder = golden_models();
    for name in ["out.gguf", "out.apr"] {
        let before = listing(folder.path());
        let options = MergeOptions {
            recipe: folder.path().join("ties.yaml"),
            method: None,
            out: folder.path().join(name),
            seed: 0,
            search: Vec::new(),
        };
        assert!(MergePlan::new(options).unwrap().run(&mut |_, _| ()).is_err());
        assert_eq!(listing(folder.path()), before, "{name}");
    }
}
