//! Folders of models for tests, of the golden file or made up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kernels::format::{Format, dequantize};
use tools::safetensors_writer::{NewTensor, write_safetensors};

pub type Values = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/merge")
}

pub fn values_of(path: &Path) -> Values {
    let value = |tensor: &weights::FileTensor| {
        let mut values = vec![0.0; tensor.dims.iter().product()];
        dequantize(tensor.format.unwrap(), &tensor.data, &mut values);
        (tensor.name.clone(), (tensor.dims.clone(), values))
    };
    weights::tensors_of(path, true).unwrap().iter().map(value).collect()
}

pub fn write(folder: &Path, stem: &str, values: &Values) {
    std::fs::create_dir_all(folder).unwrap();
    let tensor = |(name, (dims, _)): (&String, &(Vec<usize>, Vec<f32>))| NewTensor {
        name: name.clone(),
        format: Format::F32,
        dims: dims.clone(),
    };
    let tensors: Vec<NewTensor> = values.iter().map(tensor).collect();
    write_safetensors(folder, stem, &tensors, &mut |tensor, sink| {
        // Not `values`: damaged models have values that the writer refuses.
        sink.bytes(&values[&tensor.name].1.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    })
    .unwrap();
}

pub fn write_model(folder: &Path, values: &Values) {
    write(folder, "model", values);
    std::fs::write(folder.join("config.json"), r#"{"model_type": "qwen3_5_text", "dtype": "bfloat16"}"#).unwrap();
    std::fs::write(folder.join("tokenizer.json"), "{}").unwrap();
}

/// ‖a − b‖ / ‖b‖
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum = |values: &mut dyn Iterator<Item = f32>| values.map(|value| f64::from(value).powi(2)).sum::<f64>();
    (sum(&mut a.iter().zip(b).map(|(a, b)| a - b)) / sum(&mut b.iter().copied()).max(f64::MIN_POSITIVE)).sqrt()
}

pub fn listing(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
