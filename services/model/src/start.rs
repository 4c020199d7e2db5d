//! Start: from the configuration to a running model.

use crate::counting::Counting;
use crate::device::Finder;
use crate::engine_options::{native_ctx, precision};
use crate::error::{Error, NoRoom};
use crate::handle::{Answerer, Model};
use crate::local::Local;
use crate::opened::open_on;
use crate::plan::{Plan, plan};
use crate::preparation::PreparationMemory;
use crate::upstream::Upstream;
use settings::{Preset, Settings, Thinking};
use std::path::Path;

pub struct Started {
    pub model: Model,
    pub settings: Settings,
    pub presets: Vec<Preset>,
    pub name: String,
    pub plan: Option<Plan>,
    pub notes: Vec<String>,
}

impl Model {
    /// Starts the configured model: an upstream, or the chosen preset's in this process, which takes as long as opening
    /// its file. Must be called within a tokio runtime.
    pub async fn start(settings: &Settings) -> Result<Started, Error> {
        Model::start_with(settings, |_, _| ()).await
    }

    pub async fn start_with(
        settings: &Settings,
        progress: impl FnMut(usize, usize) + Send + 'static,
    ) -> Result<Started, Error> {
        if let Some(url) = settings.upstream.url.clone() {
            let key = match &settings.upstream.key_env {
                None => None,
                Some(name) => Some(std::env::var(name).map_err(|_| Error::NoKey { name: name.clone() })?),
            };
            return start_upstream(settings, &url, key).await;
        }
        let settings = settings.clone();
        match tokio::task::spawn_blocking(move || start_engine(&Finder::new(&settings), settings, progress)).await {
            Ok(started) => started,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Opens a model that counts prompts and answers nothing, for commands beside a service: it opens no weights. If
    /// the model's file is unknown, it estimates.
    pub async fn counting(settings: &Settings, preset: &str) -> Result<Model, Error> {
        if settings.upstream.url.is_some() {
            return Ok(Model::start(settings).await?.model);
        }
        Ok(Model::new(Counting::of(settings, preset)?, PreparationMemory::of(settings)))
    }
}

/// Starts an upstream, whose model is behind every preset. Its window is the configuration's, unless the upstream tells
/// a smaller one.
async fn start_upstream(settings: &Settings, url: &str, key: Option<String>) -> Result<Started, Error> {
    let mut settings = settings.clone();
    let upstream = Upstream::start(&settings, url, key).await?;
    let status = upstream.status();
    let mut notes: Vec<String> = status.trouble.iter().map(|trouble| format!("upstream {url}: {trouble}")).collect();
    let chosen = settings.model.preset.clone();
    if let Some(ctx_size) = upstream.ctx_size() {
        notes.extend(settings.fit_to_model(&chosen, ctx_size)?);
    }
    let chosen = settings.preset(&chosen)?.clone();
    let limit = upstream.ctx_size().unwrap_or(u32::MAX);
    let same = |preset: &&Preset| {
        let is_window_of_it = !chosen.model.is_empty() && preset.model == chosen.model && preset.ctx_size <= limit;
        preset.name == chosen.name || is_window_of_it
    };
    let presets = settings.presets.values().filter(same).cloned().collect();
    let name = if status.model.is_empty() { chosen.model.clone() } else { status.model };
    let model = Model::new(upstream, PreparationMemory::of(&settings));
    Ok(Started { model, settings, presets, name, plan: None, notes })
}

/// Least window of a useful conversation; with less the start fails.
const LEAST_WINDOW: u32 = 2000;

pub(crate) fn start_engine(
    finder: &Finder,
    mut settings: Settings,
    mut progress: impl FnMut(usize, usize),
) -> Result<Started, Error> {
    let chosen = settings.model.preset.clone();
    let mut opened = open_on(finder, &settings, &chosen, precision(&settings), &mut progress)?;
    let native_ctx = native_ctx(&opened.model.network, &opened.file)?;
    let (mut presets, left_out) = running_presets(&mut settings, &opened.file, &opened.preset, native_ctx)?;
    let mut notes = opened.model.notes.clone();
    notes.extend(left_out);
    let memory = opened.model.executor.as_ref().map(|(_, memory)| memory.clone());
    let device = memory.as_ref();
    let plan = match plan(&settings, &opened.model.network, device, &opened.file, &opened.preset, &presets) {
        Ok(plan) => plan,
        // A window that the configuration does not name gives way to the machine as it does to the model.
        Err(Error::Memory(no_room))
            if no_room.fits_tokens >= LEAST_WINDOW && settings.fit_to_model(&chosen, no_room.fits_tokens).is_ok() =>
        {
            opened.preset = settings.preset(&chosen)?.clone();
            presets
                .iter_mut()
                .filter(|preset| preset.name == chosen)
                .for_each(|preset| *preset = opened.preset.clone());
            let NoRoom { fits_tokens, key, .. } = *no_room;
            notes.push(format!("window {fits_tokens} tokens: more does not fit the memory ({key})"));
            plan(&settings, &opened.model.network, device, &opened.file, &opened.preset, &presets)?
        }
        Err(error) => return Err(error),
    };
    notes.extend(thinking_note(&settings, &opened.preset));
    let preparation = PreparationMemory::of(&settings);
    let local = Local::start(&settings, finder, opened, &plan, &preparation)?;
    let name = local.status().model;
    let model = Model::new(local, preparation);
    Ok(Started { model, settings, presets, name, plan: Some(plan), notes })
}

/// Returns the presets of a model that runs, the chosen one last, and the reasons why others are left out. Each window
/// is fitted to the model's.
pub fn running_presets(
    settings: &mut Settings,
    file: &Path,
    preset: &Preset,
    native_ctx: u32,
) -> Result<(Vec<Preset>, Vec<String>), Error> {
    let chosen = settings.model.preset.clone();
    // Presets of the same file, or of the model that another file was named for, are windows of the same model. One
    // that asks for more than the file has is left out.
    let folder = settings.model.models_dir.clone();
    let renamed = settings.model.path.is_some() && !preset.model.is_empty();
    let same = |one: &Preset| {
        let same_file = one.model_path(&folder).is_some_and(|own| own == file);
        // Another stretch is another model.
        let same_stretch = one.rope == preset.rope;
        same_stretch && (same_file || (renamed && one.model == preset.model))
    };
    let others: Vec<String> = settings.presets.values().filter(|p| same(p)).map(|p| p.name.clone()).collect();
    let (mut presets, mut left_out) = (Vec::new(), Vec::new());
    for name in others.iter().filter(|name| **name != chosen).chain([&chosen]) {
        match settings.fit_to_model(name, native_ctx) {
            Ok(_) => presets.push(settings.preset(name)?.clone()),
            Err(error) if *name == chosen => return Err(error.into()),
            Err(error) => left_out.push(error.to_string()),
        }
    }
    Ok((presets, left_out))
}

/// Returns a warning if the model thinks in a window that its thoughts may fill.
fn thinking_note(settings: &Settings, preset: &Preset) -> Option<String> {
    let (ctx_size, least) = (preset.ctx_size, settings.model.thinking_ctx_size);
    let says = format!(
        "preset {} thinks in a window of {ctx_size} tokens, and thoughts may take thousands; choose a window of {least} or \
         more, or limit them (preset.thinking = 512)",
        preset.name
    );
    (preset.thinking == Thinking::On && ctx_size < least).then_some(says)
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{Flag, Sources};

    #[test]
    fn a_small_window_that_thinks_is_told() {
        let note = |thinking: &str, ctx_size: &str| {
            let flags = vec![
                Flag::new("--set", "preset.thinking", thinking),
                Flag::new("--set", "model.ctx_size", ctx_size),
                Flag::new("--set", "model.preset", "qwen3.5-9b"),
            ];
            let settings = Settings::load(&Sources { flags, ..Sources::default() }).unwrap().settings;
            thinking_note(&settings, settings.chosen().unwrap())
        };
        assert!(note("on", "9000").unwrap().contains("thinks in a window of 9000 tokens"));
        assert_eq!([note("off", "9000"), note("300", "9000"), note("on", "99000")], [None, None, None]);
    }
}
