//! Models from the configured hub, fetched to where their presets look for them.

use hub::{HubClient, HubOptions, Listing, ModelFiles, Name};
use settings::{Preset, Settings};
use std::time::Duration;

pub fn hub_client(settings: &Settings, on_failure: fn(&str)) -> Result<HubClient, hub::Error> {
    let config = &settings.hub;
    let token_env = config.token_env.clone().unwrap_or_default();
    HubClient::new(HubOptions {
        url: config.url.clone(),
        token: std::env::var(&token_env).ok().filter(|token| !token.is_empty()),
        token_env,
        connect: Duration::from_millis(config.connect_ms),
        silence: Duration::from_secs(config.silence_s),
        retries: config.retries,
        retry: Duration::from_millis(config.retry_ms),
        listing_bytes: config.listing_bytes,
        on_failure,
    })
}

/// Chooses the files of a model. An error if another file is used in its place.
pub fn hub_files<'l>(name: &Name, listing: &'l Listing, settings: &Settings) -> Result<ModelFiles<'l>, hub::Error> {
    let chosen = hub::choose(&name.repo, listing, name.file.as_deref())?;
    let files = ModelFiles::new(name, chosen, &settings.model.models_dir);
    match settings.used_in_place_of(&name.repo, &files.model()) {
        Some(path) => Err(hub::Error::Another { path }),
        None => Ok(files),
    }
}

pub fn hub_name(preset: &Preset) -> Option<String> {
    let repo = preset.source.repo.as_ref()?;
    Some(preset.source.file.as_ref().map_or_else(|| repo.clone(), |file| format!("{repo}/{file}")))
}
