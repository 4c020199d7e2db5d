//! `GET /`: a page to talk with, for a user without a client. It knows no more than any other client.

use axum::http::header;
use axum::response::{Html, IntoResponse};

/// The page may talk to this server only, and no other page may put it into a frame.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub async fn page() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(include_str!("console.html")))
}
