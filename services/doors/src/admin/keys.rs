//! Keys of the caller's own user. Keys of other users are made where the service runs (`reprise keys create`): an address that
//! demands no key must not lead to another user's words.

use crate::extract::{JsonAnswer, JsonBody};
use crate::{ApiError, App};
use access::Caller;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use runtime::wall_ms;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use store::KeyScope;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    #[serde(default)]
    name: String,
    /// Rights: `talk`, `sessions`, `admin`, none that the caller's key lacks. Without them, `talk` and `sessions`.
    scopes: Option<Vec<String>>,
}

pub async fn list(State(app): State<App>, Extension(caller): Extension<Caller>) -> JsonAnswer {
    let keys = app.replies.store.keys(Some(&caller.identity.user)).await?;
    let own = caller.identity.key.as_deref();
    Ok(Json(json!({ "object": "list", "data": keys, "has_more": false, "own_key": own, "user": caller.identity.user })))
}

pub async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(NewKey { name, scopes }): JsonBody<NewKey>,
) -> JsonAnswer {
    let (limits, store, user) = (&app.replies.settings.limits, &app.replies.store, &caller.identity.user);
    if name.chars().count() > limits.title_chars {
        let message = format!("a name has at most {} characters (limits.title_chars)", limits.title_chars);
        return Err(ApiError::bad("invalid_value", message).param("name"));
    }
    let words = scopes.unwrap_or_else(|| vec!["talk".to_owned(), "sessions".to_owned()]);
    let mut scopes: Vec<KeyScope> = Vec::new();
    for word in words {
        let known = word.parse().ok().filter(|scope| caller.identity.may(*scope));
        let refused =
            || ApiError::bad("invalid_value", "scopes are talk, sessions and admin, as far as your key has them");
        let scope = known.ok_or_else(|| refused().param("scopes"))?;
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    let there = store.keys(Some(user)).await?;
    let valid = there.iter().filter(|key| key.revoked_at_ms.is_none()).count();
    if there.len() >= 10 * limits.keys_per_user || valid >= limits.keys_per_user {
        let message = format!("a user has at most {} keys (limits.keys_per_user): revoke one", limits.keys_per_user);
        return Err(ApiError::new(StatusCode::CONFLICT, "too_many_keys", message));
    }
    let (key, shown) = store.create_key(user, name.trim(), &scopes, wall_ms()).await?;
    let mut answer = json!(key);
    answer["key"] = json!(shown);
    Ok(Json(answer))
}

pub async fn revoke(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> JsonAnswer {
    let own = app.replies.store.keys(Some(&caller.identity.user)).await?;
    if !own.iter().any(|key| key.id == id) {
        let message = "you have no such key";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "key_not_found", message).param("key_id"));
    }
    app.replies.store.revoke_key(&id, wall_ms()).await?;
    Ok(Json(json!({ "object": "key.revoked", "id": id, "revoked": true })))
}
