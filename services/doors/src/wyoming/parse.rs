//! Events to requests.

use fields::KnownFields;
use fields::{FieldError, Read, read};
use replies::BodyClues;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use settings::LimitSettings;
use std::sync::LazyLock;
use voices::WyomingEvent;

#[derive(Debug, PartialEq)]
pub enum WyomingRequest {
    Describe,
    Ping {
        text: Option<String>,
    },
    Transcript(Transcript),
    /// Event of a kind that means nothing here. Servers let such events go.
    Other,
}

/// Words of the user.
#[derive(Debug, Default, PartialEq)]
pub struct Transcript {
    pub text: String,
    /// Echoed as it came.
    pub context: Option<Map<String, Value>>,
    /// Client's name of its conversation.
    pub name: Option<String>,
    pub satellite: Option<String>,
    pub device: Option<String>,
    /// Fields that change nothing.
    pub unread: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
pub struct TranscriptFields {
    text: String,
    context: Option<ContextFields>,
}

/// Ids from Home Assistant, the longest-lived first. Home Assistant drops a conversation's id after five minutes.
#[derive(Deserialize, JsonSchema)]
struct ContextFields {
    satellite_id: Option<String>,
    device_id: Option<String>,
    conversation_id: Option<String>,
}

static KNOWN: LazyLock<KnownFields> = LazyLock::new(KnownFields::of::<TranscriptFields>);

pub fn parse(event: WyomingEvent, limits: &LimitSettings) -> Read<WyomingRequest> {
    let WyomingEvent { kind, data } = event;
    match kind.as_str() {
        "describe" => Ok(WyomingRequest::Describe),
        "ping" => Ok(WyomingRequest::Ping { text: data.get("text").and_then(Value::as_str).map(str::to_owned) }),
        "transcript" => transcript(data, limits).map(WyomingRequest::Transcript),
        _ => Ok(WyomingRequest::Other),
    }
}

fn transcript(data: Map<String, Value>, limits: &LimitSettings) -> Read<Transcript> {
    let context = data.get("context").and_then(Value::as_object).cloned();
    let data = Value::Object(data);
    let TranscriptFields { text, context: named } = read(&data)?;
    if text.trim().is_empty() {
        return Err(FieldError::new("nothing_said", "text", "nothing was said: say something first"));
    }
    if text.len() > limits.item_bytes {
        return Err(FieldError::too_large("text", limits.item_bytes, "bytes (limits.item_bytes)"));
    }
    let own = |id: &Option<String>| id.clone().filter(|id| !id.is_empty());
    let satellite = named.as_ref().and_then(|context| own(&context.satellite_id));
    let device = named.as_ref().and_then(|context| own(&context.device_id));
    let name = match named {
        Some(context) => name(context, limits.id_chars)?,
        None => None,
    };
    // The context is echoed, whatever stands in it.
    let unread = KNOWN.unread(&data).into_iter().filter(|field| !field.starts_with("context.")).collect();
    Ok(Transcript { text, context, name, satellite, device, unread })
}

/// Returns the clues of a transcript to its speaker.
pub fn clues(data: &Value, limits: &LimitSettings) -> Read<BodyClues> {
    let data = data.as_object().cloned().unwrap_or_default();
    let Transcript { satellite, device, .. } = transcript(data, limits)?;
    Ok(BodyClues { satellite, device, ..BodyClues::default() })
}

fn name(context: ContextFields, id_chars: usize) -> Read<Option<String>> {
    let ContextFields { satellite_id, device_id, conversation_id } = context;
    let ids = [("satellite", satellite_id), ("device", device_id), ("conversation", conversation_id)];
    let named = ids.into_iter().find_map(|(kind, id)| Some((kind, id.filter(|id| !id.is_empty())?)));
    let Some((kind, id)) = named else { return Ok(None) };
    if id.chars().count() > id_chars {
        let path = format!("context.{kind}_id");
        return Err(FieldError::too_large(&path, id_chars, "characters (limits.id_chars)"));
    }
    Ok(Some(format!("{kind} {id}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use settings::{Settings, Sources};

    fn parsed(kind: &str, data: Value) -> Read<WyomingRequest> {
        let limits = Settings::load(&Sources::default()).unwrap().settings.limits;
        parse(WyomingEvent { kind: kind.into(), data: data.as_object().unwrap().clone() }, &limits)
    }

    fn said(data: Value) -> Transcript {
        match parsed("transcript", data) {
            Ok(WyomingRequest::Transcript(transcript)) => transcript,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_satellite_names_the_session_or_else_the_device_or_else_the_conversation() {
        let all = json!({ "conversation_id": "01K", "device_id": "d1", "satellite_id": "assist_satellite.kitchen" });
        let turn = said(json!({ "text": "good morning", "language": "en", "context": all }));
        assert_eq!(turn.text, "good morning");
        assert_eq!(turn.name.as_deref(), Some("satellite assist_satellite.kitchen"));
        assert_eq!(turn.unread, ["language"]);
        assert_eq!(Value::Object(turn.context.unwrap()), all);
        for (context, name) in [
            (json!({ "conversation_id": "01K", "device_id": "d1", "satellite_id": null }), Some("device d1")),
            (json!({ "conversation_id": "01K", "device_id": "", "satellite_id": "" }), Some("conversation 01K")),
            (json!({ "conversation_id": "01K" }), Some("conversation 01K")),
            (json!({ "more": [1] }), None),
            (Value::Null, None),
        ] {
            assert_eq!(said(json!({ "text": "x", "context": context })).name.as_deref(), name);
        }
        assert_eq!(said(json!({ "text": "x" })).name, None);
    }

    #[test]
    fn mistakes_are_named() {
        let long = "x".repeat(257);
        for (data, code, path) in [
            (json!({}), "missing_required_parameter", "text"),
            (json!({ "text": null }), "missing_required_parameter", "text"),
            (json!({ "text": 1 }), "invalid_type", "text"),
            (json!({ "text": " \n" }), "nothing_said", "text"),
            (json!({ "text": "x".repeat(2 << 20) }), "value_too_large", "text"),
            (json!({ "text": "x", "context": "kitchen" }), "invalid_type", "context"),
            (json!({ "text": "x", "context": { "device_id": 7 } }), "invalid_type", "context.device_id"),
            (json!({ "text": "x", "context": { "satellite_id": long } }), "value_too_large", "context.satellite_id"),
        ] {
            let wrong = parsed("transcript", data.clone()).unwrap_err();
            assert_eq!((wrong.code, wrong.path.as_str()), (code, path), "{data}");
        }
    }

    #[test]
    fn other_events_are_let_go() {
        assert_eq!(parsed("describe", json!({ "x": 1 })), Ok(WyomingRequest::Describe));
        assert_eq!(parsed("ping", json!({ "text": "a" })), Ok(WyomingRequest::Ping { text: Some("a".into()) }));
        for kind in ["audio-chunk", "run-satellite", "select-program", ""] {
            assert_eq!(parsed(kind, json!({ "text": 1 })), Ok(WyomingRequest::Other), "{kind}");
        }
    }
}
