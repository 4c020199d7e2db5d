//! Merges models of one shape, as mergekit does: its recipes are read as they are for these methods. Tensors are read in
//! pieces, so that models may be larger than memory.

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
use crate::model_folder::{ModelFolder, count_of, format_of, is_optional};
use crate::new_folder::NewFolder;
use crate::safetensors_writer::{NewTensor, write_safetensors};
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
    /// Seed of the values that DARE drops.
    pub seed: u64,
    /// Folders where models are looked for, behind the recipe's own.
    pub search: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MergeReport {
    pub method: &'static str,
    pub models: Vec<PathBuf>,
    pub tensors: usize,
    pub bytes: u64,
    /// Parts that were taken from one model as they are.
    pub notes: Vec<String>,
}

/// Merge whose models are open and whose tensors fit together.
pub struct MergePlan {
    options: MergeOptions,
    recipe: Recipe,
    models: Vec<ModelFolder>,
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

impl MergePlan {
    pub fn new(options: MergeOptions) -> Result<MergePlan, Error> {
        if options.out.extension().is_some_and(|extension| extension == "gguf" || extension == "apr") {
            let what = "a merge is written as a folder of safetensors: make a file of that with `reprise import`";
            return Err(Error::file(&options.out, what));
        }
        let recipe = Recipe::read(&options.recipe, options.method)?;
        let mut models = Vec::new();
        for source in &recipe.models {
            models.push(ModelFolder::open(&find(&source.name, &options))?);
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

    /// Writes the merged model. `progress` hears (bytes written, bytes in all).
    pub fn run(self, progress: &mut dyn FnMut(u64, u64)) -> Result<MergeReport, Error> {
        let total = self.bytes();
        let MergePlan { options, recipe, models, base, tensors, jobs, notes } = self;
        let new = NewFolder::create(&options.out, total)?;
        let reference = &models[base.unwrap_or(0)];
        new.copy_texts(&reference.path)?;
        if let Some(format) = recipe.out_format {
            write_dtype(&new, &reference.path, format)?;
        }
        new.write("mergekit_config.yml", &recipe.text)?;
        let mut jobs = jobs.into_iter();
        // One generator for all tensors in the order of their names, as mergekit draws for models of one file each.
        let mut random = TorchRandom::new(options.seed);
        let mut written = 0;
        let bytes = write_safetensors(new.path(), "model", &tensors, &mut |tensor, sink| {
            let from = &reference.tensors[&tensor.name];
            match jobs.next() {
                Some(Job::Merge(merge)) => merge.run(&mut random, &mut |values| {
                    written += (values.len() * tensor.format.block_bytes()) as u64;
                    progress(written, total);
                    sink.values(values)
                })?,
                Some(Job::Copy) | None => {
                    written += tensor.bytes();
                    progress(written, total);
                    sink.bytes(&from.data)?;
                }
            }
            from.data.let_go();
            Ok(())
        })?;
        new.finish()?;
        Ok(MergeReport {
            method: recipe.method.name(),
            models: models.iter().map(|model| model.path.clone()).collect(),
            tensors: tensors.len(),
            bytes,
            notes,
        })
    }

    fn add_tensors(&mut self) -> Result<(), Error> {
        let reference = &self.models[self.base.unwrap_or(0)];
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
        let layers = reference.tensors.keys().filter_map(|name| layer_of(name)).max().map_or(0, |last| last + 1);
        self.recipe.check_layers(layers)?;
        let mut copied = 0;
        for (name, tensor) in &reference.tensors {
            let has = |model: &ModelFolder| model.tensors.contains_key(name);
            let own = format_of(tensor)?;
            let (job, format) = if is_optional(name) && !self.models.iter().all(has) {
                copied += 1;
                (Job::Copy, own)
            } else {
                let place =
                    TensorPlace { tensor: name, at: layer_of(name).map_or(0.0, |layer| position(layer, layers)) };
                (Job::Merge(self.merge_of(tensor, &place)?), self.recipe.out_format.unwrap_or(own))
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
    weights::module_of(name).strip_prefix("layers.")?.split('.').next()?.parse().ok()
}

/// Returns how far through the model a layer is: 0 for the first, 1 for the last.
fn position(layer: usize, layers: usize) -> f64 {
    if layers > 1 { layer as f64 / (layers - 1) as f64 } else { 1.0 }
}
fn write_dtype(new: &NewFolder, from: &Path, format: Format) -> Result<(), Error> {
    let path = from.join("config.json");
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
