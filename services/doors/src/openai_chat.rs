//! `POST /v1/chat/completions` and `GET /v1/models`: the door for everything that speaks OpenAI and no websocket.
//!
//! A request carries its whole conversation, or names a durable session (`metadata.session_id`) and carries only what is
//! new. Either way it becomes events of one response, which `render` puts into the client's words.

mod messages;
mod parse;
mod render;

use crate::entry::Preparation;
use crate::headers::{is_side_task, retries, set_aside};
use crate::{ApiError, unread};
use access::Caller;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::select_all;
pub use messages::prompt_of;
use parse::ChatRequest;
pub use parse::{ChatBody, parse};
use render::ChatReply;
use replies::{Completions, RequestAttempt};
use runtime::{ModelChoice, heavy};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;

pub async fn completions(
    State(chat): State<Completions>,
    Extension(caller): Extension<Caller>,
    Preparation(preparation): Preparation,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let ChatRequest { stream, include_usage, mut completion, clues, unread } =
        heavy::run(body.len(), || parse::parse(&body, &chat.settings)).await?;
    unread::note("chat completions", &caller.identity.user, unread);
    completion.scope = chat.persons.scope(&caller, &headers, &clues, &mut completion.prompt.messages).await?;
    let attempt = || RequestAttempt::new(&completion.scope, &body, retries(&headers));
    completion.attempt = Some(heavy::run(body.len(), attempt).await);
    drop(body);
    let mut choice = chat.runtime.presets().choose(&caller.identity.user, &completion.model)?;
    if is_side_task(&headers, stream, &completion) {
        set_aside(&mut completion, &mut choice);
    }
    let id = completion_id()?;
    let short_id = id.trim_start_matches("chatcmpl-");
    let completions = match completion.choices {
        1 => vec![chat.ask(&caller, short_id, &choice, completion, preparation).await?],
        _ => chat.ask_choices(&caller, short_id, &choice, completion, preparation).await?,
    };
    let session_id = completions.first().and_then(|completion| completion.session_id.clone());
    let name = choice.name;
    tracing::debug!(id, user = %caller.identity.user, model = name, stream, session = session_id, "a completion begins");
    let choices = ChatReply::new(id, unix_seconds(), name, include_usage, session_id).choices(completions.len());
    let replies = completions.into_iter().zip(choices);
    if !stream {
        let wholes = replies.map(|(completion, reply)| replies::whole(completion, reply));
        return Ok(Json(ChatReply::whole_of(&try_join_all(wholes).await?)).into_response());
    }
    let streams = replies.map(|(completion, reply)| replies::streamed(completion, reply));
    let streams = try_join_all(streams).await?;
    let pieces = select_all(streams.into_iter().map(Box::pin));
    let events = pieces.map(|data| Ok::<_, Infallible>(SseEvent::default().data(data)));
    // An empty line, which every reader skips: some take a comment for data.
    let empty = KeepAlive::new().event(SseEvent::default());
    let empty = empty.interval(Duration::from_millis(chat.settings.limits.comment_ms));
    Ok(Sse::new(events).keep_alive(empty).into_response())
}

pub async fn models(State(chat): State<Completions>) -> Json<Value> {
    let presets = chat.runtime.presets();
    let models: Vec<Value> = presets.choices().map(|choice| listed(&choice, &presets.model)).collect();
    Json(json!({ "object": "list", "data": models }))
}

pub async fn model(
    State(chat): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let presets = chat.runtime.presets();
    Ok(Json(listed(&presets.choose(&caller.identity.user, &name)?, &presets.model)))
}

fn listed(choice: &ModelChoice, model: &str) -> Value {
    let ModelChoice { name, preset, .. } = choice;
    json!({
        "id": name, "object": "model", "created": unix_seconds(), "owned_by": "reprise",
        // As other servers call it.
        "max_model_len": preset.ctx_size,
        "reprise": { "preset": preset.name, "model": model, "ctx_size": preset.ctx_size },
    })
}

fn completion_id() -> Result<String, ApiError> {
    Ok(store::new_id("chatcmpl")?.replacen('_', "-", 1))
}

fn unix_seconds() -> i64 {
    runtime::wall_ms() / 1000
}
