//! Ollama's API: the door of Home Assistant's `ollama` integration and of most tools for models at home.
//!
//! A request carries its whole conversation and names no person. A stream is one JSON object a line, never a comment and
//! never an empty line; errors are `{"error": "text"}`.

mod models;
mod parse;
mod pull;
mod render;

pub use models::{NamedModel, ps, show, tags, version};
pub use parse::{OllamaBody, chat as parse_chat, generate as parse_generate};
pub use pull::pull;

use crate::ApiError;
use crate::entry::Preparation;
use crate::headers::{is_side_task, set_aside};
use crate::json::stream_body;
use crate::routes::ErrorForm;
use crate::unread::note;
use access::Caller;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use model::PreparationShare;
use parse::{OllamaRequest, OllamaTask};
use render::{LineShape, OllamaReply};
use replies::{BodyClues, Completions};
use runtime::{first_time, heavy};
use settings::{Preset, Settings};
use std::sync::Arc;
use std::time::Duration;
use store::new_id;

type Parse = fn(&[u8], &Settings) -> Result<OllamaRequest, ApiError>;

pub async fn chat(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Preparation(preparation): Preparation,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    answer(&completions, &caller, preparation, &headers, &body, parse::chat, LineShape::Chat).await
}

pub async fn generate(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Preparation(preparation): Preparation,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    answer(&completions, &caller, preparation, &headers, &body, parse::generate, LineShape::Generate).await
}

async fn answer(
    completions: &Completions,
    caller: &Caller,
    preparation: Arc<PreparationShare>,
    headers: &HeaderMap,
    body: &[u8],
    parse: Parse,
    shape: LineShape,
) -> Result<Response, ApiError> {
    let OllamaRequest { name, stream, task, num_ctx, unused } =
        heavy::run(body.len(), || parse(body, &completions.settings)).await?;
    let user = &caller.identity.user;
    let mut choice = completions.runtime.presets().choose(user, untagged(&name))?;
    tell_once(user, &choice.preset, num_ctx, unused);
    let mut request = match task {
        OllamaTask::Reply(request) => *request,
        OllamaTask::Load { unload } => return Ok(json_response(OllamaReply::loaded(name, shape, unload))),
    };
    if is_side_task(headers, stream, &request) {
        set_aside(&mut request, &mut choice);
    }
    let clues = BodyClues::of(&request.model, &request.prompt.messages);
    request.scope = completions.persons.scope(caller, headers, &clues, &mut request.prompt.messages).await?;
    let id = new_id("ollama")?;
    tracing::debug!(id, user = %caller.identity.user, model = name, stream, "a completion begins");
    let completion = completions.ask(caller, &id, &choice, request, preparation).await?;
    let reply = OllamaReply::new(name, shape);
    if !stream {
        return Ok(json_response(replies::whole(completion, reply).await?.whole()));
    }
    let empty = reply.empty_line();
    let lines = replies::streamed(completion, reply).await?;
    let silence = Duration::from_millis(completions.settings.limits.comment_ms);
    let lines = replies::kept_alive(lines, silence, empty).map(|line| line + "\n");
    Ok(stream_body("application/x-ndjson", lines))
}

pub fn clues(request: OllamaRequest) -> BodyClues {
    match request.task {
        OllamaTask::Reply(reply) => BodyClues::of(&reply.model, &reply.prompt.messages),
        OllamaTask::Load { .. } => BodyClues { model: request.name, ..BodyClues::default() },
    }
}

/// `GET /` and `HEAD /` on Ollama's own port, which programs look for.
pub async fn running() -> &'static str {
    "Ollama is running"
}

fn untagged(name: &str) -> &str {
    name.strip_suffix(":latest").unwrap_or(name)
}

fn json_response(json: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], json).into_response()
}

/// Logs once what a client asks for and does not get.
fn tell_once(user: &str, preset: &Preset, num_ctx: Option<u64>, unused: Vec<String>) {
    if let Some(num_ctx) = num_ctx.filter(|tokens| *tokens > u64::from(preset.ctx_size))
        && first_time(user, format!("num_ctx of {}", preset.name))
    {
        let (name, ctx_size) = (&preset.name, preset.ctx_size);
        tracing::warn!(num_ctx, ctx_size, preset = %name, "a client asks for a larger window than its preset has");
    }
    note("ollama", user, unused);
}

/// Path before all routes of this API.
pub const ROOT: &str = "/api";

/// Errors of this API, also those of other modules, as its clients read them.
pub const ERRORS: ErrorForm = ErrorForm { schema: "OllamaError", render: render_error };

fn render_error(mut response: Response) -> Response {
    match response.extensions_mut().remove::<ApiError>() {
        Some(error) => {
            let (mut parts, _) = response.into_parts();
            parts.headers.remove(axum::http::header::CONTENT_LENGTH);
            let body = serde_json::json!({ "error": error.message }).to_string();
            Response::from_parts(parts, Body::from(body))
        }
        None => response,
    }
}
