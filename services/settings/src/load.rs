use std::path::{Path, PathBuf};

use config::{Value, ValueKind};

use crate::error::{Error, Mistake};
use crate::findings::{Effective, Findings};
use crate::layers::{Table, merge, parse, single};
use crate::origin::{Origin, SettingsLayer};
use crate::presets::{self, Chosen, PresetLayer, PresetLayers};
use crate::settings::{ModelSettings, Settings};
use crate::sources::{self, Sources};
use crate::{built_in, check, personas, reader, renamed};

#[derive(Debug)]
pub struct LoadedSettings {
    pub settings: Settings,
    /// Values with their origins, in the order of `default.toml`, then preset by preset.
    pub origins: Vec<Effective>,
    pub file: Option<PathBuf>,
    /// True where nothing names a model, and a preset that suits the machine may take the place of the built-in one.
    pub names_no_model: bool,
    pub old_keys: Vec<String>,
}

impl Settings {
    pub fn load(sources: &Sources) -> Result<LoadedSettings, Error> {
        let findings = Findings::default();
        let file = sources::user_file(sources)?;
        let user = file.as_ref().map(|(path, text)| parse(text, &path.display().to_string(), SettingsLayer::UserFile));
        let mut defaults = parse(built_in::DEFAULT, "default.toml", SettingsLayer::Default)?;
        let mut overrides = [user.transpose()?.unwrap_or_default(), environment(sources, &findings)?, flags(sources)?];

        let old_keys: Vec<String> = overrides.iter_mut().flat_map(renamed::move_old_keys).collect();
        let default_presets = PresetLayer::take_from(&mut defaults, &findings);
        let override_presets = overrides.each_mut().map(|layer| PresetLayer::take_from(layer, &findings));
        let merged = merge([&defaults].into_iter().chain(&overrides))?;
        let mut settings = reader::read(Some(&merged), "", &findings, |root| {
            root.known(&["preset", "persona"]);
            Settings::read(root)
        });
        if findings.mistake_count() == 0 {
            check::settings(&settings, &findings);
        }
        let is_auto = settings.model.preset == "auto";
        settings.model.preset = preset_to_talk_with(&settings);
        let names_no_model = is_auto && settings.model.preset == built_in::BUILT_IN_PRESET;

        let models = model_layers(settings.model.presets_dir.as_deref(), &findings)?;
        let layers = PresetLayers { default: default_presets, models, overrides: override_presets.into() };
        let chosen = Chosen { name: &settings.model.preset, overrides: overrides_of_chosen(&settings.model, &merged) };
        settings.presets = presets::resolve(&layers, &chosen, &findings)?;
        settings.personas = personas::read(&merged, &settings.presets, &findings)?;
        if findings.mistake_count() == 0 {
            check::experiment(&settings, &findings);
            check::wyoming(&settings, &findings);
        }
        let origins = findings.finish().map_err(Error::Mistakes)?;
        let file = file.map(|(path, _)| path);
        Ok(LoadedSettings { settings, origins, file, names_no_model, old_keys })
    }
}

const PREFIX: &str = "REPRISE__";

fn environment(sources: &Sources, findings: &Findings) -> Result<Table, Error> {
    let mut variables = Vec::new();
    for (variable, value) in &sources.environment {
        let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
        let (layer, place, key) = (SettingsLayer::Environment, format!("environment {variable}"), rest.to_lowercase());
        let path: Vec<&str> = key.split("__").collect();
        if path.len() < 2 || path.contains(&"") {
            let found = "a name without section and key".to_string();
            let allowed = "REPRISE__SECTION__KEY such as REPRISE__SERVER__PORT".to_string();
            findings.add(Mistake { origin: Origin { layer, place, key }, found, allowed, hint: None });
            continue;
        }
        variables.push(single(&path, value, layer, &place));
    }
    merge(&variables)
}

fn flags(sources: &Sources) -> Result<Table, Error> {
    let flag = |flag: &sources::Flag| {
        let path: Vec<&str> = flag.key.split('.').collect();
        single(&path, &flag.value, SettingsLayer::Flag, &format!("flag {}", flag.name))
    };
    merge(&sources.flags.iter().map(flag).collect::<Vec<_>>())
}

/// Reads the built-in model files and those of a folder. A file of the folder replaces the built-in one of its name.
fn model_layers(folder: Option<&Path>, findings: &Findings) -> Result<Vec<PresetLayer>, Error> {
    let built_in = built_in::MODELS.iter().map(|(name, text)| (name.to_string(), name.to_string(), text.to_string()));
    let mut files: Vec<(String, String, String)> = built_in.collect();
    match folder {
        Some(folder) if folder.is_dir() => {
            for (name, text) in sources::model_files(folder)? {
                files.retain(|(built_in, ..)| *built_in != name);
                let shown = folder.join(&name).display().to_string();
                files.push((name, shown, text));
            }
        }
        Some(folder) => {
            let found = format!("{:?}, which is no folder", folder.display().to_string());
            findings.contradiction(&[("model", "presets_dir")], found, "a folder with model files, or \"\"");
        }
        None => {}
    }
    let mut layers = Vec::new();
    for (_, file, text) in files {
        let mut root = parse(&text, &file, SettingsLayer::ModelFile)?;
        layers.push(PresetLayer::take_from(&mut root, findings));
        reader::read(Some(&root), "", findings, |rest| rest.known(&["preset", "presets"]));
    }
    Ok(layers)
}

/// Chooses the preset. A file or a server without one gets the numbers that suit any model, not those of the built-in
/// model.
fn preset_to_talk_with(settings: &Settings) -> String {
    match settings.model.preset.as_str() {
        "auto" if settings.model.path.is_some() || settings.upstream.url.is_some() => "default".to_string(),
        "auto" => built_in::BUILT_IN_PRESET.to_string(),
        name => name.to_string(),
    }
}

fn overrides_of_chosen(settings: &ModelSettings, merged: &Table) -> Table {
    let mut overrides = Table::new();
    let Some(Value { kind: ValueKind::Table(model), .. }) = merged.get("model") else { return overrides };
    if let Some(ctx_size) = model.get("ctx_size").filter(|_| settings.ctx_size.is_some()) {
        overrides.insert("ctx_size".to_string(), ctx_size.clone());
    }
    if let Some(path) = model.get("path").filter(|_| settings.path.is_some()) {
        let source = Table::from([("path".to_string(), path.clone())]);
        overrides.insert("source".to_string(), Value::new(None, ValueKind::Table(source)));
    }
    overrides
}
