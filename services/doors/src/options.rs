//! Options of a reply, as several doors read them.

use crate::json::json_text;
use fields::{Read, wrong};
use serde_json::Value;
use session::{Priority, ResponseFormat};
use settings::LimitSettings;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Most likeliest tokens that OpenAI's protocols allow.
pub const TOP_LOGPROBS: u64 = 20;

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
