//! Recipes of mergekit: which models, by which method, with which numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kernels::format::Format;
use serde::Deserialize;
use serde_json::Value;

use super::setting::{self, TensorPlace};
use crate::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeMethod {
    Linear,
    Task,
    Ties,
    Dare,
    DareTies,
    Slerp,
}

/// One line a method: (method, name, name in recipes).
const METHODS: [(MergeMethod, &str, &str); 6] = [
    (MergeMethod::Linear, "linear", "linear"),
    (MergeMethod::Task, "task", "task_arithmetic"),
    (MergeMethod::Ties, "ties", "ties"),
    (MergeMethod::Dare, "dare", "dare_linear"),
    (MergeMethod::DareTies, "dare_ties", "dare_ties"),
    (MergeMethod::Slerp, "slerp", "slerp"),
];

impl MergeMethod {
    pub fn from_name(name: &str) -> Option<MergeMethod> {
        METHODS.iter().find(|row| row.1 == name || row.2 == name).map(|row| row.0)
    }

    pub fn name(self) -> &'static str {
        METHODS[self as usize].1
    }

    pub fn names() -> String {
        METHODS.map(|row| row.1).join(", ")
    }
    pub fn takes_differences(self) -> bool {
        !matches!(self, MergeMethod::Linear | MergeMethod::Slerp)
    }

    fn needs_base(self) -> bool {
        self != MergeMethod::Linear
    }
}

#[derive(Debug)]
pub struct Recipe {
    pub text: String,
    pub method: MergeMethod,
    pub models: Vec<RecipeModel>,
    pub base: Option<usize>,
    pub out_format: Option<Format>,
    path: PathBuf,
    parameters: Parameters,
    of_slice: Parameters,
}

#[derive(Debug)]
pub struct RecipeModel {
    pub name: String,
    parameters: Parameters,
    layers: Option<(usize, usize)>,
}

/// Numbers of a method that are the same for all models.
pub struct MergeSwitches {
    pub normalize: bool,
    /// Makes up for dropped values: their sum stays the same.
    pub rescale: bool,
    pub lambda: f32,
    pub t: f64,
}

type Parameters = BTreeMap<String, Value>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    merge_method: Option<String>,
    base_model: Option<Value>,
    models: Option<Vec<WrittenModel>>,
    slices: Option<Vec<WrittenSlice>>,
    parameters: Option<Parameters>,
    dtype: Option<String>,
    out_dtype: Option<String>,
    tokenizer_source: Option<Value>,
    tokenizer: Option<Value>,
    chat_template: Option<Value>,
    modules: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenModel {
    model: Value,
    parameters: Option<Parameters>,
    layer_range: Option<(usize, usize)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSlice {
    sources: Vec<WrittenModel>,
    base_model: Option<Value>,
    parameters: Option<Parameters>,
}
const RECIPE_BYTES: u64 = 1 << 20;

impl Recipe {
    pub fn read(path: &Path, method: Option<MergeMethod>) -> Result<Recipe, Error> {
        let io = |source| Error::Io { path: path.to_path_buf(), source };
        if std::fs::metadata(path).map_err(io)?.len() > RECIPE_BYTES {
            return Err(Error::file(path, format!("has more than {RECIPE_BYTES} bytes: that is no recipe")));
        }
        let text = std::fs::read_to_string(path).map_err(io)?;
        Recipe::parse(path, text, method)
    }

    fn parse(path: &Path, text: String, method: Option<MergeMethod>) -> Result<Recipe, Error> {
        let wrong = |what: String| Error::file(path, what);
        let written: Written =
            serde_saphyr::from_str(&text).map_err(|error| wrong(format!("is no recipe: {error}")))?;
        let named = |name: &str| {
            let what = format!("merge_method '{name}' is not known here; known are {}", MergeMethod::names());
            MergeMethod::from_name(name).ok_or_else(|| wrong(what))
        };
        let own = written.merge_method.as_deref().map(named).transpose()?;
        let method = method.or(own).ok_or_else(|| wrong("has no merge_method: write one, or give --method".into()))?;
        for (key, value) in
            [("modules", written.modules), ("tokenizer", written.tokenizer), ("chat_template", written.chat_template)]
        {
            if value.is_some_and(|value| !value.is_null()) {
                return Err(wrong(format!("'{key}' is not supported: the merged model has the base's tokenizer")));
            }
        }
        let base_name = written.base_model.map(|name| model_name(path, "base_model", &name)).transpose()?;
        let (written_models, of_slice, base_of_slice) = match (written.models, written.slices) {
            (Some(models), None) => (models, None, None),
            (None, Some(slices)) => {
                let count = slices.len();
                let Ok([slice]) = <[WrittenSlice; 1]>::try_from(slices) else {
                    return Err(wrong(format!("has {count} slices; models are merged whole, so there is one")));
                };
                (slice.sources, slice.parameters, slice.base_model)
            }
            _ => return Err(wrong("has to have either 'models' or 'slices'".into())),
        };
        let base_of_slice = base_of_slice.map(|name| model_name(path, "base_model", &name)).transpose()?;
        let base_name = base_of_slice.or(base_name);
        let mut models = Vec::new();
        for WrittenModel { model, parameters, layer_range } in written_models {
            let name = model_name(path, "model", &model)?;
            models.push(RecipeModel { name, parameters: parameters.unwrap_or_default(), layers: layer_range });
        }
        if let Some(name) = base_name.as_ref().filter(|name| models.iter().all(|model| model.name != **name)) {
            // A linear merge has no base: a name alone would be an input without a weight.
            if method == MergeMethod::Linear {
                return Err(wrong("'base_model' has to be one of the models of a linear merge".into()));
            }
            models.push(RecipeModel { name: name.clone(), parameters: Parameters::new(), layers: None });
        }
        let base = base_name.and_then(|name| models.iter().position(|model| model.name == name));
        let recipe = Recipe {
            method,
            base,
            out_format: written.out_dtype.or(written.dtype).map(|name| format_named(path, &name)).transpose()?,
            path: path.to_path_buf(),
            parameters: written.parameters.unwrap_or_default(),
            of_slice: of_slice.unwrap_or_default(),
            models,
            text,
        };
        recipe.check(written.tokenizer_source)?;
        Ok(recipe)
    }

    fn check(&self, tokenizer_source: Option<Value>) -> Result<(), Error> {
        let wrong = |what: String| Error::file(&self.path, what);
        let count = self.models.len();
        let base_name = self.base.map(|base| self.models[base].name.as_str());
        if self.method.needs_base() && self.base.is_none() {
            return Err(wrong(format!("has no base_model, which the method {} needs", self.method.name())));
        }
        if self.method == MergeMethod::Slerp && count != 2 {
            return Err(wrong(format!("slerp is between the base and one other model, and there are {count} models")));
        }
        if count < 2 {
            return Err(wrong("has to have two models or more".into()));
        }
        let names: Vec<&str> = self.models.iter().map(|model| model.name.as_str()).collect();
        if let Some(name) =
            names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| name)
        {
            return Err(wrong(format!("has the model '{name}' twice")));
        }
        match tokenizer_source.as_ref().filter(|value| !value.is_null()).map(|value| (value, value.as_str())) {
            None => {}
            Some((_, Some(name))) if name == "base" || Some(name) == base_name.or(names.first().copied()) => {}
            Some((value, _)) => {
                return Err(wrong(format!("tokenizer_source {value} is not supported: leave it out, or give base")));
            }
        }
        let all = [&self.parameters, &self.of_slice].into_iter();
        for parameters in all.chain(self.models.iter().map(|model| &model.parameters)) {
            let known = |key: &&String| {
                ["weight", "density", "lambda", "normalize", "rescale", "int8_mask", "t"].contains(&key.as_str())
            };
            if let Some(key) = parameters.keys().find(|key| !known(key)) {
                let allowed = "weight, density, t, normalize, rescale, lambda or int8_mask";
                return Err(wrong(format!("the parameter '{key}' is not known here; known are {allowed}")));
            }
        }
        Ok(())
    }
    pub fn check_layers(&self, layers: usize) -> Result<(), Error> {
        for RecipeModel { name, layers: range, .. } in &self.models {
            if let Some((first, end)) = range.filter(|range| *range != (0, layers)) {
                let what =
                    format!("'{name}' has the layers {first} to {end}; models are merged whole, so 0 to {layers}");
                return Err(Error::file(&self.path, what));
            }
        }
        Ok(())
    }

    /// Evaluates a model's weight, which slerp has none of, and density.
    pub fn weight_and_density(&self, model: &RecipeModel, place: &TensorPlace) -> Result<(f32, f64), Error> {
        if self.method == MergeMethod::Slerp {
            return Ok((1.0, 1.0));
        }
        let weight = self.find("weight", Some(model), place, setting::number)?;
        let weight = weight.ok_or_else(|| {
            let what = format!("'{}' has no weight for the tensor '{}'", model.name, place.tensor);
            Error::file(&self.path, what)
        })?;
        let density = self.find("density", Some(model), place, setting::number)?.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&density) {
            let what = format!("'{}' has the density {density}, which is a share from 0 to 1", model.name);
            return Err(Error::file(&self.path, what));
        }
        Ok((weight as f32, density))
    }

    pub fn options(&self, place: &TensorPlace) -> Result<MergeSwitches, Error> {
        let of = |key| self.find(key, None, place, setting::switch);
        let number = |key| self.find(key, None, place, setting::number);
        let t = match self.method {
            MergeMethod::Slerp => number("t")?.ok_or_else(|| {
                Error::file(&self.path, format!("has no parameter t for the tensor '{}'", place.tensor))
            })?,
            _ => 0.0,
        };
        Ok(MergeSwitches {
            normalize: of("normalize")?.unwrap_or(matches!(self.method, MergeMethod::Linear | MergeMethod::Ties)),
            rescale: of("rescale")?.unwrap_or(matches!(self.method, MergeMethod::Dare | MergeMethod::DareTies)),
            lambda: number("lambda")?.unwrap_or(1.0) as f32,
            t,
        })
    }

    /// Evaluates a parameter: the model's own, the slice's, or that of the whole recipe.
    fn find<T>(
        &self,
        key: &str,
        model: Option<&RecipeModel>,
        place: &TensorPlace,
        evaluate: impl Fn(&Value, &TensorPlace) -> Result<Option<T>, String>,
    ) -> Result<Option<T>, Error> {
        let places = model.map(|model| &model.parameters).into_iter().chain([&self.of_slice, &self.parameters]);
        for value in places.filter_map(|parameters| parameters.get(key)) {
            let found = evaluate(value, place);
            if let Some(value) = found.map_err(|what| Error::file(&self.path, format!("parameter '{key}': {what}")))? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

fn model_name(path: &Path, key: &str, value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(Error::file(path, format!("{key}: found {value}, expected the path of a model's folder"))),
    }
}

fn format_named(path: &Path, name: &str) -> Result<Format, Error> {
    let formats = [Format::F32, Format::F16, Format::BF16];
    formats.into_iter().find(|format| dtype_name(*format) == name).ok_or_else(|| {
        Error::file(path, format!("the type '{name}' is not known here; known are float32, float16 and bfloat16"))
    })
}

pub fn dtype_name(format: Format) -> &'static str {
    match format {
        Format::F16 => "float16",
        Format::BF16 => "bfloat16",
        _ => "float32",
    }
}
