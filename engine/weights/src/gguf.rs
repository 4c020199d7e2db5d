//! GGUF, versions 2 and 3, in one file or several.

mod file;
mod metadata;
mod parts;
mod read;
mod second;
mod shape;
mod vocab;

use std::path::Path;

use crate::bytes::ModelBytes;
use crate::contents::{self, FileContents, FileForm, FileNames, FileTensor};
use crate::error::{Error, shown};
use crate::fingerprint::fingerprint;
use crate::layers::{self, Source};
use crate::model::{ModelWeights, PredictionBlock};
use crate::shape::Shape;
use crate::tensors::Tensors;
pub use file::{GgufFile, GgufTensor};
use parts::GgufParts;

/// Opens the model of a GGUF file or of the set that the file is a part of. Its block for prediction may be in a second file.
pub fn open(path: &Path, mmap: bool) -> Result<ModelWeights, Error> {
    let (mut parts, mut notes) = (parts::open(path, mmap)?, Vec::new());
    second::add_prediction(&mut parts, path, mmap, &mut notes);
    load(path, parts, notes)
}

pub fn from_bytes(path: &Path, bytes: ModelBytes) -> Result<ModelWeights, Error> {
    load(path, parts::from_bytes(path, bytes)?, Vec::new())
}

/// Reads everything in a file or set, for a check.
pub(crate) fn contents(path: &Path, mmap: bool) -> Result<FileContents, Error> {
    let mut parts = parts::open(path, mmap)?;
    second::add_prediction(&mut parts, path, mmap, &mut Vec::new());
    let GgufParts { metadata, tensors, has_own_prediction_file, .. } = parts;
    let known = || shape::architecture(&metadata);
    let shape = known().and_then(|known| shape::shape(&metadata, known, &tensors));
    let shape = shape.map(|mut shape| {
        shape.mtp_blocks = shape.mtp_blocks.max(usize::from(has_own_prediction_file));
        shape
    });
    let rows = || tensors.dims("token_embd.weight").and_then(|dims| dims.first().copied()).unwrap_or(0);
    let vocab = || known().and_then(|(family, _)| vocab::vocab(&metadata, family, rows()));
    let (vocab, stop_tokens) = match vocab() {
        Ok(vocab) => (Ok(vocab.source), Ok(vocab.stop_tokens)),
        Err(error) => (Err(error), vocab().map(|vocab| vocab.stop_tokens)),
    };
    let mut files: Vec<_> = tensors.iter().map(|(_, tensor)| tensor.path.to_path_buf()).collect();
    files.sort();
    files.dedup();
    Ok(FileContents {
        form: FileForm::Gguf,
        files,
        tensors: contents::listed(&tensors),
        family: known(),
        shape,
        vocab,
        stop_tokens,
        chat_template: metadata.text("tokenizer.chat_template").map(|template| template.map(str::to_owned)),
        names: FileNames::Gguf,
    })
}

pub(crate) fn tensors_of(path: &Path, mmap: bool) -> Result<Vec<FileTensor>, Error> {
    Ok(contents::listed(&parts::open(path, mmap)?.tensors))
}

fn load(path: &Path, parts: GgufParts, mut notes: Vec<String>) -> Result<ModelWeights, Error> {
    let GgufParts { metadata, mut tensors, headers, has_own_prediction_file, .. } = parts;
    let (family, architecture) = shape::architecture(&metadata)?;
    let mut shape = shape::shape(&metadata, (family, architecture), &tensors)?;
    shape.mtp_blocks = shape.mtp_blocks.max(usize::from(has_own_prediction_file));
    let vocab = vocab::vocab(&metadata, family, shape.vocab)?;
    // From here on a few bytes of each tensor are read.
    headers.iter().for_each(|header| header.read_ahead(false));
    let fingerprint = fingerprint(headers.iter().map(|header| &header[..]), &tensors);

    let embed = tensors.matrix("token_embd.weight", shape.vocab, shape.hidden)?;
    let output = match shape.tied {
        true => None,
        false => Some(tensors.matrix("output.weight", shape.vocab, shape.hidden)?),
    };
    let output_norm = tensors.values("output_norm.weight", &[shape.hidden])?;
    let mut layers = Vec::new();
    for (index, kind) in shape.layers.clone().into_iter().enumerate() {
        layers.push(layers::layer(&mut tensors, &shape, Source::Gguf, format!("blk.{index}."), kind)?);
    }
    let prediction = prediction_block(&mut tensors, &mut shape, &output_norm, &mut notes)?;
    let vision = tensors.drop_all(|name| name.starts_with("v.") || name.starts_with("mm."));
    if vision > 0 {
        notes.push(format!("{vision} tensors of the vision encoder are skipped: this runs the text model"));
    }
    tensors.check_left_over(&mut notes)?;
    headers.iter().for_each(|header| header.read_ahead(true));

    let name = metadata.text("general.name")?.filter(|name| !name.is_empty());
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(ModelWeights {
        name: name.map_or_else(stem, shown),
        chat_template: metadata.text("tokenizer.chat_template")?.map(str::to_string),
        stop_tokens: vocab.stop_tokens,
        vocab: vocab.source,
        shape,
        embed,
        output,
        output_norm,
        layers,
        prediction,
        fingerprint,
        notes,
    })
}

/// Reads the first block behind the trunk. The model works without it.
fn prediction_block(
    tensors: &mut Tensors,
    shape: &mut Shape,
    trunk_norm: &[f32],
    notes: &mut Vec<String>,
) -> Result<Option<PredictionBlock>, Error> {
    let (trunk, stated) = (shape.layers.len(), std::mem::take(&mut shape.mtp_blocks));
    let is_behind = |name: &str| block_number(name).is_some_and(|block| (trunk..trunk + stated).contains(&block));
    if stated == 0 {
        return Ok(None);
    }
    let prefix = format!("blk.{trunk}.");
    let is_own = |name: &str| {
        name.strip_prefix(&prefix).is_some_and(|rest| OWN_VOCABULARY.iter().any(|part| rest.starts_with(part)))
    };
    let left_out = if !tensors.has_any(is_behind) {
        Some(format!("the file states {stated} block(s) for multi-token prediction and holds none"))
    } else if let Some(unknown) = tensors.unreadable(is_behind) {
        Some(format!("multi-token prediction is left out: type {} is not supported", shown(unknown)))
    } else if tensors.has_any(is_own) {
        Some("multi-token prediction is left out: it has an embedding or a head of its own".to_string())
    } else {
        None
    };
    let block = match &left_out {
        Some(_) => None,
        None => {
            let own = format!("{prefix}nextn.");
            Some(layers::prediction(tensors, shape, Source::Gguf, [prefix, own], trunk_norm)?)
        }
    };
    notes.extend(left_out);
    let others = tensors.drop_all(is_behind);
    if block.is_some() {
        shape.mtp_blocks = 1;
        if others > 0 {
            notes.push(format!("of {stated} blocks for multi-token prediction the first is used"));
        }
    }
    Ok(block)
}

const OWN_VOCABULARY: [&str; 2] = ["nextn.embed_tokens", "nextn.shared_head_head"];

fn block_number(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}
