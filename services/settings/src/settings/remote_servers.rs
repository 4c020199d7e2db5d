//! Servers that Reprise calls: one that answers in the engine's place, and the hub that has model files.

use super::unless_empty;
use crate::reader::{SectionReader, WordSet};
use crate::units::TimeUnit;

#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamSettings {
    /// None: the engine in this process.
    pub url: Option<String>,
    pub key_env: Option<String>,
    pub model: Option<String>,
    pub connect_ms: u64,
    pub silence_s: u64,
    pub count: CountTokens,
    pub count_margin: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HubSettings {
    pub url: String,
    pub token_env: Option<String>,
    pub connect_ms: u64,
    pub silence_s: u64,
    pub retries: u32,
    pub retry_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountTokens {
    Auto,
    Tokenize,
    Estimate,
}

impl UpstreamSettings {
    pub(super) fn read(r: &SectionReader<'_>) -> UpstreamSettings {
        let url = r.text_as("url", String::new(), "\"\", or a URL that begins with http:// or https://", |url| {
            if url.is_empty() || is_url(url) { Ok(url.to_string()) } else { Err(None) }
        });
        UpstreamSettings {
            url: unless_empty(url),
            key_env: variable(r, "key_env"),
            model: unless_empty(r.text("model")),
            connect_ms: r.time("connect_ms", TimeUnit::Milliseconds, 1..=600_000),
            silence_s: r.time("silence_s", TimeUnit::Seconds, 1..=86_400),
            count: r.choice("count"),
            count_margin: r.number("count_margin", 0.0..=2.0),
        }
    }
}

impl WordSet for CountTokens {
    const ALL: &'static [(&'static str, Self)] =
        &[("auto", CountTokens::Auto), ("tokenize", CountTokens::Tokenize), ("estimate", CountTokens::Estimate)];
}

impl HubSettings {
    pub(super) fn read(r: &SectionReader<'_>) -> HubSettings {
        let url = r.text_as("url", String::new(), "a URL that begins with http:// or https://", |url| {
            if is_url(url) { Ok(url.trim_end_matches('/').to_string()) } else { Err(None) }
        });
        HubSettings {
            url,
            token_env: variable(r, "token_env"),
            connect_ms: r.time("connect_ms", TimeUnit::Milliseconds, 1..=600_000),
            silence_s: r.time("silence_s", TimeUnit::Seconds, 1..=86_400),
            retries: r.whole("retries", 0..=1000),
            retry_ms: r.time("retry_ms", TimeUnit::Milliseconds, 1..=600_000),
        }
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// The name of an environment variable that holds a secret.
fn variable(r: &SectionReader<'_>, key: &'static str) -> Option<String> {
    let allowed = "the name of an environment variable (letters, digits, _), never the key itself";
    unless_empty(r.text_as(key, String::new(), allowed, |name| {
        let right = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if right { Ok(name.to_string()) } else { Err(None) }
    }))
}
