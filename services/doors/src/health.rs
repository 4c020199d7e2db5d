//! Whether the service can answer, and its numbers.

use crate::App;
use crate::metrics;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

pub async fn health(State(app): State<App>) -> (StatusCode, Json<Value>) {
    let status = app.model.status();
    let (code, word) = if app.stopping.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if status.ready {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
    };
    let body = json!({
        "status": word,
        "model": app.runtime.presets().model,
        "trouble": status.trouble,
        "sessions_in_memory": app.runtime.count(),
    });
    (code, Json(body))
}

pub async fn metrics(State(app): State<App>) -> Response {
    let now = metrics::Now {
        status: app.model.status(),
        connections: app.gate.connections(),
        sessions_in_memory: app.runtime.count(),
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::render(&now)).into_response()
}
