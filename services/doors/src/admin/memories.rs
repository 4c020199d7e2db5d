//! Facts about persons and the home over HTTP: read, added, forgotten, exported.

use crate::ApiError;
use crate::extract::{Asked, JsonAnswer, JsonBody, rows};
use access::Caller;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use replies::Completions;
use runtime::{fact_lines, facts_about, heavy, wall_ms};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use store::RememberedFact;

#[derive(Deserialize, JsonSchema)]
pub struct MemoriesQuery {
    /// Person whose memories these are, empty for the home. Without it, all of the user's.
    person: Option<String>,
    /// Words that they are about.
    q: Option<String>,
    /// True for replaced memories, too, with those that took their place.
    past: Option<bool>,
    limit: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
pub struct PersonQuery {
    /// Person whose memory this is, empty for the home.
    person: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub struct NewMemory {
    text: String,
    /// Person whose memory this is. Without it, the home's.
    #[serde(default)]
    person: String,
}

pub async fn list(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    asked: Asked<MemoriesQuery>,
) -> JsonAnswer {
    let Query(MemoriesQuery { person, q, past, limit }) = asked?;
    let (limit, user) = (rows(&replies.settings, limit, None), &caller.identity.user);
    let (mut found, mut before, mut has_more) = (Vec::new(), None::<String>, true);
    while has_more && found.len() <= limit as usize {
        let page =
            replies.store.facts_page(user, person.as_deref(), past == Some(true), before.as_deref(), limit).await?;
        (before, has_more) = (page.rows.last().map(|fact| fact.id.clone()), page.has_more);
        found.extend(match &q {
            Some(words) => heavy::run(FILTERED_BYTES, || facts_about(page.rows, words)).await,
            None => page.rows,
        });
    }
    has_more |= found.len() > limit as usize;
    found.truncate(limit as usize);
    Ok(Json(json!({ "object": "list", "data": found, "has_more": has_more })))
}

/// Bytes of a page of memories, about.
const FILTERED_BYTES: usize = 128 << 10; // not a window: bytes of facts

pub async fn read(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> JsonAnswer {
    Ok(Json(json!(find(&replies, &caller, &id).await?)))
}

pub async fn add(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    JsonBody(new): JsonBody<NewMemory>,
) -> JsonAnswer {
    let NewMemory { text, person } = new;
    let limit = replies.settings.remember.fact_bytes;
    if text.trim().is_empty() || text.len() > limit || person.len() > replies.settings.limits.id_chars {
        let message = format!("text must have 1 to {limit} bytes, and person at most the length of a name");
        return Err(ApiError::bad("invalid_value", message).param("text"));
    }
    Ok(Json(json!(replies.runtime.write_fact(&caller.identity.user, &person, &text).await?)))
}

pub async fn forget(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> JsonAnswer {
    let fact = find(&replies, &caller, &id).await?;
    replies.store.forget_facts(&caller.identity.user, vec![fact.id], wall_ms()).await?;
    replies.standing.forget(&caller.identity.user);
    replies.forget_deleted().await;
    Ok(Json(json!({ "object": "memory.deleted", "id": id, "deleted": true })))
}

pub async fn forget_all(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    asked: Asked<PersonQuery>,
) -> JsonAnswer {
    let Query(PersonQuery { person }) = asked?;
    let person = person.ok_or_else(|| {
        let message = "say whose: `?person=NAME`, or `?person=` for the home's";
        ApiError::bad("missing_value", message).param("person")
    })?;
    let forgotten = replies.store.forget_person(&caller.identity.user, &person, wall_ms()).await?;
    replies.standing.forget(&caller.identity.user);
    replies.forget_deleted().await;
    Ok(Json(json!({ "object": "memories.deleted", "person": person, "count": forgotten, "deleted": true })))
}

pub async fn export(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    asked: Asked<PersonQuery>,
) -> Result<Response, ApiError> {
    let Query(PersonQuery { person }) = asked?;
    let (store, user, rows) = (replies.store, caller.identity.user, replies.settings.limits.page_rows as u32);
    let pages = stream::unfold(Some(None::<String>), move |before| {
        let (store, user, person) = (store.clone(), user.clone(), person.clone());
        async move {
            let before = before?;
            match store.facts_page(&user, person.as_deref(), true, before.as_deref(), rows).await {
                Ok(page) => {
                    let next = page.rows.last().filter(|_| page.has_more).map(|fact| Some(fact.id.clone()));
                    Some((Ok(Bytes::from(fact_lines(&page.rows))), next))
                }
                Err(error) => {
                    tracing::error!(%error, "an export of memories broke off");
                    Some((Err(error), None))
                }
            }
        }
    });
    let headers = [(header::CONTENT_TYPE, "application/jsonl")];
    Ok((headers, Body::from_stream(pages)).into_response())
}

async fn find(replies: &Completions, caller: &Caller, id: &str) -> Result<RememberedFact, ApiError> {
    let found = replies.store.fact(&caller.identity.user, id).await?;
    found.ok_or_else(|| store::Error::NoFact { fact: id.to_owned() }.into())
}
