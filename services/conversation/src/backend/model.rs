//! From what stands behind a preset's name to a model that computes, and from a preset to the engine's words.

use super::device::Finder;
use super::{Error, builtin, plan};
use crate::manner::SamplingOverrides;
use engine::network::Network;
use engine::open::{Keeping, ModelOptions, PackedFolder};
use engine::sampling::SamplingOptions;
use engine::state::KvFormats;
use engine::{DeviceMemoryPlan, Executor, LongestConversation, Precision};
use settings::{Preset, Settings, Thinking};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use text::{Template, Tokenizer};

/// A model with everything that is needed to talk to it.
pub struct Model {
    pub network: Network,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Template,
    pub file: PathBuf,
    /// With the window that the model file allows.
    pub preset: Preset,
    /// What the file brought with it that is worth a line, and a window that gave way.
    pub notes: Vec<String>,
    /// Packed weights that are being written for the next start.
    pub keeping: Option<Keeping>,
    /// Where it lies and computes, if that is not the host.
    pub executor: Option<(Executor, DeviceMemoryPlan)>,
}

/// The file or folder that a name stands for: a path, or a preset whose file is there.
pub fn resolve(settings: &Settings, name: &str) -> Result<(PathBuf, Preset), Error> {
    let path = Path::new(name);
    if !settings.presets.contains_key(name) && path.exists() {
        // A bare file talks with the numbers of `default`.
        return Ok((path.to_path_buf(), settings.preset("default")?.clone()));
    }
    let Ok(preset) = settings.preset(name) else {
        let presets = settings.presets.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(Error::NoSuchModel { name: name.to_owned(), presets });
    };
    let file = match preset.model_path(&settings.model.models_dir) {
        Some(file) if builtin::is_built_in(&file) => builtin::unpack(file)?,
        Some(file) if file.exists() => file,
        Some(file) => {
            let can_be_fetched = preset.source.repo.is_some() && preset.source.path.is_none();
            let advice =
                if can_be_fetched { format!("fetch it with `reprise pull {name}`") } else { "put it there".to_owned() };
            return Err(Error::NoModelFile { preset: name.to_owned(), file, advice });
        }
        None => first_model(&settings.model.models_dir)
            .ok_or_else(|| Error::NoModel { preset: name.to_owned(), folder: settings.model.models_dir.clone() })?,
    };
    Ok((file, preset.clone()))
}

/// Opens what `resolve` finds. The preset's window gives way to a smaller one of the file, or the settings explain.
/// `progress` is told how many bytes of how many are ready. The host computes.
pub fn open(
    settings: &Settings,
    name: &str,
    precision: Precision,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Model, Error> {
    open_on(&Finder::host(settings), settings, name, precision, progress)
}

/// As `open`, on what `finder` finds.
pub fn open_on(
    finder: &Finder,
    settings: &Settings,
    name: &str,
    precision: Precision,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Model, Error> {
    let (file, preset) = resolve(settings, name)?;
    let finder = finder.with_room_for(longest(settings, &preset, precision));
    let options = ModelOptions { gpu: finder.find()?, ..open_options(settings, precision) };
    let opened = engine::open::open_with(&file, &options, progress)?;
    let mut notes = opened.notes;
    let mut settings = settings.clone();
    notes.extend(builtin::is_built_in(&file).then(builtin::what_it_is));
    notes.extend(settings.fit_to_model(&preset.name, native_ctx(&opened.network, &file)?)?);
    let preset = settings.preset(&preset.name)?.clone();
    let (network, tokenizer, template) = (opened.network, opened.tokenizer, opened.template);
    let (keeping, executor) = (opened.keeping, opened.executor);
    Ok(Model { network, tokenizer, template, file, preset, notes, keeping, executor })
}

/// A conversation that fills the window of a preset, on a device.
pub fn longest(settings: &Settings, preset: &Preset, precision: Precision) -> LongestConversation {
    let (kv, tokens) = (kv_formats(preset, precision), preset.ctx_size as usize);
    LongestConversation { limits: plan::limits(settings, precision, true), kv, tokens }
}

pub fn open_options(settings: &Settings, precision: Precision) -> ModelOptions {
    let engine = &settings.engine;
    let packed = engine.packed_path.as_ref().map(|path| PackedFolder {
        path: path.clone(),
        max_bytes: engine.packed_bytes,
        min_bytes: engine.packed_min_bytes,
    });
    let token_cache_bytes = settings.memory.token_cache_bytes;
    ModelOptions { mmap: engine.mmap, precision, token_cache_bytes, packed, gpu: None }
}

/// The precision that the configuration asks for.
pub fn precision(settings: &Settings) -> Precision {
    match settings.engine.precision {
        settings::PrecisionChoice::Default => Precision::Integer,
        settings::PrecisionChoice::F32 => Precision::F32,
    }
}

/// How keys and values are kept. The slow reference rounds nothing, so neither does what it keeps.
pub fn kv_formats(preset: &Preset, precision: Precision) -> KvFormats {
    let [exact, key, value] = ["f32", preset.kv.k.name(), preset.kv.v.name()]
        .map(|name| KvFormats::format(name).unwrap_or(KvFormats::ALLOWED[0]));
    match precision {
        Precision::F32 => KvFormats { key: exact, value: exact },
        Precision::Integer => KvFormats { key, value },
    }
}

/// What a request says, else what the preset says of replies with or without thinking.
pub fn sampling(preset: &Preset, thinking: bool, overrides: &SamplingOverrides) -> SamplingOptions {
    let preset = preset.sampling_for(thinking);
    SamplingOptions {
        temperature: overrides.temperature.unwrap_or(preset.temperature),
        top_p: overrides.top_p.unwrap_or(preset.top_p),
        top_k: overrides.top_k.unwrap_or(preset.top_k) as usize,
        min_p: overrides.min_p.unwrap_or(preset.min_p),
        presence_penalty: overrides.presence_penalty.unwrap_or(preset.presence_penalty),
        frequency_penalty: overrides.frequency_penalty.unwrap_or(preset.frequency_penalty),
        repetition_penalty: overrides.repetition_penalty.unwrap_or(preset.repetition_penalty),
        logit_bias: overrides.logit_bias.clone(),
        ..SamplingOptions::default()
    }
}

/// `open`: the prompt ends inside a think block. Without thinking its end is forced at once, also where a template knows
/// no such switch or the model begins to think by itself.
pub fn thinking(thinking: Thinking, open: bool) -> engine::ThinkingOptions {
    let budget_tokens = match thinking {
        Thinking::Off => Some(0),
        Thinking::On => None,
        Thinking::Budget(tokens) => Some(tokens),
    };
    engine::ThinkingOptions { open, budget_tokens }
}

pub(super) fn native_ctx(network: &Network, file: &Path) -> Result<u32, Error> {
    let native_ctx = network.shape().native_ctx;
    u32::try_from(native_ctx).map_err(|_| Error::Window { file: file.to_path_buf(), native_ctx })
}

/// The first by name, so that the same folder gives the same model every time.
fn first_model(folder: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    found.into_iter().find(|path| {
        let is_gguf = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
        let is_gguf = is_gguf && !builtin::is_built_in(path);
        is_gguf || path.join("config.json").is_file()
    })
}
