//! A model with an adapter merged into its matrices.

use std::path::{Path, PathBuf};

use kernels::cpu::Cpu;
use serde::Serialize;
use serde_json::Value;
use weights::gguf::GgufFile;
use weights::{Adapter, FileTensor, HeadOrder, LowRank, module_of};

use super::svd::multiply;
use super::{BASE_KEY, BASE_MARK, base_mark};
use crate::Error;
use crate::model_folder::{ModelFolder, format_of, read};
use crate::new_folder::NewFolder;
use crate::safetensors_writer::{NewTensor, TensorSink, write_safetensors};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdapterMergeReport {
    pub modules: usize,
    pub tensors: usize,
    pub bytes: u64,
}

pub struct AdapterMerge {
    base: ModelFolder,
    adapter: Adapter,
    scale: f32,
    tensors: Vec<NewTensor>,
}

impl AdapterMerge {
    /// Opens both. `any_base`: also an adapter that was extracted from another base.
    pub fn new(base: &Path, adapter: &Path, scale: f32, any_base: bool) -> Result<AdapterMerge, Error> {
        let (base, mut adapter) = (ModelFolder::open(base)?, Adapter::open(adapter)?);
        if adapter.order == HeadOrder::Tiled {
            adapter.reorder(&weights::contents(&base.path, true)?.shape?);
        }
        let wrong = |what: String| Err(Error::file(&adapter.path, what));
        if !any_base && base_of(&adapter.path)?.is_some_and(|mark| mark != base_mark(&base)) {
            let what = "was extracted from another base than {}; with --any-base it is merged all the same";
            return wrong(what.replace("{}", &base.path.display().to_string()));
        }
        let mut unused: Vec<&String> = adapter.modules.keys().collect();
        let mut tensors = Vec::new();
        for (name, tensor) in &base.tensors {
            let format = format_of(tensor)?;
            if let Some((module, LowRank { rank, a, b, .. })) = change_of(&adapter, tensor) {
                let expected = [b.len() / rank, a.len() / rank];
                if tensor.dims != expected {
                    let what = format!("changes '{name}' as {expected:?}, and the base has it as {:?}", tensor.dims);
                    return wrong(format!("{what}: it is for another base"));
                }
                unused.retain(|unused| *unused != module);
            }
            tensors.push(NewTensor { name: name.clone(), format, dims: tensor.dims.clone() });
        }
        if let Some(module) = unused.first() {
            let what = format!("changes the module '{module}', which {} has not", base.path.display());
            return wrong(format!("{what}: it is for another base"));
        }
        Ok(AdapterMerge { tensors, scale, base, adapter })
    }

    pub fn modules(&self) -> usize {
        self.adapter.modules.len()
    }

    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(NewTensor::bytes).sum()
    }

    /// Writes the merged model as a folder. `progress` hears (bytes written, bytes in all).
    pub fn run(
        self,
        out: &Path,
        threads: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<AdapterMergeReport, Error> {
        if out.extension().is_some_and(|extension| extension == "gguf" || extension == "apr") {
            let what = "a merge is written as a folder of safetensors: make a file of that with `reprise import`";
            return Err(Error::file(out, what));
        }
        let total = self.bytes();
        let new = NewFolder::create(out, total)?;
        new.copy_texts(&self.base.path)?;
        let cpu = Cpu::new(threads);
        let mut written = 0;
        let bytes = write_safetensors(new.path(), "model", &self.tensors, &mut |new, sink| {
            let tensor = &self.base.tensors[&new.name];
            match change_of(&self.adapter, tensor) {
                None => sink.bytes(&tensor.data)?,
                Some((_, change)) => merge(&cpu, tensor, change, self.scale, sink)?,
            }
            tensor.data.let_go();
            written += new.bytes();
            progress(written, total);
            Ok(())
        })?;
        new.finish()?;
        Ok(AdapterMergeReport { modules: self.adapter.modules.len(), tensors: self.tensors.len(), bytes })
    }
}

fn change_of<'a>(adapter: &'a Adapter, tensor: &FileTensor) -> Option<(&'a String, &'a LowRank)> {
    adapter.modules.get_key_value(module_of(tensor.name.strip_suffix(".weight")?))
}

/// Writes W + scale · B A, some rows at a time.
fn merge(cpu: &Cpu, tensor: &FileTensor, change: &LowRank, scale: f32, sink: &mut TensorSink) -> Result<(), Error> {
    const ROWS: usize = 256;
    let (rank, cols) = (change.rank, change.a.len() / change.rank);
    let transposed: Vec<u8> =
        (0..cols).flat_map(|col| (0..rank).flat_map(move |k| change.a[k * cols + col].to_le_bytes())).collect();
    let mut values = Vec::new();
    for (at, b) in change.b.chunks(ROWS * rank).enumerate() {
        let rows = b.len() / rank;
        let added = multiply(cpu, b, rows, &transposed, cols, rank);
        let begin = at * ROWS * cols;
        read(tensor, begin..begin + rows * cols, &mut values)?;
        values.iter_mut().zip(added).for_each(|(value, added)| *value += scale * change.scale * added);
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
