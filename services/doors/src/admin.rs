//! Sessions, keys, experiments and what stands in prompts, for people and programs that look after them.

pub mod context;
pub mod experiments;
pub mod keys;
pub mod memories;
pub mod persons;
pub mod sessions;

use crate::access::Caller;
use crate::json::read_body;
use crate::{ApiError, App, reader};
use axum::Json;
use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequest, RawPathParams, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::SessionRef;

type Answer = Result<Json<Value>, ApiError>;

impl App {
    /// Rows of a page.
    fn rows(&self, asked: Option<u32>) -> u32 {
        let most = u32::try_from(self.settings.limits.page_rows).unwrap_or(u32::MAX);
        asked.unwrap_or(most).clamp(1, most)
    }
}

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

/// A body of JSON.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<JsonBody<T>, ApiError> {
        let bytes = Bytes::from_request(request, app).await;
        let bytes = bytes.map_err(|error| ApiError::bad("invalid_body", error.body_text()))?;
        Ok(JsonBody(reader::read(&read_body(&bytes)?)?))
    }
}

/// None: the request has no body.
impl<T: DeserializeOwned> OptionalFromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Option<JsonBody<T>>, ApiError> {
        if request.body().is_end_stream() {
            return Ok(None);
        }
        <JsonBody<T> as FromRequest<App>>::from_request(request, app).await.map(Some)
    }
}
