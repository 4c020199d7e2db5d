//! `/openapi.json`: made from the table of routes, the types that they read, and the words of `openapi.toml`. A route
//! without words fails a test, and so do words without their route.

use super::route::{Route, Success};
use crate::api_error::ErrorAnswer;
use fields::written_schema;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Words about one route.
#[derive(Deserialize)]
struct Words {
    summary: String,
    description: String,
    /// Statuses of refusals beside those that every route has.
    #[serde(default)]
    refusals: BTreeMap<String, String>,
}

/// `keys_required`: on an address that only this machine reaches a key is let go.
pub fn document(routes: &[Route], keys_required: bool) -> Value {
    let words = words();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let operation =
            words.get(&format!("{} {}", route.method, route.path)).map(|words| operation(route, words, keys_required));
        paths.entry(route.path).or_insert_with(|| json!({}))[route.method] = json!(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Reprise",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Conversations for voice assistants at home. The websocket's events are in \
                            /v1/realtime/schema.json.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": { "type": "http", "scheme": "bearer", "description": "From `reprise keys create`." },
            },
            "schemas": { "Error": written_schema::<ErrorAnswer>(), "OllamaError": written_schema::<OllamaError>() },
        },
    })
}

fn words() -> BTreeMap<String, Words> {
    toml::from_str(include_str!("openapi.toml")).unwrap_or_else(|error| {
        tracing::error!(%error, "the words of the API are not readable; this is a defect of the program");
        BTreeMap::new()
    })
}

fn operation(route: &Route, words: &Words, keys_required: bool) -> Value {
    let mut parameters: Vec<Value> = path_parameters(route.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.extend(route.query.into_iter().flat_map(|schema| query_parameters(&schema())));
    let object = || json!({ "type": "object" });
    // Of a stream of events each is described, of another text the whole.
    let text = |kind: &str| match kind {
        "text/event-stream" => json!({ "type": "object", "properties": { "data": { "type": "string" } } }),
        _ => json!({ "type": "string" }),
    };
    let (status, kinds) = match route.success {
        Success::Object => ("200", vec![("application/json", object())]),
        Success::List => ("200", vec![("application/json", written_schema::<ListAnswer>())]),
        Success::Of(schema) => ("200", vec![("application/json", schema())]),
        Success::In(kinds) => ("200", kinds.iter().map(|&kind| (kind, text(kind))).collect()),
        Success::ObjectOr(kind) => ("200", vec![("application/json", object()), (kind, text(kind))]),
        Success::Websocket => ("101", Vec::new()),
    };
    let mut success = json!({ "description": words.summary });
    if !kinds.is_empty() {
        let kinds = kinds.into_iter().map(|(kind, schema)| (kind.to_owned(), json!({ "schema": schema })));
        success["content"] = Value::Object(kinds.collect());
    }
    let mut responses = Map::from_iter([(status.to_owned(), success)]);
    let common = EVERYWHERE.iter();
    let common = common.chain(WITH_A_KEY.iter().filter(|_| route.scope.is_some()));
    let common = common.chain(WITH_A_BODY.iter().filter(|_| route.body.is_some()));
    let common = common.filter(|(status, _)| keys_required || *status != "401").copied();
    let form = route.errors.schema;
    let error = json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{form}") } } });
    // What a route says of a status is said of it.
    for (status, why) in common.chain(words.refusals.iter().map(|(status, why)| (status.as_str(), why.as_str()))) {
        responses.insert(status.to_owned(), json!({ "description": why, "content": error }));
    }
    let mut operation = json!({
        "summary": words.summary,
        "description": words.description,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = route.body {
        operation["requestBody"] = json!({ "content": { "application/json": { "schema": body() } } });
    }
    if let Some(scope) = route.scope {
        operation["security"] = if keys_required { json!([{ "key": [] }]) } else { json!([{}, { "key": [] }]) };
        operation["x-scope"] = json!(scope);
    }
    operation
}

/// Refusals by status that every route has.
const EVERYWHERE: [(&str, &str); 5] = [
    ("400", "the request is wrong"),
    ("403", "the key or the page may not do this"),
    ("421", "this server is not known under that name"),
    ("429", "too much"),
    ("431", "the headers are too large"),
];
const WITH_A_KEY: [(&str, &str); 3] = [
    ("401", "no key, or a wrong one"),
    ("500", "the service has a defect, or the store failed"),
    ("503", "the store or the model is not there, or the service stops"),
];
const WITH_A_BODY: [(&str, &str); 2] = [("408", "the body did not come in time"), ("413", "the body is too large")];

fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}'))
}

/// A parameter for each field of a struct.
fn query_parameters(schema: &Value) -> Vec<Value> {
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
    let parameter = |(name, field): (&String, &Value)| {
        let kind = field["type"].get(0).unwrap_or(&field["type"]);
        let mut kind = json!({ "type": kind });
        for bound in ["minimum", "maximum"].into_iter().filter(|bound| !field[*bound].is_null()) {
            kind[bound] = field[bound].clone();
        }
        let mut parameter = json!({ "name": name, "in": "query", "description": field["description"], "schema": kind });
        if required(name) {
            parameter["required"] = json!(true);
        }
        parameter
    };
    schema["properties"].as_object().into_iter().flatten().map(parameter).collect()
}

/// Sessions, items and what else comes in lists; the fields beside these lead to the next page.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "stands in the document only")]
struct ListAnswer {
    #[schemars(extend("const" = "list"))]
    object: String,
    data: Vec<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    has_more: Option<bool>,
}

/// Error in the shape that Ollama's clients read.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "stands in the document only")]
struct OllamaError {
    error: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::table;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_has_its_words() {
        let routes: BTreeSet<_> = table().iter().map(|route| format!("{} {}", route.method, route.path)).collect();
        assert_eq!(routes, words().into_keys().collect());
    }

    #[test]
    fn what_is_for_everybody_is_said_here() {
        let open: Vec<_> = table().into_iter().filter(|route| route.scope.is_none()).map(|route| route.path).collect();
        assert_eq!(open, ["/v1/realtime/schema.json", "/api/version", "/healthz", "/openapi.json"]);
    }

    /// Checks that the document demands no key on an address that only this machine reaches.
    #[test]
    fn no_key_is_demanded_where_none_is_needed() {
        let document = document(&table(), false);
        let operations = document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap());
        for (_, operation) in operations.filter(|(_, operation)| !operation["security"].is_null()) {
            assert_eq!(operation["security"], json!([{}, { "key": [] }]), "{operation}");
            assert!(operation["responses"]["401"].is_null(), "{operation}");
        }
    }

    #[test]
    fn the_document_is_a_promise() {
        let mut document = document(&table(), true);
        document["info"]["version"] = json!("…");
        insta::assert_json_snapshot!(document);
    }
}
