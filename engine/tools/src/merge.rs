//! Merges models of one shape, as mergekit does: its recipes are read as they are for these methods. Tensors are read in
//! pieces, so that models may be larger than memory.

mod gguf;
mod methods;
mod recipe;
mod setting;
mod torch_random;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kernels::format::Format;
use serde::Serialize;
use serde_json::Value;
use weights::FileTensor;

use crate::Error;
use crate::import::{self, ImportOptions};
use crate::mixture::is_matrix;
use crate::new_folder::NewFolder;
use crate::planned::{self, OutForm, WriteStep};
use crate::safetensors_writer::{NewTensor, write_safetensors};
use crate::tensor_source::{SourceForm, TensorSource, count_of, format_of, is_optional, plain_format_of, read_all};
use methods::{MergeInput, TensorMerge};
pub use recipe::MergeMethod;
use recipe::Recipe;
use setting::TensorPlace;
use torch_random::TorchRandom;

#[derive(Debug, Clone)]
pub struct MergeOptions {
    pub recipe: PathBuf,
    pub method: Option<MergeMethod>,
    pub out: PathBuf,
    pub seed: u64, // of the values that DARE drops
    /// Folders where models are looked for, behind the recipe's own.
    pub search: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MergeReport {
    pub method: &'static str,
    pub models: Vec<PathBuf>,
    pub tensors: usize,
    pub bytes: u64,
    pub notes: Vec<String>, // parts that were taken from one model as they are
}

/// Merge whose models are open and whose tensors fit together.
pub struct MergePlan {
    options: MergeOptions,
    recipe: Recipe,
    models: Vec<TensorSource>,
    /// Position of the base among the models. The merged model has its tensors and texts, or those of the first.
    base: Option<usize>,
    tensors: Vec<NewTensor>,
    jobs: Vec<Job>,
    notes: Vec<String>,
}

/// A tensor's work: what is taken as it is, or merged.
enum Job {
    Copy,
    Merge(TensorMerge),
}

/// Part of a tensor on its way into a file.
enum Written<'a> {
    Values(&'a [f32]),
    /// Whole tensor that is taken as it is.
    Bytes(&'a [u8]),
}

/// Merge that goes on, tensor after tensor in the order of the plan.
struct Work<'a> {
    plan: &'a MergePlan,
    jobs: std::slice::Iter<'a, Job>,
    random: TorchRandom,
    written: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Work<'_> {
    fn next(&mut self, tensor: &NewTensor, out: &mut dyn FnMut(Written<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let from = &self.plan.reference().tensors[&tensor.name];
        match self.jobs.next() {
            Some(Job::Merge(merge)) => merge.run(&mut self.random, &mut |values| {
                self.written += values.len() as u64 * tensor.bytes() / tensor.values().max(1);
                (self.progress)(self.written, self.total);
                out(Written::Values(values))
            })?,
            Some(Job::Copy) | None => {
                self.written += tensor.bytes();
                (self.progress)(self.written, self.total);
                match from.format == Some(tensor.format) {
                    true => out(Written::Bytes(&from.data))?,
                    false => out(Written::Values(&read_all(from)?))?,
                }
            }
        }
        from.data.let_go();
        Ok(())
    }
}

impl MergePlan {
    pub fn new(options: MergeOptions) -> Result<MergePlan, Error> {
        let recipe = Recipe::read(&options.recipe, options.method)?;
        let mut models: Vec<TensorSource> = Vec::new();
        for source in &recipe.models {
            let model = TensorSource::open(&find(&source.name, &options))?;
            if let Some(first) = models.first() {
                first.check_form(&model)?;
            }
            models.push(model);
        }
        let is_gguf = models.first().is_some_and(|model| model.form == SourceForm::Gguf);
        if is_gguf && OutForm::of(&options.out) != OutForm::Gguf {
            let what = "GGUF files are merged into a GGUF file: give a name that ends in .gguf";
            return Err(Error::file(&options.out, what));
        }
        let base = recipe.base;
        let mut plan = MergePlan { options, recipe, models, base, tensors: vec![], jobs: vec![], notes: vec![] };
        plan.add_tensors()?;
        Ok(plan)
    }

    pub fn models(&self) -> impl Iterator<Item = &Path> {
        self.models.iter().map(|model| model.path.as_path())
    }

    pub fn tensors(&self) -> usize {
        self.tensors.len()
    }

    pub fn method(&self) -> MergeMethod {
        self.recipe.method
    }
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(NewTensor::bytes).sum()
    }

    /// Writes the merged model, as a folder or as a file of the form that the name tells. `progress` hears (bytes written, bytes in
    /// all).
    pub fn run(self, progress: &mut dyn FnMut(u64, u64)) -> Result<MergeReport, Error> {
        let out = &self.options.out;
        planned::check_free(out)?;
        let bytes = match (self.reference().form, OutForm::of(out)) {
            (SourceForm::Gguf, _) => gguf::write(&self, progress)?,
            (SourceForm::Checkpoint, OutForm::Folder) => {
                let new = NewFolder::create(out, self.bytes())?;
                let bytes = self.write_folder(&new, progress)?;
                new.finish()?;
                bytes
            }
            (SourceForm::Checkpoint, OutForm::Gguf | OutForm::Apr) => {
                let scratch = NewFolder::scratch(out, 2 * self.bytes())?;
                self.write_folder(&scratch, progress)?;
                let options = ImportOptions {
                    source: scratch.path(),
                    out,
                    choice: None,
                    rules: &[],
                    imatrix: None,
                    threads: planned::threads(0),
                    dry_run: false,
                };
                let mut written = |step| {
                    if let WriteStep::Written(done, all) = step {
                        progress(done, all);
                    }
                };
                import::import(&options, &mut written)?.bytes
            }
        };
        let MergePlan { recipe, models, tensors, notes, .. } = self;
        Ok(MergeReport {
            method: recipe.method.name(),
            models: models.iter().map(|model| model.path.clone()).collect(),
            tensors: tensors.len(),
            bytes,
            notes,
        })
    }

    /// Returns the model whose tensors and texts the merged one has.
    fn reference(&self) -> &TensorSource {
        &self.models[self.base.unwrap_or(0)]
    }

    fn write_folder(&self, new: &NewFolder, progress: &mut dyn FnMut(u64, u64)) -> Result<u64, Error> {
        let reference = self.reference();
        new.copy_texts(&reference.path)?;
        if let Some(format) = self.recipe.out_format {
            write_dtype(new, format)?;
        }
        new.write("mergekit_config.yml", &self.recipe.text)?;
        let mut work = self.work(progress);
        write_safetensors(new.path(), "model", &self.tensors, &mut |tensor, sink| {
            work.next(tensor, &mut |written| match written {
                Written::Values(values) => sink.values(values),
                Written::Bytes(bytes) => sink.bytes(bytes),
            })
        })
    }

    fn work<'a>(&'a self, progress: &'a mut dyn FnMut(u64, u64)) -> Work<'a> {
        // One generator for all tensors in the order of their names, as mergekit draws for models of one file each.
        let random = TorchRandom::new(self.options.seed);
        Work { plan: self, jobs: self.jobs.iter(), random, written: 0, total: self.bytes(), progress }
    }

    fn add_tensors(&mut self) -> Result<(), Error> {
        // Not `reference()`: the plan's other parts grow meanwhile.
        let reference = &self.models[self.base.unwrap_or(0)];
        let is_gguf = reference.form == SourceForm::Gguf;
        let mut left_out = BTreeSet::new();
        for model in &self.models {
            for name in model.tensors.keys().filter(|name| !reference.tensors.contains_key(*name)) {
                if !is_optional(name) {
                    let what = format!("has the tensor '{name}', which {} has not", reference.path.display());
                    return Err(Error::file(&model.path, what));
                }
                left_out.insert(name);
            }
        }
        if !left_out.is_empty() {
            let from = reference.path.display();
            self.notes.push(format!("{} tensors that {from} has not are left out", left_out.len()));
        }
        let layers = match is_gguf {
            true => weights::contents(&reference.path, true)?.shape?.layers.len(),
            false => reference.tensors.keys().filter_map(|name| layer_of(name)).max().map_or(0, |last| last + 1),
        };
        self.recipe.check_layers(layers)?;
        let mut copied = 0;
        for (name, tensor) in &reference.tensors {
            let has = |model: &TensorSource| model.tensors.contains_key(name);
            let own = if is_gguf { format_of(tensor)? } else { plain_format_of(tensor)? };
            let inner_first: Vec<u64> = tensor.dims.iter().rev().map(|&dim| dim as u64).collect();
            let takes_dtype = !is_gguf || is_matrix(name, &inner_first);
            let wanted = self.recipe.out_format.filter(|_| takes_dtype).unwrap_or(own);
            let (job, format) = if is_optional(name) && !self.models.iter().all(has) {
                copied += 1;
                (Job::Copy, own)
            } else {
                // Recipes name tensors as checkpoints do.
                let in_folder = weights::name_in_folder(name).unwrap_or_else(|| name.clone());
                let at = layer_of(name).map_or(0.0, |layer| position(layer, layers));
                (Job::Merge(self.merge_of(tensor, &TensorPlace { tensor: &in_folder, at })?), wanted)
            };
            self.jobs.push(job);
            self.tensors.push(NewTensor { name: name.clone(), format, dims: tensor.dims.clone() });
        }
        if copied > 0 {
            let from = reference.path.display();
            self.notes.push(format!("{copied} tensors that not all models have are taken from {from}"));
        }
        Ok(())
    }

    fn merge_of(&self, like: &FileTensor, place: &TensorPlace) -> Result<TensorMerge, Error> {
        let mut inputs = Vec::new();
        for (index, (model, source)) in self.models.iter().zip(&self.recipe.models).enumerate() {
            let tensor = model.tensor_like(like)?.clone();
            format_of(&tensor)?;
            if Some(index) == self.base && self.recipe.method.takes_differences() {
                continue;
            }
            let (weight, density) = self.recipe.weight_and_density(source, place)?;
            inputs.push(MergeInput { tensor, weight, density });
        }
        let base = match (self.base, self.recipe.method.takes_differences()) {
            (Some(base), true) => Some(self.models[base].tensor_like(like)?.clone()),
            _ => None,
        };
        let tensor = TensorMerge {
            method: self.recipe.method,
            count: count_of(like),
            base,
            inputs,
            options: self.recipe.options(place)?,
        };
        tensor.check().map_err(|what| Error::file(&self.options.recipe, format!("tensor '{}': {what}", like.name)))?;
        Ok(tensor)
    }
}

/// Returns the place of a model: the path itself, below the recipe's folder, or below one of the folders to search.
fn find(name: &str, options: &MergeOptions) -> PathBuf {
    let own = options.recipe.parent().unwrap_or(Path::new(""));
    let places = [own, Path::new("")].into_iter().chain(options.search.iter().map(PathBuf::as_path));
    let mut places = places.map(|folder| folder.join(name));
    places.find(|place| place.exists()).unwrap_or_else(|| PathBuf::from(name))
}
fn layer_of(name: &str) -> Option<usize> {
    let module = weights::module_of(name);
    let layer = ["layers.", "blk."].iter().find_map(|before| module.strip_prefix(before))?;
    layer.split('.').next()?.parse().ok()
}

/// Returns how far through the model a layer is: 0 for the first, 1 for the last.
fn position(layer: usize, layers: usize) -> f64 {
    if layers > 1 { (layer as f64 / (layers - 1) as f64).min(1.0) } else { 1.0 }
}
fn write_dtype(new: &NewFolder, format: Format) -> Result<(), Error> {
    let path = new.path().join("config.json");
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(()) };
    let parsed: Result<Value, _> = serde_json::from_str(&text);
    let mut config = parsed.map_err(|error| Error::file(&path, format!("is not valid JSON: {error}")))?;
    let name = recipe::dtype_name(format);
    let places = [config.get("text_config").is_some().then_some("/text_config"), Some("")];
    for place in places.into_iter().flatten() {
        if let Some(Value::Object(map)) = config.pointer_mut(place) {
            let key = if map.contains_key("torch_dtype") { "torch_dtype" } else { "dtype" };
            map.insert(key.to_owned(), name.into());
        }
    }
    new.write("config.json", &format!("{config:#}\n"))
}
