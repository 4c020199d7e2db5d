//! Whether the service can answer, and its numbers.

use crate::access::{self, Peer};
use crate::{App, metrics};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};
use store::KeyScope;

/// What is wrong, and with which model, is for callers that look after the service.
pub async fn health(
    State(app): State<App>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> (StatusCode, Json<Value>) {
    let status = app.model.status();
    let (code, word) = if app.stopping.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if status.ready {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
    };
    // The next write may go well, so the service stays ready.
    let trouble = app.store.trouble();
    let mut body = json!({ "status": word, "store": if trouble.is_some() { "failing" } else { "ok" } });
    if access::caller(&app, &headers, peer.map(|peer| peer.address), KeyScope::Admin).await.is_ok() {
        body["model"] = json!(app.runtime.presets().model);
        body["asleep"] = json!(status.asleep);
        body["trouble"] = json!(status.trouble);
        body["store_trouble"] = json!(trouble);
        body["sessions_in_memory"] = json!(app.runtime.count());
    }
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
