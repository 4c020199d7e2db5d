//! Whether the service can answer, and its numbers.

use super::App;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

pub async fn health(State(app): State<App>) -> (StatusCode, Json<Value>) {
    let status = app.backend.status();
    let (code, word) = if app.stopping.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if status.ready {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
    };
    let body = json!({
        "status": word,
        "model": app.live.presets().model(),
        "trouble": status.trouble,
        "sessions_in_memory": app.live.count(),
    });
    (code, Json(body))
}

pub async fn metrics(State(_app): State<App>) -> Response {
    StatusCode::NOT_IMPLEMENTED.into_response()
}
