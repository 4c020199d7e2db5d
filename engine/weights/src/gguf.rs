//! GGUF, versions 2 and 3, in one file or several.

mod metadata;
mod parts;
mod read;
mod shape;
mod vocab;

use std::path::Path;

use crate::bytes::ModelBytes;
use crate::error::{Error, shown};
use crate::fingerprint::fingerprint;
use crate::layers::{self, Source};
use crate::model::{ModelWeights, RawTensor};
use crate::shape::Shape;
use crate::tensors::Tensors;
use parts::GgufParts;

/// The model in a GGUF file; where the file is a part of a set, in the set.
pub fn open(path: &Path, mmap: bool) -> Result<ModelWeights, Error> {
    load(path, parts::open(path, mmap)?)
}

/// The model in the bytes of one GGUF file; the path is for messages.
pub fn from_bytes(path: &Path, bytes: ModelBytes) -> Result<ModelWeights, Error> {
    load(path, parts::from_bytes(path, bytes)?)
}

fn load(path: &Path, parts: GgufParts) -> Result<ModelWeights, Error> {
    let GgufParts { metadata, mut tensors, headers } = parts;
    let arch = shape::architecture(&metadata)?;
    let mut shape = shape::shape(&metadata, arch, &tensors)?;
    let vocab = vocab::vocab(&metadata, shape.vocab)?;
    // From here on a few bytes of each tensor are read.
    headers.iter().for_each(|header| header.read_ahead(false));
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
        layers.push(layers::layer(&mut tensors, &shape, Source::Gguf, format!("blk.{index}."), kind)?);
    }
    let mtp = prediction_blocks(&mut tensors, &mut shape, &mut notes);
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
        head,
        output_norm,
        layers,
        mtp,
        fingerprint,
        notes,
    })
}

/// The blocks behind the trunk are kept as they are, for later; the model works without them.
fn prediction_blocks(tensors: &mut Tensors, shape: &mut Shape, notes: &mut Vec<String>) -> Vec<RawTensor> {
    let trunk = shape.layers.len();
    let stated = shape.mtp_blocks;
    let is_behind = |name: &str| block_number(name).is_some_and(|block| (trunk..trunk + stated).contains(&block));
    match tensors.take_raw(is_behind) {
        Ok(mtp) if !mtp.is_empty() || stated == 0 => mtp,
        Ok(_) => {
            notes.push(format!("the file states {stated} block(s) for multi-token prediction and holds none"));
            shape.mtp_blocks = 0;
            Vec::new()
        }
        Err(unknown) => {
            notes.push(format!("multi-token prediction is left out: type {} is not supported", shown(&unknown)));
            shape.mtp_blocks = 0;
            Vec::new()
        }
    }
}

fn block_number(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}
