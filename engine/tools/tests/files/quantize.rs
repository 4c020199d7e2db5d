use std::path::Path;

use kernels::format::Format;
use testing::folder::Files;
use testing::gguf::Value;
use testing::golden::reference_models;
use testing::tiny;
use tools::imatrix::{Imatrix, ImatrixEntry};
use tools::mixture::Mixture;
use tools::quantize::{FormatChoice, QuantizeOptions, TypeRule};

use crate::support::{error, file, import, quantize, tensor, theirs, values, with};

/// Every byte of every tensor, from the same bf16 file and from the folder.
#[test]
fn blocks_are_those_of_the_ecosystems_quantiser() {
    let folder = tempfile::tempdir().unwrap();
    for (mixture, name) in [(Mixture::Q8_0, "dense-wide.q8_0"), (Mixture::Q4_K_M, "dense-wide.q4_k_m")] {
        let expected = file(&theirs(name));
        for source in [theirs("dense-wide.bf16"), reference_models().join("dense-wide")] {
            let out = folder.path().join("ours.gguf");
            quantize(&source, &out, mixture).unwrap();
            let ours = file(&out);
            assert_eq!(ours.tensors.len(), expected.tensors.len());
            for expected in &expected.tensors {
                let found = tensor(&ours, &expected.name);
                assert_eq!(found.format, expected.format, "{name} {}", expected.name);
                let format = expected.format.unwrap();
                let blocks = found.data.chunks(format.block_bytes()).zip(expected.data.chunks(format.block_bytes()));
                let (all, other) = (blocks.len(), blocks.filter(|(a, b)| a != b).count());
                let is_computed = expected.name.ends_with("ssm_a") && source.is_dir();
                assert!(other == 0 || is_computed, "{name} {}: {other} of {all} blocks differ", expected.name);
            }
        }
    }
}

#[test]
fn every_type_is_written_from_a_file_and_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (reference_models().join("dense-wide"), folder.path().join("ours.gguf"));
    let exact = values(tensor(&file(&theirs("dense-wide.bf16")), "blk.0.ffn_up.weight"));
    for mixture in Mixture::ALL {
        let most = match mixture {
            Mixture::F32 | Mixture::BF16 => 0.0,
            Mixture::F16 => 1e-3,
            Mixture::Q8_0 => 0.006,
            Mixture::Q6_K => 0.02,
            Mixture::Q5_K_M => 0.045,
            Mixture::Q4_K_M | Mixture::IQ4_XS => 0.085,
            Mixture::Q4_0 => 0.11,
        };
        let report = quantize(&source, &out, mixture).unwrap();
        let first = file(&out);
        let off = error(&values(tensor(&first, "blk.0.ffn_up.weight")), &exact);
        assert!(off <= most, "{}: {off}", mixture.name());
        assert_eq!(report.tensors.len(), first.tensors.len());
        let again = folder.path().join("again.gguf");
        quantize(&out, &again, mixture).unwrap();
        let again = file(&again);
        for tensor_of_first in &first.tensors {
            let same = tensor(&again, &tensor_of_first.name);
            assert!(same.data[..] == tensor_of_first.data[..], "{} {}", mixture.name(), same.name);
        }
    }
}

#[test]
fn keys_are_kept_and_rules_are_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (theirs("dense-wide.bf16"), folder.path().join("ours.gguf"));
    let rules = ["blk.0.*=f16", "ffn_down=q8_0"].map(|rule| TypeRule::parse(rule).unwrap());
    let report = with(&source, &out, FormatChoice::Mixture(Mixture::Q4_0), &rules, None).unwrap();
    let (ours, from) = (file(&out), file(&source));
    let format = |name: &str| tensor(&ours, name).format.unwrap();
    assert_eq!(format("blk.0.ffn_down.weight"), Format::F16);
    assert_eq!(format("blk.1.ffn_down.weight"), Format::Q8_0);
    assert_eq!(format("blk.1.ffn_up.weight"), Format::Q4_0);
    assert_eq!(format("blk.0.attn_norm.weight"), Format::F32);
    assert_eq!(report.formats.values().sum::<usize>(), ours.tensors.len());
    let mut kept = 0;
    for (key, value) in &from.keys {
        let Some((_, found)) = ours.keys.iter().find(|(ours, _)| ours == key) else { panic!("no {key}") };
        if !["general.file_type", "general.quantization_version"].contains(&key.as_str()) {
            assert!(found[..] == value[..], "{key} differs");
            kept += 1;
        }
    }
    assert!(kept > 25, "{kept}");
    let order = |file: &weights::gguf::GgufFile| file.tensors.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    assert_eq!(order(&ours), order(&from));
    let none = [TypeRule::parse("blk.9.*=f16").unwrap()];
    let error = with(&source, &out, FormatChoice::Mixture(Mixture::Q4_0), &none, None).unwrap_err().to_string();
    assert!(error.contains("no matrix is named like 'blk.9.*'"), "{error}");
}

#[test]
fn a_dry_run_writes_nothing_and_tells_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (theirs("dense-wide.bf16"), folder.path().join("ours.gguf"));
    let options = QuantizeOptions {
        source: &source,
        out: &out,
        choice: FormatChoice::Mixture(Mixture::Q4_K_M),
        rules: &[],
        imatrix: None,
        threads: 1,
        dry_run: true,
    };
    let planned = tools::quantize::quantize(&options, &mut |_| panic!("nothing is written")).unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    let written = quantize(&source, &out, Mixture::Q4_K_M).unwrap();
    assert_eq!(planned.tensors, written.tensors);
    assert!(written.bytes > planned.bytes, "a file has a header");
}

fn imatrix_of(source: &Path, out: &Path) -> Imatrix {
    let matrices = file(source).tensors.into_iter().filter(|tensor| tensor.dims.len() > 1);
    let entries = matrices.map(|tensor| {
        let stack = tensor.dims.get(2).map_or(1, |&stack| stack as usize);
        let cols = tensor.dims[0] as usize;
        let sums = (0..cols * stack).map(|i| if (i % cols).is_multiple_of(11) { 400.0 } else { 0.5 }).collect();
        (tensor.name, ImatrixEntry { sums, counts: vec![10.0; stack] })
    });
    let imatrix = Imatrix {
        path: out.to_path_buf(),
        datasets: vec!["a.txt".into()],
        chunk_count: 1,
        chunk_size: 512,
        entries: entries.collect(),
    };
    imatrix.write(out).unwrap();
    imatrix
}

#[test]
fn an_importance_matrix_weights_the_search() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["dense-wide", "moe"] {
        let source = theirs(&format!("{name}.bf16"));
        let imatrix = path("im.gguf");
        imatrix_of(&source, &imatrix);
        quantize(&source, &path("plain.gguf"), Mixture::Q4_K_M).unwrap();
        let report =
            with(&source, &path("weighted.gguf"), FormatChoice::Mixture(Mixture::Q4_K_M), &[], Some(&imatrix)).unwrap();
        assert!(report.notes.iter().any(|note| note.contains("importance matrix weights")), "{:?}", report.notes);
        let [exact, plain, weighted] =
            [source.clone(), path("plain.gguf"), path("weighted.gguf")].map(|path| file(&path));
        let mut seen = 0;
        for change in report.tensors.iter().filter(|change| change.weighted) {
            let cols = change.dims[0] as usize;
            let important = |file: &weights::gguf::GgufFile| -> Vec<f32> {
                let all = values(tensor(file, &change.name));
                all.iter().enumerate().filter(|(i, _)| (i % cols).is_multiple_of(11)).map(|(_, &value)| value).collect()
            };
            let exact = important(&exact);
            let (plain, weighted) = (error(&important(&plain), &exact), error(&important(&weighted), &exact));
            assert!(weighted < plain, "{name} {}: {weighted} after {plain}", change.name);
            seen += 1;
        }
        assert!(seen >= 20, "{seen}");
        assert!(weighted.keys.iter().any(|(key, _)| key == "quantize.imatrix.dataset"));
    }
}

#[test]
fn an_importance_matrix_without_use_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (source, out) = (theirs("dense-wide.bf16"), path("ours.gguf"));
    imatrix_of(&source, &path("im.gguf"));
    let error = |imatrix: &str, mixture| {
        let error =
            with(&source, &out, FormatChoice::Mixture(mixture), &[], Some(&path(imatrix))).unwrap_err().to_string();
        assert!(!out.exists());
        error
    };
    assert!(error("im.gguf", Mixture::Q8_0).contains("changes nothing in these types"));
    imatrix_of(&theirs("moe.bf16"), &path("other.gguf"));
    let told = error("other.gguf", Mixture::Q4_K_M);
    assert!(told.contains("it was made for another model"), "{told}");
}

#[test]
fn a_second_quantisation_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ours.gguf");
    let report = quantize(&theirs("dense-wide.q8_0"), &out, Mixture::Q4_0).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("were quantised before")), "{:?}", report.notes);
    let report = import(&reference_models().join("dense-wide"), &out, Some(Mixture::Q4_0)).unwrap();
    assert!(!report.notes.iter().any(|note| note.contains("were quantised before")), "{:?}", report.notes);
}

/// A name behind the source that belongs to it: the file would be gone, and a download of hours with it.
#[test]
fn no_file_that_is_read_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let whole = tiny::dense();
    let parts = ["set-00001-of-00002.gguf", "set-00002-of-00002.gguf"];
    for (at, name) in parts.iter().enumerate() {
        let mut part = whole.clone();
        part.set("split.no", Value::U32(at as u32)).set("split.count", Value::U32(2));
        let half = whole.tensors.chunks(whole.tensors.len().div_ceil(2)).nth(at).unwrap();
        part.tensors = half.to_vec();
        std::fs::write(path(name), part.bytes()).unwrap();
    }
    std::fs::create_dir(path("model")).unwrap();
    Files::reference("dense-tied").write(&path("model"), 2);
    let shard = "model/model-00002-of-00002.safetensors";
    let entry = ImatrixEntry { sums: vec![1.0; 64], counts: vec![1.0] };
    let entries = [("blk.0.attn_gate.weight".to_string(), entry)].into();
    let imatrix = Imatrix { path: path("i.gguf"), datasets: vec![], chunk_count: 1, chunk_size: 8, entries };
    imatrix.write(&path("i.gguf")).unwrap();
    let imatrix = path("i.gguf");
    for (source, out, imatrix, says) in [
        (parts[0], parts[1], None, "is a file of the source"),
        (parts[1], parts[1], None, "is the source itself"),
        ("model", shard, None, "is a file of the source"),
        ("model", "model/tokenizer.json", None, "is a file of the source"),
        ("model", "i.gguf", Some(&imatrix), "is the source itself"),
    ] {
        let before = std::fs::read(path(out)).unwrap();
        let choice = FormatChoice::Mixture(Mixture::F32);
        let error = with(&path(source), &path(out), choice, &[], imatrix.map(|path| path.as_path()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(says), "{source} to {out}: {error}");
        assert!(std::fs::read(path(out)).unwrap() == before, "{out}");
    }
    // Another result of that name is replaced.
    for _ in 0..2 {
        quantize(&path("model"), &path("model/whole.gguf"), Mixture::F32).unwrap();
    }
}

#[test]
fn a_value_that_a_type_cannot_hold_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("model"), folder.path().join("out.gguf"));
    let mut files = Files::reference("dense-tied");
    let tensor = files.tensors.iter_mut().find(|tensor| tensor.name.ends_with("0.mlp.up_proj.weight")).unwrap();
    tensor.data[2..4].copy_from_slice(&0x4e6eu16.to_le_bytes()); // 1e9 in bf16
    std::fs::create_dir(&source).unwrap();
    files.write(&source, 1);
    for mixture in [Mixture::F16, Mixture::Q8_0, Mixture::Q4_K_M, Mixture::IQ4_XS] {
        let error = quantize(&source, &out, mixture).unwrap_err().to_string();
        let says = "tensor 'blk.0.ffn_up.weight': row 0, column ";
        assert!(error.contains(says) && error.contains("cannot hold: take bf16 or f32"), "{error}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left");
    }
    quantize(&source, &out, Mixture::BF16).unwrap();
}
