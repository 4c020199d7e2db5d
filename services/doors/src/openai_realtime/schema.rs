//! The JSON schema (2020-12) of the websocket's events, derived from the types that are read and written. It is a promise:
//! a test holds every frame that the server's tests produce against it, another keeps the whole as a snapshot.

use super::EXTENSION;
use super::events::ClientEvent;
use super::frames::{Body, Extension, Frame};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};
use telemetry::TRACEPARENT;

pub fn schema() -> Value {
    let mut definitions = Map::new();
    let sent = SchemaSettings::draft2020_12().for_serialize();
    let sent = sent.with_transform(RecursiveTransform(spread)).with_transform(RecursiveTransform(close));
    let mut server = events::<Frame<Body>>(sent.clone(), &mut definitions, |_| {});
    server.extend(events::<Frame<Extension>>(sent, &mut definitions, |event| event["x-extension"] = json!(EXTENSION)));
    // What both sides write is left open, because unknown fields of clients are ignored.
    let client = events::<ClientEvent>(SchemaSettings::draft2020_12(), &mut definitions, |event| {
        event["properties"]["event_id"] = json!({ "type": ["string", "null"] });
        event["properties"][TRACEPARENT] = json!({
            "type": ["string", "null"],
            "description": "W3C Trace Context: place in the client's trace of the next response of this connection",
        });
    });
    definitions.insert("client_event".into(), json!({ "oneOf": client }));
    definitions.insert("server_event".into(), json!({ "oneOf": server }));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Events of GET /v1/realtime",
        "description": "OpenAI Realtime (GA) in text. Fields that a schema does not name are ignored in client events \
                        and never sent in server events. Events marked x-extension are for connections that opted in \
                        with ?extensions=reprise or session.extensions.",
        "oneOf": [reference("client_event"), reference("server_event")],
        "$defs": definitions,
    })
}

/// Adds a definition for each variant of an enum, by its `type`, and what they refer to. Returns references to them.
fn events<T: JsonSchema>(
    settings: SchemaSettings,
    definitions: &mut Map<String, Value>,
    finish: impl Fn(&mut Value),
) -> Vec<Value> {
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Value::Object(types) = schema["$defs"].take() {
        definitions.extend(types);
    }
    let Value::Array(variants) = schema["oneOf"].take() else { return Vec::new() };
    let define = |mut event: Value| {
        let name = event["properties"]["type"]["const"].as_str().unwrap_or_default().to_owned();
        finish(&mut event);
        let reference = reference(&name);
        definitions.insert(name, event);
        reference
    };
    variants.into_iter().map(define).collect()
}

/// Gives the fields of a struct to each alternative of the enum that is flattened into it.
fn spread(schema: &mut Schema) {
    let (Some(Value::Object(fields)), true) = (schema.get("properties").cloned(), schema.get("oneOf").is_some()) else {
        return;
    };
    let required = schema.remove("required").and_then(|names| names.as_array().cloned()).unwrap_or_default();
    schema.remove("properties");
    schema.remove("type");
    for alternative in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        let own = alternative["properties"].take();
        alternative["properties"] =
            fields.clone().into_iter().chain(own.as_object().cloned().unwrap_or_default()).collect();
        let own = alternative["required"].take();
        alternative["required"] = required.iter().chain(own.as_array().into_iter().flatten()).cloned().collect();
    }
}

/// Forbids other fields in objects that the server sends.
fn close(schema: &mut Schema) {
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".into(), json!(false));
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}
