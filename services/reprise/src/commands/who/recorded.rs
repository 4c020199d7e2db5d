//! Recorded requests: what the rules of `[remember]` make of them, without a service.

use anyhow::{Result, anyhow};
use doors::{RequestClues, clues_of, paths_before};
use http::{HeaderMap, HeaderName, HeaderValue};
use replies::identity::{self, Clues, Explanation};
use serde::Deserialize;
use serde_json::Value;
use settings::Settings;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRequest {
    #[expect(dead_code, reason = "logs have it")]
    method: Option<String>,
    /// Path and query of the request's first line; `wyoming` for the data of a transcript.
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Value,
}

impl RecordedRequest {
    /// Returns the id of the key that came with it: `rk_ID_...`.
    pub fn key_id(&self) -> Option<&str> {
        let value = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"))?.1;
        let mut pieces = value.split_once(' ').map_or(value.as_str(), |(_, key)| key).trim().splitn(3, '_');
        pieces.next().filter(|kind| *kind == "rk")?;
        pieces.next()
    }

    /// Tries the rules on the request. `key`: id and name of the key that came with it.
    pub fn explain(&self, key: Option<(&str, &str)>, settings: &Settings) -> Result<Explanation> {
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let before = paths_before(settings).into_iter().find(|named| {
            path.strip_prefix('/').and_then(|path| path.strip_prefix(named)).is_some_and(|rest| rest.starts_with('/'))
        });
        let before = before.as_deref();
        let route = before.map_or(path, |before| &path[1 + before.len()..]);
        let headers = self.headers()?;
        let RequestClues { mut clues, is_durable, is_asked_for } = clues_of(route, query, &self.body, settings)?;
        clues.is_private |=
            headers.get("x-reprise-private").is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
        let (speaker, most) = (clues.speaker.clone(), settings.remember.rule_bytes);
        let clues = Clues { key, path: before, headers: &headers, body: &clues, speaker: speaker.as_deref(), most };
        Ok(identity::explain(&clues, is_durable, is_asked_for, settings))
    }

    fn headers(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let wrong = || anyhow!("{name:?} is no header, or its value is none");
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?;
            headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value);
        }
        Ok(headers)
    }
}
