//! A user's sessions over HTTP: list, read, export, search, delete. Another user's session is not there.

use crate::extract::{Asked, JsonAnswer, OwnSession, rows};
use crate::{ApiError, thinking};
use access::Caller;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use replies::Completions;
use runtime::wall_ms;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use store::{HistorySearch, Page, Placement, SearchPlace, SessionRef};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

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

pub async fn list(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    page: Asked<SessionsPage>,
) -> JsonAnswer {
    let Query(SessionsPage { limit, before }) = page?;
    let limit = rows(&replies.settings, limit, None);
    let Page { rows: lines, has_more } = replies.store.sessions_page(&caller.identity.user, before, limit).await?;
    let next = if has_more { lines.last().map(|line| line.session.updated_at_ms) } else { None };
    Ok(Json(json!({ "object": "list", "data": lines, "has_more": has_more, "before": next })))
}

pub async fn read(State(replies): State<Completions>, OwnSession(session): OwnSession) -> JsonAnswer {
    let view = replies.store.outline(&session).await?;
    Ok(Json(json!({
        "object": "session",
        "session": view.session,
        "summary": view.summary,
        "summary_is_stale": view.summary_is_stale,
        "pins": view.pins,
        "last_seq": view.last_seq,
    })))
}

pub async fn items(
    State(replies): State<Completions>,
    OwnSession(session): OwnSession,
    page: Asked<ItemsPage>,
) -> JsonAnswer {
    let Query(ItemsPage { limit, after }) = page?;
    let limit = rows(&replies.settings, limit, None);
    let Page { rows: items, has_more } = replies.store.items_page(&session, after.as_deref(), limit).await?;
    let after = if has_more { items.last().map(|item| item.item_id.clone()) } else { None };
    Ok(Json(json!({ "object": "list", "data": items, "has_more": has_more, "after": after })))
}

pub async fn export(State(replies): State<Completions>, OwnSession(session): OwnSession) -> Result<Response, ApiError> {
    let lines = replies.store.export(&session).await?;
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
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    question: Asked<SearchQuery>,
) -> JsonAnswer {
    let Query(SearchQuery { q, session, any, limit }) = question?;
    let user = &caller.identity.user;
    let session: Option<SessionRef> = match &session {
        Some(id) => Some(replies.open_session(&caller, id).await?),
        None => None,
    };
    let hits = replies
        .store
        .search(&HistorySearch {
            user,
            place: session.as_ref().map_or(SearchPlace::User, SearchPlace::Session),
            query: &q,
            most_words: replies.settings.limits.search_words,
            any_word: any.unwrap_or(false),
            statements: false,
            limit: rows(&replies.settings, limit, None),
            recent_ms: None,
            now_ms: wall_ms(),
            marks: ["**", "**"],
            excerpt_words: EXCERPT_WORDS,
        })
        .await?;
    Ok(Json(json!({ "object": "list", "data": hits, "has_more": false })))
}

/// Words of a hit's excerpt.
const EXCERPT_WORDS: u32 = 24;

/// Permit for imports, one at a time: each holds a thread.
static IMPORTING: Mutex<()> = Mutex::const_new(());

pub async fn import(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    lines: Bytes,
) -> JsonAnswer {
    let (store, user) = (replies.store.clone(), caller.identity.user);
    let preset = replies.settings.chosen().map_err(|error| ApiError::bad("invalid_value", error.to_string()))?;
    let (preset, ctx_size) = (preset.name.clone(), u64::from(preset.ctx_size));
    let placement = Placement { preset, ctx_size, experiment: None, arm: None };
    let _turn = IMPORTING.lock().await;
    let wrong = |error: store::Error| match error {
        error @ (store::Error::Import { .. } | store::Error::SessionExists { .. } | store::Error::NoItem { .. }) => {
            ApiError::bad("invalid_value", error.to_client())
        }
        error => ApiError::from(error),
    };
    // Lines are read away from the workers: a client chooses how long they are.
    let importing = tokio::task::spawn_blocking(move || {
        Handle::current().block_on(async move {
            store.take_room(&user, lines.len(), wall_ms()).await?;
            let mut importer = store.importer_of_client(&user, placement, wall_ms());
            for line in String::from_utf8_lossy(&lines).lines() {
                importer.line(line).await?;
            }
            importer.finish().await
        })
    });
    let stopped = |_| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the service stops");
    let sessions = importing.await.map_err(stopped)?.map_err(wrong)?;
    let ids: Vec<&str> = sessions.iter().map(SessionRef::id).collect();
    Ok(Json(json!({ "object": "sessions.imported", "ids": ids })))
}

pub async fn stop_thinking(State(replies): State<Completions>, OwnSession(session): OwnSession) -> JsonAnswer {
    thinking::stop(&replies.runtime, &session, None).await
}

pub async fn delete(State(replies): State<Completions>, OwnSession(session): OwnSession) -> JsonAnswer {
    replies.delete_session(&session).await?;
    Ok(Json(json!({ "object": "session.deleted", "id": session.id(), "deleted": true })))
}
