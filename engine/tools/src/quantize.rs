//! A model file to another with other types: a GGUF file keeps its keys, its names and their order.

use std::path::Path;

use weights::gguf::{self, GgufFile, GgufTensor};
use weights::{Matrix, ModelWeights, hf};

use crate::Error;
pub use crate::deciding::FormatChoice;
use crate::deciding::{self, Wanted};
use crate::file_head::FileHead;
use crate::gguf_writer::GgufValue;
use crate::imatrix::Imatrix;
use crate::import::{self, ImportOptions, of_model};
use crate::planned::{self, PlaceOrder, Planned, PlannedValues, again_note};
pub use crate::planned::{TensorChange, WriteReport, WriteStep};
use crate::target::{Addition, modules_of};
pub use crate::type_rule::TypeRule;

#[derive(Debug, Clone)]
pub struct QuantizeOptions<'a> {
    /// GGUF file, any part of a set, APR file, or a folder with safetensors.
    pub source: &'a Path,
    pub out: &'a Path,
    pub choice: FormatChoice,
    /// Formats of single tensors. The first rule that holds for a name counts.
    pub rules: &'a [TypeRule],
    pub imatrix: Option<&'a Path>,
    pub threads: usize,
    pub dry_run: bool,
}

/// Writes the model with other types to a GGUF file, which has its name only when it is whole.
pub fn quantize(options: &QuantizeOptions, progress: &mut dyn FnMut(WriteStep)) -> Result<WriteReport, Error> {
    let QuantizeOptions { source, out, choice, rules, imatrix, threads, dry_run } = *options;
    if source.is_dir() || hf::is_apr(source) {
        let options = ImportOptions { source, out, choice: Some(choice), rules, imatrix, threads, dry_run };
        return import::import(&options, progress);
    }
    planned::check_out(&[&[source], imatrix.as_slice()].concat(), out)?;
    if planned::is_apr_name(out) {
        let what = "an APR file is made of a checkpoint's folder or of another APR file; name a .gguf file";
        return Err(Error::file(out, what));
    }
    let model = gguf::open(source, true)?;
    let file = GgufFile::open(source, true)?;
    let imatrix = imatrix.map(Imatrix::read).transpose()?;
    let mut tensors = file.tensors.iter().map(|tensor| plan(source, tensor)).collect::<Result<Vec<_>, _>>()?;
    let wanted = Wanted { choice, rules, imatrix: imatrix.as_ref(), threads };
    let mut head = FileHead::Gguf(keys(&file, &wanted));
    let notes = deciding::decide(&mut tensors, &wanted, of_model(&model.shape), &mut head, source, progress)?;
    let mut report = planned::report(&tensors, notes);
    if !dry_run {
        let check = |written: &Path| check(written, &model, &file);
        report.bytes = planned::write(&tensors, (source, out), &head, threads, check, progress)?;
    }
    Ok(report)
}

/// Writes a GGUF file again with an adapter's changes in its matrices, each in its type.
pub(crate) fn change(
    source: &Path,
    out: &Path,
    addition: &Addition,
    threads: usize,
    progress: &mut dyn FnMut(WriteStep),
) -> Result<WriteReport, Error> {
    let model = gguf::open(source, true)?;
    let file = GgufFile::open(source, true)?;
    let layers = model.shape.layers.len();
    let (mut tensors, mut again) = (Vec::new(), 0);
    for tensor in &file.tensors {
        let mut planned = plan(source, tensor)?;
        let dims: Vec<usize> = tensor.dims.iter().rev().map(|&dim| dim as usize).collect();
        if let PlannedValues::Matrices { stack, .. } = &mut planned.values {
            let modules = modules_of(&tensor.name, &dims, layers);
            let parts = stack.first().and_then(|whole| addition.to(&modules, whole));
            *stack =
                parts.ok_or_else(|| Error::tensor(source, &tensor.name, "the adapter's change has other sizes"))?;
            let is_changed = stack.iter().any(|part| part.low_rank().is_some());
            again += usize::from(is_changed && planned.format.is_quantised());
        }
        tensors.push(planned);
    }
    let head = FileHead::Gguf(kept_keys(&file));
    let mut report = planned::report(&tensors, (again > 0).then(|| again_note(again)).into_iter().collect());
    let check = |written: &Path| check(written, &model, &file);
    report.bytes = planned::write(&tensors, (source, out), &head, planned::threads(threads), check, progress)?;
    Ok(report)
}

/// Returns a file's keys, but for those that say how it is laid out.
pub(crate) fn kept_keys(file: &GgufFile) -> Vec<(String, GgufValue)> {
    let is_kept = |key: &str| key != "general.alignment" && !key.starts_with("split.");
    let kept = file.keys.iter().filter(|(key, _)| is_kept(key));
    kept.map(|(key, value)| (key.clone(), GgufValue::Copied(value.to_vec()))).collect()
}

fn plan(source: &Path, tensor: &GgufTensor) -> Result<Planned, Error> {
    let GgufTensor { name, dims, format, type_name, data } = tensor;
    let wrong = |what: String| Error::tensor(source, name, what);
    let format = format.ok_or_else(|| wrong(format!("the type {type_name} cannot be read")))?;
    let (cols, all_rows) = (dims[0] as usize, dims[1..].iter().product::<u64>() as usize);
    let matrix = Matrix::of_blocks(format, all_rows, cols, data.clone());
    let matrix = matrix.ok_or_else(|| wrong(format!("its bytes are not those of {dims:?} values")))?;
    let values = PlannedValues::Matrices { stack: vec![matrix], rows: PlaceOrder::Kept, cols: PlaceOrder::Kept };
    Ok(Planned::new(name.clone(), dims.clone(), values))
}

/// Returns the file's own keys, but for those that say how it was quantised and laid out.
fn keys(file: &GgufFile, wanted: &Wanted) -> Vec<(String, GgufValue)> {
    let is_kept = |key: &str| {
        let replaced = ["general.file_type", "general.quantization_version"];
        !replaced.contains(&key) && !key.starts_with("quantize.imatrix.")
    };
    let mut keys: Vec<_> = kept_keys(file).into_iter().filter(|(key, _)| is_kept(key)).collect();
    let mut add = |key: &str, value: GgufValue| keys.push((key.to_string(), value));
    add("general.quantization_version", GgufValue::U32(2));
    // Overwritten when the types are decided.
    add("general.file_type", GgufValue::U32(0));
    if let Some(imatrix) = wanted.imatrix {
        let name = imatrix.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        add("quantize.imatrix.file", GgufValue::Text(name));
        add("quantize.imatrix.dataset", GgufValue::Text(imatrix.datasets.join(", ")));
        add("quantize.imatrix.entries_count", GgufValue::U32(imatrix.entries.len() as u32));
        add("quantize.imatrix.chunks_count", GgufValue::U32(imatrix.chunk_count));
    }
    keys
}

/// Checks that the written file is read as the same model.
fn check(written: &Path, model: &ModelWeights, file: &GgufFile) -> Result<(), Error> {
    let again = gguf::open(written, true)?;
    let mut expected = model.shape.clone();
    // A block for prediction may have come from a file beside the source.
    expected.mtp_blocks = again.shape.mtp_blocks;
    if again.shape != expected || GgufFile::open(written, true)?.tensors.len() != file.tensors.len() {
        return Err(Error::file(written, format!("does not read as the same model: {:?}", again.shape)));
    }
    Ok(())
}
