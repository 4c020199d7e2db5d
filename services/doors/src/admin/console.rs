//! `GET /` and `/console/...`: the page for people. Its files are built from `services/console`, and it knows no more than any
//! other client: what it shows it asks for with the user's key.

use crate::ApiError;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The page runs its own scripts only and talks to this server only, and no other page may put it into a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      media-src 'self' blob:; connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";
const PERMISSIONS: &str = "microphone=(self), camera=(), geolocation=(), payment=(), usb=()";

pub const FILES: [(&str, &str, &[u8]); 5] = [
    ("app.js", "text/javascript; charset=utf-8", include_bytes!("../../../console/built/app.js")),
    ("microphone.js", "text/javascript; charset=utf-8", include_bytes!("../../../console/built/microphone.js")),
    ("app.css", "text/css; charset=utf-8", include_bytes!("../../../console/built/app.css")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../../console/built/icon.svg")),
    ("app.webmanifest", "application/manifest+json", include_bytes!("../../../console/built/app.webmanifest")),
];
const PAGE: &[u8] = include_bytes!("../../../console/built/index.html");

pub async fn page() -> Response {
    answer("text/html; charset=utf-8", PAGE)
}

pub async fn file(Path(name): Path<String>) -> Result<Response, ApiError> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    let missing = || ApiError::new(StatusCode::NOT_FOUND, "not_found", "the page has no such file");
    found.map(|(_, kind, content)| answer(kind, content)).ok_or_else(missing)
}

fn answer(kind: &'static str, content: &'static [u8]) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("permissions-policy"), PERMISSIONS),
    ];
    (headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that the page may have in all. A phone on a bad network opens it in a second.
    const MOST_BYTES: usize = 200_000;

    #[test]
    fn the_page_is_small_and_asks_no_other_server() {
        let files = || FILES.iter().map(|(name, _, content)| (*name, *content)).chain([("index.html", PAGE)]);
        let bytes: usize = files().map(|(_, content)| content.len()).sum();
        assert!(bytes <= MOST_BYTES, "{bytes} bytes");
        for (name, content) in files() {
            let text = std::str::from_utf8(content).unwrap();
            let addresses =
                text.split("://").skip(1).map(|rest| rest.split(['"', '\'', '`', ' ', ')']).next().unwrap());
            let foreign: Vec<_> = addresses.filter(|address| !address.starts_with("www.w3.org/")).collect();
            // The page speaks of addresses, and its client library makes them of the page's own.
            assert!(foreign.iter().all(|address| address.is_empty()), "{name}: {foreign:?}");
        }
    }

    #[test]
    fn no_script_stands_in_the_page() {
        let page = std::str::from_utf8(PAGE).unwrap();
        assert!(!page.contains("<style") && !page.contains("style=") && !page.contains(" on"), "{page}");
        let scripts: Vec<_> = page.split("<script").skip(1).collect();
        assert!(!scripts.is_empty() && scripts.iter().all(|script| script.contains("src=\"/console/")), "{page}");
    }
}
