//! Experiments over HTTP: the user's thumb, a way to move a session on purpose, and what the arms differ in.

use crate::ApiError;
use crate::extract::{JsonAnswer, JsonBody, OwnSession};
use access::Caller;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use replies::Completions;
use runtime::{ArmTurns, heavy};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

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

pub async fn list(State(replies): State<Completions>) -> JsonAnswer {
    let names = replies.store.experiments().await?;
    let configured = replies.settings.experiment.as_ref().map(|experiment| &experiment.name);
    Ok(Json(json!({ "object": "list", "data": names, "has_more": false, "configured": configured })))
}

/// Permit for comparisons, one at a time: each reads all turns of an experiment.
static COMPARING: Mutex<()> = Mutex::const_new(());

const TURN_BYTES: usize = 1 << 10; // not a window: bytes of numbers

pub async fn report(State(replies): State<Completions>, Path(name): Path<String>) -> JsonAnswer {
    let _turn = COMPARING.lock().await;
    if !replies.store.experiments().await?.contains(&name) {
        let message = format!("no turn was measured in an experiment {name:?}");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "experiment_not_found", message).param("name"));
    }
    let turns = replies.store.experiment_turns(&name).await?;
    let configured = replies.settings.experiment.as_ref().filter(|experiment| experiment.name == name);
    let compared = || ArmTurns::of(configured, &turns).compared(SEED);
    let comparison = heavy::run(turns.len() * TURN_BYTES, compared).await;
    let rows: Vec<Value> = comparison
        .rows
        .iter()
        .map(|row| {
            let metric = row.metric;
            json!({
                "metric": metric,
                "words": metric.words(),
                "unit": metric.unit(),
                "statistic": metric.statistic(),
                "better": metric.better(),
                "cells": row.cells,
                "differences": row.differences,
            })
        })
        .collect();
    let warnings: Vec<String> = comparison.warnings.iter().map(ToString::to_string).collect();
    Ok(Json(json!({
        "object": "experiment.report",
        "name": name,
        "turns": turns.len(),
        "from_ms": turns.first().map(|turn| turn.measurement.created_at_ms),
        "to_ms": turns.last().map(|turn| turn.measurement.created_at_ms),
        "arms": comparison.arms,
        "unit": comparison.unit,
        "level": comparison.level,
        "traffic": comparison.traffic,
        "rows": rows,
        "warnings": warnings,
    })))
}

/// Seed of the draws that make the intervals, as of `reprise ab report`.
const SEED: u64 = 1;
