//! Options of a reply, as several doors read them.

use crate::json::json_text;
use fields::{Read, wrong};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use session::{Priority, ResponseFormat};
use settings::LimitSettings;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Most likeliest tokens that OpenAI's protocols allow.
pub const TOP_LOGPROBS: u64 = 20;

#[derive(Deserialize, JsonSchema)]
pub struct StreamOptions {
    /// A last chunk with the usage.
    pub include_usage: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "stop must be text or a list of texts, none of them empty")]
pub enum Stop {
    Text(String),
    Texts(Vec<String>),
}

pub fn within<T: PartialOrd + Display>(name: &str, value: Option<T>, range: RangeInclusive<T>) -> Read<Option<T>> {
    match value {
        Some(value) if !range.contains(&value) => {
            Err(wrong(name, format!("{name} must be from {} to {}", range.start(), range.end())))
        }
        value => Ok(value),
    }
}

/// Reads a number of sampling.
pub fn number(name: &str, value: Option<f64>, range: RangeInclusive<f64>) -> Read<Option<f32>> {
    Ok(within(name, value, range)?.map(|number| number as f32))
}

/// Reads tokens with what is added to their logits.
pub fn logit_bias(given: Option<&Map<String, Value>>) -> Read<Vec<(u32, f32)>> {
    let mut read = Vec::new();
    for (token, bias) in given.into_iter().flatten() {
        let pair = token.parse().ok().zip(bias.as_f64().filter(|bias| bias.abs() <= 100.0));
        let Some((token, bias)) = pair else {
            return Err(wrong("logit_bias", "logit_bias must give token ids numbers from -100 to 100"));
        };
        // The least means never.
        read.push((token, if bias <= -100.0 { f32::NEG_INFINITY } else { bias as f32 }));
    }
    Ok(read)
}

pub fn seed(value: &Value) -> Read<u64> {
    let number = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
    number.ok_or_else(|| wrong("seed", "seed must be a whole number"))
}

pub fn stop(stop: Option<Stop>, limits: &LimitSettings) -> Read<Vec<String>> {
    let texts = match stop {
        None => Vec::new(),
        Some(Stop::Text(text)) => vec![text],
        Some(Stop::Texts(texts)) => texts,
    };
    if texts.iter().any(String::is_empty) {
        return Err(wrong("stop", "stop must be text or a list of texts, none of them empty"));
    }
    check_stops("stop", &texts, limits)?;
    Ok(texts)
}

/// Reads a limit of tokens.
pub fn tokens(name: &str, value: Option<u64>) -> Read<Option<u32>> {
    Ok(within(name, value, 1..=u64::from(u32::MAX))?.map(|tokens| tokens as u32))
}

pub fn check_tool_count(count: usize, limits: &LimitSettings) -> Read<()> {
    match count <= limits.tools {
        true => Ok(()),
        false => Err(wrong("tools", format!("{count} tools are more than {} (limits.tools)", limits.tools))),
    }
}

pub fn check_stops(field: &str, texts: &[String], limits: &LimitSettings) -> Read<()> {
    let (count, most) = (texts.len(), limits.stop_strings);
    if count > most {
        return Err(wrong(field, format!("{count} stop strings are more than {most} (limits.stop_strings)")));
    }
    match texts.iter().map(String::len).max().filter(|bytes| *bytes > limits.stop_bytes) {
        None => Ok(()),
        Some(bytes) => {
            let most = limits.stop_bytes;
            Err(wrong(field, format!("a stop string of {bytes} bytes is longer than {most} (limits.stop_bytes)")))
        }
    }
}

/// Returns the format of a JSON schema, which a client may leave without a name.
pub fn json_schema(name: Option<String>, schema: &Value) -> ResponseFormat {
    ResponseFormat::JsonSchema { name: name.unwrap_or_else(|| "reply".to_owned()), schema: json_text(schema) }
}

/// Returns the urgency. A user waits for a reply whether or not it is streamed. A request that may wait says so: a client's
/// own summary of the conversation, a task of the house.
pub fn priority(service_tier: Option<&str>) -> Priority {
    if service_tier == Some("flex") { Priority::Background } else { Priority::Talk }
}

/// Reads the `private` of a client's metadata.
pub fn is_private(private: Option<&str>) -> Read<bool> {
    let private = replies::identity::is_private(private);
    private.ok_or_else(|| wrong("metadata.private", "private must be true or false"))
}
