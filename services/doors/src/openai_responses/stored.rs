//! Responses that are kept: read, deleted, cancelled.

use super::state::find;
use super::view::{ResponseState, item_view, usage_view};
use crate::ApiError;
use crate::access::Caller;
use crate::thinking;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use replies::{Completions, MARK};
use runtime::{Attach, ToWrite};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::machine::Replay;
use session::{Event, Input, ResponseStatus};
use std::sync::Arc;
use store::StoredResponse;

#[derive(Deserialize, JsonSchema)]
pub struct StoredQuery {
    /// Refused where it is true.
    stream: Option<bool>,
}

type Answer = Result<Json<Value>, ApiError>;

/// `GET /v1/responses/{response_id}`: what is kept of it. Of its instructions and tools nothing is.
pub async fn read(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    asked: Result<Query<StoredQuery>, QueryRejection>,
) -> Answer {
    let Query(StoredQuery { stream }) = asked?;
    if stream == Some(true) {
        let message = "a response that is kept is not streamed: leave stream out";
        return Err(ApiError::bad("unsupported_parameter", message).param("stream"));
    }
    let found = found(&completions, &caller, &id).await?;
    view(&completions, found).await
}

/// `DELETE /v1/responses/{response_id}`: it is not found any more, and what was said stays in its conversation.
pub async fn delete(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let StoredResponse { session, .. } = found(&completions, &caller, &id).await?;
    completions.store.delete_response(&session, &id, runtime::wall_ms()).await?;
    Ok(Json(json!({ "id": id, "object": "response", "deleted": true })))
}

/// `POST /v1/responses/{response_id}/cancel`: one that is over stays as it is.
pub async fn cancel(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let StoredResponse { session, status, .. } = found(&completions, &caller, &id).await?;
    if status == ResponseStatus::InProgress {
        let interest = |event: &Event| matches!(event, Event::ResponseDone { .. } | Event::Refused { .. });
        let attach = Attach { replay: Replay::Nothing, interest: Arc::new(interest), person: None };
        let (connected, mut written) = completions.runtime.attach(&session, attach).await?;
        connected.say(Some(id.clone()), Input::CancelResponse { response_id: Some(id.clone()) }).await;
        while let ToWrite::Event(event) = written.next().await {
            written.done(1);
            match &*event {
                Event::ResponseDone { response } if response.id == id => break,
                // It was over before.
                Event::Refused { input_id, .. } if *input_id == Some(id.clone()) => break,
                _ => {}
            }
        }
    }
    let found = found(&completions, &caller, &id).await?;
    view(&completions, found).await
}

/// `POST /v1/responses/{response_id}/stop_thinking`: its words follow, with what was thought so far.
pub async fn stop_thinking(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let StoredResponse { session, .. } = found(&completions, &caller, &id).await?;
    thinking::stop(&completions.runtime, &session, Some(id)).await
}

async fn found(completions: &Completions, caller: &Caller, id: &str) -> Result<StoredResponse, ApiError> {
    find(completions, caller, id).await?.ok_or_else(|| {
        let message = format!("there is no response {id}");
        ApiError::new(StatusCode::NOT_FOUND, "response_not_found", message).param("response_id")
    })
}

async fn view(completions: &Completions, found: StoredResponse) -> Answer {
    let StoredResponse { session, id, status, details, metadata, usage, started_at_ms, output, .. } = found;
    let model = super::model_of(completions, &session, None).await?;
    let mut metadata = if let Value::Object(metadata) = metadata { metadata } else { Map::new() };
    metadata.shift_remove(MARK);
    let Value::Object(base) = json!({
        "background": false, "instructions": null, "max_output_tokens": null, "metadata": metadata,
        "parallel_tool_calls": true, "previous_response_id": null, "reasoning": { "effort": null, "summary": null },
        "store": true, "temperature": null, "text": { "format": { "type": "text" } }, "tool_choice": "auto", "tools": [],
        "top_p": null, "truncation": "disabled", "model": model, "created_at": started_at_ms / 1000,
        "conversation": { "id": session.id() },
    }) else {
        return Ok(Json(Value::Null));
    };
    let state = ResponseState { status, details, usage: usage.as_ref().map(usage_view) };
    let output = output.iter().map(|item| item_view(&item.item())).collect();
    Ok(Json(state.view(&id, &base, output)))
}
