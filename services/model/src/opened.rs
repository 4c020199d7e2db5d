//! From a preset's name to a model file, opened.

use crate::builtin;
use crate::device::Finder;
use crate::engine_options::{longest, native_ctx, open_options};
use crate::error::Error;
use engine::network::Network;
use engine::open::{Keeping, ModelOptions};
use engine::{DeviceMemoryPlan, Executor, Precision};
use settings::{Preset, Settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use text::{Template, Tokenizer};

/// The weights of a model and what is needed to talk to it.
pub struct OpenedPreset {
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
) -> Result<OpenedPreset, Error> {
    open_on(&Finder::host(settings), settings, name, precision, progress)
}

/// As `open`, on what `finder` finds.
pub fn open_on(
    finder: &Finder,
    settings: &Settings,
    name: &str,
    precision: Precision,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<OpenedPreset, Error> {
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
    Ok(OpenedPreset { network, tokenizer, template, file, preset, notes, keeping, executor })
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
