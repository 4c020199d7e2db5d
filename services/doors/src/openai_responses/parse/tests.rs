//! Bodies that clients send, and bodies that none should.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use session::{MessageRole, Part};
use settings::Sources;
use std::sync::LazyLock;

fn read_body(body: Value) -> Result<ResponsesRequest, ApiError> {
    static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings::load(&Sources::default()).unwrap().settings);
    parse(body.to_string().as_bytes(), &SETTINGS)
}

#[test]
fn text_is_a_users_and_a_response_is_stored() {
    let asked = read_body(json!({ "model": "m", "input": "Hi." })).unwrap();
    assert_eq!((asked.input[0].role, asked.input[0].text().as_str()), (MessageRole::User, "Hi."));
    assert!(asked.store && asked.generate && !asked.stream && asked.unread.is_empty());
    assert_eq!((&asked.echo["tool_choice"], &asked.echo["tools"]), (&json!("auto"), &json!([])));
}

#[test]
fn what_clients_send_is_understood() {
    let asked = read_body(json!({
        "model": "m", "stream": true, "store": false, "instructions": "Be short.", "include": [], "user": null,
        "input": [
            { "role": "developer", "content": "The house has two rooms." },
            { "role": "user", "content": [{ "type": "input_text", "text": "Lamp on." }] },
            { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" },
            { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
              "content": [{ "type": "output_text", "text": "One moment.", "annotations": [] }] },
            { "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "lamp", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "call_1", "output": "on" },
        ],
        "tools": [{ "type": "function", "name": "lamp", "parameters": { "type": "object" }, "strict": true }],
        "tool_choice": { "type": "function", "name": "lamp" }, "reasoning": { "effort": "low", "summary": "auto" },
        "text": { "format": { "type": "json_schema", "name": "on", "schema": { "type": "object" }, "strict": true },
                  "verbosity": "low" },
        "max_output_tokens": 3000, "temperature": 1, "top_p": 0.5, "metadata": { "room": "kitchen" },
        "safety_identifier": "a", "prompt_cache_key": "b", "prompt_cache_retention": "24h",
    }));
    let asked = asked.unwrap();
    let roles: Vec<MessageRole> = asked.input.iter().map(|message| message.role).collect();
    use MessageRole::{Assistant, System, Tool, User};
    assert_eq!(roles, [System, User, Assistant, Tool]);
    assert_eq!(asked.input[2].calls[0].name, "lamp");
    assert_eq!(asked.input[3].call_id.as_deref(), Some("call_1"));
    assert!(asked.stream && !asked.store && asked.tells_reasoning);
    assert_eq!(asked.tool_choice, ToolChoice::Function("lamp".into()));
    assert!(matches!(&asked.options.response_format, ResponseFormat::JsonSchema { name, .. } if name == "on"));
    assert_eq!((asked.max_output_tokens, asked.options.sampling.top_p), (Some(3000), Some(0.5)));
    assert_eq!(asked.tools[0].verbatim, None);
    let unread = ["text.verbosity", "prompt_cache_retention"];
    assert_eq!(asked.unread, unread);
}

#[test]
fn an_image_travels_as_chat_completions_have_it() {
    let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low" });
    let asked = read_body(json!({ "input": [{ "role": "user", "content": [image] }] })).unwrap();
    let Part::Image(image) = &asked.input[0].parts[0] else { panic!("{asked:?}") };
    assert!(image.0.contains("\"image_url\":{\"url\":\"data:image/png"), "{image:?}");
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let text = |kind: &str| json!([{ "role": "user", "content": [{ "type": kind }] }]);
    for (body, param) in [
        (json!({ "input": "Hi.", "background": true }), "background"),
        (json!({ "input": "Hi.", "prompt": { "id": "pmpt_1" } }), "prompt"),
        (json!({ "input": "Hi.", "tools": [{ "type": "web_search" }] }), "tools[0].type"),
        (json!({ "input": "Hi.", "tool_choice": { "type": "mcp" } }), "tool_choice"),
        (json!({ "input": text("input_file") }), "input[0].content[0].type"),
        (json!({ "input": text("input_image") }), "input[0].content[0].image_url"),
        (json!({ "input": [{ "type": "web_search_call" }] }), "input[0].type"),
        (json!({ "input": "Hi.", "stream_id": "a" }), "stream_id"),
        (json!({ "input": "Hi.", "n": 2 }), "n"),
        (json!({ "input": "Hi.", "n": 0 }), "n"),
    ] {
        let error = read_body(body.clone()).unwrap_err();
        assert_eq!((error.code, error.param.as_deref()), ("unsupported_parameter", Some(param)), "{body}");
    }
}

#[test]
fn one_output_is_what_a_response_has() {
    let asked = read_body(json!({ "input": "Hi.", "n": 1 })).unwrap();
    assert!(asked.unread.is_empty(), "{:?}", asked.unread);
    let refused = read_body(json!({ "input": "Hi.", "n": 3 })).unwrap_err();
    assert!(refused.message.contains("/v1/chat/completions"), "{}", refused.message);
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (body, param) in [
        (json!({ "input": 3 }), "input"),
        (json!({ "input": [{ "role": "king", "content": "Hi." }] }), "input[0].role"),
        (json!({ "input": [{ "role": "user" }] }), "input[0].content"),
        (json!({ "input": [{ "type": "function_call", "name": "a" }] }), "input[0].call_id"),
        (json!({ "input": "Hi.", "temperature": 3 }), "temperature"),
        (json!({ "input": "Hi.", "max_output_tokens": 0 }), "max_output_tokens"),
        (json!({ "input": "Hi.", "reasoning": { "effort": "huge" } }), "reasoning.effort"),
        (json!({ "input": "Hi.", "metadata": { "a": 1 } }), "metadata"),
        (json!({ "input": "Hi.", "text": { "format": { "type": "xml" } } }), "text.format.type"),
        (json!({ "input": "Hi.", "tools": [{ "type": "function" }] }), "tools[0].name"),
        (json!({ "input": "Hi.", "conversation": 3 }), "conversation"),
        (json!({ "input": "Hi.", "conversation": "sess_1", "previous_response_id": "resp_1" }), "previous_response_id"),
    ] {
        let error = read_body(body.clone()).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{body}: {}", error.message);
    }
}

#[test]
fn what_is_not_done_is_told_of() {
    let asked = read_body(json!({ "input": "Hi.", "seed": 3, "truncation": "auto", "store": false })).unwrap();
    assert_eq!(asked.unread, ["seed", "truncation"]);
}

const FIELD_NAMES: [&str; 15] = [
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "metadata",
    "model",
    "previous_response_id",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
];

/// Values that are in the wrong place, of the wrong type, or right.
fn any_value() -> impl Strategy<Value = Value> {
    let words = ["message", "function_call", "function_call_output", "input_text", "input_image", "function"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        select(words.to_vec()).prop_map(Value::from),
    ];
    let names = ["type", "role", "content", "text", "call_id", "name", "arguments", "output", "format", "schema", "id"];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((select(names.to_vec()), inner), 0..5)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_body_breaks_the_parser(fields in vec((select(FIELD_NAMES.to_vec()), any_value()), 0..8)) {
        let body: Map<String, Value> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if let Err(error) = read_body(Value::Object(body)) {
            prop_assert!(error.status.is_client_error() && !error.message.is_empty(), "{error:?}");
        }
    }
}
