//! GGUF, versions 2 and 3, in one file or several.

mod layers;
mod metadata;
mod parts;
mod read;
mod shape;
mod vocab;

use std::path::Path;

use crate::bytes::Bytes;
use crate::error::{Error, shown};
use crate::fingerprint::fingerprint;
use crate::model::Model;
use crate::shape::Shape;
use crate::tensors::Tensors;
use parts::Parts;

/// The model in a GGUF file; where the file is a part of a set, in the set.
pub fn open(path: &Path, mmap: bool) -> Result<Model, Error> {
    load(path, parts::open(path, mmap)?)
}

/// The model in the bytes of one GGUF file; the path is for messages.
pub fn from_bytes(path: &Path, bytes: Bytes) -> Result<Model, Error> {
    load(path, parts::from_bytes(path, bytes)?)
}

fn load(path: &Path, parts: Parts) -> Result<Model, Error> {
    let Parts { metadata, mut tensors, headers } = parts;
    let arch = shape::architecture(&metadata)?;
    let mut shape = shape::shape(&metadata, arch, &tensors)?;
    let vocab = vocab::vocab(&metadata, shape.vocab)?;
    let fingerprint = fingerprint(headers.iter().map(|header| &header[..]), &tensors);
    let mut notes = Vec::new();

    let embed = tensors.matrix("token_embd.weight", shape.vocab, shape.hidden)?;
    let head = match shape.tied {
        true => None,
        false => Some(tensors.matrix("output.weight", shape.vocab, shape.hidden)?),
    };
    let output_norm = tensors.values("output_norm.weight", &[shape.hidden])?;
    let mut layers = Vec::new();
    for (index, kind) in shape.layers.clone().into_iter().enumerate() {
        layers.push(layers::layer(&mut tensors, &shape, index, kind)?);
    }
    let mtp = prediction_blocks(&mut tensors, &mut shape, &mut notes)?;
    leave_out(path, &mut tensors, &mut notes)?;

    let name = metadata.text("general.name")?.filter(|name| !name.is_empty());
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Model {
        name: name.map_or_else(stem, shown),
        chat_template: metadata.text("tokenizer.chat_template")?.map(str::to_string),
        stop_tokens: vocab.stop_tokens,
        vocab: vocab.source,
        shape,
        embed,
        head,
        output_norm,
        layers,
        mtp,
        fingerprint,
        notes,
    })
}

/// The blocks behind the trunk are kept as they are, for later.
fn prediction_blocks(
    tensors: &mut Tensors,
    shape: &mut Shape,
    notes: &mut Vec<String>,
) -> Result<Vec<crate::model::RawTensor>, Error> {
    let trunk = shape.layers.len();
    let stated = shape.mtp_blocks;
    let mtp =
        tensors.take_raw(|name| block_number(name).is_some_and(|block| (trunk..trunk + stated).contains(&block)))?;
    if mtp.is_empty() && stated > 0 {
        notes.push(format!("the file states {stated} block(s) for multi-token prediction and holds none"));
        shape.mtp_blocks = 0;
    }
    Ok(mtp)
}

fn block_number(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// What nobody took: vision is left out on purpose; anything else the model's words might depend on.
fn leave_out(path: &Path, tensors: &mut Tensors, notes: &mut Vec<String>) -> Result<(), Error> {
    let vision = tensors.drop_all(|name| name.starts_with("v.") || name.starts_with("mm."));
    if vision > 0 {
        notes.push(format!("{vision} tensors of the vision encoder are skipped: this runs the text model"));
    }
    let left = tensors.left_over();
    // A bias or a scale that is not applied would make every word wrong without anybody noticing.
    if let Some(name) = left.iter().find(|name| name.ends_with(".bias") || name.ends_with("scale")) {
        return Err(Error::tensor(path, name, "a tensor of no use in this family", "none of that name"));
    }
    if let Some(first) = left.first() {
        notes.push(format!("{} tensors are not used, the first of them '{}'", left.len(), shown(first)));
    }
    Ok(())
}
