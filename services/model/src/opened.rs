//! From a preset's name to a model file, opened.

use crate::builtin;
use crate::device::Finder;
use crate::engine_options::{longest, native_ctx, open_options};
use crate::error::Error;
use engine::Precision;
use engine::open::{ModelOptions, OpenedModel};
use settings::{Preset, Settings};
use std::path::{Path, PathBuf};

pub struct OpenedPreset {
    /// A window that gave way is among its notes.
    pub model: OpenedModel,
    pub file: PathBuf,
    /// With the window that the model file allows.
    pub preset: Preset,
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

/// Opens what `resolve` finds, on what `finder` finds. The preset's window gives way to a smaller one of the file, or the
/// settings explain. `progress` is told how many bytes of how many are ready.
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
    let mut model = engine::open::open(&file, &options, progress)?;
    let mut settings = settings.clone();
    model.notes.extend(builtin::is_built_in(&file).then(builtin::what_it_is));
    model.notes.extend(settings.fit_to_model(&preset.name, native_ctx(&model.network, &file)?)?);
    let preset = settings.preset(&preset.name)?.clone();
    Ok(OpenedPreset { model, file, preset })
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
