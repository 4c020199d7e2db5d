//! Wrong input: a clear error, and no file under the final name or beside it.

use std::path::Path;

use serde_json::json;
use testing::folder::Files;
use tools::mixture::Mixture;

use crate::support::{import, quantize, theirs};

type Damage = (&'static str, fn(&mut Files), fn(&Path), &'static str);

fn nothing(_: &mut Files) {}
fn keep(_: &Path) {}

fn rewrite(folder: &Path, change: impl Fn(&mut Vec<u8>)) {
    let path = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

fn put_nan(files: &mut Files, name: &str) {
    let tensor = files.tensors.iter_mut().find(|tensor| tensor.name.ends_with(name)).unwrap();
    let last = tensor.data.len() - 2;
    tensor.data[last..].copy_from_slice(&0x7fc0u16.to_le_bytes());
}

#[test]
fn damaged_folders_are_told_and_leave_nothing() {
    let cases: [Damage; 16] = [
        (
            "a cut file",
            nothing,
            |folder| rewrite(folder, |bytes| bytes.truncate(bytes.len() - 100)),
            "is the download complete?",
        ),
        ("a cut header", nothing, |folder| rewrite(folder, |bytes| bytes.truncate(100)), "cut short"),
        ("a wrong start", nothing, |folder| rewrite(folder, |bytes| bytes[..8].fill(0xff)), "not safetensors"),
        ("a wrong header", nothing, |folder| rewrite(folder, |bytes| bytes[8] = b'x'), "damaged header"),
        ("a size that lies", |files| files.tensors[0].shape = vec![513, 64], keep, "bytes for shape [513, 64]"),
        (
            "NaN in a matrix",
            |files| put_nan(files, "0.mlp.up_proj.weight"),
            keep,
            "blk.0.ffn_up.weight': row 159, column 63 is NaN",
        ),
        (
            "NaN in a norm",
            |files| put_nan(files, "model.norm.weight"),
            keep,
            "output_norm.weight': row 0, column 63 is NaN",
        ),
        ("a missing tensor", |files| drop(files.take("model.layers.2.mlp.down_proj.weight")), keep, "no such tensor"),
        (
            "a wrong shape",
            |files| {
                let tensor = files.tensors.iter_mut().find(|tensor| tensor.name.ends_with("0.mlp.up_proj.weight"));
                tensor.unwrap().shape = vec![64, 160];
            },
            keep,
            "found shape [64, 160], expected shape [160, 64]",
        ),
        (
            "no configuration",
            nothing,
            |folder| std::fs::remove_file(folder.join("config.json")).unwrap(),
            "holds no config.json",
        ),
        (
            "no tokenizer",
            nothing,
            |folder| std::fs::remove_file(folder.join("tokenizer.json")).unwrap(),
            "holds no tokenizer.json",
        ),
        (
            "another family",
            |files| files.config["model_type"] = json!("llama"),
            keep,
            "architecture 'llama' is of no known family",
        ),
        (
            "an unknown type",
            |files| {
                let tensor = &mut files.tensors[0];
                (tensor.dtype, tensor.data) = ("F8_E4M3".into(), vec![0; tensor.data.len() / 2]);
            },
            keep,
            "type F8_E4M3",
        ),
        (
            "another way to cut words",
            |files| files.tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"] = json!({"Regex": "x+"}),
            keep,
            "the tokenizer's pattern is \"x+\"",
        ),
        (
            "more tokens than rows",
            |files| files.tokenizer["added_tokens"][0]["id"] = json!(900),
            keep,
            "has no row among 512 of the embedding",
        ),
        ("a missing layer", |files| files.config["num_hidden_layers"] = json!(5), keep, "layer_types"),
    ];
    for (what, change, damage, expected) in cases {
        let (folder, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut files = Files::reference("dense-tied");
        change(&mut files);
        files.write(folder.path(), 1);
        damage(folder.path());
        let error = import(folder.path(), &target.path().join("out.gguf"), Some(Mixture::Q8_0));
        let error = error.err().unwrap_or_else(|| panic!("{what} is imported")).to_string();
        assert!(error.contains(expected), "{what}: {error}");
        assert!(!error.contains('\n'), "{what}: {error}");
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0, "{what} leaves a file");
    }
}

#[test]
fn damaged_files_are_told_and_leave_nothing() {
    let whole = std::fs::read(theirs("dense-tied.bf16")).unwrap();
    let target = tempfile::tempdir().unwrap();
    let source = target.path().join("in.gguf");
    let error = |bytes: &[u8]| {
        std::fs::write(&source, bytes).unwrap();
        let error = quantize(&source, &target.path().join("out.gguf"), Mixture::Q8_0).unwrap_err().to_string();
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 1, "{error}");
        error
    };
    assert!(error(&whole[..whole.len() / 2]).contains("is the download complete?"));
    assert!(error(&whole[..1000]).contains("is damaged"));
    assert!(error(b"PK\x03\x04").contains("is not a GGUF file"));
    assert!(error(&[]).contains("is not a GGUF file"));
    let other = |from: &[u8], to: &[u8]| {
        let at = whole.windows(from.len()).position(|bytes| bytes == from).unwrap();
        [&whole[..at], to, &whole[at + from.len()..]].concat()
    };
    assert!(error(&other(b"qwen35", b"qwen99")).contains("architecture 'qwen99'"));
    assert!(error(&other(b"blk.0.ffn_up", b"blk.0.ffn_ux")).contains("no such tensor"));
    let mut nan = whole.clone();
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(error(&nan).contains("is NaN: the file is damaged"));
}

#[test]
fn places_that_cannot_be_written_are_told() {
    let target = tempfile::tempdir().unwrap();
    let out = |name: &str| target.path().join(name);
    let source = theirs("dense-tied.bf16");
    let error = |out: &Path| quantize(&source, out, Mixture::Q8_0).unwrap_err().to_string();
    assert!(error(&out("x.apr")).contains("is made of a checkpoint's folder"));
    assert!(error(target.path()).contains("is a folder"));
    assert!(error(&source).contains("is the source itself"));
    assert!(error(&out("no/folder/x.gguf")).contains("No such file"));
    let told = import(&source, &out("x.gguf"), None).unwrap_err().to_string();
    assert!(told.contains("a checkpoint is a folder; `quantize` takes GGUF files"), "{told}");
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}
