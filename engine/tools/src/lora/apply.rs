//! A model with an adapter merged into its matrices.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kernels::cpu::Cpu;
use serde::Serialize;
use serde_json::Value;
use weights::gguf::GgufFile;
use weights::{Adapter, FileTensor, HeadOrder, LowRank};

use super::svd::multiply;
use super::{BASE_KEY, BASE_MARK, is_of_other_base};
use crate::Error;
use crate::import::{self, ImportOptions};
use crate::new_folder::NewFolder;
use crate::planned::{self, OutForm, WriteReport, WriteStep};
use crate::quantize;
use crate::safetensors_writer::{NewTensor, TensorSink, write_safetensors};
use crate::target::{Addition, modules_of};
use crate::tensor_source::{SourceForm, TensorSource, count_of, plain_format_of, read};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdapterMergeReport {
    pub modules: usize,
    pub tensors: usize,
    pub bytes: u64,
    pub notes: Vec<String>,
}

pub struct AdapterMerge {
    base: TensorSource,
    adapter: Adapter,
    scale: f32,
    layers: usize, // before the block for prediction
    tensors: Vec<NewTensor>,
}

impl AdapterMerge {
    /// Opens both. `any_base`: also an adapter that was extracted from another base.
    pub fn new(base: &Path, adapter: &Path, scale: f32, any_base: bool) -> Result<AdapterMerge, Error> {
        let (base, mut adapter) = (TensorSource::open(base)?, Adapter::open(adapter)?);
        let mut layers = usize::MAX;
        if adapter.order == HeadOrder::Tiled || base.form == SourceForm::Gguf {
            let shape = weights::contents(&base.path, true)?.shape?;
            layers = shape.layers.len();
            adapter.reorder(&shape);
        }
        let wrong = |what: String| Err(Error::file(&adapter.path, what));
        if !any_base && base_of(&adapter.path)?.is_some_and(|mark| is_of_other_base(&mark, &base)) {
            let what = "was extracted from another base than {}; with --any-base it is merged all the same";
            return wrong(what.replace("{}", &base.path.display().to_string()));
        }
        let mut unused: BTreeSet<&String> = adapter.modules.keys().collect();
        let mut tensors = Vec::new();
        for (name, tensor) in &base.tensors {
            let modules = modules_of(name, &tensor.dims, layers);
            for (module, LowRank { rank, a, b, .. }) in modules.iter().filter_map(|m| adapter.modules.get_key_value(m))
            {
                let expected = [b.len() / rank, a.len() / rank];
                let (cols, rows) =
                    tensor.dims.split_last().map_or((0, 0), |(cols, rows)| (*cols, rows.iter().product()));
                let found = [rows / modules.len(), cols];
                if found != expected || tensor.dims.len() < 2 {
                    let what = format!("changes '{name}' as {expected:?}, and the base has it as {found:?}");
                    return wrong(format!("{what}: it is for another base"));
                }
                unused.remove(module);
            }
            tensors.push(NewTensor { name: name.clone(), format: plain_format_of(tensor)?, dims: tensor.dims.clone() });
        }
        if let Some(module) = unused.first() {
            let what = format!("changes the module '{module}', which {} has not", base.path.display());
            return wrong(format!("{what}: it is for another base"));
        }
        Ok(AdapterMerge { tensors, scale, base, adapter, layers })
    }

    pub fn modules(&self) -> usize {
        self.adapter.modules.len()
    }

    /// Returns the bytes of the base's tensors, which are about those of what is written.
    pub fn bytes(&self) -> u64 {
        self.base.tensors.values().map(|tensor| tensor.data.len() as u64).sum()
    }

    /// Writes the merged model, as a folder or as a file of the form that the name tells. `progress` hears (bytes written, bytes in
    /// all).
    pub fn run(
        self,
        out: &Path,
        threads: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<AdapterMergeReport, Error> {
        planned::check_free(out)?;
        let addition = Addition { adapter: &self.adapter, scale: self.scale };
        let source = &self.base.path;
        let mut written = |step| {
            if let WriteStep::Written(done, all) = step {
                progress(done, all);
            }
        };
        let report = match (self.base.form, OutForm::of(out)) {
            (SourceForm::Gguf, OutForm::Gguf) => quantize::change(source, out, &addition, threads, &mut written)?,
            (SourceForm::Gguf, _) => {
                return Err(Error::file(out, "a GGUF file is merged into a GGUF file: give a name that ends in .gguf"));
            }
            (SourceForm::Checkpoint, OutForm::Folder) => return self.write_folder(out, threads, progress),
            (SourceForm::Checkpoint, OutForm::Gguf | OutForm::Apr) => {
                let options = ImportOptions {
                    source,
                    out,
                    choice: None,
                    rules: &[],
                    imatrix: None,
                    threads: planned::threads(threads),
                    dry_run: false,
                };
                import::import_changed(&options, Some(&addition), &mut written)?
            }
        };
        let WriteReport { bytes, tensors, notes, .. } = report;
        Ok(AdapterMergeReport { modules: self.adapter.modules.len(), tensors: tensors.len(), bytes, notes })
    }

    fn write_folder(
        &self,
        out: &Path,
        threads: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<AdapterMergeReport, Error> {
        let total = self.tensors.iter().map(NewTensor::bytes).sum();
        let new = NewFolder::create(out, total)?;
        new.copy_texts(&self.base.path)?;
        let cpu = Cpu::new(threads);
        let mut written = 0;
        let bytes = write_safetensors(new.path(), "model", &self.tensors, &mut |new, sink| {
            let tensor = &self.base.tensors[&new.name];
            self.write_tensor(&cpu, tensor, new, sink)?;
            tensor.data.let_go();
            written += new.bytes();
            progress(written, total);
            Ok(())
        })?;
        new.finish()?;
        let (modules, tensors) = (self.adapter.modules.len(), self.tensors.len());
        Ok(AdapterMergeReport { modules, tensors, bytes, notes: Vec::new() })
    }

    fn write_tensor(
        &self,
        cpu: &Cpu,
        tensor: &FileTensor,
        new: &NewTensor,
        sink: &mut TensorSink,
    ) -> Result<(), Error> {
        let modules = modules_of(&tensor.name, &tensor.dims, self.layers);
        let is_changed = modules.iter().any(|module| self.adapter.modules.contains_key(module));
        if !is_changed && tensor.format == Some(new.format) {
            return sink.bytes(&tensor.data);
        }
        let (cols, all) = (tensor.dims.last().copied().unwrap_or(1), count_of(tensor));
        let rows = all / cols / modules.len();
        for (at, module) in modules.iter().enumerate() {
            let first = at * rows;
            let change = self.adapter.modules.get(module);
            write_rows(cpu, tensor, first..first + rows, cols, change, self.scale, sink)?;
        }
        Ok(())
    }
}

/// Writes W + scale · B A, some rows at a time.
fn write_rows(
    cpu: &Cpu,
    tensor: &FileTensor,
    rows: std::ops::Range<usize>,
    cols: usize,
    change: Option<&LowRank>,
    scale: f32,
    sink: &mut TensorSink,
) -> Result<(), Error> {
    const ROWS: usize = 256;
    let transposed = |LowRank { rank, a, .. }: &LowRank| -> Vec<u8> {
        (0..cols).flat_map(|col| (0..*rank).flat_map(move |k| a[k * cols + col].to_le_bytes())).collect()
    };
    let transposed = change.map(transposed).unwrap_or_default();
    let mut values = Vec::new();
    for first in rows.clone().step_by(ROWS) {
        let last = rows.end.min(first + ROWS);
        read(tensor, first * cols..last * cols, &mut values)?;
        if let Some(LowRank { rank, b, scale: own, .. }) = change {
            let b = &b[(first - rows.start) * rank..(last - rows.start) * rank];
            let added = multiply(cpu, b, last - first, &transposed, cols, *rank);
            values.iter_mut().zip(added).for_each(|(value, added)| *value += scale * own * added);
        }
        sink.values(&values)?;
    }
    Ok(())
}

/// Reads the mark of the base of an extracted adapter. None: it has none, as adapters of other programs.
fn base_of(adapter: &Path) -> Result<Option<String>, Error> {
    if adapter.is_file() {
        return Ok(GgufFile::open(adapter, true)?.text(BASE_KEY)?.map(str::to_owned));
    }
    let path: PathBuf = adapter.join(BASE_MARK);
    if !path.exists() {
        return Ok(None);
    }
    let bytes = std::fs::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    let parsed: Option<Value> = serde_json::from_slice(&bytes).ok();
    let mark = parsed.as_ref().and_then(|json| json.get("base")?.as_str());
    mark.map(|mark| Some(mark.to_owned())).ok_or_else(|| Error::file(&path, "is damaged: it has no text 'base'"))
}
