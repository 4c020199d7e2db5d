//! Checks that stand before every handler: where a request comes from, and which user it is.

mod bodies;

pub use bodies::{Preparation, too_many_values};

use crate::{ApiError, App};
use access::{Caller, ConnectionPlace};
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bodies::BodyShare;
use sockets::{HalfOpen, counted};
use std::net::IpAddr;
use std::sync::Arc;
use store::KeyScope;

#[derive(Clone)]
pub struct Peer {
    /// Client's address, also behind a trusted proxy.
    pub address: IpAddr,
    pub half_open: Arc<HalfOpen>,
    /// Kept as long as the connection is used, also after it became a websocket.
    pub _place: Arc<ConnectionPlace>,
}

#[derive(Clone)]
pub struct PathBefore(pub String);

/// Browsers cannot set headers on a websocket, so the key may come as a sub-protocol.
pub const KEY_PROTOCOL: &str = "openai-insecure-api-key.";

/// Checks before every route the origin of a request, the size of its headers and the allowance of its address.
pub async fn guard(State(app): State<App>, mut request: Request, next: Next) -> Response {
    if let Some(peer) = request.extensions().get::<Peer>() {
        let peer = Peer { address: app.access.gate.client(peer.address, request.headers()), ..peer.clone() };
        request.extensions_mut().insert(peer);
    }
    // A refused body may be unread, so its connection ends: a client that used it again would fail.
    let has_body = !request.body().is_end_stream();
    let response = counted(app.replies.runtime.held(), answer(&app, request, next).await);
    let mut response = response.unwrap_or_else(|| ApiError::from(runtime::Error::NoRoom).into_response());
    if has_body && response.status().is_client_error() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn answer(app: &App, request: Request, next: Next) -> Response {
    let origin = match check(app, &request) {
        Ok(origin) => origin,
        Err(error) => return error.into_response(),
    };
    let is_preflight = request.method() == Method::OPTIONS && origin.is_some();
    let mut response = if is_preflight { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if is_preflight {
            let allow = [
                (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
                (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
                (header::ACCESS_CONTROL_MAX_AGE, "600"),
            ];
            headers.extend(allow.map(|(name, value)| (name, HeaderValue::from_static(value))));
        }
    }
    response
}

fn check(app: &App, request: &Request) -> Result<Option<HeaderValue>, ApiError> {
    let headers = request.headers();
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_EXTRA).sum();
    let limit = app.replies.settings.limits.header_bytes;
    if bytes + request.uri().to_string().len() > limit {
        let message = format!("the headers are larger than {limit} bytes (limits.header_bytes)");
        return Err(ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", message));
    }
    let origin = app.access.policy.check(headers)?;
    if let Some(peer) = request.extensions().get::<Peer>() {
        app.access.gate.request_of_address(peer.address)?;
    }
    Ok(origin.and_then(|origin| HeaderValue::from_str(origin).ok()))
}

/// Lets a caller into a protected route if it may do this.
pub async fn require(State((app, scope)): State<(App, KeyScope)>, request: Request, next: Next) -> Response {
    let address = request.extensions().get::<Peer>().map(|peer| peer.address);
    let path = request.extensions().get::<PathBefore>().map(|path| path.0.clone());
    match caller(&app, request.headers(), address, scope).await.map(|caller| Caller { path, ..caller }) {
        Ok(caller) => match bodies::read(&app, &caller, request).await {
            Ok(mut request) => {
                request.extensions_mut().insert(caller);
                let _kept = request.extensions().get::<BodyShare>().cloned();
                next.run(request).await
            }
            Err(error) => error.into_response(),
        },
        Err(error) => error.into_response(),
    }
}

/// Finds the caller, and refuses one that may not do this.
pub async fn caller(
    app: &App,
    headers: &HeaderMap,
    address: Option<IpAddr>,
    scope: KeyScope,
) -> Result<Caller, ApiError> {
    let (key, address) = (presented(headers), address.unwrap_or(IpAddr::from([0, 0, 0, 0])));
    Ok(app.access.caller(key.as_deref(), address, scope, runtime::wall_ms()).await?)
}

fn presented(headers: &HeaderMap) -> Option<String> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim().to_owned())
    });
    bearer.or_else(|| protocols(headers).find_map(|name| name.strip_prefix(KEY_PROTOCOL).map(str::to_owned)))
}

pub fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',').map(str::trim))
}

/// `: `, and the line's end.
const HEADER_EXTRA: usize = 4;
