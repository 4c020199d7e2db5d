//! What stands in a session's prompt for what left it, over HTTP: summaries to read, undo, redo and edit, and pins.

use crate::ApiError;
use crate::App;
use crate::access::Caller;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Pin, SessionRef, Summary};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Version {
    /// None: the one in use, or the last one that was undone.
    version: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub struct Edited {
    text: String,
    #[serde(default)]
    version: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub struct NewPin {
    text: String,
}

type Body<T> = Result<Json<T>, JsonRejection>;
type Answer = Result<Json<Value>, ApiError>;

pub async fn summaries(State(app): State<App>, Extension(caller): Extension<Caller>, Path(id): Path<String>) -> Answer {
    let session = session(&app, &caller, &id).await?;
    let mut summaries = app.store.summaries(&session).await?;
    summaries.reverse();
    let in_use = summaries.iter().find(|summary| summary.is_in_use()).map(|summary| summary.version);
    let data: Vec<Value> = summaries.iter().map(|summary| told(summary, Some(summary.version) == in_use)).collect();
    Ok(Json(json!({ "object": "list", "data": data, "has_more": false })))
}

pub async fn undo(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Option<Json<Version>>,
) -> Answer {
    let session = session(&app, &caller, &id).await?;
    Ok(Json(told(&app.runtime.undo_summary(&session, version(body)).await?, false)))
}

pub async fn redo(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Option<Json<Version>>,
) -> Answer {
    let session = session(&app, &caller, &id).await?;
    Ok(Json(told(&app.runtime.redo_summary(&session, version(body)).await?, true)))
}

pub async fn edit(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body<Edited>,
) -> Answer {
    let Edited { text, version } = given(body)?;
    let session = session(&app, &caller, &id).await?;
    Ok(Json(told(&app.runtime.edit_summary(&session, version, &text).await?, true)))
}

pub async fn pins(State(app): State<App>, Extension(caller): Extension<Caller>, Path(id): Path<String>) -> Answer {
    let session = session(&app, &caller, &id).await?;
    let pins: Vec<Pin> = app.store.pins(&session, false).await?;
    Ok(Json(json!({ "object": "list", "data": pins, "has_more": false })))
}

pub async fn add_pin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body<NewPin>,
) -> Answer {
    let NewPin { text } = given(body)?;
    let session = session(&app, &caller, &id).await?;
    Ok(Json(json!(app.runtime.add_pin(&session, &text).await?)))
}

pub async fn remove_pin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path((id, pin)): Path<(String, String)>,
) -> Answer {
    let session = session(&app, &caller, &id).await?;
    app.runtime.remove_pin(&session, &pin).await?;
    Ok(Json(json!({ "object": "pin.deleted", "id": pin, "deleted": true })))
}

async fn session(app: &App, caller: &Caller, id: &str) -> Result<SessionRef, ApiError> {
    Ok(app.store.open_session(&caller.identity.user, id).await?)
}

/// Of those that could be in use the newest is.
fn told(summary: &Summary, in_use: bool) -> Value {
    let mut told = json!(summary);
    told["in_use"] = Value::Bool(in_use);
    told
}

fn version(body: Option<Json<Version>>) -> Option<u64> {
    body.and_then(|Json(Version { version })| version)
}

fn given<T>(body: Body<T>) -> Result<T, ApiError> {
    body.map(|Json(given)| given).map_err(|error| ApiError::bad("invalid_value", error.body_text()))
}
