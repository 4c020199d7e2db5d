//! A model's folder that a test takes apart and writes again in another way.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    pub data: Vec<u8>,
}

#[derive(Clone)]
pub struct Files {
    pub config: Value,
    pub tensors: Vec<Tensor>,
    pub tokenizer: Value,
    pub tokenizer_config: Value,
    pub generation_config: Option<Value>,
    pub chat_template: Option<String>,
}

impl Files {
    pub fn reference(name: &str) -> Files {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference")).join(name);
        let json = |name: &str| serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap();
        let file = std::fs::read(folder.join("model.safetensors")).unwrap();
        let end = 8 + u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
        let header: Map<String, Value> = serde_json::from_slice(&file[8..end]).unwrap();
        let number = |value: &Value| value.as_u64().unwrap();
        let tensors = header.iter().filter(|(name, _)| *name != "__metadata__").map(|(name, entry)| {
            let at = |i: usize| end + number(&entry["data_offsets"][i]) as usize;
            Tensor {
                name: name.clone(),
                dtype: entry["dtype"].as_str().unwrap().into(),
                shape: entry["shape"].as_array().unwrap().iter().map(number).collect(),
                data: file[at(0)..at(1)].to_vec(),
            }
        });
        Files {
            config: json("config.json"),
            tensors: tensors.collect(),
            tokenizer: json("tokenizer.json"),
            tokenizer_config: json("tokenizer_config.json"),
            generation_config: None,
            chat_template: None,
        }
    }

    pub fn rename(&mut self, rename: impl Fn(&str) -> String) {
        self.tensors.iter_mut().for_each(|tensor| tensor.name = rename(&tensor.name));
    }

    pub fn take(&mut self, name: &str) -> Tensor {
        let index = self.tensors.iter().position(|tensor| tensor.name == name).unwrap();
        self.tensors.remove(index)
    }

    pub fn add(&mut self, name: &str, shape: &[u64]) {
        let data = vec![0; 2 * shape.iter().product::<u64>() as usize];
        self.tensors.push(Tensor { name: name.into(), dtype: "BF16".into(), shape: shape.to_vec(), data });
    }

    pub fn write(&self, folder: &Path, shards: usize) {
        let json = |name: &str, value: &Value| std::fs::write(folder.join(name), value.to_string()).unwrap();
        json("config.json", &self.config);
        json("tokenizer.json", &self.tokenizer);
        json("tokenizer_config.json", &self.tokenizer_config);
        if let Some(config) = &self.generation_config {
            json("generation_config.json", config);
        }
        if let Some(template) = &self.chat_template {
            std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
        }
        if shards == 1 {
            std::fs::write(folder.join("model.safetensors"), safetensors(&self.tensors)).unwrap();
            return;
        }
        let mut places = Map::new();
        for (i, tensors) in self.tensors.chunks(self.tensors.len().div_ceil(shards)).enumerate() {
            let name = format!("model-{:05}-of-{shards:05}.safetensors", i + 1);
            std::fs::write(folder.join(&name), safetensors(tensors)).unwrap();
            places.extend(tensors.iter().map(|tensor| (tensor.name.clone(), json!(name))));
        }
        json("model.safetensors.index.json", &json!({"metadata": {}, "weight_map": places}));
    }
}

pub fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for tensor in tensors {
        let begin = data.len();
        data.extend(&tensor.data);
        let entry = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, data.len()]});
        header.insert(tensor.name.clone(), entry);
    }
    with_header(&Value::Object(header).to_string(), &data)
}

pub fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend(data);
    out
}
