//! Recorded requests: what the rules of `[remember]` make of them, without a service.

use crate::routes::paths_before;
use crate::{ApiError, ollama, openai_chat, openai_responses, wyoming};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use replies::identity::{self, BodyClues, Clues};
use serde::Deserialize;
use serde_json::Value;
use settings::Settings;
use std::collections::BTreeMap;

pub use replies::identity::Explanation;

/// Request as a proxy or a client's log has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRequest {
    /// `POST` if it is left out.
    pub method: Option<String>,
    /// Path and query of the request's first line; `wyoming` for the data of a transcript.
    pub path: String,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub body: Value,
}

/// Clues of a request, and whether it asks for a durable session by itself.
struct Heard {
    clues: BodyClues,
    is_durable: bool,
}

impl RecordedRequest {
    /// Returns the id of the key that came with it: `rk_ID_...`.
    pub fn key_id(&self) -> Option<&str> {
        let value = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"))?.1;
        let mut pieces = value.split_once(' ').map_or(value.as_str(), |(_, key)| key).trim().splitn(3, '_');
        pieces.next().filter(|kind| *kind == "rk")?;
        pieces.next()
    }
}

/// Tries the rules on a request. `key`: id and name of the key that the request came with.
pub fn explain(
    request: &RecordedRequest,
    key: Option<(&str, &str)>,
    settings: &Settings,
) -> Result<Explanation, ApiError> {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let before = paths_before(settings).into_iter().find(|named| {
        path.strip_prefix('/').and_then(|path| path.strip_prefix(named)).is_some_and(|rest| rest.starts_with('/'))
    });
    let before = before.as_deref();
    let route = before.map_or(path, |before| &path[1 + before.len()..]);
    let headers = headers(&request.headers)?;
    let Heard { mut clues, is_durable } = heard(request, route, query, settings)?;
    clues.is_private |=
        headers.get("x-reprise-private").is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
    let speaker = clues.speaker.clone();
    let most = settings.remember.rule_bytes;
    let clues = Clues { key, path: before, headers: &headers, body: &clues, speaker: speaker.as_deref(), most };
    Ok(identity::explain(&clues, is_durable, settings))
}

fn heard(request: &RecordedRequest, route: &str, query: &str, settings: &Settings) -> Result<Heard, ApiError> {
    let body = request.body.to_string();
    let body = body.as_bytes();
    match route {
        "/v1/chat/completions" => {
            let request = openai_chat::parse(body, settings)?;
            Ok(Heard { clues: request.clues, is_durable: request.completion.session_id.is_some() })
        }
        "/api/chat" => Ok(Heard { clues: ollama::clues(ollama::parse_chat(body, settings)?), is_durable: false }),
        "/api/generate" => {
            Ok(Heard { clues: ollama::clues(ollama::parse_generate(body, settings)?), is_durable: false })
        }
        "/v1/responses" => {
            let request = openai_responses::parse(body, settings)?;
            Ok(Heard { clues: request.clues, is_durable: request.store })
        }
        "/v1/realtime" => {
            let of =
                |name: &str| query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
            let of = |name: &str| of(name).map(|(_, value)| value.to_owned());
            let is_private = of("private").as_deref() == Some("true");
            let model = of("model").unwrap_or_default();
            let clues = BodyClues { model, user: of("user"), is_private, ..BodyClues::default() };
            Ok(Heard { clues, is_durable: true })
        }
        "wyoming" => Ok(Heard { clues: wyoming::clues(&request.body, &settings.limits)?, is_durable: true }),
        _ => {
            let doors = "/v1/chat/completions, /v1/responses, /v1/realtime, /api/chat, /api/generate, wyoming";
            Err(ApiError::bad("invalid_value", format!("no conversation begins at {route}: it does at {doors}")))
        }
    }
}

fn headers(given: &BTreeMap<String, String>) -> Result<HeaderMap, ApiError> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let wrong = || ApiError::bad("invalid_value", format!("{name:?} is no header, or its value is none"));
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?;
        headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value);
    }
    Ok(headers)
}
