//! A user's sessions over HTTP: list, read, export, search, delete. Another user's session is not there.

use super::{Answer, OwnSession};
use crate::access::Caller;
use crate::{ApiError, App, thinking, upkeep};
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use runtime::wall_ms;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use store::{HistorySearch, Page, SearchPlace, SessionRef};

#[derive(Deserialize, JsonSchema)]
pub struct SessionsPage {
    /// sessions at most
    limit: Option<u32>,
    /// goes on from a page: the `before` that stood there
    before: Option<i64>,
}

#[derive(Deserialize, JsonSchema)]
pub struct ItemsPage {
    /// items at most
    limit: Option<u32>,
    /// goes on from a page: the `after` that stood there
    after: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub struct SearchQuery {
    /// words, and "phrases in quotes"; a star ends a word that may go on
    q: String,
    /// only in this one
    session: Option<String>,
    /// one of the words is enough
    any: Option<bool>,
    /// hits at most
    limit: Option<u32>,
}

type Asked<T> = Result<Query<T>, QueryRejection>;

pub async fn list(State(app): State<App>, Extension(caller): Extension<Caller>, page: Asked<SessionsPage>) -> Answer {
    let Query(SessionsPage { limit, before }) = page?;
    let limit = app.rows(limit);
    let Page { rows: lines, has_more } = app.store.sessions_page(&caller.identity.user, before, limit).await?;
    let next = if has_more { lines.last().map(|line| line.session.updated_at_ms) } else { None };
    Ok(Json(json!({ "object": "list", "data": lines, "has_more": has_more, "before": next })))
}

pub async fn read(State(app): State<App>, OwnSession(session): OwnSession) -> Answer {
    let view = app.store.load(&session).await?;
    Ok(Json(json!({
        "object": "session",
        "session": view.session,
        "summary": view.summary,
        "summary_is_stale": view.summary_is_stale,
        "pins": view.pins,
        "last_seq": view.last_seq,
    })))
}

pub async fn items(State(app): State<App>, OwnSession(session): OwnSession, page: Asked<ItemsPage>) -> Answer {
    let Query(ItemsPage { limit, after }) = page?;
    let limit = app.rows(limit);
    let Page { rows: items, has_more } = app.store.items_page(&session, after.as_deref(), limit).await?;
    let after = if has_more { items.last().map(|item| item.item_id.clone()) } else { None };
    Ok(Json(json!({ "object": "list", "data": items, "has_more": has_more, "after": after })))
}

pub async fn export(State(app): State<App>, OwnSession(session): OwnSession) -> Result<Response, ApiError> {
    let lines = app.store.export(&session).await?;
    let lines = stream::unfold(lines, |mut lines| async {
        let line = lines.next().await?.map(|line| Bytes::from(line + "\n"));
        if let Err(error) = &line {
            tracing::error!(%error, "an export broke off");
        }
        Some((line, lines))
    });
    let headers = [(header::CONTENT_TYPE, "application/jsonl")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

pub async fn search(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    question: Asked<SearchQuery>,
) -> Answer {
    let Query(SearchQuery { q, session, any, limit }) = question?;
    let user = &caller.identity.user;
    let session: Option<SessionRef> = match &session {
        Some(id) => Some(app.gate.begun.open_session(&app.store, &caller, id).await?),
        None => None,
    };
    let hits = app
        .store
        .search(&HistorySearch {
            user,
            place: session.as_ref().map_or(SearchPlace::User, SearchPlace::Session),
            query: &q,
            most_words: app.settings.limits.search_words,
            any_word: any.unwrap_or(false),
            statements: false,
            limit: app.rows(limit),
            recent_ms: None,
            now_ms: wall_ms(),
            marks: ["**", "**"],
            excerpt_words: EXCERPT_WORDS,
        })
        .await?;
    Ok(Json(json!({ "object": "list", "data": hits, "has_more": false })))
}

/// Enough to recognise what was said.
const EXCERPT_WORDS: u32 = 24;

/// Of the reply that is being made: its words follow, with what was thought so far.
pub async fn stop_thinking(State(app): State<App>, OwnSession(session): OwnSession) -> Answer {
    thinking::stop(&app.runtime, &session, None).await
}

/// Its connections are closed, then it is gone for good.
pub async fn delete(State(app): State<App>, OwnSession(session): OwnSession) -> Answer {
    let id = session.id();
    app.runtime.deleted(&session).await;
    app.store.delete_session(&session, wall_ms()).await?;
    app.standing.forget(session.user());
    upkeep::forget_deleted(&app).await;
    tracing::info!(session = id, "a session was deleted");
    Ok(Json(json!({ "object": "session.deleted", "id": id, "deleted": true })))
}
