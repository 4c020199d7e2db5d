//! Secrets that a web page may have: short-lived, and good for nothing but talking.

use crate::ApiError;
use crate::App;
use crate::access::Caller;
use crate::openai_realtime::{event_limits, session_update, session_value};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use runtime::wall_ms;
use serde_json::{Map, Value, json};
use session::{SessionConfig, SessionState};

/// `{expires_after?: {seconds}, session?: {...}}`, as OpenAI has it.
pub async fn create_client_secret(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    // Else a secret could be prolonged for ever.
    if caller.identity.session.is_some() {
        let message = "a client secret makes no client secrets: use the key it was made with";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "insufficient_scope", message));
    }
    let body: Map<String, Value> = if body.iter().all(u8::is_ascii_whitespace) {
        Map::new()
    } else {
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::bad("invalid_json", format!("the body is not a JSON object: {error}")))?
    };
    let longest_s = app.settings.auth.client_secret_s;
    let seconds = match body.get("expires_after").and_then(|after| after.get("seconds")) {
        None | Some(Value::Null) => longest_s,
        Some(seconds) => seconds.as_u64().filter(|seconds| (1..=longest_s).contains(seconds)).ok_or_else(|| {
            let message = format!("from 1 to {longest_s} seconds (auth.client_secret_s)");
            ApiError::bad("invalid_value", message).param("expires_after.seconds")
        })?,
    };
    let mut session = body.get("session").cloned().unwrap_or(Value::Null);
    if session.is_null() {
        session = json!({});
    }
    let model = session.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
    // What is wrong with it is told now, and not to the page that connects with the secret.
    app.runtime.presets().named(&model)?;
    let update = session_update(&session, &event_limits(&app.settings))?;
    let mut config = SessionConfig::new(app.settings.conversation.instructions.clone());
    config.apply(&update);
    let lifetime_ms = i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
    let secret = app.store.create_client_secret(&caller.identity, session, lifetime_ms, wall_ms()).await?;
    let model = app.runtime.presets().model.clone();
    let view = session_value(&SessionState { session_id: String::new(), model, config });
    Ok(Json(json!({
        "value": secret.value,
        "expires_at": secret.expires_at_ms / 1000,
        "session": view,
    })))
}
