//! Bodies of requests: read here, before any handler, so that one count knows what all of them take.

use crate::ApiError;
use crate::App;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use std::sync::Arc;

/// The handler finds the body in memory, and what was taken for it as an extension.
pub async fn read(State(app): State<App>, request: Request, next: Next) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let (limit, preparation) = (app.settings.limits.body_bytes, app.model.preparation());
    let most = preparation.most_body_bytes();
    let check = |bytes: u64| match bytes {
        bytes if bytes > limit as u64 => Err(too_large(limit as u64, "limits.body_bytes")),
        bytes if bytes > most => Err(too_large(most, "memory.prepare_bytes, about twelve for each of a body")),
        _ => Ok(()),
    };
    let stated = parts.headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
    check(stated.unwrap_or(0))?;
    let mut share = preparation.share();
    let mut bytes = Vec::with_capacity(stated.unwrap_or(0) as usize);
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| ApiError::bad("invalid_body", "the body could not be read to its end"))?;
        check((bytes.len() + piece.len()) as u64)?;
        share.add_body(piece.len()).await?;
        bytes.extend_from_slice(&piece);
    }
    share.take_work(bytes.len() as u64).await?;
    parts.extensions.insert(Arc::new(share));
    Ok(next.run(Request::from_parts(parts, Body::from(bytes))).await)
}

fn too_large(most: u64, key: &str) -> ApiError {
    let message = format!("the body is larger than {most} bytes ({key}): send less, or raise that");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
}
