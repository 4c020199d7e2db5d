//! All layers to one [`Loaded`].
//!
//! The layering is our own and not a crate's, because a mistake has to name its file and line, its variable or its flag,
//! and a merged value has to remember them.

use std::path::{Path, PathBuf};

use crate::built_in;
use crate::presets::{self, ChosenWindow, Layer, Layers};
use crate::reader::Findings;
use crate::sources::{self, Sources};
use crate::tree::{Node, Table, empty, overlay, parse, put};
use crate::{Error, Mistake, Origin, Settings, check, experiment};

#[derive(Debug)]
pub struct Loaded {
    pub settings: Settings,
    /// Every value with where it came from, in the order of `default.toml`, then preset by preset.
    pub origins: Vec<Effective>,
    /// The user's file, where there was one.
    pub file: Option<PathBuf>,
}

/// One value that holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// `server`, or `presets."qwen3.5-9b".kv`.
    pub section: String,
    pub key: String,
    /// As TOML.
    pub value: String,
    /// The key as it was written where the value came from: a preset's may stand under `preset`.
    pub written: String,
    pub origin: Origin,
}

impl Loaded {
    pub fn origin(&self, section: &str, key: &str) -> Option<&Origin> {
        self.origins.iter().find(|value| value.section == section && value.key == key).map(|value| &value.origin)
    }
}

impl Settings {
    pub fn load(sources: &Sources) -> Result<Loaded, Error> {
        let findings = Findings::default();
        let mut defaults = parse(built_in::DEFAULT, "default.toml", |line| Origin::Default { line })?;
        let file = sources::user_file(sources)?;
        let mut user = match &file {
            Some((path, text)) => user_layer(path, text)?,
            None => nothing(),
        };
        let mut overrides = nothing();
        environment(sources, &mut overrides, &findings);
        for flag in &sources.flags {
            let path: Vec<&str> = flag.key.split('.').collect();
            put(&mut overrides, &path, &flag.value, Origin::Flag { flag: flag.name.clone() });
        }

        let default_presets = Layer::take_from(&mut defaults, &findings);
        let override_presets = [&mut user, &mut overrides].map(|layer| Layer::take_from(layer, &findings));
        overlay(&mut defaults, user);
        overlay(&mut defaults, overrides);
        let merged = defaults;
        let mut settings = findings.read(&merged, "", |root| {
            root.known(&["preset", "presets"]);
            Settings::read(root)
        });
        if findings.mistake_count() == 0 {
            check::settings(&settings, &findings);
        }
        settings.model.preset = preset_to_talk_with(&settings);

        let models = model_layers(settings.model.presets_dir.as_deref(), &findings)?;
        let layers = Layers { default: default_presets, models, overrides: override_presets.into() };
        let window = chosen_window(&settings, &merged);
        settings.presets = presets::resolve(&layers, &settings.model.preset, window.as_ref(), &findings);
        choose(&mut settings, &findings);
        if findings.mistake_count() == 0 {
            experiment::check(&settings, &findings);
        }

        let origins = findings.effective.borrow().clone();
        let mistakes = findings.mistakes();
        if !mistakes.is_empty() {
            return Err(Error::Mistakes(mistakes));
        }
        Ok(Loaded { settings, origins, file: file.map(|(path, _)| path) })
    }
}

fn user_layer(path: &Path, text: &str) -> Result<Table, Error> {
    let file = path.display().to_string();
    parse(text, &file, |line| Origin::UserFile { file: file.clone(), line })
}

const PREFIX: &str = "REPRISE__";

fn environment(sources: &Sources, layer: &mut Table, findings: &Findings) {
    for (variable, value) in &sources.environment {
        let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
        let origin = Origin::Environment { variable: variable.clone() };
        let key = rest.to_lowercase();
        let path: Vec<&str> = key.split("__").collect();
        if path.len() < 2 || path.contains(&"") {
            let found = "a name without section and key".to_string();
            let allowed = "REPRISE__SECTION__KEY such as REPRISE__SERVER__PORT".to_string();
            findings.add(Mistake { origin, key, found, allowed, hint: None });
            continue;
        }
        put(layer, &path, value, origin);
    }
}

/// Built-in model files, replaced and added to by those of a folder.
fn model_layers(folder: Option<&Path>, findings: &Findings) -> Result<Vec<Layer>, Error> {
    let mut files: Vec<(String, String, String)> = Vec::new();
    for (name, text) in built_in::MODELS {
        files.push((name.to_string(), name.to_string(), text.to_string()));
    }
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let found = format!("{:?}, which is no folder", folder.display().to_string());
        findings.contradiction(&[("model", "presets_dir")], found, "a folder with model files, or \"\"");
    }
    let folder = folder.filter(|folder| folder.is_dir());
    for (name, text) in folder.map(sources::model_files).transpose()?.unwrap_or_default() {
        let shown = folder.unwrap_or(Path::new("")).join(&name).display().to_string();
        files.retain(|(built_in, ..)| *built_in != name);
        files.push((name, shown, text));
    }
    let mut layers = Vec::new();
    for (_, file, text) in files {
        let mut root = parse(&text, &file, |line| Origin::ModelFile { file: file.clone(), line })?;
        layers.push(Layer::take_from(&mut root, findings));
        findings.read(&root, "", |rest| rest.known(&["preset", "presets"]));
    }
    Ok(layers)
}

/// Who names a file or a server and no preset wants the numbers that any model can live with, not the built-in model's.
fn preset_to_talk_with(settings: &Settings) -> String {
    match settings.model.preset.as_str() {
        "auto" if settings.model.path.is_some() || settings.upstream.url.is_some() => "default".to_string(),
        "auto" => built_in::TINY.to_string(),
        name => name.to_string(),
    }
}

/// `[model] ctx_size` as it was written, so that a mistake in it is told there.
fn chosen_window(settings: &Settings, merged: &Table) -> Option<ChosenWindow> {
    settings.model.ctx_size?;
    let Some(Node::Table(model)) = merged.entries.get("model") else { return None };
    let Some(Node::Leaf(leaf)) = model.entries.get("ctx_size") else { return None };
    Some(ChosenWindow { preset: settings.model.preset.clone(), leaf: leaf.clone() })
}

fn choose(settings: &mut Settings, findings: &Findings) {
    let name = settings.model.preset.clone();
    match settings.presets.get_mut(&name) {
        Some(preset) => {
            if let Some(path) = &settings.model.path {
                preset.source.path = Some(path.clone());
            }
        }
        None => {
            let effective = findings.effective.borrow();
            let written = effective.iter().find(|value| value.section == "model" && value.key == "preset");
            if let Some(written) = written {
                let (origin, key, found) = (written.origin.clone(), written.written.clone(), format!("{name:?}"));
                let (allowed, hint) = (settings.preset_names(), settings.nearest_preset(&name));
                findings.add(Mistake { origin, key, found, allowed, hint });
            }
        }
    }
}

fn nothing() -> Table {
    empty("", Origin::Default { line: 1 })
}
