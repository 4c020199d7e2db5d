//! Facts about persons and the home over HTTP: read, added, forgotten, exported.

use crate::ApiError;
use crate::extract::{Asked, JsonAnswer, JsonBody, rows};
use access::Caller;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use replies::Completions;
use runtime::{fact_lines, facts_about, wall_ms};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use store::RememberedFact;

#[derive(Deserialize, JsonSchema)]
pub struct MemoriesQuery {
    /// Whose: a person's name, or empty for the home's. Else all of the user's.
    person: Option<String>,
    /// Words that they are about.
    q: Option<String>,
    /// Also what was replaced, with what took its place.
    past: Option<bool>,
    limit: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
pub struct PersonQuery {
    /// Whose: a person's name, or empty for the home's.
    person: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub struct NewMemory {
    text: String,
    /// Whose: a person's name. Else the home's.
    #[serde(default)]
    person: String,
}

pub async fn list(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    asked: Asked<MemoriesQuery>,
) -> JsonAnswer {
    let Query(MemoriesQuery { person, q, past, limit }) = asked?;
    let limit = rows(&replies.settings, limit, None) as usize;
    let mut facts = replies.store.facts(&caller.identity.user, person.as_deref()).await?;
    facts.retain(|fact| fact.holds() || past == Some(true) && fact.forgotten_at_ms.is_none());
    let mut facts = match q {
        Some(words) => facts_about(facts, &words),
        None => facts,
    };
    facts.reverse();
    let has_more = facts.len() > limit;
    facts.truncate(limit);
    Ok(Json(json!({ "object": "list", "data": facts, "has_more": has_more })))
}

pub async fn read(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> JsonAnswer {
    Ok(Json(json!(find(&replies, &caller, &id).await?)))
}

/// A user may ask for so many times what is kept unasked.
const MOST_ASKED: usize = 10;

pub async fn add(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    JsonBody(new): JsonBody<NewMemory>,
) -> JsonAnswer {
    let NewMemory { text, person } = new;
    let remember = &replies.settings.remember;
    let limit = remember.fact_bytes;
    if text.trim().is_empty() || text.len() > limit || person.len() > replies.settings.limits.id_chars {
        let message = format!("text must have 1 to {limit} bytes, and person at most the length of a name");
        return Err(ApiError::bad("invalid_value", message).param("text"));
    }
    let user = &caller.identity.user;
    let most = remember.facts.saturating_mul(MOST_ASKED);
    if replies.store.count_all_facts(user).await? >= most as u64 {
        let message = format!("{most} memories are all that one user may have (ten times remember.facts): forget some");
        return Err(ApiError::new(StatusCode::CONFLICT, "memories_full", message));
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
    Ok(Json(json!({ "object": "memories.deleted", "person": person, "count": forgotten, "deleted": true })))
}

pub async fn export(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    asked: Asked<PersonQuery>,
) -> Result<Response, ApiError> {
    let Query(PersonQuery { person }) = asked?;
    let facts = replies.store.facts(&caller.identity.user, person.as_deref()).await?;
    let headers = [(header::CONTENT_TYPE, "application/jsonl")];
    Ok((headers, Body::from(Bytes::from(fact_lines(&facts)))).into_response())
}

async fn find(replies: &Completions, caller: &Caller, id: &str) -> Result<RememberedFact, ApiError> {
    let facts = replies.store.facts(&caller.identity.user, None).await?;
    let found = facts.into_iter().find(|fact| fact.id == id && fact.forgotten_at_ms.is_none());
    found.ok_or_else(|| store::Error::NoFact { fact: id.to_owned() }.into())
}
