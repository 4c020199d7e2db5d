//! Experiments over HTTP: the user's thumb, and a way to move a session on purpose.

use crate::ApiError;
use crate::extract::{JsonAnswer, JsonBody, OwnSession};
use access::Caller;
use axum::extract::State;
use axum::{Extension, Json};
use replies::Completions;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feedback {
    session_id: String,
    response_id: String,
    /// 1: good. -1: bad. 0: taken back.
    #[schemars(range(min = -1, max = 1))]
    value: i64,
}

pub async fn feedback(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    JsonBody(feedback): JsonBody<Feedback>,
) -> JsonAnswer {
    let Feedback { session_id, response_id, value } = feedback;
    if !(-1..=1).contains(&value) {
        return Err(ApiError::bad("invalid_value", "value must be 1, -1 or 0").param("value"));
    }
    let session = replies.open_session(&caller, &session_id).await?;
    replies.store.set_feedback(&session, &response_id, value).await?;
    Ok(Json(json!({ "object": "feedback", "session_id": session_id, "response_id": response_id, "value": value })))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementRequest {
    /// Null: the arm that the experiment draws.
    preset: Option<String>,
}

pub async fn place(
    State(replies): State<Completions>,
    OwnSession(session): OwnSession,
    JsonBody(PlacementRequest { preset }): JsonBody<PlacementRequest>,
) -> JsonAnswer {
    let id = session.id();
    let placed = replies.runtime.move_session(&session, preset.as_deref()).await?;
    tracing::info!(
        session = id,
        preset = placed.preset,
        arm = placed.arm.as_deref().unwrap_or("-"),
        "a session was moved"
    );
    Ok(Json(json!({
        "object": "session.placement",
        "session_id": id,
        "preset": placed.preset,
        "ctx_size": placed.ctx_size,
        "experiment": placed.experiment,
        "arm": placed.arm,
    })))
}
