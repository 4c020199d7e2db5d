//! What experiments need of clients: the user's thumb, and a way to move a session on purpose.

use crate::ApiError;
use crate::App;
use crate::access::Caller;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};

type Said<T> = Result<Json<T>, JsonRejection>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feedback {
    session_id: String,
    response_id: String,
    /// 1: good. -1: bad. 0: taken back.
    value: i64,
}

pub async fn feedback(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    said: Said<Feedback>,
) -> Result<Json<Value>, ApiError> {
    let Feedback { session_id, response_id, value } = body(said)?;
    if !(-1..=1).contains(&value) {
        return Err(ApiError::bad("invalid_value", "value must be 1, -1 or 0").param("value"));
    }
    let session = app.store.open_session(&caller.identity.user, &session_id).await?;
    app.store.set_feedback(&session, &response_id, value).await?;
    Ok(Json(json!({ "object": "feedback", "session_id": session_id, "response_id": response_id, "value": value })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementRequest {
    /// None: what the experiment draws.
    preset: Option<String>,
}

pub async fn place(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    said: Said<PlacementRequest>,
) -> Result<Json<Value>, ApiError> {
    let PlacementRequest { preset } = body(said)?;
    let session = app.store.open_session(&caller.identity.user, &id).await?;
    let placed = app.runtime.move_session(&session, preset.as_deref()).await?;
    tracing::info!(session = %id, preset = placed.preset, arm = placed.arm.as_deref().unwrap_or("-"), "a session was moved");
    Ok(Json(json!({
        "object": "session.placement",
        "session_id": id,
        "preset": placed.preset,
        "ctx_size": placed.ctx_size,
        "experiment": placed.experiment,
        "arm": placed.arm,
    })))
}

fn body<T>(said: Said<T>) -> Result<T, ApiError> {
    said.map(|Json(said)| said).map_err(|error| ApiError::bad("invalid_json", error.body_text()))
}
