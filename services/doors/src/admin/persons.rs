//! The persons of a user over HTTP: list, and delete with all that is kept of them.

use crate::ApiError;
use crate::extract::JsonAnswer;
use access::Caller;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use replies::Completions;
use serde_json::json;
use settings::person_name;

pub async fn list(State(replies): State<Completions>, Extension(caller): Extension<Caller>) -> JsonAnswer {
    let persons = replies.store.persons(&caller.identity.user).await?;
    Ok(Json(json!({ "object": "list", "data": persons, "has_more": false })))
}

/// Tells for whom the last requests were taken, and by which rule.
pub async fn recent(State(replies): State<Completions>, Extension(caller): Extension<Caller>) -> JsonAnswer {
    let recent = replies.persons.recent(&caller.identity.user);
    Ok(Json(json!({ "object": "list", "data": recent, "has_more": false })))
}

/// Their sessions' connections are closed, then all of it is gone for good.
pub async fn delete(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> JsonAnswer {
    let user = &caller.identity.user;
    let missing = || ApiError::new(StatusCode::NOT_FOUND, "person_not_found", format!("there is no person {name:?}"));
    let person = person_name(&name).ok_or_else(missing)?;
    if !replies
        .store
        .persons(user)
        .await?
        .iter()
        .any(|known| known.name == person || known.name.is_empty() && known.room == person)
    {
        return Err(missing().param("name"));
    }
    let sessions = replies.delete_person(user, &person).await?;
    Ok(Json(json!({ "object": "person.deleted", "person": person, "sessions": sessions, "deleted": true })))
}
