//! The API as one table: each route, the scope that a key needs for it, what the document says of it.

use crate::ApiError;
use crate::access::{PathBefore, guard, require};
use crate::admin::{context, experiments, keys, memories, persons, sessions};
use crate::openai_chat as chat;
use crate::openai_realtime as realtime;
use crate::openai_responses::{self as responses, conversations};
use crate::openapi::{self, read, written};
use crate::route::{Route, Success};
use crate::{App, health, metrics, ollama};
use axum::extract::{DefaultBodyLimit, FromRef, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Json, Router};
use replies::Completions;
use serde_json::Value;
use settings::{RuleClue, Settings, WantedText};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::KeyScope;

pub fn table() -> Vec<Route> {
    use KeyScope::{Admin, Sessions, Talk};
    use Success::{Events, Lines, List, Object, Of, OllamaLines, Text, Websocket};
    let route = |method, path, scope, handler, success| Route {
        method,
        path,
        scope: Some(scope),
        handler,
        query: None,
        body: None,
        success,
    };
    let open = |path, handler, success| Route { scope: None, ..route("get", path, Talk, handler, success) };
    vec![
        route("get", "/v1/realtime", Talk, get(realtime::connect::connect), Websocket)
            .query(read::<realtime::connect::ConnectQuery>),
        open("/v1/realtime/schema.json", get(realtime::connect::schema), Object),
        route(
            "post",
            "/v1/realtime/client_secrets",
            Talk,
            post(keys::create_client_secret),
            Of(written::<keys::ClientSecretAnswer>),
        )
        .body(read::<keys::ClientSecretRequest>),
        route("post", "/v1/chat/completions", Talk, post(chat::completions), Events).body(read::<chat::ChatBody>),
        route("post", "/v1/responses", Talk, post(responses::create), Events).body(read::<responses::ResponsesBody>),
        route("get", "/v1/responses", Talk, get(responses::connect), Websocket)
            .query(read::<responses::ResponsesQuery>),
        route("get", "/v1/responses/{response_id}", Talk, get(responses::read), Object)
            .query(read::<responses::StoredQuery>),
        route("delete", "/v1/responses/{response_id}", Sessions, delete(responses::delete), Object),
        route("post", "/v1/responses/{response_id}/cancel", Talk, post(responses::cancel), Object),
        route("post", "/v1/responses/{response_id}/stop_thinking", Talk, post(responses::stop_thinking), Object),
        route("post", "/v1/conversations", Talk, post(conversations::create), Object)
            .body(read::<conversations::NewConversation>),
        route("get", "/v1/conversations/{conversation_id}", Talk, get(conversations::read), Object),
        route("post", "/v1/conversations/{conversation_id}", Talk, post(conversations::update), Object)
            .body(read::<conversations::ConversationUpdate>),
        route("delete", "/v1/conversations/{conversation_id}", Sessions, delete(conversations::delete), Object),
        route("get", "/v1/conversations/{conversation_id}/items", Talk, get(conversations::items), List)
            .query(read::<conversations::ConversationItems>),
        route("post", "/v1/conversations/{conversation_id}/items", Talk, post(conversations::add), List)
            .body(read::<conversations::NewItems>),
        route(
            "get",
            "/v1/conversations/{conversation_id}/items/{item_id}",
            Talk,
            get(conversations::read_item),
            Object,
        ),
        route(
            "delete",
            "/v1/conversations/{conversation_id}/items/{item_id}",
            Talk,
            delete(conversations::delete_item),
            Object,
        ),
        route("get", "/v1/models", Talk, get(chat::models), List),
        route("get", "/v1/models/{model}", Talk, get(chat::model), Object),
        route("post", "/api/chat", Talk, post(ollama::chat), OllamaLines).body(read::<ollama::OllamaBody>),
        route("post", "/api/generate", Talk, post(ollama::generate), OllamaLines).body(read::<ollama::OllamaBody>),
        route("get", "/api/tags", Talk, get(ollama::tags), Object),
        route("get", "/api/ps", Talk, get(ollama::ps), Object),
        route("post", "/api/show", Talk, post(ollama::show), Object).body(read::<ollama::NamedModel>),
        route("post", "/api/pull", Admin, post(ollama::pull), OllamaLines).body(read::<ollama::NamedModel>),
        open("/api/version", get(ollama::version), Object),
        route("get", "/v1/sessions", Sessions, get(sessions::list), List).query(read::<sessions::SessionsPage>),
        route("get", "/v1/sessions/search", Sessions, get(sessions::search), List).query(read::<sessions::SearchQuery>),
        route("get", "/v1/sessions/{session_id}", Sessions, get(sessions::read), Object),
        route("delete", "/v1/sessions/{session_id}", Sessions, delete(sessions::delete), Object),
        route("get", "/v1/sessions/{session_id}/items", Sessions, get(sessions::items), List)
            .query(read::<sessions::ItemsPage>),
        route("get", "/v1/sessions/{session_id}/export", Sessions, get(sessions::export), Lines),
        route("post", "/v1/sessions/{session_id}/placement", Sessions, post(experiments::place), Object)
            .body(read::<experiments::PlacementRequest>),
        route("post", "/v1/sessions/{session_id}/stop_thinking", Talk, post(sessions::stop_thinking), Object),
        route("post", "/v1/feedback", Talk, post(experiments::feedback), Object).body(read::<experiments::Feedback>),
        route("get", "/v1/sessions/{session_id}/summaries", Sessions, get(context::summaries), List),
        route("post", "/v1/sessions/{session_id}/summaries", Sessions, post(context::edit), Object)
            .body(read::<context::SummaryEdit>),
        route("post", "/v1/sessions/{session_id}/summaries/undo", Sessions, post(context::undo), Object)
            .body(read::<context::SummaryVersion>),
        route("post", "/v1/sessions/{session_id}/summaries/redo", Sessions, post(context::redo), Object)
            .body(read::<context::SummaryVersion>),
        route("get", "/v1/sessions/{session_id}/pins", Sessions, get(context::pins), List),
        route("post", "/v1/sessions/{session_id}/pins", Sessions, post(context::add_pin), Object)
            .body(read::<context::NewPin>),
        route("delete", "/v1/sessions/{session_id}/pins/{pin_id}", Sessions, delete(context::remove_pin), Object),
        route("get", "/v1/memories", Sessions, get(memories::list), List).query(read::<memories::MemoriesQuery>),
        route("post", "/v1/memories", Sessions, post(memories::add), Object).body(read::<memories::NewMemory>),
        route("delete", "/v1/memories", Sessions, delete(memories::forget_all), Object)
            .query(read::<memories::PersonQuery>),
        route("get", "/v1/memories/export", Sessions, get(memories::export), Lines)
            .query(read::<memories::PersonQuery>),
        route("get", "/v1/memories/{memory_id}", Sessions, get(memories::read), Object),
        route("delete", "/v1/memories/{memory_id}", Sessions, delete(memories::forget), Object),
        route("get", "/v1/persons", Sessions, get(persons::list), List),
        route("delete", "/v1/persons/{name}", Sessions, delete(persons::delete), Object),
        open("/healthz", get(health::health), Object),
        route("get", "/metrics", Admin, get(health::metrics), Text),
        open("/openapi.json", get(document), Object),
    ]
}

async fn document(State(app): State<App>) -> Json<Value> {
    Json(openapi::document(&table(), app.policy.keys_required))
}

impl FromRef<App> for Completions {
    fn from_ref(app: &App) -> Completions {
        let App { settings, model, store, runtime, gate, recent, persons, keeping, owners, standing, .. } = app.clone();
        let wording = Arc::new(runtime::wording(&settings));
        let begun = gate.begun.clone();
        Completions { settings, model, store, runtime, begun, recent, persons, keeping, owners, standing, wording }
    }
}

/// `front` answers `/`: it is for people and not for programs, so it is no part of the table.
pub fn router(app: App, front: MethodRouter<App>) -> Router {
    let mut router: Router<App> = Router::new();
    let before = paths_before(&app.settings);
    for Route { path, scope, handler, .. } in table() {
        let handler = match scope {
            Some(scope) => handler.layer(from_fn_with_state((app.clone(), scope), require)),
            None => handler,
        };
        if path.starts_with("/v1/") || path.starts_with("/api/") {
            for before in &before {
                let handler = handler.clone().layer(Extension(PathBefore(before.clone())));
                router = router.route(&format!("/{before}{path}"), handler);
            }
        }
        router = router.route(path, handler);
    }
    router
        .route("/", front)
        .fallback(not_there)
        .method_not_allowed_fallback(not_this_way)
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.clone(), guard))
        .layer(from_fn(errors_of_the_door))
        .layer(from_fn(metrics::watch))
        .layer(map_response(harden))
        .with_state(app)
}

/// Clients that can tell nothing else of their speaker have a base URL of their own. Only what a rule names is there.
fn paths_before(settings: &Settings) -> BTreeSet<String> {
    let of_persons = settings.remember.who.iter().flat_map(|rule| &rule.conditions);
    let conditions = of_persons.chain(settings.prompt.clients.iter().flat_map(|rule| &rule.conditions));
    let named = conditions.filter_map(|condition| match (&condition.clue, &condition.wanted) {
        (RuleClue::Path, WantedText::Exactly(path)) => Some(path.clone()),
        _ => None,
    });
    named.collect()
}

/// An error is told as the clients of its path read errors.
async fn errors_of_the_door(request: axum::extract::Request, next: Next) -> Response {
    let is_ollama = request.uri().path().split('/').skip(1).take(2).any(|part| part == "api");
    let response = in_json(next.run(request).await).await;
    if is_ollama { ollama::errors_in_our_words(response) } else { response }
}

/// What the HTTP library refuses by itself it tells as plain text.
async fn in_json(response: Response) -> Response {
    let is_text = |kind: &HeaderValue| kind.as_bytes().starts_with(b"text/plain");
    let is_foreign = response.extensions().get::<ApiError>().is_none()
        && (response.status().is_client_error() || response.status().is_server_error())
        && response.headers().get(header::CONTENT_TYPE).is_none_or(is_text);
    if !is_foreign {
        return response;
    }
    let status = response.status();
    let text = axum::body::to_bytes(response.into_body(), REFUSAL_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let message = if text.is_empty() { status.canonical_reason().unwrap_or("refused") } else { &text };
    ApiError::new(status, "invalid_request", message).into_response()
}

const REFUSAL_BYTES: usize = 4096;

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
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
