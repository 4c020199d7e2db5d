//! Adapters: made of two models, merged as PEFT merges them, and refused where they do not fit.

use std::path::Path;

use crate::adapted::{logits, reference_with_adapter};
use crate::folders::{Values, data, distance, listing, values_of, write, write_model};
use crate::goldens::{golden, golden_models};
use reference::random;
use tools::gguf_writer::{GgufValue, GgufWriter, TensorInfo};
use tools::lora::{AdapterMerge, ExtractOptions, ExtractReport, Extraction, LowRankSize};

const UP: &str = "model.layers.0.mlp.up_proj.weight";

/// A model of all kinds of modules that adapters change.
fn base() -> Values {
    let shapes: [(&str, &[usize]); 8] = [
        ("embed_tokens", &[16, 48]),
        ("layers.0.linear_attn.in_proj_qkv", &[96, 48]),
        ("layers.0.linear_attn.in_proj_a", &[12, 48]),
        ("layers.0.linear_attn.out_proj", &[48, 64]),
        ("layers.0.mlp.up_proj", &[80, 48]),
        ("layers.1.self_attn.q_proj", &[64, 48]),
        ("layers.1.mlp.down_proj", &[48, 80]),
        ("norm", &[48]),
    ];
    let numbered = shapes.iter().zip(1..);
    let value = |((name, dims), seed): (&(&str, &[usize]), u64)| {
        (format!("model.{name}.weight"), (dims.to_vec(), random(dims.iter().product(), seed)))
    };
    numbered.map(value).collect()
}

fn changed(base: &Values, rank: usize) -> Values {
    let mut changed = base.clone();
    let matrices = changed.iter_mut().filter(|(name, _)| name.contains("layers"));
    for ((_, (dims, values)), seed) in matrices.zip(100..) {
        let (rows, cols) = (dims[0], dims[1]);
        let (a, b) = (random(rank * cols, seed), random(rows * rank, seed + 100));
        for (at, value) in values.iter_mut().enumerate() {
            *value += 0.01 * (0..rank).map(|k| b[at / cols * rank + k] * a[k * cols + at % cols]).sum::<f32>();
        }
    }
    changed
}

fn extract(folder: &Path, size: LowRankSize) -> Result<ExtractReport, String> {
    let [base, fine, out] = ["base", "fine", "adapter"].map(|name| folder.join(name));
    let extraction = Extraction::new(ExtractOptions { base, fine, out, size, threads: 1 });
    extraction.and_then(|extraction| extraction.run(&mut |_, _| ())).map_err(|error| error.to_string())
}

fn merge(folder: &Path, any_base: bool) -> Result<(), String> {
    let merge = AdapterMerge::new(&folder.join("base"), &folder.join("adapter"), 1.0, any_base);
    let done = merge.and_then(|merge| merge.run(&folder.join("merged"), 1, &mut |_, _| ()));
    done.map(drop).map_err(|error| error.to_string())
}

fn models(fine: &Values) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_model(&folder.path().join("base"), &base());
    write_model(&folder.path().join("fine"), fine);
    folder
}

type Damage = Box<dyn Fn(&Path)>;

#[test]
fn a_change_of_rank_8_is_given_back_and_merges_to_the_fine_model() {
    let fine = changed(&base(), 8);
    let folder = models(&fine);
    let report = extract(folder.path(), LowRankSize::Rank(8)).unwrap();
    assert_eq!((report.modules, report.largest_rank, report.left_out.len()), (6, 8, 0));
    assert_eq!(
        listing(&folder.path().join("adapter")),
        ["adapter_config.json", "adapter_model.safetensors", "reprise_base.json"]
    );
    merge(folder.path(), false).unwrap();
    let merged = values_of(&folder.path().join("merged"));
    for (name, (_, base)) in base() {
        let difference = |values: &[f32]| values.iter().zip(&base).map(|(a, b)| a - b).collect::<Vec<f32>>();
        let far = distance(&merged[&name].1, &fine[&name].1);
        assert!(far <= 1e-6, "{name}: {far:e} from the fine model");
        if name.contains("layers") {
            let far = distance(&difference(&merged[&name].1), &difference(&fine[&name].1));
            println!("{name}: {far:.1e}");
            assert!(far <= 1e-3, "{name}: {far:e} of the change");
        }
    }
}

#[test]
fn ranks_follow_the_energy_that_is_asked_for() {
    let fine = changed(&base(), 8);
    let folder = models(&fine);
    let report = extract(folder.path(), LowRankSize::Energy { share: 0.8, largest: 64 }).unwrap();
    assert!(report.least_energy_share >= 0.8 && report.largest_rank < 8, "{report:?}");
    std::fs::remove_dir_all(folder.path().join("adapter")).unwrap();
    let report = extract(folder.path(), LowRankSize::Energy { share: 1.0 - 1e-9, largest: 64 }).unwrap();
    // Rounding of the models is a part of the difference of full rank, which is no part of the change.
    assert!(report.largest_rank >= 8 && report.energy_share > 1.0 - 1e-8, "{report:?}");
    std::fs::remove_dir_all(folder.path().join("adapter")).unwrap();
    let report = extract(folder.path(), LowRankSize::Energy { share: 0.99, largest: 2 }).unwrap();
    assert!(report.largest_rank == 2 && report.least_energy_share < 0.99, "{report:?}");
}

#[test]
fn modules_with_smaller_ranks_are_written_as_peft_reads_them() {
    let mut fine = changed(&base(), 8);
    // A change of rank 1 in one module, none in another, and one where no adapter reaches.
    let name = "model.layers.1.mlp.down_proj.weight";
    fine.insert(name.into(), base()[name].clone());
    fine.get_mut(name).unwrap().1[..80].iter_mut().for_each(|value| *value += 0.5);
    fine.insert(UP.into(), base()[UP].clone());
    fine.get_mut("model.norm.weight").unwrap().1[0] += 1.0;
    let folder = models(&fine);
    let report = extract(folder.path(), LowRankSize::Rank(8)).unwrap();
    assert_eq!((report.modules, report.unchanged_modules, report.smallest_rank), (5, 1, 1));
    assert_eq!(report.left_out, ["model.norm.weight"]);
    let text = std::fs::read_to_string(folder.path().join("adapter/adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["rank_pattern"]["model.layers.1.mlp.down_proj"], 1);
    assert_eq!(config["alpha_pattern"], config["rank_pattern"]);
    merge(folder.path(), false).unwrap();
    let far = distance(&values_of(&folder.path().join("merged"))[name].1, &fine[name].1);
    assert!(far <= 1e-6, "{far:e}");
}

fn golden_adapter(folder: &Path) {
    write(&folder.join("adapter"), "adapter_model", &golden("adapter/"));
    std::fs::copy(data().join("adapter_config.json"), folder.join("adapter/adapter_config.json")).unwrap();
}

#[test]
fn an_adapter_merges_as_peft_merges_it() {
    let folder = golden_models();
    golden_adapter(folder.path());
    merge(folder.path(), false).unwrap();
    let merged = values_of(&folder.path().join("merged"));
    let expected = golden("lora/");
    assert_eq!(expected.len(), 2);
    for (name, (_, values)) in &expected {
        let far = distance(&merged[name].1, values);
        println!("{name}: {far:.1e}");
        assert!(far <= 1e-6, "{name}: {far:e}");
        assert!(distance(values, &golden("base/")[name].1) > 1e-3);
    }
    assert_eq!(merged["model.norm.weight"], golden("base/")["model.norm.weight"]);
}

#[test]
fn adapters_that_do_not_fit_leave_nothing_behind() {
    fn config(key: &'static str, value: serde_json::Value) -> Box<dyn Fn(&Path)> {
        Box::new(move |folder| {
            let path = folder.join("adapter/adapter_config.json");
            let mut config: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            config[key] = value.clone();
            std::fs::write(path, config.to_string()).unwrap();
        })
    }
    fn tensors(change: impl Fn(&mut Values) + 'static) -> Box<dyn Fn(&Path)> {
        Box::new(move |folder| {
            let mut values = golden("adapter/");
            change(&mut values);
            write(&folder.join("adapter"), "adapter_model", &values);
        })
    }
    const A: &str = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight";
    let rename = |from: &'static str, to: &'static str| {
        tensors(move |values| {
            *values = std::mem::take(values).into_iter().map(|(k, v)| (k.replace(from, to), v)).collect()
        })
    };
    let cases: Vec<(Damage, &str)> = vec![
        (rename("layers.0", "layers.7"), "changes the module 'layers.7.mlp.up_proj', which"),
        (rename("lora_A.weight", "lora_magnitude_vector"), "another kind of change"),
        (tensors(|values| drop(values.remove(A))), "found one of lora_A and lora_B, expected both"),
        (
            tensors(|values| drop(values.insert(A.into(), (vec![4, 12], vec![0.5; 48])))),
            "as [32, 12], and the base has it as [32, 24]: it is for another base",
        ),
        (tensors(|values| values.get_mut(A).unwrap().1[3] = f32::NAN), "found NaN, expected finite values"),
        (config("r", 8.into()), "found rank 4, expected rank 8"),
        (config("use_dora", true.into()), "key 'use_dora': found true"),
        (config("bias", "all".into()), "key 'bias': found \"all\""),
        (config("modules_to_save", ["lm_head"][..].into()), "key 'modules_to_save'"),
        (config("init_lora_weights", "pissa".into()), "key 'init_lora_weights'"),
        (config("peft_type", "IA3".into()), "key 'peft_type': found \"IA3\", expected \"LORA\""),
        (
            Box::new(|folder| std::fs::remove_file(folder.join("adapter/adapter_config.json")).unwrap()),
            "holds no adapter_config.json",
        ),
        (
            Box::new(|folder| std::fs::rename(folder.join("base"), folder.join("gone")).unwrap()),
            "base: is not there: give the folder",
        ),
    ];
    for (change, what) in cases {
        let folder = golden_models();
        golden_adapter(folder.path());
        change(folder.path());
        let before = listing(folder.path());
        let error = merge(folder.path(), false).unwrap_err();
        assert!(error.contains(what), "{error}\nexpected: {what}");
        assert_eq!(listing(folder.path()), before, "{what}");
    }
}

#[test]
fn an_extracted_adapter_knows_its_base() {
    let folder = models(&changed(&base(), 2));
    extract(folder.path(), LowRankSize::Rank(2)).unwrap();
    write_model(&folder.path().join("base"), &changed(&base(), 1));
    let error = merge(folder.path(), false).unwrap_err();
    assert!(error.contains("was extracted from another base than"), "{error}");
    assert!(!folder.path().join("merged").exists());
    merge(folder.path(), true).unwrap();
}

#[test]
fn models_that_do_not_fit_give_no_adapter() {
    type Change = fn(&mut Values);
    let cases: [(Change, &str); 4] = [
        (|values| *values = base(), "there is nothing to extract"),
        (|values| drop(values.remove(UP)), "fine: tensor 'model.layers.0.mlp.up_proj.weight' is missing"),
        (|values| values.get_mut(UP).unwrap().0 = vec![48, 80], "has the shape [48, 80], and in"),
        (|values| values.get_mut(UP).unwrap().1[0] = f32::INFINITY, "has the value inf at 0"),
    ];
    for (change, what) in cases {
        let mut fine = changed(&base(), 2);
        change(&mut fine);
        let folder = models(&fine);
        let error = extract(folder.path(), LowRankSize::Rank(4)).unwrap_err();
        assert!(error.contains(what), "{error}\nexpected: {what}");
        assert_eq!(listing(folder.path()), ["base", "fine"], "{what}");
    }
    let folder = models(&changed(&base(), 2));
    for size in [LowRankSize::Rank(0), LowRankSize::Energy { share: 1.5, largest: 8 }] {
        assert!(extract(folder.path(), size).is_err());
    }
}

#[test]
fn a_model_runs_with_an_adapter_as_the_merged_one_does() {
    let folder = tempfile::tempdir().unwrap();
    reference_with_adapter(folder.path());
    let [base, adapter, merged] = ["base", "adapter", "merged"].map(|name| folder.path().join(name));
    merge(folder.path(), false).unwrap();
    let (expected, _) = logits(&merged, &[]);
    let (without, plain) = logits(&base, &[]);
    assert!(distance(&without, &expected) > 1e-2, "the adapter makes no difference");
    let gguf = testing::golden::reference_models().join("gguf/dense-gva2.bf16.gguf");
    for model in [&base, &gguf] {
        let (ours, _) = logits(model, &[(&adapter, 1.0)]);
        let far = distance(&ours, &expected);
        println!("{}: {far:.1e}", model.display());
        assert!(far <= 1e-5, "{}: {far:e}", model.display());
        // Two halves, one on the other, are the whole.
        let (ours, _) = logits(model, &[(&adapter, 0.25), (&adapter, 0.75)]);
        assert!(distance(&ours, &expected) <= 1e-5);
    }
    let (_, half) = logits(&base, &[(&adapter, 0.5)]);
    let (_, whole) = logits(&base, &[(&adapter, 1.0)]);
    assert!(plain != half && half != whole && whole != plain, "states of one model would be taken for another's");
    assert_eq!(whole, logits(&base, &[(&adapter, 1.0)]).1);
}

#[test]
fn a_model_refuses_an_adapter_of_another() {
    let folder = tempfile::tempdir().unwrap();
    reference_with_adapter(folder.path());
    let adapter = weights::Adapter::open(&folder.path().join("adapter")).unwrap();
    let models = testing::golden::reference_models();
    for model in ["dense-tied", "moe"] {
        let mut model = weights::open(&models.join(model), true).unwrap();
        let error = adapter.add_to(&mut model, 1.0).unwrap_err().to_string();
        assert!(error.contains("the adapter is for another base"), "{error}");
    }
}

#[test]
fn an_extracted_gguf_file_is_the_change_on_a_folder_and_on_a_gguf_file() {
    let folder = tempfile::tempdir().unwrap();
    reference_with_adapter(folder.path());
    let path = |name: &str| folder.path().join(name);
    merge(folder.path(), false).unwrap();
    let (expected, _) = logits(&path("merged"), &[]);
    let options = ExtractOptions {
        base: path("base"),
        fine: path("merged"),
        out: path("change.gguf"),
        size: LowRankSize::Rank(3),
        threads: 1,
    };
    let report = Extraction::new(options).unwrap().run(&mut |_, _| ()).unwrap();
    assert_eq!(report.modules, 3 * 5 + 4 + 4 * 3);
    assert_eq!(listing(folder.path()), ["adapter", "base", "change.gguf", "merged"]);
    let gguf = testing::golden::reference_models().join("gguf/dense-gva2.bf16.gguf");
    let adapter = path("change.gguf");
    for model in [path("base"), gguf] {
        let (ours, _) = logits(&model, &[(&adapter, 1.0)]);
        let far = distance(&ours, &expected);
        println!("{}: {far:.1e}", model.display());
        assert!(far <= 1e-5, "{}: {far:e}", model.display());
    }
    // Merged into the base it is the fine model again, and it knows its base.
    let again = AdapterMerge::new(&path("base"), &adapter, 1.0, false).unwrap();
    again.run(&path("again"), 1, &mut |_, _| ()).unwrap();
    let far = distance(&logits(&path("again"), &[]).0, &expected);
    assert!(far <= 1e-5, "{far:e}");
    let error = AdapterMerge::new(&path("merged"), &adapter, 1.0, false).err().unwrap().to_string();
    assert!(error.contains("was extracted from another base than"), "{error}");
}

/// Name, dimensions from the innermost, and values.
type GgufHalf = (String, Vec<u64>, Vec<f32>);

fn gguf_adapter(out: &Path, keys: &[(&str, &str)], alpha: f32, tensors: &[GgufHalf]) {
    let mut metadata: Vec<(String, GgufValue)> =
        keys.iter().map(|(key, text)| (key.to_string(), GgufValue::Text(text.to_string()))).collect();
    metadata.push(("adapter.lora.alpha".into(), GgufValue::F32(alpha)));
    let info = |(name, dims, _): &GgufHalf| TensorInfo {
        name: name.clone(),
        dims: dims.clone(),
        format: kernels::format::Format::F32,
    };
    let infos: Vec<TensorInfo> = tensors.iter().map(info).collect();
    let mut writer = GgufWriter::new(std::fs::File::create(out).unwrap(), &metadata, &infos).unwrap();
    for (_, _, values) in tensors {
        writer.write(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    }
    writer.finish().unwrap();
}

const KEYS: [(&str, &str); 3] =
    [("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", "qwen35moe")];

/// A stack of experts is what single matrices of the same experts are.
#[test]
fn an_adapter_of_stacked_experts_changes_each_expert() {
    let folder = tempfile::tempdir().unwrap();
    let model = testing::golden::reference_models().join("moe");
    let opened = weights::open(&model, true).unwrap();
    let weights::Ffn::Moe(moe) = &opened.layers[0].ffn else { panic!() };
    let (experts, gate) = (moe.experts.len(), &moe.experts[0].gate);
    let (rows, cols, rank) = (gate.rows(), gate.cols(), 2);
    let (mut stacked, mut single): (Vec<GgufHalf>, Values) = (Vec::new(), Values::new());
    for (part, [rows, cols], seed) in [("gate", [rows, cols], 1), ("up", [rows, cols], 2), ("down", [cols, rows], 3)] {
        let (a, b) = (random(experts * rank * cols, seed), random(experts * rows * rank, seed + 10));
        for expert in 0..experts {
            let name = format!("base_model.model.model.layers.0.mlp.experts.{expert}.{part}_proj");
            let a = a[expert * rank * cols..][..rank * cols].to_vec();
            let b = b[expert * rows * rank..][..rows * rank].to_vec();
            single.insert(format!("{name}.lora_A.weight"), (vec![rank, cols], a));
            single.insert(format!("{name}.lora_B.weight"), (vec![rows, rank], b));
        }
        let name = format!("blk.0.ffn_{part}_exps.weight");
        let dims = |inner: usize, outer: usize| vec![inner as u64, outer as u64, experts as u64];
        stacked.push((format!("{name}.lora_a"), dims(cols, rank), a));
        stacked.push((format!("{name}.lora_b"), dims(rank, rows), b));
    }
    let (gguf, peft) = (folder.path().join("stacked.gguf"), folder.path().join("single"));
    gguf_adapter(&gguf, &KEYS, 0.1, &stacked);
    std::fs::create_dir(&peft).unwrap();
    write(&peft, "adapter_model", &single);
    let config = r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 0.1}"#;
    std::fs::write(peft.join("adapter_config.json"), config).unwrap();
    let (without, _) = logits(&model, &[]);
    let (expected, _) = logits(&model, &[(&peft, 1.0)]);
    let (ours, _) = logits(&model, &[(&gguf, 1.0)]);
    assert!(distance(&without, &expected) > 1e-3, "the adapter makes no difference");
    assert!(distance(&ours, &expected) <= 1e-6);
    // One tensor for the first two parts, as some files have it.
    let fused = |at: usize, both: &dyn Fn(usize) -> Vec<f32>, dims: Vec<u64>| {
        (format!("blk.0.ffn_gate_up_exps.weight.lora_{}", ["a", "b"][at]), dims, (0..experts).flat_map(both).collect())
    };
    let a = stacked[0].2.clone();
    let rows_of = |tensor: usize, expert: usize| stacked[tensor].2[expert * rows * rank..][..rows * rank].to_vec();
    let one_a = fused(0, &|expert| a[expert * rank * cols..][..rank * cols].to_vec(), stacked[0].1.clone());
    let both = |expert| [rows_of(1, expert), rows_of(3, expert)].concat();
    let one_b = fused(1, &both, vec![rank as u64, 2 * rows as u64, experts as u64]);
    gguf_adapter(&gguf, &KEYS, 0.1, &[one_a, one_b]);
    let up = ("blk.0.ffn_up_exps.weight.lora_a".to_string(), stacked[2].1.clone(), a);
    gguf_adapter(
        &folder.path().join("two.gguf"),
        &KEYS,
        0.1,
        &[stacked[0].clone(), stacked[1].clone(), up, stacked[3].clone()],
    );
    let [fused, two] = [gguf, folder.path().join("two.gguf")].map(|adapter| logits(&model, &[(&adapter, 1.0)]).0);
    assert!(distance(&fused, &two) <= 1e-6 && distance(&fused, &without) > 1e-3);
}

#[test]
fn gguf_adapters_that_are_damaged_or_of_another_kind_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("adapter.gguf");
    let tensor =
        |name: &str, dims: &[u64]| (name.to_owned(), dims.to_vec(), vec![0.5; dims.iter().product::<u64>() as usize]);
    let [a, b] = [tensor("blk.0.ffn_up.weight.lora_a", &[64, 2]), tensor("blk.0.ffn_up.weight.lora_b", &[2, 160])];
    let mut nan = a.clone();
    nan.2[7] = f32::NAN;
    let dense = [KEYS[0], KEYS[1], ("general.architecture", "qwen35")];
    type Case<'a> = (&'a [(&'a str, &'a str)], Vec<GgufHalf>, &'a str);
    let cases: [Case; 10] = [
        (&dense[1..], vec![a.clone(), b.clone()], "key 'general.type': found no such key, expected adapter"),
        (&[dense[0], dense[2]], vec![a.clone(), b.clone()], "key 'adapter.type'"),
        (&[dense[0], dense[1], ("general.architecture", "llama")], vec![a.clone(), b.clone()], "architecture 'llama'"),
        (&dense, vec![], "holds no tensors"),
        (&dense, vec![a.clone()], "found one of lora_a and lora_b, expected both"),
        (&dense, vec![a.clone(), b.clone(), tensor("blk.0.attn_norm.weight", &[64])], "another kind of change"),
        (&dense, vec![nan, b.clone()], "found NaN, expected finite values"),
        (&dense, vec![a.clone(), tensor(&b.0, &[3, 160])], "expected one rank"),
        (
            &dense,
            vec![tensor("token_embd.weight.lora_a", &[64, 2]), tensor("token_embd.weight.lora_b", &[2, 512])],
            "matrices of layers and the head",
        ),
        (&dense, vec![a.clone(), tensor(&b.0, &[2, 99])], "the adapter is for another base"),
    ];
    for (keys, tensors, expected) in cases {
        gguf_adapter(&out, keys, 0.0, &tensors);
        let mut model = weights::open(&testing::golden::reference_models().join("dense-tied"), true).unwrap();
        let error = weights::Adapter::open(&out).and_then(|adapter| adapter.add_to(&mut model, 1.0)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}\nexpected: {expected}");
    }
    let whole = std::fs::read(&out).unwrap();
    for cut in [3, 30, whole.len() / 2, whole.len() - 40] {
        std::fs::write(&out, &whole[..cut]).unwrap();
        assert!(weights::Adapter::open(&out).is_err(), "cut at {cut}");
    }
}
