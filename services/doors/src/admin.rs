//! Sessions, keys, experiments and what stands in prompts, for people and programs that look after them.

pub mod context;
pub mod experiments;
pub mod keys;
pub mod sessions;

use crate::access::Caller;
use crate::{ApiError, App};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use serde_json::Value;
use store::SessionRef;

type Body<T> = Result<Json<T>, JsonRejection>;
type Answer = Result<Json<Value>, ApiError>;

/// The caller's session that the path names.
pub struct OwnSession(SessionRef);

impl FromRequestParts<App> for OwnSession {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<OwnSession, ApiError> {
        let names = RawPathParams::from_request_parts(parts, app).await;
        let id = names.iter().flatten().find(|(name, _)| *name == "session_id").map(|(_, id)| id);
        let caller = parts.extensions.get::<Caller>();
        let (id, caller) = id.zip(caller).ok_or_else(|| ApiError::bad("invalid_value", "the path names no session"))?;
        Ok(OwnSession(app.gate.begun.open_session(&app.store, caller, id).await?))
    }
}
