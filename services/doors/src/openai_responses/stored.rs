//! Responses that are kept: read, deleted, cancelled.

use super::view::{ResponseState, item_view, usage_view};
use crate::extract::{Asked, JsonAnswer, named};
use crate::{ApiError, App, thinking};
use access::Caller;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::{Extension, Json};
use replies::{Completions, MARK};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::{Event, Input, ResponseStatus};
use store::StoredResponse;

/// Name under which the store keeps what a response repeats of its request, beside the metadata of its client.
const OF_REQUEST: &str = "reprise_request";
const REPEATED: [&str; 6] =
    ["max_output_tokens", "parallel_tool_calls", "previous_response_id", "reasoning", "temperature", "top_p"];

/// Adds to the metadata what a later read of the response repeats of its request. `echo`: all that the answer repeats.
pub fn keep_request(echo: &Map<String, Value>, metadata: &mut Map<String, Value>) {
    let repeated = REPEATED.iter().filter_map(|name| Some(((*name).to_owned(), echo.get(*name)?.clone())));
    let repeated = Value::Object(repeated.filter(|(_, value)| !value.is_null()).collect());
    metadata.insert(OF_REQUEST.to_owned(), Value::String(repeated.to_string()));
}

/// Takes it out again. A response of another door has none.
fn take_request(metadata: &mut Map<String, Value>) -> Map<String, Value> {
    let kept = metadata.shift_remove(OF_REQUEST);
    let kept = kept.as_ref().and_then(Value::as_str).and_then(|kept| serde_json::from_str(kept).ok());
    kept.unwrap_or_default()
}

#[derive(Deserialize, JsonSchema)]
pub struct StoredQuery {
    /// Refused where it is true.
    stream: Option<bool>,
}

/// Stored response of the caller that the path names.
pub struct OwnResponse(StoredResponse);

impl FromRequestParts<App> for OwnResponse {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<OwnResponse, ApiError> {
        let (caller, id) = named(parts, app, "response_id").await?;
        let found = app.replies.find_response(&caller, &id).await?;
        Ok(OwnResponse(found.ok_or_else(|| not_found(&id))?))
    }
}

fn not_found(id: &str) -> ApiError {
    let message = format!("there is no response {id}");
    ApiError::new(StatusCode::NOT_FOUND, "response_not_found", message).param("response_id")
}

/// `GET /v1/responses/{response_id}`: without its instructions and tools, which are not kept.
pub async fn read(
    State(replies): State<Completions>,
    asked: Asked<StoredQuery>,
    found: Result<OwnResponse, ApiError>,
) -> JsonAnswer {
    let Query(StoredQuery { stream }) = asked?;
    if stream == Some(true) {
        let message = "a response that is kept is not streamed: leave stream out";
        return Err(ApiError::bad("unsupported_parameter", message).param("stream"));
    }
    view(&replies, found?.0).await
}

/// `DELETE /v1/responses/{response_id}`: with its turn, unless a client made the conversation.
pub async fn delete(State(replies): State<Completions>, OwnResponse(found): OwnResponse) -> JsonAnswer {
    let id = found.id.clone();
    replies.delete_response(found).await?;
    Ok(Json(json!({ "id": id, "object": "response", "deleted": true })))
}

/// `POST /v1/responses/{response_id}/cancel`: one that is over stays as it is.
pub async fn cancel(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    OwnResponse(found): OwnResponse,
) -> JsonAnswer {
    let StoredResponse { session, id, status, .. } = found;
    if status == ResponseStatus::InProgress {
        let cancel = vec![Input::CancelResponse { response_id: Some(id.clone()) }];
        let ends = |event: &Event| matches!(event, Event::ResponseDone { .. });
        let is_over = |event: &Event| matches!(event, Event::ResponseDone { response } if response.id == id);
        // The session refuses to cancel a response that was over before.
        replies.runtime.say_and_wait(&session, None, cancel, ends, is_over).await?;
    }
    let found = replies.find_response(&caller, &id).await?.ok_or_else(|| not_found(&id))?;
    view(&replies, found).await
}

pub async fn stop_thinking(State(replies): State<Completions>, OwnResponse(found): OwnResponse) -> JsonAnswer {
    thinking::stop(&replies.runtime, &found.session, Some(found.id)).await
}

async fn view(completions: &Completions, found: StoredResponse) -> JsonAnswer {
    let StoredResponse { session, id, status, details, metadata, usage, started_at_ms, output, .. } = found;
    let model = super::model_of(completions, &session, None).await?;
    let mut metadata = if let Value::Object(metadata) = metadata { metadata } else { Map::new() };
    metadata.shift_remove(MARK);
    let repeated = take_request(&mut metadata);
    let Value::Object(mut base) = json!({
        "background": false, "instructions": null, "max_output_tokens": null, "metadata": metadata,
        "parallel_tool_calls": true, "previous_response_id": null, "reasoning": { "effort": null, "summary": null },
        "store": true, "temperature": null, "text": { "format": { "type": "text" } }, "tool_choice": "auto", "tools": [],
        "top_p": null, "truncation": "disabled", "model": model, "created_at": started_at_ms / 1000,
        "conversation": { "id": session.id() },
    }) else {
        return Ok(Json(Value::Null));
    };
    base.extend(repeated);
    let state = ResponseState { status, details, usage: usage.as_ref().map(usage_view) };
    let output = output.iter().map(|item| item_view(&item.item())).collect();
    Ok(Json(state.view(&id, &base, output)))
}
