//! Models that clients have fetched: one at a time, in a thread of its own, to its end also when the client hangs up.

use crate::ApiError;
use axum::http::StatusCode;
use hub::{HubClient, HubOptions, Listed, ModelFiles, Name};
use settings::Settings;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The model that is being fetched, if there is one. Cheap to clone.
#[derive(Clone, Default)]
pub struct Pulls {
    running: Arc<Mutex<Option<Pull>>>,
}

#[derive(Clone)]
struct Pull {
    model: String,
    progress: watch::Receiver<PullProgress>,
}

impl Pull {
    /// A client that was told the end may ask for the next model at once: its thread may live a moment longer.
    fn runs(&self) -> bool {
        self.progress.has_changed().is_ok() && !matches!(*self.progress.borrow(), PullProgress::Done(_))
    }
}

/// What a client is told of it.
#[derive(Clone, Debug, PartialEq)]
pub enum PullProgress {
    Begins,
    Fetches {
        digest: String,
        total: u64,
        completed: u64,
    },
    /// Where the model lies, or why it does not.
    Done(Result<String, String>),
}

impl Pulls {
    /// A client that asks for the model that is being fetched reads along.
    pub fn begin(&self, model: &str, settings: &Settings) -> Result<watch::Receiver<PullProgress>, ApiError> {
        let name = name_of(model, settings)?;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pull) = running.as_ref().filter(|pull| pull.runs()) {
            if pull.model == model {
                return Ok(pull.progress.clone());
            }
            let message = format!("{} is being fetched: try again when it is there", pull.model);
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).retry_after(60));
        }
        let (sender, progress) = watch::channel(PullProgress::Begins);
        let (settings, model) = (settings.clone(), model.to_owned());
        *running = Some(Pull { model: model.clone(), progress: progress.clone() });
        // Its hashes and its disk are not to hold up a reply.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let done = match runtime {
                Ok(runtime) => runtime.block_on(fetch(&name, &settings, &sender)).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match &done {
                Ok(path) => tracing::info!(model, path, "a client had a model fetched; it is used from the next start"),
                Err(error) => tracing::warn!(model, error, "a model could not be fetched"),
            }
            sender.send_replace(PullProgress::Done(done));
        });
        Ok(progress)
    }
}

/// What a preset's model is called on the hub, or `hf.co/OWNER/REPO` as clients of Ollama write it.
fn name_of(model: &str, settings: &Settings) -> Result<Name, ApiError> {
    let preset = settings.presets.get(model).and_then(|preset| {
        let repo = preset.source.repo.as_ref()?;
        Some(preset.source.file.as_ref().map_or(repo.clone(), |file| format!("{repo}/{file}")))
    });
    let bare = ["hf.co/", "huggingface.co/"].into_iter().find_map(|host| model.strip_prefix(host)).unwrap_or(model);
    Name::parse(preset.as_deref().unwrap_or(bare)).filter(|name| name.hub.is_none()).ok_or_else(|| {
        let message = format!("{model} is neither a preset with a model to fetch nor OWNER/REPO (with /FILE)");
        ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message).param("model")
    })
}

/// Where the model lies.
async fn fetch(name: &Name, settings: &Settings, progress: &watch::Sender<PullProgress>) -> Result<String, hub::Error> {
    let config = &settings.hub;
    let token_env = config.token_env.clone().unwrap_or_default();
    let hub = HubClient::new(HubOptions {
        url: config.url.clone(),
        token: std::env::var(&token_env).ok().filter(|token| !token.is_empty()),
        token_env,
        connect: Duration::from_millis(config.connect_ms),
        silence: Duration::from_secs(config.silence_s),
        retries: config.retries,
        retry: Duration::from_millis(config.retry_ms),
        listing_bytes: config.listing_bytes,
        on_trouble: |why| tracing::info!(why, "fetching a model"),
    })?;
    let listing = hub.list(name).await?;
    let chosen = hub::choose(&name.repo, &listing, name.file.as_deref())?;
    let files = ModelFiles::new(name, chosen, &settings.model.models_dir);
    if let Some(path) = settings.used_in_place_of(&name.repo, &files.model()) {
        return Err(hub::Error::Another { path });
    }
    let mut tell = |file: &Listed, completed: u64| {
        let digest = format!("sha256:{}", file.sha256.as_deref().unwrap_or_default());
        progress.send_replace(PullProgress::Fetches { digest, total: file.bytes, completed });
    };
    files.fetch(&hub, name, &listing, &mut tell).await?;
    Ok(files.model().display().to_string())
}

/// Where the model lies, or why it does not.
pub async fn ended(mut progress: watch::Receiver<PullProgress>) -> Result<String, String> {
    let done = progress.wait_for(|progress| matches!(progress, PullProgress::Done(_))).await;
    match done.as_deref() {
        Ok(PullProgress::Done(done)) => done.clone(),
        _ => Err("it ended without a word".to_owned()),
    }
}
