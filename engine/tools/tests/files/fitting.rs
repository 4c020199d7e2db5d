//! Types chosen by measured error: files that fit, and that predict more like the whole model than plain types of their size.

use std::path::{Path, PathBuf};

use engine::importance::{TensorInputs, inputs_of};
use engine::network::Network;
use kernels::cpu::Cpu;
use kernels::product::Precision;
use testing::golden::reference_models;
use tools::imatrix::{Imatrix, ImatrixEntry};
use tools::mixture::Mixture;
use tools::quantize::{FormatChoice, TypeRule};
use tools::validate::{Against, TEXT, ValidateOptions, validate};

use crate::support::{quantize, theirs, with};

/// The model inside the binary, the one here that was trained.
fn builtin() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/builtin/builtin.gguf")
}

fn divergence(file: &Path, from: &Path) -> f64 {
    let against = Some(Against { path: from, text: TEXT, tokens: 256 });
    let options = ValidateOptions { mmap: true, quality: false, against };
    let report = validate(file, &options, &Cpu::new(2), &|_, _, _| ());
    report.against.unwrap_or_else(|| panic!("{:?}", report.findings)).text.kl_mean
}

fn bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

fn imatrix_of(model: &Path, out: &Path) {
    let weights = weights::open(model, true).unwrap();
    let tokens = engine::vocabulary::tokenizer(weights.vocab.clone()).unwrap().encode(TEXT);
    let mut network = Network::new(weights, Precision::F32);
    let inputs = inputs_of(&mut network, &Cpu::new(2), &tokens[..512], 256, &mut |_| ()).unwrap();
    let entry = |TensorInputs { name, sums, counts, .. }| {
        (name, ImatrixEntry { sums, counts: counts.into_iter().map(|count| count as f32).collect() })
    };
    let entries = inputs.into_iter().map(entry).collect();
    let imatrix = Imatrix { path: out.into(), datasets: vec!["text".into()], chunk_count: 2, chunk_size: 256, entries };
    imatrix.write(out).unwrap();
}

#[test]
fn a_file_of_a_plain_types_size_predicts_more_like_the_whole_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (plain, fitted, imatrix) = (path("plain.gguf"), path("fitted.gguf"), path("imatrix.gguf"));
    let source = builtin();
    imatrix_of(&source, &imatrix);
    for mixture in [Mixture::IQ4_XS, Mixture::Q4_K_M, Mixture::Q5_K_M, Mixture::Q6_K] {
        for weights in
            [None, Some(&*imatrix)].into_iter().filter(|weights| weights.is_none() || mixture == Mixture::Q4_K_M)
        {
            with(&source, &plain, FormatChoice::Mixture(mixture), &[], weights).unwrap();
            let report = with(&source, &fitted, FormatChoice::Bytes(bytes(&plain)), &[], weights).unwrap();
            assert!(report.bytes == bytes(&fitted) && bytes(&fitted) <= bytes(&plain), "{}", mixture.name());
            let [of_plain, of_fitted] = [&plain, &fitted].map(|file| divergence(file, &source));
            let (name, has) = (mixture.name(), weights.is_some());
            println!(
                "{name}, importance {has}: {} bytes, KL {of_plain:.6}; {} bytes, KL {of_fitted:.6}",
                bytes(&plain),
                bytes(&fitted)
            );
            assert!(of_fitted < of_plain, "{name}, importance {has}: {of_fitted} after {of_plain}");
        }
    }
}

#[test]
fn a_file_fits_from_a_folder_and_from_a_file_and_rules_hold() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    let rules = [TypeRule::parse("blk.0.ffn_up=q8_0").unwrap()];
    for (name, parts) in [("dense-wide", 40), ("dense-gva2", 60), ("moe", 55)] {
        for source in [reference_models().join(name), theirs(&format!("{name}.bf16"))] {
            quantize(&source, &out, Mixture::BF16).unwrap();
            let most = bytes(&out) * parts / 100;
            let report = with(&source, &out, FormatChoice::Bytes(most), &rules, None).unwrap();
            assert!(bytes(&out) <= most && report.bytes == bytes(&out), "{name}: {} of {most}", bytes(&out));
            let rule = report.tensors.iter().find(|tensor| tensor.name.starts_with("blk.0.ffn_up"));
            assert_eq!(rule.unwrap().to, "q8_0", "{name}");
            assert!(report.notes.iter().any(|note| note.contains("chosen by measured error")), "{:?}", report.notes);
            // With room for everything nothing is changed.
            let report = with(&source, &out, FormatChoice::Bytes(1 << 30), &[], None).unwrap();
            assert!(report.tensors.iter().all(|tensor| ["bf16", "f32"].contains(&tensor.to)), "{name}");
            let error = with(&source, &out, FormatChoice::Bytes(9999), &[], None).unwrap_err().to_string();
            assert!(error.contains("bytes or more, and 9999 are allowed"), "{error}");
        }
    }
}
