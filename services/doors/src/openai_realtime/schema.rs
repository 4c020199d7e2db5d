//! The JSON schema (2020-12) of the websocket's events. Written by hand, because it is a promise: a test holds every
//! frame that the server's tests produce against it, another keeps the whole as a snapshot.

use serde_json::{Map, Value, json};

pub fn schema() -> Value {
    let client: Vec<(&str, Value)> = client_events();
    let server: Vec<(&str, Value)> = server_events();
    let mut definitions = shared();
    let references =
        |events: &[(&str, Value)]| -> Vec<Value> { events.iter().map(|(name, _)| reference(name)).collect() };
    let (client_references, server_references) = (references(&client), references(&server));
    for (name, event) in client.into_iter().chain(server) {
        definitions.insert(name.to_owned(), event);
    }
    definitions.insert("client_event".into(), json!({ "oneOf": client_references }));
    definitions.insert("server_event".into(), json!({ "oneOf": server_references }));
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

fn client_events() -> Vec<(&'static str, Value)> {
    vec![
        client("session.update", &[("session", reference("session_update"))], &[]),
        client(
            "conversation.item.create",
            &[("item", reference("new_item"))],
            &[("previous_item_id", nullable(text()))],
        ),
        client("conversation.item.retrieve", &[("item_id", text())], &[]),
        client(
            "conversation.item.truncate",
            &[("item_id", text())],
            &[
                ("content_index", count()),
                ("audio_end_ms", count()),
                ("text_end", described(count(), "Extension: characters (Unicode scalar values) that were heard.")),
            ],
        ),
        client("conversation.item.delete", &[("item_id", text())], &[]),
        client("response.create", &[], &[("response", nullable(reference("response_params")))]),
        client("response.cancel", &[], &[("response_id", nullable(text()))]),
        client("input_audio_buffer.clear", &[], &[]),
        extension(client("input_text_buffer.update", &[("text", text())], &[])),
        extension(client(
            "input_text_buffer.commit",
            &[],
            &[("text", nullable(text())), ("item_id", nullable(text())), ("create_response", nullable(flag()))],
        )),
        extension(client("input_text_buffer.clear", &[], &[])),
    ]
}

fn server_events() -> Vec<(&'static str, Value)> {
    let of_response = |more: &[(&'static str, Value)]| {
        let mut fields = vec![("response_id", text()), ("item_id", text()), ("output_index", count())];
        fields.extend_from_slice(more);
        fields
    };
    let of_content = |more: (&'static str, Value)| of_response(&[("content_index", count()), more]);
    let placed_item = [("previous_item_id", nullable(text())), ("item", reference("item"))];
    let output_item = [("response_id", text()), ("output_index", count()), ("item", reference("item"))];
    let compaction =
        [("summary_id", text()), ("version", count()), ("tokens_before", count()), ("tokens_after", nullable(count()))];
    let mut compaction_failed = compaction.to_vec();
    compaction_failed.push(("message", text()));
    vec![
        server("error", &[("error", reference("error_body"))]),
        server("session.created", &[("session", reference("session"))]),
        server("session.updated", &[("session", reference("session"))]),
        server("conversation.item.added", &placed_item),
        server("conversation.item.done", &placed_item),
        server("conversation.item.retrieved", &[("item", reference("item"))]),
        server(
            "conversation.item.truncated",
            &[("item_id", text()), ("content_index", count()), ("audio_end_ms", count()), ("text_end", count())],
        ),
        server("conversation.item.deleted", &[("item_id", text())]),
        server("input_audio_buffer.cleared", &[]),
        server("response.created", &[("response", reference("response"))]),
        server("response.done", &[("response", reference("response"))]),
        server("response.output_item.added", &output_item),
        server("response.output_item.done", &output_item),
        server("response.content_part.added", &of_content(("part", reference("content_part")))),
        server("response.content_part.done", &of_content(("part", reference("content_part")))),
        server("response.output_text.delta", &of_content(("delta", text()))),
        server("response.output_text.done", &of_content(("text", text()))),
        server("response.function_call_arguments.delta", &of_response(&[("call_id", text()), ("delta", text())])),
        server(
            "response.function_call_arguments.done",
            &of_response(&[("call_id", text()), ("name", text()), ("arguments", text())]),
        ),
        server("rate_limits.updated", &[("rate_limits", list(reference("rate_limit")))]),
        extension(server("response.output_text.logprobs", &of_content(("logprobs", list(reference("token_logprob")))))),
        extension(server(
            "response.sentence.done",
            &[
                ("response_id", text()),
                ("item_id", text()),
                ("index", count()),
                ("text", text()),
                ("text_start", count()),
                ("text_end", count()),
            ],
        )),
        extension(server("response.recall.done", &[("response_id", text()), ("query", text()), ("places", count())])),
        extension(server(
            "context.updated",
            &[
                ("tokens", count()),
                ("margin_tokens", count()),
                ("ctx_size", count()),
                ("fill", number()),
                ("arm", nullable(text())),
            ],
        )),
        extension(server("compaction.started", &compaction)),
        extension(server("compaction.completed", &compaction)),
        extension(server("compaction.dropped", &compaction)),
        extension(server("compaction.failed", &compaction_failed)),
        extension(server("pin.refused", &[("item_id", text()), ("text", text()), ("limit_tokens", count())])),
        extension(server(
            "turn.report",
            &[
                ("response_id", text()),
                ("reused_tokens", count()),
                ("computed_tokens", count()),
                ("reason", nullable(text())),
                ("ms", reference("turn_ms")),
            ],
        )),
    ]
}

/// What several events hold.
fn shared() -> Map<String, Value> {
    let effort = one_of(&["none", "minimal", "low", "medium", "high", "xhigh"]);
    let reasoning = open(&[], &[("effort", nullable(effort))]);
    let modalities = described(list(one_of(&["text", "audio"])), "Always answered in text.");
    let settings = [
        ("output_modalities", nullable(modalities)),
        ("instructions", nullable(text())),
        ("tools", nullable(list(reference("new_tool")))),
        ("tool_choice", nullable(reference("tool_choice"))),
        ("max_output_tokens", nullable(reference("max_tokens"))),
        ("temperature", nullable(json!({ "type": "number", "minimum": 0, "maximum": 2 }))),
        ("reasoning", nullable(reasoning.clone())),
        ("parallel_tool_calls", nullable(flag())),
    ];
    let mut session_update = settings.to_vec();
    session_update.push(("type", constant("realtime")));
    session_update.push(("extensions", nullable(list(text()))));
    let mut response_params = settings.to_vec();
    response_params.push(("conversation", nullable(described(text(), "auto, none, or the conversation's id"))));
    response_params
        .push(("input", nullable(list(json!({ "anyOf": [reference("new_item"), reference("item_reference")] })))));
    response_params.push(("metadata", nullable(reference("metadata"))));

    let item_status = one_of(&["in_progress", "completed", "incomplete"]);
    let item = |kind: &str, more: &[(&str, Value)]| {
        let mut fields = vec![
            ("id", text()),
            ("object", constant("realtime.item")),
            ("type", constant(kind)),
            ("status", item_status.clone()),
        ];
        fields.extend_from_slice(more);
        closed(&fields, &[])
    };
    let role = one_of(&["system", "user", "assistant"]);
    let part = closed(&[("type", one_of(&["input_text", "output_text"])), ("text", text())], &[]);
    let tokens = |more: &[(&'static str, Value)]| {
        let mut fields = vec![("text_tokens", count()), ("audio_tokens", count())];
        fields.extend_from_slice(more);
        closed(&fields, &[])
    };
    let usage = closed(
        &[
            ("total_tokens", count()),
            ("input_tokens", count()),
            ("output_tokens", count()),
            (
                "input_token_details",
                tokens(&[
                    ("image_tokens", count()),
                    ("cached_tokens", count()),
                    ("cached_tokens_details", tokens(&[("image_tokens", count())])),
                ]),
            ),
            ("output_token_details", tokens(&[])),
        ],
        &[],
    );
    let response_error = closed(&[("type", text()), ("code", text()), ("message", text())], &[]);
    let status_details = json!({ "oneOf": [
        closed(&[("type", constant("cancelled")), ("reason", constant("client_cancelled"))], &[]),
        closed(&[("type", constant("incomplete")), ("reason", constant("max_output_tokens"))], &[]),
        closed(&[("type", constant("failed")), ("error", response_error)], &[]),
    ] });
    let nothing = json!({ "type": "null" });
    let audio = closed(
        &[
            (
                "input",
                closed(
                    &[
                        ("format", nothing.clone()),
                        ("noise_reduction", nothing.clone()),
                        ("transcription", nothing.clone()),
                        ("turn_detection", nothing.clone()),
                    ],
                    &[],
                ),
            ),
            (
                "output",
                closed(&[("format", nothing.clone()), ("voice", nothing.clone()), ("speed", nothing.clone())], &[]),
            ),
        ],
        &[],
    );
    let tool = [("type", constant("function")), ("name", text())];
    let tool_more = [("description", text()), ("parameters", json!({ "type": "object" }))];
    let new_part = open(&[], &[("type", text()), ("text", text()), ("transcript", text())]);

    let definitions = [
        ("session_update", open(&[], &session_update)),
        ("response_params", open(&[], &response_params)),
        (
            "new_tool",
            open(&[("name", text())], &[("type", constant("function")), tool_more[0].clone(), tool_more[1].clone()]),
        ),
        (
            "new_item",
            json!({ "oneOf": [
                open(
                    &[
                        ("type", constant("message")),
                        ("role", one_of(&["system", "developer", "user", "assistant"])),
                        ("content", json!({ "anyOf": [list(new_part), text()] })),
                    ],
                    &[("id", nullable(text()))],
                ),
                open(
                    &[("type", constant("function_call")), ("name", text())],
                    &[("id", nullable(text())), ("call_id", nullable(text())), ("arguments", nullable(text()))],
                ),
                open(
                    &[("type", constant("function_call_output")), ("call_id", text())],
                    &[("id", nullable(text())), ("output", json!({}))],
                ),
            ] }),
        ),
        ("item_reference", open(&[("type", constant("item_reference")), ("id", text())], &[])),
        ("metadata", json!({ "type": "object", "additionalProperties": nullable(text()) })),
        (
            "tool_choice",
            json!({ "anyOf": [
                one_of(&["auto", "none", "required"]),
                open(&[("type", constant("function")), ("name", text())], &[]),
            ] }),
        ),
        ("max_tokens", json!({ "anyOf": [{ "type": "integer", "minimum": 1 }, constant("inf")] })),
        ("tool", closed(&tool, &tool_more)),
        (
            "item",
            json!({ "oneOf": [
                item("message", &[("role", role), ("content", list(part))]),
                item("function_call", &[("call_id", text()), ("name", text()), ("arguments", text())]),
                item("function_call_output", &[("call_id", text()), ("output", text())]),
            ] }),
        ),
        ("content_part", closed(&[("type", constant("text")), ("text", text())], &[])),
        (
            "session",
            closed(
                &[
                    ("type", constant("realtime")),
                    ("object", constant("realtime.session")),
                    ("id", text()),
                    ("model", text()),
                    ("output_modalities", list(constant("text"))),
                    ("instructions", text()),
                    ("tools", list(reference("tool"))),
                    ("tool_choice", reference("tool_choice")),
                    ("max_output_tokens", reference("max_tokens")),
                    ("parallel_tool_calls", flag()),
                    ("reasoning", nullable(reasoning)),
                    ("audio", audio),
                    ("truncation", constant("auto")),
                    ("tracing", nothing.clone()),
                    ("prompt", nothing.clone()),
                    ("include", nothing.clone()),
                    ("expires_at", nothing),
                ],
                &[("temperature", number()), ("extensions", list(text()))],
            ),
        ),
        (
            "response",
            closed(
                &[
                    ("object", constant("realtime.response")),
                    ("id", text()),
                    ("status", one_of(&["in_progress", "completed", "cancelled", "incomplete", "failed"])),
                    ("status_details", nullable(status_details)),
                    ("output", list(reference("item"))),
                    ("conversation_id", nullable(text())),
                    ("output_modalities", list(constant("text"))),
                    ("max_output_tokens", reference("max_tokens")),
                    ("usage", nullable(usage)),
                    ("metadata", nullable(reference("metadata"))),
                ],
                &[],
            ),
        ),
        (
            "error_body",
            closed(
                &[
                    ("type", one_of(&["invalid_request_error", "server_error", "rate_limit_error"])),
                    ("code", text()),
                    ("message", text()),
                    ("param", nullable(text())),
                    ("event_id", nullable(text())),
                ],
                &[],
            ),
        ),
        (
            "rate_limit",
            closed(
                &[
                    ("name", one_of(&["requests", "tokens"])),
                    ("limit", count()),
                    ("remaining", count()),
                    ("reset_seconds", number()),
                ],
                &[],
            ),
        ),
        (
            "token_logprob",
            closed(
                &[
                    ("token", text()),
                    ("bytes", list(count())),
                    ("logprob", number()),
                    (
                        "top_logprobs",
                        list(closed(&[("token", text()), ("bytes", list(count())), ("logprob", number())], &[])),
                    ),
                ],
                &[],
            ),
        ),
        (
            "turn_ms",
            closed(
                &[
                    ("queue", number()),
                    ("prefill", number()),
                    ("first_token", nullable(number())),
                    ("first_sentence", nullable(number())),
                    ("total", number()),
                ],
                &[],
            ),
        ),
    ];
    definitions.into_iter().map(|(name, definition)| (name.to_owned(), definition)).collect()
}

fn client(name: &'static str, required: &[(&str, Value)], optional: &[(&str, Value)]) -> (&'static str, Value) {
    let mut all = vec![("type", constant(name))];
    all.extend_from_slice(required);
    let mut optional = optional.to_vec();
    optional.push(("event_id", nullable(text())));
    (name, open(&all, &optional))
}

fn server(name: &'static str, required: &[(&str, Value)]) -> (&'static str, Value) {
    let mut all = vec![("event_id", text()), ("type", constant(name))];
    all.extend_from_slice(required);
    (name, closed(&all, &[]))
}

fn extension((name, mut event): (&'static str, Value)) -> (&'static str, Value) {
    event["x-extension"] = json!(super::EXTENSION);
    (name, event)
}

fn open(required: &[(&str, Value)], optional: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        required.iter().chain(optional).map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    let names: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "properties": properties, "required": names })
}

fn closed(required: &[(&str, Value)], optional: &[(&str, Value)]) -> Value {
    let mut object = open(required, optional);
    object["additionalProperties"] = json!(false);
    object
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn nullable(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn one_of(words: &[&str]) -> Value {
    json!({ "enum": words })
}

fn constant(word: &str) -> Value {
    json!({ "const": word })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn flag() -> Value {
    json!({ "type": "boolean" })
}

fn number() -> Value {
    json!({ "type": "number" })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}
