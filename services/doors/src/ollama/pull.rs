//! `POST /api/pull`: success for a model that is here. One that is not is fetched as `reprise pull` does, where the
//! configuration allows it.

use super::models::{NamedModel, named};
use super::{json_response, untagged};
use crate::pulls::{PullProgress, ended};
use crate::{ApiError, App};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;

pub async fn pull(State(app): State<App>, body: Bytes) -> Result<Response, ApiError> {
    let NamedModel { model, stream } = named(&body)?;
    let (model, stream) = (untagged(&model), stream != Some(false));
    let progress = match app.runtime.presets().choose(model) {
        Ok(_) => watch::channel(PullProgress::Done(Ok("it was there".to_owned()))).1,
        Err(error) if !app.settings.ollama.pull => {
            let message = format!("{error}. Fetch it with `reprise pull` where the service runs, or set ollama.pull");
            return Err(ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message));
        }
        Err(_) => app.pulls.begin(model, &app.settings)?,
    };
    if stream {
        let lines = lines(progress).map(|line| Ok::<_, Infallible>(format!("{line}\n")));
        return Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response());
    }
    match ended(progress).await {
        Ok(_) => Ok(json_response(json!({ "status": "success" }).to_string())),
        Err(why) => Err(ApiError::new(StatusCode::BAD_GATEWAY, "pull_failed", why)),
    }
}

/// At most so often, however fast bytes come.
const BETWEEN_LINES: Duration = Duration::from_millis(200);

/// A client draws a bar of them.
fn lines(progress: watch::Receiver<PullProgress>) -> impl stream::Stream<Item = Value> {
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
            PullProgress::Begins => (json!({ "status": "pulling manifest" }), false),
            PullProgress::Fetches { digest, total, completed } => {
                let short: String = digest.trim_start_matches("sha256:").chars().take(12).collect();
                let status = format!("pulling {short}");
                (json!({ "status": status, "digest": digest, "total": total, "completed": completed }), false)
            }
            PullProgress::Done(Ok(_)) => (json!({ "status": "success" }), true),
            PullProgress::Done(Err(error)) => (json!({ "error": error }), true),
        };
        Some((line, (progress, false, is_over)))
    })
}
