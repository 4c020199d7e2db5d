//! State of the service for administrators: now and again on one stream, and the configuration that it started with.

use super::metrics;
use crate::{ApiError, App};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[derive(Serialize, JsonSchema)]
pub struct ServerState {
    version: &'static str,
    model: String,
    /// Processor, GPU or other server that computes.
    device: String,
    preset: String,
    ctx_size: u32,
    ready: bool,
    asleep: bool,
    trouble: Option<String>,
    store_trouble: Option<String>,
    notes: Vec<String>,
    requests: BTreeMap<&'static str, usize>,
    /// Memory in use by its kind, in bytes.
    memory_bytes: BTreeMap<&'static str, u64>,
    /// Memory as it was planned at the start, in bytes.
    planned_bytes: BTreeMap<&'static str, u64>,
    /// States of pasts that a turn can go on from, by where they are: `memory`, `disk`.
    states: BTreeMap<&'static str, StatesOfTier>,
    connections: usize,
    sessions_in_memory: usize,
    /// Counts since the start, as `/metrics` names them.
    samples: BTreeMap<String, f64>,
}

#[derive(Serialize, JsonSchema)]
struct StatesOfTier {
    states: usize,
    bytes: u64,
}

const SAMPLES: [&str; 8] = [
    "reprise_first_token_seconds",
    "reprise_decode_tokens_per_second",
    "reprise_generated_tokens_total",
    "reprise_prompt_tokens_total",
    "reprise_answers_total",
    "reprise_compactions_total",
    "reprise_store_failures_total",
    "reprise_engine_restarts_total",
];

fn state(app: &App) -> ServerState {
    let (replies, status) = (&app.replies, app.replies.model.status());
    let chosen = replies.settings.chosen().ok();
    let now = metrics::Now {
        status: status.clone(),
        connections: app.access.gate.connections(),
        sessions_in_memory: replies.runtime.count(),
    };
    let load = status.load;
    ServerState {
        version: env!("CARGO_PKG_VERSION"),
        model: replies.runtime.presets().model.clone(),
        device: app.start.device.clone(),
        preset: chosen.map(|preset| preset.name.clone()).unwrap_or_default(),
        ctx_size: chosen.map_or(0, |preset| preset.ctx_size),
        ready: status.ready,
        asleep: status.asleep,
        trouble: status.trouble,
        store_trouble: replies.store.trouble(),
        notes: app.start.notes.clone(),
        requests: [("talk", load.talk), ("speculate", load.speculate), ("background", load.background)].into(),
        memory_bytes: status.memory_bytes.into_iter().collect(),
        planned_bytes: app.start.planned_bytes.iter().copied().collect(),
        states: [("memory", status.in_memory), ("disk", status.on_disk)]
            .map(|(tier, kept)| (tier, StatesOfTier { states: kept.states, bytes: kept.bytes }))
            .into(),
        connections: now.connections,
        sessions_in_memory: now.sessions_in_memory,
        samples: samples(&metrics::render(&now)),
    }
}

fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| SAMPLES.iter().any(|name| line.starts_with(name)));
    lines
        .filter_map(|line| line.rsplit_once(' ').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?))))
        .collect()
}

pub async fn events(State(app): State<App>) -> Result<Response, ApiError> {
    let limits = &app.replies.settings.limits;
    let place = app.state_streams.place().ok_or_else(|| {
        let most = limits.status_streams;
        access::Error::TooManyConnections(format!("{most} streams of the state are open (limits.status_streams)"))
    })?;
    let (pause, end) = (Duration::from_millis(limits.status_ms), Instant::now() + Duration::from_secs(limits.status_s));
    let states = stream::unfold((app, place, false), move |(app, place, is_later)| async move {
        if is_later {
            tokio::select! {
                () = sleep(pause) => {}
                () = app.stopping.cancelled() => return None,
            }
        }
        if app.stopping.is_cancelled() || Instant::now() >= end {
            return None;
        }
        let event = app.state_streams.shown(pause / 2, || format!("data: {}\n\n", json!(state(&app))));
        Some((Ok::<_, Infallible>(event), (app, place, true)))
    });
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(states)).into_response())
}

pub async fn now(State(app): State<App>) -> Json<ServerState> {
    Json(state(&app))
}

pub async fn settings(State(app): State<App>) -> Json<Value> {
    let values = app.start.settings.iter().map(|value| {
        json!({
            "section": value.section,
            "key": value.key,
            "value": value.value,
            "is_chosen": value.is_chosen,
            "origin": value.origin,
            "comment": value.comment,
        })
    });
    Json(json!({ "object": "list", "data": values.collect::<Vec<_>>(), "has_more": false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_people_look_at_is_taken_from_the_metrics() {
        let text = "# TYPE reprise_first_token_seconds histogram\n\
                    reprise_first_token_seconds_bucket{priority=\"talk\",le=\"0.2\"} 3\n\
                    reprise_generated_tokens_total 41\nreprise_http_requests_total{route=\"/\"} 9\n";
        let found = samples(text);
        assert_eq!(found.get("reprise_first_token_seconds_bucket{priority=\"talk\",le=\"0.2\"}"), Some(&3.0));
        assert_eq!((found.get("reprise_generated_tokens_total"), found.len()), (Some(&41.0), 2));
    }
}
