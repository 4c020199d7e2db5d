//! Health of the service, and its numbers.

use super::metrics;
use crate::App;
use crate::entry::{self, Peer};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};
use store::KeyScope;

/// Tells whether the service can answer; administrators also learn why not.
pub async fn health(
    State(app): State<App>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> (StatusCode, Json<Value>) {
    let status = app.replies.model.status();
    let (code, word) = if app.stopping.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if status.ready {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
    };
    // The next write may go well, so the service stays ready.
    let trouble = app.replies.store.trouble();
    let mut body = json!({ "status": word, "store": if trouble.is_some() { "failing" } else { "ok" } });
    if entry::caller(&app, &headers, peer.map(|peer| peer.address), KeyScope::Admin).await.is_ok() {
        body["model"] = json!(app.replies.runtime.presets().model);
        body["asleep"] = json!(status.asleep);
        body["trouble"] = json!(status.trouble);
        body["store_trouble"] = json!(trouble);
        body["sessions_in_memory"] = json!(app.replies.runtime.count());
    }
    (code, Json(body))
}

pub async fn metrics(State(app): State<App>) -> Response {
    let now = metrics::Now {
        status: app.replies.model.status(),
        connections: app.access.gate.connections(),
        sessions_in_memory: app.replies.runtime.count(),
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::render(&now)).into_response()
}
