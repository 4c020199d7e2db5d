//! Summaries to read, undo, redo and edit, and pins: the context of a session's prompt.

use crate::extract::{JsonAnswer, JsonBody, OwnSession};
use axum::Json;
use axum::extract::{Path, State};
use replies::Completions;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Pin, Summary};

#[derive(Deserialize, JsonSchema)]
pub struct SummaryVersion {
    /// The summary that is meant; else the one in use, or for redo the last that was undone.
    version: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
pub struct SummaryEdit {
    text: String,
    /// The summary to edit; else the one in use.
    version: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
pub struct NewPin {
    text: String,
}

pub async fn summaries(State(replies): State<Completions>, OwnSession(session): OwnSession) -> JsonAnswer {
    let mut summaries = replies.store.summaries(&session).await?;
    summaries.reverse();
    let in_use = summaries.iter().find(|summary| summary.is_in_use()).map(|summary| summary.version);
    let data: Vec<Value> = summaries.iter().map(|summary| view(summary, Some(summary.version) == in_use)).collect();
    Ok(Json(json!({ "object": "list", "data": data, "has_more": false })))
}

pub async fn undo(
    State(replies): State<Completions>,
    OwnSession(session): OwnSession,
    body: Option<JsonBody<SummaryVersion>>,
) -> JsonAnswer {
    let version = body.and_then(|JsonBody(SummaryVersion { version })| version);
    Ok(Json(view(&replies.runtime.undo_summary(&session, version).await?, false)))
}

pub async fn redo(
    State(replies): State<Completions>,
    OwnSession(session): OwnSession,
    body: Option<JsonBody<SummaryVersion>>,
) -> JsonAnswer {
    let version = body.and_then(|JsonBody(SummaryVersion { version })| version);
    Ok(Json(view(&replies.runtime.redo_summary(&session, version).await?, true)))
}

pub async fn edit(
    State(replies): State<Completions>,
    OwnSession(session): OwnSession,
    JsonBody(edit): JsonBody<SummaryEdit>,
) -> JsonAnswer {
    let SummaryEdit { text, version } = edit;
    Ok(Json(view(&replies.runtime.edit_summary(&session, version, &text).await?, true)))
}

pub async fn pins(State(replies): State<Completions>, OwnSession(session): OwnSession) -> JsonAnswer {
    let pins: Vec<Pin> = replies.store.pins(&session, false).await?;
    Ok(Json(json!({ "object": "list", "data": pins, "has_more": false })))
}

pub async fn add_pin(
    State(replies): State<Completions>,
    OwnSession(session): OwnSession,
    JsonBody(pin): JsonBody<NewPin>,
) -> JsonAnswer {
    let NewPin { text } = pin;
    Ok(Json(json!(replies.runtime.add_pin(&session, &text).await?)))
}

pub async fn remove_pin(
    State(replies): State<Completions>,
    OwnSession(session): OwnSession,
    Path((_, pin)): Path<(String, String)>,
) -> JsonAnswer {
    replies.runtime.remove_pin(&session, &pin).await?;
    Ok(Json(json!({ "object": "pin.deleted", "id": pin, "deleted": true })))
}

fn view(summary: &Summary, in_use: bool) -> Value {
    let mut view = json!(summary);
    view["in_use"] = Value::Bool(in_use);
    view
}
