//! `reprise logits` on every model of the reference, folder and GGUF, against the reference implementation's results.

use std::path::{Path, PathBuf};
use std::process::Command;

use tests::reprise::binary;

const FOLDERS: [&str; 6] = ["dense-tied", "dense-gva2", "dense-gva3", "moe", "dense-yarn", "dense-wide"];

fn reference() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/reference")
}

struct Tensors(Vec<u8>);

impl Tensors {
    fn open(path: &Path) -> Tensors {
        Tensors(std::fs::read(path).unwrap())
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        safetensors::SafeTensors::deserialize(&self.0).unwrap().tensor(name).unwrap().data().to_vec()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.bytes(name).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    fn integers(&self, name: &str) -> Vec<i64> {
        self.bytes(name).chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

fn logits(model: &Path, tokens: &[i64], more: &[&str]) -> Tensors {
    let folder = tempfile::tempdir().unwrap();
    let (list, out) = (folder.path().join("tokens.txt"), folder.path().join("out.safetensors"));
    std::fs::write(&list, tokens.iter().map(i64::to_string).collect::<Vec<_>>().join(",")).unwrap();
    let output = Command::new(binary())
        .arg("logits")
        .arg("--model")
        .arg(model)
        .arg("--tokens")
        .arg(format!("@{}", list.display()))
        .arg("--out")
        .arg(&out)
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Tensors::open(&out)
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(a - b))).sum();
    let size: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
    let distance = (difference / size).sqrt();
    if distance.is_nan() { f64::INFINITY } else { distance }
}

#[test]
fn every_reference_model_as_folder_and_as_gguf() {
    for name in FOLDERS {
        let golden = Tensors::open(&reference().join(name).join("golden.safetensors"));
        let (prompt, expected) = (golden.integers("prompt"), golden.floats("logits"));
        for model in [reference().join(name), reference().join(format!("gguf/{name}.bf16.gguf"))] {
            let ours = logits(&model, &prompt, &["--precision", "f32", "--greedy", "48"]);
            let far = distance(&ours.floats("logits"), &expected);
            println!("{}: {far:.1e}", model.display());
            assert!(far <= 1e-4, "{}: {far:e}", model.display());
            assert_eq!(ours.integers("greedy"), golden.integers("greedy"), "{}", model.display());
        }
    }
}

#[test]
fn prefill_in_chunks_is_prefill() {
    let golden = Tensors::open(&reference().join("moe/golden.safetensors"));
    for chunk in ["1", "7", "64", "65", "180"] {
        let model = reference().join("moe");
        let ours = logits(&model, &golden.integers("prompt"), &["--precision", "f32", "--chunk", chunk]);
        let far = distance(&ours.floats("logits"), &golden.floats("logits"));
        assert!(far <= 1e-4, "chunks of {chunk}: {far:e}");
    }
}

#[test]
fn quantised_files_on_both_paths() {
    for name in ["dense-wide.q4_k_m", "dense-wide.q8_0"] {
        let golden = Tensors::open(&reference().join(format!("gguf/{name}.logits.safetensors")));
        let model = reference().join(format!("gguf/{name}.gguf"));
        for (more, tolerance) in [(&["--precision", "f32"][..], 1e-4), (&[][..], 5e-2)] {
            let far =
                distance(&logits(&model, &golden.integers("prompt"), more).floats("logits"), &golden.floats("logits"));
            println!("{name} {more:?}: {far:.1e}");
            assert!(far <= tolerance, "{name} {more:?}: {far:e}");
        }
    }
}

#[test]
fn the_model_is_not_replaced_by_its_logits() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    std::fs::copy(reference().join("gguf/dense-tied.bf16.gguf"), &model).unwrap();
    let before = std::fs::read(&model).unwrap();
    let args = ["logits", "--model", "model.gguf", "--tokens", "1,2", "--out", "model.gguf"];
    let output = tests::reprise::command(folder.path()).args(args).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains("is the source itself; name another file"), "{told}");
    assert!(std::fs::read(&model).unwrap() == before);
}
