//! A user's sessions over HTTP: list, read, export, search, delete. Another user's session is not there.

use crate::ApiError;
use crate::App;
use crate::access::Caller;
use crate::upkeep;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use runtime::wall_ms;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{HistorySearch, ItemVersion, SessionLine, SessionRef};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Page {
    limit: Option<u32>,
    /// Of sessions: `updated_at_ms` of the last one seen.
    before: Option<i64>,
    /// Of items: the last one seen.
    after: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Question {
    q: String,
    session: Option<String>,
    #[serde(default)]
    any: bool,
    limit: Option<u32>,
}

type Asked<T> = Result<Query<T>, QueryRejection>;

pub async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    page: Asked<Page>,
) -> Result<Json<Value>, ApiError> {
    let page = asked(page)?;
    let limit = app.rows(page.limit);
    let mut lines: Vec<SessionLine> =
        app.store.list_sessions(&caller.identity.user, page.before, limit.saturating_add(1)).await?;
    let has_more = lines.len() > limit as usize;
    lines.truncate(limit as usize);
    let next = if has_more { lines.last().map(|line| line.session.updated_at_ms) } else { None };
    Ok(Json(json!({ "object": "list", "data": lines, "has_more": has_more, "before": next })))
}

pub async fn read(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let session = app.store.open_session(&caller.identity.user, &id).await?;
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

pub async fn items(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    page: Asked<Page>,
) -> Result<Json<Value>, ApiError> {
    let page = asked(page)?;
    let limit = app.rows(page.limit);
    let session = app.store.open_session(&caller.identity.user, &id).await?;
    let mut items: Vec<ItemVersion> = app.store.items(&session, page.after.as_deref(), limit.saturating_add(1)).await?;
    let has_more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let after = if has_more { items.last().map(|item| item.item_id.clone()) } else { None };
    Ok(Json(json!({ "object": "list", "data": items, "has_more": has_more, "after": after })))
}

pub async fn export(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let session = app.store.open_session(&caller.identity.user, &id).await?;
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
    question: Asked<Question>,
) -> Result<Json<Value>, ApiError> {
    let question = asked(question)?;
    let user = &caller.identity.user;
    let session: Option<SessionRef> = match &question.session {
        Some(id) => Some(app.store.open_session(user, id).await?),
        None => None,
    };
    let hits = app
        .store
        .search(&HistorySearch {
            user,
            session: session.as_ref(),
            query: &question.q,
            any_word: question.any,
            limit: app.rows(question.limit),
            recent_ms: None,
            now_ms: wall_ms(),
            marks: ["**", "**"],
            excerpt_words: EXCERPT_WORDS,
        })
        .await?;
    Ok(Json(json!({ "object": "list", "data": hits, "has_more": false })))
}

/// Enough to know the place again.
const EXCERPT_WORDS: u32 = 24;

/// Its connections are closed, then it is gone for good.
pub async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let session = app.store.open_session(&caller.identity.user, &id).await?;
    app.runtime.deleted(&session).await;
    app.store.delete_session(&session, wall_ms()).await?;
    upkeep::forget_deleted(&app).await;
    tracing::info!(session = %id, "a session was deleted");
    Ok(Json(json!({ "object": "session.deleted", "id": id, "deleted": true })))
}

impl App {
    fn rows(&self, asked: Option<u32>) -> u32 {
        let most = u32::try_from(self.settings.limits.page_rows).unwrap_or(u32::MAX);
        asked.unwrap_or(most).clamp(1, most)
    }
}

fn asked<T>(query: Asked<T>) -> Result<T, ApiError> {
    query.map(|Query(asked)| asked).map_err(|error| ApiError::bad("invalid_value", error.body_text()))
}
