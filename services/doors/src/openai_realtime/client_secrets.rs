//! Secrets that a web page may have: short-lived, and good for nothing but talking.

use super::{ErrorBody, SessionFields, SessionView, event_limits, session_update, session_view};
use crate::json::check_name;
use crate::{ApiError, App};
use access::Caller;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use fields::FieldError;
use runtime::{heavy, wall_ms};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use session::SessionState;

/// Request for a client secret, with OpenAI's fields.
#[derive(Default, Deserialize, JsonSchema)]
pub struct ClientSecretRequest {
    expires_after: Option<ExpiresAfter>,
    /// Settings that a new session begins with, as in `session.update`.
    #[schemars(with = "Option<SessionFields>")]
    session: Option<Value>,
    /// The session that it may go on with. Otherwise it opens only those that it begins.
    session_id: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct ExpiresAfter {
    #[schemars(range(min = 1))]
    seconds: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub struct ClientSecretAnswer<'a> {
    value: String,
    /// Seconds since 1970.
    expires_at: i64,
    session: SessionView<'a>,
}

pub async fn create_client_secret(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let replies = &app.replies;
    // Else a secret could be prolonged for ever.
    if caller.identity.session.is_some() {
        let message = "a client secret makes no client secrets: use the key it was made with";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "insufficient_scope", message));
    }
    let body = if body.trim_ascii().is_empty() { b"{}" } else { &body[..] };
    let bytes = body.len();
    let body: Value = heavy::run(bytes, || serde_json::from_slice(body))
        .await
        .map_err(|error| ApiError::bad("invalid_json", format!("the body is not a JSON object: {error}")))?;
    let limits = &replies.settings.limits;
    // It is kept for each secret, and read again with each connection.
    if body.get("session").is_some() && bytes > limits.item_bytes {
        return Err(FieldError::too_large("session", limits.item_bytes, "bytes (limits.item_bytes)").into());
    }
    let ClientSecretRequest { expires_after, session, session_id } = fields::read(&body)?;
    check_name("session_id", session_id.as_deref().unwrap_or_default(), limits.id_chars)?;
    let longest_s = replies.settings.auth.client_secret_s;
    let seconds = expires_after.and_then(|after| after.seconds).unwrap_or(longest_s);
    if !(1..=longest_s).contains(&seconds) {
        let message = format!("from 1 to {longest_s} seconds (auth.client_secret_s)");
        return Err(ApiError::bad("invalid_value", message).param("expires_after.seconds"));
    }
    let mut session = session.unwrap_or_else(|| json!({}));
    let model = session.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
    // What is wrong with it is told now, and not to the page that connects with the secret.
    let choice = replies.runtime.presets().choose(&caller.identity.user, &model)?;
    let update = session_update(&session, &event_limits(&replies.settings))?;
    let mut audio = app.audio();
    audio.apply(&session).map_err(|wrong| ErrorBody::from(wrong.under("session")))?;
    if let Some(id) = session_id {
        replies.open_session(&caller, &id).await?;
        session["session_id"] = json!(id);
    }
    let mut config = replies.runtime.first_config(&choice);
    config.apply(&update);
    let lifetime_ms = i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
    let secret = replies.store.create_client_secret(&caller.identity, session, lifetime_ms, wall_ms()).await?;
    let model = replies.runtime.presets().model.clone();
    let state = SessionState { session_id: String::new(), model, config };
    let expires_at = secret.expires_at_ms / 1000;
    Ok(Json(json!(ClientSecretAnswer {
        value: secret.value,
        expires_at,
        session: session_view(&state, &audio, false)
    })))
}
