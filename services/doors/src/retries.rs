//! Retries, as stock clients count them.

use axum::http::HeaderMap;

/// Returns how often the client says that it sent this request before: stock clients count their retries.
pub fn retries(headers: &HeaderMap) -> u32 {
    let count = headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok()?.parse().ok());
    count.unwrap_or(0)
}
