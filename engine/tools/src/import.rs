//! A checkpoint, as its makers publish it, to a GGUF file in the layout of the ecosystem's converter, or to an APR file.

mod apr;
mod metadata;
mod tensors;

use std::path::Path;

use kernels::format::Format;
use weights::{HeadOrder, ModelWeights, Shape, gguf, hf};

use crate::Error;
use crate::apr::{TYPES, number_of};
pub use crate::deciding::FormatChoice;
use crate::deciding::{self, Wanted};
use crate::file_head::FileHead;
use crate::imatrix::Imatrix;
use crate::mixture::{Mixture, MixtureModel};
use crate::planned;
pub use crate::planned::{TensorChange, WriteReport, WriteStep};
use crate::target::Addition;
pub use crate::type_rule::TypeRule;

#[derive(Debug, Clone)]
pub struct ImportOptions<'a> {
    pub source: &'a Path, // folder with safetensors, or an APR file
    pub out: &'a Path,
    /// Types of the tensors. None: the checkpoint's own.
    pub choice: Option<FormatChoice>,
    pub rules: &'a [TypeRule],
    pub imatrix: Option<&'a Path>,
    pub threads: usize,
    pub dry_run: bool,
}

/// Writes the model of a folder to a file, which has its name only when it is whole.
pub fn import(options: &ImportOptions, progress: &mut dyn FnMut(WriteStep)) -> Result<WriteReport, Error> {
    import_changed(options, None, progress)
}

pub(crate) fn import_changed(
    options: &ImportOptions,
    addition: Option<&Addition>,
    progress: &mut dyn FnMut(WriteStep),
) -> Result<WriteReport, Error> {
    let ImportOptions { source, out, choice, rules, imatrix, threads, dry_run } = *options;
    planned::check_out(&[&[source], imatrix.as_slice()].concat(), out)?;
    if source.is_file() && !hf::is_apr(source) {
        return Err(Error::file(source, "is a file, and a checkpoint is a folder; `quantize` takes GGUF files"));
    }
    let is_apr = planned::is_apr_name(out);
    if is_apr {
        check_apr(out, choice, imatrix)?;
    }
    let folder = hf::read(source, true)?;
    let files = metadata::SmallFiles::of(&folder)?;
    let texts = if is_apr { apr::texts(&folder) } else { Default::default() };
    let mut model = hf::load(folder)?;
    if let Some(Addition { adapter, scale }) = addition {
        adapter.add_to(&mut model, *scale)?;
    }
    let choice = choice.unwrap_or(FormatChoice::Mixture(match model.embed.format() {
        Some(Format::F32) => Mixture::F32,
        Some(Format::F16) => Mixture::F16,
        _ => Mixture::BF16,
    }));
    let mut tensors = tensors::plan(&model);
    let mut head = match is_apr {
        false => FileHead::Gguf(metadata::of(&model, &files, source)?),
        true => {
            tensors = apr::plan(source, &model, &tensors, addition)?;
            FileHead::Apr(apr::metadata(&model, &files, texts))
        }
    };
    let imatrix = imatrix.map(Imatrix::read).transpose()?;
    let wanted = Wanted { choice, rules, imatrix: imatrix.as_ref(), threads };
    let mut notes = model.notes.clone();
    notes.extend(deciding::decide(&mut tensors, &wanted, of_model(&model.shape), &mut head, source, progress)?);
    let mut report = planned::report(&tensors, notes);
    if !dry_run {
        let check = |written: &Path| check(written, &model, is_apr);
        report.bytes = planned::write(&tensors, (source, out), &head, threads, check, progress)?;
    }
    Ok(report)
}

fn check_apr(out: &Path, choice: Option<FormatChoice>, imatrix: Option<&Path>) -> Result<(), Error> {
    if let Some(FormatChoice::Mixture(mixture)) = choice
        && number_of(mixture.base()).is_none()
    {
        return Err(Error::file(out, format!("an APR file has no type {}: {TYPES}", mixture.name())));
    }
    match imatrix {
        Some(_) => {
            Err(Error::file(out, "an importance matrix is in GGUF's order of columns: quantise to a GGUF file with it"))
        }
        None => Ok(()),
    }
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
fn check(written: &Path, model: &ModelWeights, is_apr: bool) -> Result<(), Error> {
    let again = if is_apr { hf::open(written, true)? } else { gguf::open(written, true)? };
    let mut expected = model.shape.clone();
    if !is_apr {
        expected.value_head_order = HeadOrder::Tiled;
        expected.rope.theta = f64::from(expected.rope.theta as f32);
    }
    if again.shape != expected || again.stop_tokens != model.stop_tokens {
        let what = format!("does not read as the same model: {:?}, expected {expected:?}", again.shape);
        return Err(Error::file(written, what));
    }
    Ok(())
}
