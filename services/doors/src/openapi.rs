//! `/openapi.json`: made from the table of routes, with the words that stand here. A route without words fails a test, and
//! so does a word without its route.

use crate::routes::{Route, table};
use axum::Json;
use serde_json::{Map, Value, json};

pub async fn serve() -> Json<Value> {
    Json(document())
}

pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in table() {
        let operation = operation(&route);
        paths.entry(route.path).or_insert_with(|| json!({}))[route.method] = operation;
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
            "schemas": { "Error": error_schema() },
        },
    })
}

/// What is said of one route.
struct Words {
    summary: &'static str,
    description: &'static str,
    /// Name, type, what it means.
    query: &'static [(&'static str, &'static str, &'static str)],
    body: Option<Value>,
    /// What a success is: its status, its type, its schema.
    answer: (&'static str, &'static str, Value),
    /// Statuses of refusals beside those that every route has.
    refusals: &'static [(&'static str, &'static str)],
}

fn operation(route: &Route) -> Value {
    let words = words(route.method, route.path);
    let mut parameters: Vec<Value> = path_parameters(route.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.extend(words.query.iter().map(|(name, kind, meaning)| {
        json!({ "name": name, "in": "query", "description": meaning, "schema": { "type": kind } })
    }));
    let (status, kind, schema) = words.answer;
    let mut success = json!({ "description": words.summary });
    if !kind.is_empty() {
        success["content"] = json!({ kind: { "schema": schema } });
    }
    let mut responses = Map::from_iter([(status.to_owned(), success)]);
    let common: &[(&str, &str)] = match route.scope {
        Some(_) => {
            &[("401", "no key, or a wrong one"), ("403", "the key or the page may not do this"), ("429", "too much")]
        }
        None => &[],
    };
    let error = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } });
    for (status, why) in words.refusals.iter().chain(common) {
        responses.insert((*status).to_owned(), json!({ "description": why, "content": error }));
    }
    let mut operation = json!({
        "summary": words.summary,
        "description": words.description,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = words.body {
        operation["requestBody"] = json!({ "content": { "application/json": { "schema": body } } });
    }
    if let Some(scope) = route.scope {
        operation["security"] = json!([{ "key": [] }]);
        operation["x-scope"] = json!(scope);
    }
    operation
}

fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}'))
}

const JSON: &str = "application/json";

fn words(method: &str, path: &str) -> Words {
    let blank = Words {
        summary: "",
        description: "",
        query: &[],
        body: None,
        answer: ("200", JSON, json!({ "type": "object" })),
        refusals: &[],
    };
    let no_session: &[(&str, &str)] = &[("404", "there is no such session of yours")];
    match (method, path) {
        ("get", "/v1/realtime") => Words {
            summary: "A conversation over a websocket: OpenAI Realtime (GA) in text",
            description: "Keys come as `Authorization: Bearer KEY`, or from a browser as the sub-protocol \
                          `openai-insecure-api-key.KEY` beside `realtime`.",
            query: &[
                ("model", "string", "the preset of a new session"),
                ("session", "string", "a session to go on with"),
                ("after", "string", "with session: the last item the client has; the later ones are told"),
                ("extensions", "string", "`reprise` for partial transcripts, sentences, reports and notices"),
            ],
            answer: ("101", "", Value::Null),
            refusals: &[
                ("400", "not a websocket"),
                ("404", "there is no such session of yours, or no such model"),
                ("503", "too many sessions, or stopping"),
            ],
            ..blank
        },
        ("get", "/v1/realtime/schema.json") => Words {
            summary: "The websocket's events as a JSON schema",
            description: "Client events, server events, and which of them are extensions.",
            ..blank
        },
        ("post", "/v1/realtime/client_secrets") => Words {
            summary: "A short-lived secret for a web page",
            description: "It may talk for the user of the key it was made with, and nothing else.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "expires_after": {
                        "type": "object",
                        "properties": { "seconds": { "type": "integer", "minimum": 1 } },
                    },
                    "session": { "type": "object", "description": "As in session.update; what a new session begins with." },
                },
            })),
            answer: (
                "200",
                JSON,
                json!({
                    "type": "object",
                    "required": ["value", "expires_at", "session"],
                    "properties": {
                        "value": { "type": "string" },
                        "expires_at": { "type": "integer", "description": "Seconds since 1970." },
                        "session": { "type": "object" },
                    },
                }),
            ),
            refusals: &[("400", "the body is wrong")],
            ..blank
        },
        ("post", "/v1/chat/completions") => Words {
            summary: "OpenAI chat completions, streaming and not",
            description: "Stateless, or in a durable session with `metadata.session_id` (`new` begins one): then the \
                          messages are those that are new.",
            body: Some(json!({
                "type": "object",
                "required": ["messages"],
                "properties": {
                    "model": { "type": "string" },
                    "messages": { "type": "array", "items": { "type": "object" } },
                    "stream": { "type": "boolean" },
                },
            })),
            refusals: &[
                ("400", "the request is wrong, or the prompt is too long"),
                ("404", "there is no such session of yours, or no such model"),
                ("409", "the session has an active response"),
                ("413", "the body is too large"),
                ("503", "the model is not there"),
            ],
            ..blank
        },
        ("get", "/v1/models") => Words {
            summary: "The presets that a session or a request may have",
            description: "Each is the running model with one window.",
            answer: ("200", JSON, list_schema()),
            ..blank
        },
        ("get", "/v1/models/{model}") => Words {
            summary: "One preset",
            description: "As in the list.",
            refusals: &[("404", "there is no such model")],
            ..blank
        },
        ("get", "/v1/sessions") => Words {
            summary: "Your sessions, the one used last first",
            description: "A page at a time.",
            query: &[
                ("limit", "integer", "sessions at most"),
                ("before", "integer", "goes on from a page: the `before` that stood there"),
            ],
            answer: ("200", JSON, list_schema()),
            ..blank
        },
        ("get", "/v1/sessions/search") => Words {
            summary: "Finds words in everything that was ever said",
            description: "Also what a summary covers and what a barge-in cut.",
            query: &[
                ("q", "string", "words, and \"phrases in quotes\"; a star ends a word that may go on"),
                ("session", "string", "only in this one"),
                ("any", "boolean", "one of the words is enough"),
                ("limit", "integer", "hits at most"),
            ],
            answer: ("200", JSON, list_schema()),
            refusals: &[("400", "nothing to search for"), ("404", "there is no such session of yours")],
            ..blank
        },
        ("get", "/v1/sessions/{session_id}") => Words {
            summary: "One session: its settings, its summary, its pins",
            description: "What was said is under /items.",
            refusals: no_session,
            ..blank
        },
        ("delete", "/v1/sessions/{session_id}") => Words {
            summary: "Deletes a session for good",
            description: "Its connections are closed. There is no way back but an export.",
            refusals: no_session,
            ..blank
        },
        ("get", "/v1/sessions/{session_id}/items") => Words {
            summary: "What was said, in order",
            description: "Items as they stand today, whatever a summary covers; a page at a time.",
            query: &[
                ("limit", "integer", "items at most"),
                ("after", "string", "goes on from a page: the `after` that stood there"),
            ],
            answer: ("200", JSON, list_schema()),
            refusals: &[("404", "there is no such session of yours, or no such item in it")],
            ..blank
        },
        ("get", "/v1/sessions/{session_id}/export") => Words {
            summary: "Everything that ever happened in a session, as JSON Lines",
            description: "`reprise sessions import` takes it in again.",
            answer: ("200", "application/jsonl", json!({ "type": "string" })),
            refusals: no_session,
            ..blank
        },
        ("post", "/v1/sessions/{session_id}/placement") => Words {
            summary: "Gives a session another preset",
            description: "Nothing else moves a session that is there, whatever is configured. Its connections are closed; \
                          from the next turn on it has the new window.",
            body: Some(json!({
                "type": "object",
                "properties": {
                    "preset": { "type": ["string", "null"], "description": "Null: the arm that the experiment draws." },
                },
            })),
            refusals: &[
                ("400", "no experiment draws"),
                ("404", "there is no such session of yours, or no such preset"),
            ],
            ..blank
        },
        ("post", "/v1/feedback") => Words {
            summary: "The user's thumb for one response",
            description: "What experiments compare beside what is measured. The last word counts.",
            body: Some(json!({
                "type": "object",
                "required": ["session_id", "response_id", "value"],
                "properties": {
                    "session_id": { "type": "string" },
                    "response_id": { "type": "string" },
                    "value": { "type": "integer", "enum": [-1, 0, 1], "description": "0 takes it back." },
                },
            })),
            refusals: &[("400", "the body is wrong"), ("404", "there is no such session or response of yours")],
            ..blank
        },
        ("get", "/v1/sessions/{session_id}/summaries") => Words {
            summary: "The summaries that stood or could stand for old turns, the newest first",
            description: "Every version, with what it covers, its checks and its tokens; `in_use` is true of the one in \
                          the prompt.",
            answer: ("200", JSON, list_schema()),
            refusals: no_session,
            ..blank
        },
        ("post", "/v1/sessions/{session_id}/summaries") => Words {
            summary: "Puts your words in the place of a summary",
            description: "A new version that covers the same turns, in use at once.",
            body: Some(json!({
                "type": "object",
                "required": ["text"],
                "properties": {
                    "text": { "type": "string" },
                    "version": { "type": "integer", "description": "The summary to edit; else the one in use." },
                },
            })),
            refusals: &[
                ("400", "the text is empty or too long"),
                ("404", "there is no such session or summary of yours"),
                ("409", "the prompt would be too long"),
            ],
            ..blank
        },
        ("post", "/v1/sessions/{session_id}/summaries/undo") => Words {
            summary: "Takes back the summary in use",
            description: "The one before it stands again, or the whole history, if that fits the window.",
            body: Some(version_schema("must be the one in use; it is undone in any case")),
            refusals: &[
                ("404", "there is no such session of yours, or no summary in use"),
                ("409", "the prompt would be too long"),
            ],
            ..blank
        },
        ("post", "/v1/sessions/{session_id}/summaries/redo") => Words {
            summary: "Puts a summary to use again that was undone",
            description: "Refused where what it covers was changed since.",
            body: Some(version_schema("the one to use; else the last that was undone")),
            refusals: &[
                ("404", "there is no such session of yours, or no such summary that was undone"),
                ("409", "what it covers was changed since"),
            ],
            ..blank
        },
        ("get", "/v1/sessions/{session_id}/pins") => Words {
            summary: "What the assistant always sees word for word",
            description: "Made where the user asked for it ('remember that ...', 'from now on ...'), or over this API.",
            answer: ("200", JSON, list_schema()),
            refusals: no_session,
            ..blank
        },
        ("post", "/v1/sessions/{session_id}/pins") => Words {
            summary: "Pins a text",
            description: "It stands in the next prompt as a note, and from the next compaction on beside the summary.",
            body: Some(json!({
                "type": "object",
                "required": ["text"],
                "properties": { "text": { "type": "string" } },
            })),
            refusals: &[
                ("400", "the text is empty"),
                ("404", "there is no such session of yours"),
                ("409", "the pins have no more room"),
            ],
            ..blank
        },
        ("delete", "/v1/sessions/{session_id}/pins/{pin_id}") => Words {
            summary: "Removes a pin",
            description: "From the next turn on it is not in the prompt.",
            refusals: &[("404", "there is no such session or pin of yours")],
            ..blank
        },
        ("get", "/healthz") => Words {
            summary: "Whether the model can answer",
            description: "Ready only when it can.",
            refusals: &[("503", "starting, stopping or in trouble")],
            ..blank
        },
        ("get", "/metrics") => Words {
            summary: "Numbers for Prometheus",
            description: "Every name ends with its unit.",
            answer: ("200", "text/plain", json!({ "type": "string" })),
            ..blank
        },
        ("get", "/openapi.json") => {
            Words { summary: "This document", description: "Made from the table of routes.", ..blank }
        }
        _ => blank,
    }
}

fn version_schema(meaning: &str) -> Value {
    json!({ "type": "object", "properties": { "version": { "type": "integer", "description": meaning } } })
}

fn list_schema() -> Value {
    json!({
        "type": "object",
        "required": ["object", "data"],
        "properties": {
            "object": { "const": "list" },
            "data": { "type": "array", "items": { "type": "object" } },
            "has_more": { "type": "boolean" },
        },
    })
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": { "type": "string" },
                    "type": { "type": "string" },
                    "param": { "type": ["string", "null"] },
                    "code": { "type": ["string", "null"] },
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_its_words() {
        for route in table() {
            let words = words(route.method, route.path);
            assert!(!words.summary.is_empty() && !words.description.is_empty(), "{} {}", route.method, route.path);
        }
        assert!(words("get", "/no/such/route").summary.is_empty());
    }

    #[test]
    fn what_is_for_everybody_is_said_here() {
        let open: Vec<_> = table().into_iter().filter(|route| route.scope.is_none()).map(|route| route.path).collect();
        assert_eq!(open, ["/v1/realtime/schema.json", "/healthz", "/openapi.json"]);
    }

    #[test]
    fn the_document_is_a_promise() {
        let mut document = document();
        document["info"]["version"] = json!("…");
        insta::assert_json_snapshot!(document);
    }
}
