//! A checkpoint, as its makers publish it, to a GGUF file in the layout of the ecosystem's converter.

mod metadata;
mod tensors;

use std::path::Path;

use kernels::format::Format;
use weights::{HeadOrder, Shape, gguf, hf};

use crate::Error;
use crate::imatrix::Imatrix;
use crate::mixture::{Mixture, MixtureModel};
use crate::planned::{self, Wanted};
pub use crate::planned::{TensorChange, TypeRule, WriteReport};

#[derive(Debug, Clone)]
pub struct ImportOptions<'a> {
    pub source: &'a Path,
    pub out: &'a Path,
    /// Types of the tensors. None: the checkpoint's own.
    pub mixture: Option<Mixture>,
    pub rules: &'a [TypeRule],
    pub imatrix: Option<&'a Path>,
    pub threads: usize,
    pub dry_run: bool,
}

/// Writes the model of a folder to a GGUF file, which has its name only when it is whole. `progress` hears (bytes written, bytes
/// in all).
pub fn import(options: &ImportOptions, progress: &mut dyn FnMut(u64, u64)) -> Result<WriteReport, Error> {
    let (source, out) = (options.source, options.out);
    planned::check_out(source, out)?;
    if source.is_file() {
        return Err(Error::file(source, "is a file, and a checkpoint is a folder; `quantize` takes GGUF files"));
    }
    let folder = hf::read(source, true)?;
    let files = metadata::SmallFiles::of(&folder)?;
    let model = hf::load(folder)?;
    let mixture = options.mixture.unwrap_or(match model.embed.format() {
        Some(Format::F32) => Mixture::F32,
        Some(Format::F16) => Mixture::F16,
        _ => Mixture::BF16,
    });
    let keys = metadata::of(&model, &files, mixture, source)?;
    let mut tensors = tensors::plan(&model);
    let imatrix = options.imatrix.map(Imatrix::read).transpose()?;
    let wanted = Wanted { mixture, rules: options.rules, imatrix: imatrix.as_ref() };
    let mut notes = model.notes.clone();
    notes.extend(planned::decide(&mut tensors, &wanted, of_model(&model.shape), source)?);
    let mut report = planned::report(&tensors, notes);
    if !options.dry_run {
        let check = |written: &Path| check(written, &model.shape, &model.stop_tokens);
        report.bytes = planned::write(&tensors, (source, out), &keys, options.threads, check, progress)?;
    }
    Ok(report)
}

pub(crate) fn of_model(shape: &Shape) -> MixtureModel {
    MixtureModel {
        layers: shape.layers.len(),
        tied: shape.tied,
        queries_per_key: shape.q_heads / shape.kv_heads,
        has_importance: false,
    }
}

/// Checks that the written file is read as the same model.
fn check(written: &Path, shape: &Shape, stop_tokens: &[u32]) -> Result<(), Error> {
    let model = gguf::open(written, true)?;
    let mut expected = shape.clone();
    expected.value_head_order = HeadOrder::Tiled;
    expected.rope.theta = f64::from(shape.rope.theta as f32);
    if model.shape != expected || model.stop_tokens != stop_tokens {
        let what = format!("does not read as the same model: {:?}, expected {expected:?}", model.shape);
        return Err(Error::file(written, what));
    }
    Ok(())
}
