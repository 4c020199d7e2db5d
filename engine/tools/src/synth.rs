//! Random models of a real shape: what speed is measured with where no trained file can be had, and what another
//! engine can load to compare results. The files are in the ecosystem's layout.
//!
//! The weights are scaled so that activations stay finite over long contexts and the logits differ; the words of the
//! vocabulary print, because only tokens that are words or punctuation have loud rows in the head.

mod metadata;
mod random;
mod shape;
mod tensors;
mod vocabulary;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use kernels::format;

use crate::Error;
use crate::file_head::FileHead;
use crate::gguf_writer::{GgufWriter, TensorInfo};
use crate::mixture::Mixture;
use crate::streaming::{self, NewFile, Piece};

pub use shape::{MoeShape, NAMES, SynthShape};
use tensors::TensorPlan;

#[derive(Debug, Clone)]
pub struct SynthOptions {
    pub shape: SynthShape,
    pub mixture: Mixture,
    pub seed: u64,
    pub threads: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SynthReport {
    pub tensors: usize,
    pub parameters: u64,
    pub bytes: u64,
}

/// Writes the model to `out`, which appears only when it is whole. `progress` hears (bytes written, bytes in all).
pub fn write(options: &SynthOptions, out: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<SynthReport, Error> {
    if let Err(what) = options.shape.check() {
        return Err(Error::file(out, format!("cannot make a model of shape '{}': {what}", options.shape.name)));
    }
    let vocabulary = vocabulary::build(options.shape.vocab, options.seed);
    let plan = tensors::plan(options, &vocabulary);
    let metadata = metadata::of(options, &vocabulary);

    let infos: Vec<TensorInfo> = plan.iter().map(|plan| plan.info.clone()).collect();
    let head = FileHead::Gguf(metadata);
    let file = NewFile { out, head: &head, tensors: &infos, threads: options.threads };
    let make = |piece: Piece, values: &mut Vec<f32>| Ok(make(&plan[piece.tensor], piece, values));
    let bytes = streaming::write(&file, &make, &mut |_| (), |_| Ok(()), progress)?;
    Ok(SynthReport { tensors: plan.len(), parameters: plan.iter().map(TensorPlan::values).sum(), bytes })
}

/// Writes a file that has everything but its values, which read as zeros and take no room on a disk that keeps files with holes:
/// enough to plan with.
pub fn outline(shape: &SynthShape, mixture: Mixture, out: &Path) -> Result<(), Error> {
    let io = |source: std::io::Error| Error::io(out, source);
    let options = SynthOptions { shape: shape.clone(), mixture, seed: 0, threads: 1 };
    let vocabulary = vocabulary::build(shape.vocab, options.seed);
    let infos: Vec<TensorInfo> = tensors::plan(&options, &vocabulary).into_iter().map(|plan| plan.info).collect();
    let file = BufWriter::new(File::create(out).map_err(io)?);
    let writer = GgufWriter::new(file, &metadata::of(&options, &vocabulary), &infos).map_err(io)?;
    let values: u64 = writer.bytes_to_come();
    let file = writer.into_inner().into_inner().map_err(|error| io(error.into_error()))?;
    let header = file.metadata().map_err(io)?.len();
    file.set_len(header + values).map_err(io)
}

fn make(plan: &TensorPlan, piece: Piece, values: &mut Vec<f32>) -> Vec<u8> {
    let count = (piece.rows * plan.cols()) as usize;
    values.resize(count, 0.0);
    plan.fill(piece.first_row, values);
    let format = plan.info.format;
    // The shape was checked to have rows of whole blocks in the format that the mixture chose for it.
    let mut bytes = vec![0; count / format.block_len() * format.block_bytes()];
    format::quantize(format, values, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
