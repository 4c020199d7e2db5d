//! APR v2: the tensors of a checkpoint under its own names, and metadata, in one file.
//!
//! Files of `reprise import` hold the checkpoint's small files whole. Of other files the configuration is put together from the
//! metadata, and tokenizer.json must lie beside them.

use std::path::Path;
use std::sync::Arc;

use kernels::format::Format;
use serde_json::{Map, Value, json};

use super::folder::{Folder, optional};
use crate::bytes::ModelBytes;
use crate::error::{Error, shown};
use crate::tensors::{Stored, Tensors, check_apart};

pub(crate) const MAGIC: &[u8; 4] = b"APR\0";
const VERSION: u8 = 2;
const HEADER: usize = 64;
const LARGEST_METADATA: usize = 16 << 20;
const LONGEST_NAME: usize = 256;
const MOST_DIMS: usize = 8;

const REFUSED: [(u16, &str); 6] = [
    (1, "compressed"),
    (2, "compressed"),
    (4, "encrypted"),
    (16, "one part of several"),
    (64, "no language model"),
    (2048, "stored by columns"),
];

struct Layout {
    metadata: Map<String, Value>,
    index: ModelBytes,
    data: ModelBytes,
    tensors: usize,
}

pub(crate) fn is_apr(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

pub(crate) fn folder(path: &Path, mmap: bool) -> Result<Folder, Error> {
    let bytes = ModelBytes::open(path, mmap)?;
    let Layout { metadata, .. } = layout(path, &bytes)?;
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(|text| text.as_bytes().to_vec());
    let beside = path.parent().unwrap_or(Path::new(""));
    let config = text("config.json").unwrap_or_else(|| config(&metadata).to_string().into_bytes());
    super::check_family(path, &config)?;
    let tokenizer = match text("tokenizer.json") {
        Some(tokenizer) => Some(tokenizer),
        None => optional(beside, "tokenizer.json")?,
    };
    let tokenizer = tokenizer.ok_or_else(|| {
        Error::file(path, "holds no tokenizer.json: put that of its checkpoint beside it, or import the checkpoint")
    })?;
    let chat_template = metadata.get("chat_template").and_then(Value::as_str).map(str::to_owned);
    let tokenizer_config = text("tokenizer_config.json");
    let generation_config = text("generation_config.json");
    let shards = vec![(path.to_path_buf(), bytes)];
    Ok(Folder {
        path: path.to_path_buf(),
        config,
        shards,
        tokenizer,
        tokenizer_config,
        generation_config,
        chat_template,
    })
}

pub(crate) fn add_tensors(path: &Path, bytes: &ModelBytes, tensors: &mut Tensors) -> Result<ModelBytes, Error> {
    let layout = layout(path, bytes)?;
    let (shared_path, mut ranges, mut left): (Arc<Path>, _, &[u8]) = (path.into(), Vec::new(), &layout.index);
    for _ in 0..layout.tensors {
        let (name, entry) = entry(path, &mut left)?;
        let (begin, end) = (entry.offset, entry.offset.saturating_add(entry.bytes));
        let stored = locate(&shared_path, &layout.data, &name, entry)?;
        ranges.push((begin, end, name.clone()));
        if !tensors.insert(name.clone(), stored) {
            return Err(Error::tensor(path, &name, "the name twice", "each tensor once"));
        }
    }
    check_apart(path, ranges.iter().map(|(begin, end, name)| (*begin, *end, &name[..])).collect())?;
    Ok(layout.index)
}

fn layout(path: &Path, bytes: &ModelBytes) -> Result<Layout, Error> {
    let cut = || Error::file(path, format!("is cut short: it has {} bytes", bytes.len()));
    let header = bytes.get(..HEADER).ok_or_else(cut)?;
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let place = |at: usize| usize::try_from(u64_at(at)).map_err(|_| cut());
    if !is_apr(header) || header[4] != VERSION {
        let found = format!("version {}", header[4]);
        return Err(Error::file(path, format!("is no APR file of version {VERSION}: it has {found}")));
    }
    let mut sum = crc32fast::Hasher::new();
    sum.update(&header[..40]);
    sum.update(&header[44..]);
    if sum.finalize() != u32_at(40) {
        return Err(Error::file(path, "has a damaged header: its checksum is another"));
    }
    let flags = u16::from_le_bytes([header[6], header[7]]);
    if let Some((_, what)) = REFUSED.into_iter().find(|(flag, _)| flags & flag != 0) {
        return Err(Error::file(path, format!("is {what}, which is not read: convert it, or import its checkpoint")));
    }
    let (metadata, length) = (place(12)?, u32_at(20) as usize);
    if length > LARGEST_METADATA {
        return Err(Error::file(path, format!("says that its metadata has {length} bytes, over {LARGEST_METADATA}")));
    }
    let part = |begin: usize, end: usize| bytes.slice(begin..end).ok_or_else(cut);
    let metadata = part(metadata, metadata.checked_add(length).ok_or_else(cut)?)?;
    let metadata: Value = serde_json::from_slice(&metadata)
        .map_err(|error| Error::file(path, format!("has damaged metadata: {}", shown(&error.to_string()))))?;
    let Value::Object(metadata) = metadata else {
        return Err(Error::file(path, "has metadata that are no JSON object"));
    };
    let (index, data) = (place(24)?, place(32)?);
    if index > data {
        return Err(Error::file(path, "has its data before its index"));
    }
    Ok(Layout { metadata, index: part(index, data)?, data: part(data, bytes.len())?, tensors: u32_at(8) as usize })
}

struct Entry {
    kind: u8,
    dims: Vec<u64>,
    offset: u64,
    bytes: u64,
}

fn entry(path: &Path, left: &mut &[u8]) -> Result<(String, Entry), Error> {
    let mut take = |count: usize| {
        let (taken, rest) =
            left.split_at_checked(count).ok_or_else(|| Error::file(path, "has an index that is cut short"))?;
        *left = rest;
        Ok::<&[u8], Error>(taken)
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let length = number(take(2)?) as usize;
    if length > LONGEST_NAME {
        return Err(Error::file(path, format!("has a tensor whose name has {length} bytes, over {LONGEST_NAME}")));
    }
    let name = String::from_utf8(take(length)?.to_vec())
        .map_err(|_| Error::file(path, "has a tensor whose name is not UTF-8"))?;
    let kind = take(1)?[0];
    let count = take(1)?[0] as usize;
    if count > MOST_DIMS {
        return Err(Error::tensor(path, &name, format!("{count} dimensions"), format!("at most {MOST_DIMS}")));
    }
    let mut dims = Vec::new();
    for _ in 0..count {
        dims.push(number(take(8)?));
    }
    let (offset, bytes) = (number(take(8)?), number(take(8)?));
    Ok((name, Entry { kind, dims, offset, bytes }))
}

fn locate(path: &Arc<Path>, data: &ModelBytes, name: &str, entry: Entry) -> Result<Stored, Error> {
    let wrong = |found: String, expected: String| Error::tensor(path, name, found, expected);
    let mut dims = Vec::new();
    for &dim in &entry.dims {
        match usize::try_from(dim).ok().filter(|dim| *dim > 0) {
            Some(dim) => dims.push(dim),
            None => {
                return Err(wrong(format!("a dimension of {dim}"), "one from 1 upwards that fits into memory".into()));
            }
        }
    }
    let range = usize::try_from(entry.offset).ok().zip(usize::try_from(entry.bytes).ok());
    let range = range.and_then(|(begin, bytes)| Some(begin..begin.checked_add(bytes)?));
    let Some(slice) = range.and_then(|range| data.slice(range)) else {
        let expected = format!("a range inside the {} bytes of data: is the file complete?", data.len());
        return Err(wrong(format!("{} bytes from {} on", entry.bytes, entry.offset), expected));
    };
    let (format, type_name) = match entry.kind {
        0 => (Some(Format::F32), "F32"),
        1 => (Some(Format::F16), "F16"),
        30 => (Some(Format::BF16), "BF16"),
        12 => (Some(Format::Q4_K), "Q4_K"),
        14 => (Some(Format::Q6_K), "Q6_K"),
        // Others matter only where the model needs the tensor; then the type is the error.
        8 | 128 => (None, "APR's own q4"),
        9 | 129 => (None, "APR's own q8"),
        _ => (None, "unknown"),
    };
    let (path, type_name) = (path.clone(), type_name.to_owned());
    let Some(format) = format else {
        return Ok(Stored { path, format: None, type_name, dims, data: slice });
    };
    let rows = dims.iter().rev().skip(1).try_fold(1_usize, |product, &dim| product.checked_mul(dim));
    let size = rows.zip(format.row_bytes(dims.last().copied().unwrap_or(1)));
    match size.and_then(|(rows, row_bytes)| rows.checked_mul(row_bytes)) {
        Some(size) if size == slice.len() => Ok(Stored { path, format: Some(format), type_name, dims, data: slice }),
        size => {
            let expected = size.map_or("rows of whole blocks".into(), |size| format!("{size} bytes"));
            Err(wrong(format!("{} bytes for shape {dims:?} of {type_name}", slice.len()), expected))
        }
    }
}

fn config(metadata: &Map<String, Value>) -> Value {
    const NAMES: [(&str, &str); 12] = [
        ("hidden_size", "hidden_size"),
        ("num_layers", "num_hidden_layers"),
        ("num_heads", "num_attention_heads"),
        ("num_kv_heads", "num_key_value_heads"),
        ("vocab_size", "vocab_size"),
        ("intermediate_size", "intermediate_size"),
        ("max_position_embeddings", "max_position_embeddings"),
        ("rms_norm_eps", "rms_norm_eps"),
        ("head_dim", "head_dim"),
        ("num_experts", "num_experts"),
        ("num_experts_per_tok", "num_experts_per_tok"),
        ("tied_embeddings", "tie_word_embeddings"),
    ];
    let is_set = |value: &&Value| !value.is_null();
    let mut config = Map::new();
    for (own, of_checkpoint) in NAMES {
        if let Some(value) = metadata.get(own).filter(is_set) {
            config.insert(of_checkpoint.to_owned(), value.clone());
        }
    }
    let model_type = ["hf_model_type", "model_type", "architecture"].into_iter().find_map(|key| metadata.get(key));
    config.insert("model_type".to_owned(), model_type.cloned().unwrap_or(Value::Null));
    let mut rope = Map::new();
    if let Some(theta) = metadata.get("rope_theta").filter(is_set) {
        rope.insert("rope_theta".to_owned(), theta.clone());
        rope.insert("rope_type".to_owned(), json!("default"));
    }
    if let Some(Value::Object(linear)) = metadata.get("linear_attn_hparams") {
        for (key, value) in linear {
            match key.as_str() {
                "partial_rotary_factor" | "mrope_section" => rope.insert(key.clone(), value.clone()),
                _ => config.insert(key.clone(), value.clone()),
            };
        }
    }
    config.insert("rope_parameters".to_owned(), Value::Object(rope));
    Value::Object(config)
}
