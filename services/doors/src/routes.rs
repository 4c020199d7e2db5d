//! The API as one table: each route, the scope that a key needs for it, the form of its errors, its words in the document.

pub mod openapi;
mod route;

use crate::admin::{console, context, experiments, health, keys, memories, metrics, persons, server, sessions, window};
use crate::entry::{PathBefore, guard, require};
use crate::openai_realtime::{client_secrets, connect as realtime};
use crate::openai_responses::{self as responses, conversations};
use crate::{ApiError, App, ollama, openai_audio as audio, openai_chat as chat, openai_completions as completions};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, delete, get, post};
use axum::{Extension, Json, Router};
use fields::{read_schema as read, written_schema as written};
pub use route::ErrorForm;
use route::{OPENAI_ERRORS, Route, Success};
use serde_json::Value;
use settings::{RuleClue, Settings, WantedText};
use std::collections::{BTreeMap, BTreeSet};
use store::KeyScope;
use tower::ServiceBuilder;

pub fn table() -> Vec<Route> {
    use KeyScope::{Admin, Sessions, Talk};
    use Success::{In, List, Object, ObjectOr, Of, Websocket};
    let (json_lines, audio) = (|| In(&["application/jsonl"]), In(&["audio/wav", "audio/pcm"]));
    let (object_or_events, object_or_lines) = (|| ObjectOr("text/event-stream"), || ObjectOr("application/x-ndjson"));
    let route = |method, path, scope, handler, success| Route {
        method,
        path,
        scope: Some(scope),
        handler,
        query: None,
        body: None,
        success,
        errors: OPENAI_ERRORS,
    };
    let api = |method, path, scope, handler, success| Route {
        errors: ollama::ERRORS,
        ..route(method, path, scope, handler, success)
    };
    let open = |path, handler, success| Route { scope: None, ..route("get", path, Talk, handler, success) };
    vec![
        route("get", "/v1/realtime", Talk, get(realtime::connect), Websocket).query(read::<realtime::ConnectQuery>),
        open("/v1/realtime/schema.json", get(realtime::schema), Object),
        route(
            "post",
            "/v1/realtime/client_secrets",
            Talk,
            post(client_secrets::create_client_secret),
            Of(written::<client_secrets::ClientSecretAnswer>),
        )
        .body(read::<client_secrets::ClientSecretRequest>),
        route("post", "/v1/audio/transcriptions", Talk, post(audio::transcriptions), ObjectOr("text/plain")),
        route("post", "/v1/audio/speech", Talk, post(audio::speech), audio).body(read::<audio::SpeechBody>),
        route("post", "/v1/chat/completions", Talk, post(chat::completions), object_or_events())
            .body(read::<chat::ChatBody>),
        route("post", "/v1/completions", Talk, post(completions::completions), object_or_events())
            .body(read::<completions::CompletionsBody>),
        route("post", "/v1/responses", Talk, post(responses::create), object_or_events())
            .body(read::<responses::ResponsesBody>),
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
            "get",
            "/v1/conversations/{conversation_id}/items/{item_id}/audio",
            Talk,
            get(conversations::item_audio),
            In(&["audio/wav"]),
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
        api("post", "/api/chat", Talk, post(ollama::chat), object_or_lines()).body(read::<ollama::OllamaBody>),
        api("post", "/api/generate", Talk, post(ollama::generate), object_or_lines()).body(read::<ollama::OllamaBody>),
        api("get", "/api/tags", Talk, get(ollama::tags), Object),
        api("get", "/api/ps", Talk, get(ollama::ps), Object),
        api("post", "/api/show", Talk, post(ollama::show), Object).body(read::<ollama::NamedModel>),
        api("post", "/api/pull", Admin, post(ollama::pull), object_or_lines()).body(read::<ollama::NamedModel>),
        Route { scope: None, ..api("get", "/api/version", Talk, get(ollama::version), Object) },
        route("get", "/v1/sessions", Sessions, get(sessions::list), List).query(read::<sessions::SessionsPage>),
        route("get", "/v1/sessions/search", Sessions, get(sessions::search), List).query(read::<sessions::SearchQuery>),
        route("get", "/v1/sessions/{session_id}", Sessions, get(sessions::read), Object),
        route("post", "/v1/sessions/import", Sessions, post(sessions::import), Object),
        route("post", "/v1/sessions/{session_id}", Sessions, post(window::rename), Object)
            .body(read::<window::SessionTitle>),
        route("delete", "/v1/sessions/{session_id}", Sessions, delete(sessions::delete), Object),
        route(
            "get",
            "/v1/sessions/{session_id}/window",
            Sessions,
            get(window::window),
            Of(written::<window::WindowAnswer>),
        ),
        route(
            "get",
            "/v1/sessions/{session_id}/turns",
            Sessions,
            get(window::turns),
            Of(written::<window::TurnsAnswer>),
        )
        .query(read::<window::TurnsPage>),
        route("get", "/v1/sessions/{session_id}/items", Sessions, get(sessions::items), List)
            .query(read::<sessions::ItemsPage>),
        route("get", "/v1/sessions/{session_id}/export", Sessions, get(sessions::export), json_lines()),
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
        route("get", "/v1/memories/export", Sessions, get(memories::export), json_lines())
            .query(read::<memories::PersonQuery>),
        route("get", "/v1/memories/{memory_id}", Sessions, get(memories::read), Object),
        route("delete", "/v1/memories/{memory_id}", Sessions, delete(memories::forget), Object),
        route("get", "/v1/persons", Sessions, get(persons::list), List),
        route("delete", "/v1/persons/{name}", Sessions, delete(persons::delete), Object),
        route("get", "/v1/who", Sessions, get(persons::recent), List),
        route("get", "/v1/keys", Admin, get(keys::list), List),
        route("post", "/v1/keys", Admin, post(keys::create), Object).body(read::<keys::NewKey>),
        route("delete", "/v1/keys/{key_id}", Admin, delete(keys::revoke), Object),
        route("get", "/v1/settings", Admin, get(server::settings), List),
        route("get", "/v1/server", Admin, get(server::now), Of(written::<server::ServerState>)),
        route("get", "/v1/server/events", Admin, get(server::events), In(&["text/event-stream"])),
        route("get", "/v1/experiments", Admin, get(experiments::list), Object),
        route("get", "/v1/experiments/{name}", Admin, get(experiments::report), Object),
        open("/healthz", get(health::health), Object),
        route("get", "/metrics", Admin, get(health::metrics), In(&["text/plain"])),
        open("/openapi.json", get(document), Object),
    ]
}

async fn document(State(app): State<App>) -> Json<Value> {
    Json(openapi::document(&table(), app.access.policy.keys_required))
}

/// Makes the service of all routes. `front` answers `/`: it is for people and not for programs, so it is no row of the table.
pub fn router(app: App, front: MethodRouter<App>) -> Router {
    // Before a handler stands the guard, and behind it errors get the form that the door's clients read.
    let outside = |errors: ErrorForm| {
        let in_form = move |response: Response| async move { (errors.render)(in_json(response).await) };
        ServiceBuilder::new().layer(map_response(in_form)).layer(from_fn_with_state(app.clone(), guard))
    };
    let mut paths: BTreeMap<&str, (MethodRouter<App>, ErrorForm)> = BTreeMap::new();
    for Route { path, scope, handler, errors, .. } in table() {
        let handler = match scope {
            Some(scope) => handler.layer(from_fn_with_state((app.clone(), scope), require)),
            None => handler,
        };
        let (known, _) = paths.entry(path).or_insert((MethodRouter::new(), errors));
        *known = std::mem::take(known).merge(handler);
    }
    let (api, before) = (ollama::ROOT, paths_before(&app.replies.settings));
    let front = front.fallback(not_this_way).layer(outside(OPENAI_ERRORS));
    let file = get(console::file).fallback(not_this_way).layer(outside(OPENAI_ERRORS));
    let router = Router::new().fallback(not_there).layer(outside(OPENAI_ERRORS));
    let mut router = router.route("/", front).route("/console/{file}", file);
    // Errors below a root of its own have a door's form, also where no route is.
    for path in
        ["", "/", "/{*rest}"].into_iter().flat_map(|rest| [format!("{api}{rest}"), format!("/{{before}}{api}{rest}")])
    {
        router = router.route(&path, any(not_there).layer(outside(ollama::ERRORS)));
    }
    for (path, (handler, errors)) in paths {
        let handler = handler.fallback(not_this_way).layer(outside(errors));
        if path.starts_with("/v1/") || path.starts_with(api) {
            for before in &before {
                let handler = handler.clone().layer(Extension(PathBefore(before.clone())));
                router = router.route(&format!("/{before}{path}"), handler);
            }
        }
        router = router.route(path, handler);
    }
    router.layer(DefaultBodyLimit::disable()).layer(from_fn(metrics::watch)).layer(map_response(harden)).with_state(app)
}

/// Returns the first parts of base URLs by which rules know a speaker.
pub fn paths_before(settings: &Settings) -> BTreeSet<String> {
    let of_persons = settings.remember.who.iter().flat_map(|rule| &rule.conditions);
    let conditions = of_persons.chain(settings.prompt.clients.iter().flat_map(|rule| &rule.conditions));
    let named = conditions.filter_map(|condition| match (&condition.clue, &condition.wanted) {
        (RuleClue::Path, WantedText::Exactly(path)) => Some(path.clone()),
        _ => None,
    });
    named.collect()
}

/// Gives refusals of the HTTP library, which are plain text, the form of other errors.
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

async fn not_there(uri: Uri) -> ApiError {
    let message = format!("there is no {}: see /openapi.json", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

async fn not_this_way(request: Request) -> ApiError {
    let message = format!("{} does not take {}: see /openapi.json", request.uri().path(), request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// Tells browsers and proxies to keep nothing of what users say.
async fn harden(response: Response) -> Response {
    let headers = [("x-content-type-options", "nosniff"), ("cache-control", "no-store")];
    let mut response = response.into_response();
    for (name, value) in headers {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
