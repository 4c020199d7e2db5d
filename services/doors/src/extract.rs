//! Parts of requests that several handlers take.

use crate::json::read_fields;
use crate::{ApiError, App};
use access::Caller;
use axum::Json;
use axum::body::{Bytes, HttpBody};
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequest, Query, RawPathParams, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::Value;
use settings::Settings;
use store::SessionRef;

pub type JsonAnswer = Result<Json<Value>, ApiError>;
pub type Asked<T> = Result<Query<T>, QueryRejection>;

/// Session of the caller that the path names.
pub struct OwnSession(pub SessionRef);

/// Session of the caller that the path names as a conversation.
pub struct OwnConversation(pub SessionRef);

pub struct JsonBody<T>(pub T);

pub fn rows(settings: &Settings, asked: Option<u32>, usual: Option<u32>) -> u32 {
    let most = u32::try_from(settings.limits.page_rows).unwrap_or(u32::MAX);
    asked.or(usual).unwrap_or(most).clamp(1, most)
}

impl FromRequestParts<App> for OwnSession {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<OwnSession, ApiError> {
        let (caller, id) = named(parts, app, "session_id").await?;
        Ok(OwnSession(app.replies.open_session(&caller, &id).await?))
    }
}

impl FromRequestParts<App> for OwnConversation {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<OwnConversation, ApiError> {
        let (caller, id) = named(parts, app, "conversation_id").await?;
        Ok(OwnConversation(app.replies.conversation(&caller, &id).await?))
    }
}

/// Returns the caller, and what the path has under a name.
pub async fn named(parts: &mut Parts, app: &App, wanted: &str) -> Result<(Caller, String), ApiError> {
    let names = RawPathParams::from_request_parts(parts, app).await;
    let id = names.iter().flatten().find(|(name, _)| *name == wanted).map(|(_, id)| id.to_owned());
    let caller = parts.extensions.get::<Caller>().cloned();
    caller.zip(id).ok_or_else(|| ApiError::bad("invalid_value", "the path names no session"))
}

impl<T: DeserializeOwned + Send> FromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<JsonBody<T>, ApiError> {
        let bytes = Bytes::from_request(request, app).await;
        let bytes = bytes.map_err(|error| ApiError::bad("invalid_body", error.body_text()))?;
        read_fields(&bytes).await.map(JsonBody)
    }
}

impl<T: DeserializeOwned + Send> OptionalFromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Option<JsonBody<T>>, ApiError> {
        if request.body().is_end_stream() {
            return Ok(None);
        }
        <JsonBody<T> as FromRequest<App>>::from_request(request, app).await.map(Some)
    }
}
