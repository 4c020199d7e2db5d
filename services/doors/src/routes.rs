//! The API as one table: what there is, who may use it, what the document says of it.

use crate::ApiError;
use crate::access::{guard, require};
use crate::admin::{context, experiments, keys, sessions};
use crate::completion::Completions;
use crate::openai_chat as chat;
use crate::openai_realtime as realtime;
use crate::{App, console, health, metrics, openapi};
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef};
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use std::sync::Arc;
use store::Scope;

pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    /// None: no key is needed.
    pub scope: Option<Scope>,
    pub handler: MethodRouter<App>,
}

pub fn table() -> Vec<Route> {
    use Scope::{Admin, Sessions, Talk};
    let route = |method, path, scope, handler| Route { method, path, scope, handler };
    vec![
        route("get", "/v1/realtime", Some(Talk), get(realtime::connect::connect)),
        route("get", "/v1/realtime/schema.json", None, get(realtime::connect::schema)),
        route("post", "/v1/realtime/client_secrets", Some(Talk), post(keys::create_client_secret)),
        route("post", "/v1/chat/completions", Some(Talk), post(chat::completions)),
        route("get", "/v1/models", Some(Talk), get(chat::models)),
        route("get", "/v1/models/{model}", Some(Talk), get(chat::model)),
        route("get", "/v1/sessions", Some(Sessions), get(sessions::list)),
        route("get", "/v1/sessions/search", Some(Sessions), get(sessions::search)),
        route("get", "/v1/sessions/{session_id}", Some(Sessions), get(sessions::read)),
        route("delete", "/v1/sessions/{session_id}", Some(Sessions), delete(sessions::delete)),
        route("get", "/v1/sessions/{session_id}/items", Some(Sessions), get(sessions::items)),
        route("get", "/v1/sessions/{session_id}/export", Some(Sessions), get(sessions::export)),
        route("post", "/v1/sessions/{session_id}/placement", Some(Sessions), post(experiments::place)),
        route("post", "/v1/feedback", Some(Talk), post(experiments::feedback)),
        route("get", "/v1/sessions/{session_id}/summaries", Some(Sessions), get(context::summaries)),
        route("post", "/v1/sessions/{session_id}/summaries", Some(Sessions), post(context::edit)),
        route("post", "/v1/sessions/{session_id}/summaries/undo", Some(Sessions), post(context::undo)),
        route("post", "/v1/sessions/{session_id}/summaries/redo", Some(Sessions), post(context::redo)),
        route("get", "/v1/sessions/{session_id}/pins", Some(Sessions), get(context::pins)),
        route("post", "/v1/sessions/{session_id}/pins", Some(Sessions), post(context::add_pin)),
        route("delete", "/v1/sessions/{session_id}/pins/{pin_id}", Some(Sessions), delete(context::remove_pin)),
        route("get", "/healthz", None, get(health::health)),
        route("get", "/metrics", Some(Admin), get(health::metrics)),
        route("get", "/openapi.json", None, get(openapi::serve)),
    ]
}

impl FromRef<App> for Completions {
    fn from_ref(app: &App) -> Completions {
        let App { settings, model, store, runtime, .. } = app.clone();
        let wording = Arc::new(runtime::wording(&settings));
        Completions { settings, model, store, runtime, wording }
    }
}

pub fn router(app: App) -> Router {
    let mut router: Router<App> = Router::new();
    for Route { path, scope, handler, .. } in table() {
        let handler = match scope {
            Some(scope) => handler.layer(from_fn_with_state((app.clone(), scope), require)),
            None => handler,
        };
        router = router.route(path, handler);
    }
    // For people and not for programs, so it is no part of the table.
    router
        .route("/", get(console::page))
        .fallback(not_there)
        .method_not_allowed_fallback(not_this_way)
        .layer(DefaultBodyLimit::max(app.settings.limits.body_bytes))
        .layer(from_fn_with_state(app.clone(), guard))
        .layer(from_fn(metrics::watch))
        .layer(map_response(harden))
        .with_state(app)
}

async fn not_there(request: axum::extract::Request) -> ApiError {
    let message = format!("there is no {}: see /openapi.json", request.uri().path());
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

async fn not_this_way(request: axum::extract::Request) -> ApiError {
    let message = format!("{} does not take {}: see /openapi.json", request.uri().path(), request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// What people say is not kept on the way to them.
async fn harden(response: Response) -> Response {
    let headers = [("x-content-type-options", "nosniff"), ("cache-control", "no-store")];
    let mut response = response.into_response();
    for (name, value) in headers {
        response.headers_mut().entry(name).or_insert(axum::http::HeaderValue::from_static(value));
    }
    response
}
