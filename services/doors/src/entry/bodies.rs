//! Bodies of requests: read before any handler, in a limited time, so that one count knows what all of them take.

use crate::{ApiError, App};
use access::Caller;
use axum::body::{Body, HttpBody};
use axum::extract::{FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use futures_util::StreamExt;
use model::PreparationShare;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Memory that was taken for a body. It is kept until the answer begins, because a body waits for its turn in many handlers;
/// those that prepare by themselves take it.
#[derive(Clone)]
pub struct BodyShare(Arc<Mutex<Option<PreparationShare>>>);

/// Memory of a request's body for a handler that gives it back by itself.
pub struct Preparation(pub Arc<PreparationShare>);

impl FromRequestParts<App> for Preparation {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Preparation, ApiError> {
        let taken = parts.extensions.get::<BodyShare>().and_then(|share| share.0.lock().take());
        Ok(Preparation(Arc::new(taken.unwrap_or_else(|| app.replies.model.preparation().share()))))
    }
}

fn kept(share: PreparationShare) -> BodyShare {
    BodyShare(Arc::new(Mutex::new(Some(share))))
}

/// Reads the body of a request that is let in. The handler finds it in memory, and what was taken for it as an extension.
pub async fn read(app: &App, caller: &Caller, request: Request) -> Result<Request, ApiError> {
    let (mut parts, body) = request.into_parts();
    let (limits, preparation) = (&app.replies.settings.limits, app.replies.model.preparation());
    let mut share = preparation.share_of(&caller.identity.user);
    if body.is_end_stream() {
        parts.extensions.insert(kept(share));
        return Ok(Request::from_parts(parts, body));
    }
    // The model gets ready while the rest comes.
    app.replies.model.wake();
    let (limit, most) = (limits.body_bytes as u64, preparation.most_body_bytes());
    let check = |bytes: u64| match bytes {
        bytes if bytes > limit => Err(too_large(limit, "limits.body_bytes")),
        bytes if bytes > most => Err(too_large(most, "memory.prepare_bytes, about twelve for each of a body")),
        _ => Ok(()),
    };
    let stated = parts.headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
    let mut place = app.access.gate.body(caller.address);
    let mut bytes = Vec::new();
    let mut pieces = body.into_data_stream();
    let read = async {
        check(stated.unwrap_or(0))?;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| ApiError::bad("invalid_body", "the body could not be read to its end"))?;
            check((bytes.len() + piece.len()) as u64)?;
            place.take(piece.len())?;
            share.add_body(piece.len()).await?;
            bytes.extend_from_slice(&piece);
        }
        let counted = model::json_bytes(&bytes);
        if counted > limit.min(most) {
            return Err(too_many_values());
        }
        share.take_work(counted).await?;
        Ok(())
    };
    match timeout(Duration::from_millis(limits.body_ms), read).await {
        Ok(Ok(())) => {
            parts.extensions.insert(kept(share));
            Ok(Request::from_parts(parts, Body::from(bytes)))
        }
        Ok(Err(error)) => {
            // What is on its way is read, because closing on unread bytes would take the answer back.
            let _ = timeout(LEFTOVER, async { while pieces.next().await.is_some_and(|piece| piece.is_ok()) {} }).await;
            Err(error)
        }
        Err(_) => {
            let message = format!("the body did not come within {} ms (limits.body_ms)", limits.body_ms);
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
        }
    }
}

/// Time in which the rest of a refused body is read.
const LEFTOVER: Duration = Duration::from_secs(1);

fn too_large(most: u64, key: &str) -> ApiError {
    let message = format!("the body is larger than {most} bytes ({key}): send less, or raise that");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
}

/// Returns the error for JSON of a size that is allowed, with more values than memory was counted for.
pub fn too_many_values() -> ApiError {
    let message =
        "the service would need more memory for this JSON than for the longest text: send fewer values at once";
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
}
