//! Servers that Reprise calls: an upstream in the engine's place, the hub with model files, and a collector of traces.

use strum::{IntoStaticStr, VariantArray};

use crate::reader::{Parsed, SectionReader, sections};

sections! {
    pub struct UpstreamSettings {
        pub url: Option<String> = optional_url(),
        pub key_env: Option<String> = variable(),
        pub model: Option<String> = optional_text(),
        pub connect_ms: u64 = time(1..=600_000),
        pub silence_s: u64 = time(1..=86_400),
        pub answer_s: u64 = time(1..=86_400),
        pub answer_bytes: usize = bytes(1024..=1 << 30),
        pub count: CountTokens = choice(),
        pub count_margin: f64 = number(0.0..=2.0),
    }

    pub struct HubSettings {
        pub url: String = url(),
        pub token_env: Option<String> = variable(),
        pub connect_ms: u64 = time(1..=600_000),
        pub silence_s: u64 = time(1..=86_400),
        pub retries: u32 = whole(0..=1000),
        pub retry_ms: u64 = time(1..=600_000),
        pub listing_bytes: usize = bytes(1024..=1 << 30),
    }

    pub struct TelemetrySettings {
        pub otlp: Option<String> = optional_url(),
        pub service_name: String = text(),
        pub share: f64 = number(0.0..=1.0),
        pub queue_spans: usize = whole(1..=1_000_000),
        pub send_every_ms: u64 = time(1..=3_600_000),
        pub numbers_every_s: u64 = time(1..=86_400),
        pub timeout_ms: u64 = time(1..=600_000),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum CountTokens {
    Auto,
    Tokenize,
    Estimate,
}

const URL: &str = "a URL that begins with http:// or https://";

impl SectionReader<'_> {
    fn url(&self, key: &'static str) -> String {
        self.text_as(key, String::new(), URL, url)
    }

    fn optional_url(&self, key: &'static str) -> Option<String> {
        let allowed = format!("\"\", or {URL}");
        self.text_as(key, None, &allowed, |text| if text.is_empty() { Ok(None) } else { url(text).map(Some) })
    }

    pub fn variable(&self, key: &'static str) -> Option<String> {
        let allowed = "the name of an environment variable (letters, digits, _), never the key itself";
        self.text_as(key, None, allowed, |name| {
            let right = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if right { Ok((!name.is_empty()).then(|| name.to_string())) } else { Err(None) }
        })
    }
}

fn url(text: &str) -> Parsed<String> {
    let is_url = text.starts_with("http://") || text.starts_with("https://");
    if is_url { Ok(text.trim_end_matches('/').to_string()) } else { Err(None) }
}
