//! `POST /api/pull`: success for a model that is here. One that is not is fetched as `reprise pull` does, where the
//! configuration allows it.

use super::models::{NamedModel, named};
use super::{json_response, untagged};
use crate::json::stream_body;
use crate::{ApiError, App};
use access::Caller;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use hub::{FetchStage, Listed, Name, ended};
use model::{hub_client, hub_files, hub_name};
use serde_json::{Value, json};
use settings::Settings;
use std::time::Duration;
use tokio::sync::watch;

pub async fn pull(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let NamedModel { model, stream } = named(&app.replies, &body).await?;
    let (model, stream) = (untagged(&model), stream != Some(false));
    let progress = match app.replies.runtime.presets().choose(&caller.identity.user, model) {
        Ok(_) => watch::channel(FetchStage::Done(Ok("it was there".to_owned()))).1,
        Err(error) if !app.replies.settings.ollama.pull => {
            let message = format!("{error}. Fetch it with `reprise pull` where the service runs, or set ollama.pull");
            return Err(ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message));
        }
        Err(_) => begin(&app, model)?,
    };
    if stream {
        return Ok(stream_body("application/x-ndjson", lines(progress).map(|line| format!("{line}\n"))));
    }
    match ended(progress).await {
        Ok(_) => Ok(json_response(json!({ "status": "success" }).to_string())),
        Err(why) => Err(ApiError::new(StatusCode::BAD_GATEWAY, "pull_failed", why)),
    }
}

fn begin(app: &App, model: &str) -> Result<watch::Receiver<FetchStage>, ApiError> {
    let name = name_of(model, &app.replies.settings)?;
    let (settings, asked) = (app.replies.settings.clone(), model.to_owned());
    let fetch = async move |stage| {
        let done = fetch(&name, &settings, &stage).await.map_err(|error| error.to_string());
        match &done {
            Ok(path) => tracing::info!(model = asked, path, "a client fetched a model; the next start uses it"),
            Err(error) => tracing::warn!(model = asked, error, "a model could not be fetched"),
        }
        done
    };
    app.pulls.begin(model, fetch).map_err(|other| {
        let message = format!("{other} is being fetched: try again when it is there");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).retry_after(60)
    })
}

/// Returns the hub's name of a preset's model, or `hf.co/OWNER/REPO` as clients of Ollama write it.
fn name_of(model: &str, settings: &Settings) -> Result<Name, ApiError> {
    let preset = settings.presets.get(model).and_then(hub_name);
    let bare = ["hf.co/", "huggingface.co/"].into_iter().find_map(|host| model.strip_prefix(host)).unwrap_or(model);
    Name::parse(preset.as_deref().unwrap_or(bare)).filter(|name| name.hub.is_none()).ok_or_else(|| {
        let message = format!("{model} is neither a preset with a model to fetch nor OWNER/REPO (with /FILE)");
        ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message).param("model")
    })
}

async fn fetch(name: &Name, settings: &Settings, stage: &watch::Sender<FetchStage>) -> Result<String, hub::Error> {
    let hub = hub_client(settings, |why| tracing::info!(why, "fetching a model"))?;
    let listing = hub.list(name).await?;
    let files = hub_files(name, &listing, settings)?;
    let mut tell = |file: &Listed, completed: u64| {
        stage.send_replace(FetchStage::of(file, completed));
    };
    files.fetch(&hub, name, &listing, &mut tell).await?;
    Ok(files.model().display().to_string())
}

/// Least time between two lines.
const BETWEEN_LINES: Duration = Duration::from_millis(200);

/// Lines of progress, of which a client draws a bar.
fn lines(progress: watch::Receiver<FetchStage>) -> impl stream::Stream<Item = Value> {
    stream::unfold((progress, true, false), |(mut progress, is_first, is_over)| async move {
        if is_over {
            return None;
        }
        if is_first {
            return Some((json!({ "status": "pulling manifest" }), (progress, false, false)));
        }
        tokio::time::sleep(BETWEEN_LINES).await;
        let now = progress.borrow_and_update().clone();
        let (line, is_over) = match now {
            FetchStage::Begins => (json!({ "status": "pulling manifest" }), false),
            FetchStage::Fetches { digest, total, completed } => {
                let short: String = digest.trim_start_matches("sha256:").chars().take(12).collect();
                let status = format!("pulling {short}");
                (json!({ "status": status, "digest": digest, "total": total, "completed": completed }), false)
            }
            FetchStage::Done(Ok(_)) => (json!({ "status": "success" }), true),
            FetchStage::Done(Err(error)) => (json!({ "error": error }), true),
        };
        Some((line, (progress, false, is_over)))
    })
}
