//! The persons of a user over HTTP: list, and delete with all that is kept of them.

use super::Answer;
use crate::access::Caller;
use crate::{ApiError, App, upkeep};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use runtime::wall_ms;
use serde_json::json;
use settings::person_name;

pub async fn list(State(app): State<App>, Extension(caller): Extension<Caller>) -> Answer {
    let persons = app.store.persons(&caller.identity.user).await?;
    Ok(Json(json!({ "object": "list", "data": persons, "has_more": false })))
}

/// Their sessions' connections are closed, then all of it is gone for good.
pub async fn delete(State(app): State<App>, Extension(caller): Extension<Caller>, Path(name): Path<String>) -> Answer {
    let user = &caller.identity.user;
    let missing = || ApiError::new(StatusCode::NOT_FOUND, "person_not_found", format!("there is no person {name:?}"));
    let person = person_name(&name).ok_or_else(missing)?;
    if !app
        .store
        .persons(user)
        .await?
        .iter()
        .any(|known| known.name == person || known.name.is_empty() && known.room == person)
    {
        return Err(missing().param("name"));
    }
    for session in app.store.sessions_of_person(user, &person).await? {
        app.runtime.deleted(&session).await;
    }
    let deleted = app.store.delete_person(user, &person, wall_ms()).await?;
    app.persons.forget(user, &person);
    app.standing.forget(user);
    upkeep::forget_deleted(&app).await;
    tracing::info!(sessions = deleted.len(), "a person was deleted");
    Ok(Json(json!({ "object": "person.deleted", "person": person, "sessions": deleted.len(), "deleted": true })))
}
