//! Opening: from a preset's name to its model file.

use crate::builtin;
use crate::device::Finder;
use crate::engine_options::{longest, native_ctx, open_options};
use crate::error::Error;
use engine::Precision;
use engine::open::{ModelOptions, OpenedModel};
use settings::{Preset, Settings};
use std::path::{Path, PathBuf};

pub struct OpenedPreset {
    /// Opened model. Its notes say if a window gave way.
    pub model: OpenedModel,
    pub file: PathBuf,
    pub preset: Preset,
}

/// Finds the file or folder of a name: a path, or a preset whose file exists.
pub fn resolve(settings: &Settings, name: &str) -> Result<(PathBuf, Preset), Error> {
    let path = Path::new(name);
    if !settings.presets.contains_key(name) && path.exists() {
        // A bare file gets the numbers of `default`.
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

/// Opens the file of a name on the device of `finder`. The preset's window gives way to a smaller one of the file, or
/// is an error. `progress` gets the ready and the total bytes.
pub fn open_on(
    finder: &Finder,
    settings: &Settings,
    name: &str,
    precision: Precision,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<OpenedPreset, Error> {
    let (file, preset) = resolve(settings, name)?;
    let finder = finder.with_room_for(longest(settings, &preset, precision));
    let yarn = preset.rope.yarn;
    let options = ModelOptions { gpu: finder.find()?, yarn, ..open_options(settings, precision) };
    let mut model = engine::open::open(&file, &options, progress)?;
    let mut settings = settings.clone();
    model.notes.extend(builtin::is_built_in(&file).then(builtin::what_it_is));
    model.notes.extend(settings.fit_to_model(&preset.name, native_ctx(&model.network, &file)?)?);
    let preset = settings.preset(&preset.name)?.clone();
    Ok(OpenedPreset { model, file, preset })
}

/// Returns the first model by name, so that the same folder gives the same model every time. The folder's own come
/// before those that were pulled to `OWNER/REPO`: a client's download takes no place of the operator's.
fn first_model(folder: &Path) -> Option<PathBuf> {
    let own = entries(folder);
    let repos = || own.iter().flat_map(|owner| entries(owner));
    own.iter().find(|path| is_model(path)).cloned().or_else(|| {
        repos().find_map(
            |repo| if is_model(&repo) { Some(repo) } else { entries(&repo).into_iter().find(|p| is_model(p)) },
        )
    })
}

fn is_model(path: &Path) -> bool {
    let is = |wanted: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted));
    (is("gguf") || is("apr")) && path.is_file() && !builtin::is_built_in(path) || path.join("config.json").is_file()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<PathBuf> = found.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operators_model_is_the_first_one_whatever_clients_have_fetched() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, b"x").unwrap();
            path
        };
        put("a.gguf/b/README.md");
        assert_eq!(first_model(folder.path()), None);
        let fetched = put("someone/Model-GGUF/x.gguf");
        assert_eq!(first_model(folder.path()), Some(fetched));
        put("someone/Folder/config.json");
        assert_eq!(first_model(folder.path()), Some(folder.path().join("someone/Folder")));
        let own = put("z.gguf");
        assert_eq!(first_model(folder.path()), Some(own));
    }
}
