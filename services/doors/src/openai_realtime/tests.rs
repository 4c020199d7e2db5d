mod random;
mod spoken;

use super::frames::RateLimit;
use super::*;
use serde_json::{Value, json};
use session::sentences::Sentence;
use session::{
    Compaction, CompactionStage, ConfigUpdate, ConversationChoice, Event, Failure, FailureCode, Heard, Input,
    InputItem, Item, ItemBody, ItemPlace, ItemStatus, ItemUse, LearnedFact, MaxTokens, NamedSpeaker, NewItem, Placed,
    Refusal, Response, ResponseRequest, ResponseStatus, ResumeRequest, Role, SessionConfig, SessionState,
    StatusDetails, TokenLogprob, Tool, ToolChoice, TurnReport, Usage,
};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

const LIMITS: Limits = Limits { item_bytes: 1000, tools: 3, entries: 100, id_chars: 40 };

/// Checks a frame against the door's own schema.
fn check_against_schema(definition: &str, value: &Value) -> Result<(), String> {
    static SCHEMA: LazyLock<Value> = LazyLock::new(schema);
    ::tests::json_schema::check(&SCHEMA, definition, value)
}

fn read(value: Value) -> Result<Received, ErrorBody> {
    parse(&value.to_string(), &LIMITS)
}

fn input(value: Value) -> Input {
    check_against_schema("client_event", &value).unwrap_or_else(|why| panic!("{value}: {why}"));
    read(value.clone()).unwrap_or_else(|error| panic!("{value}: {error:?}")).input
}

#[test]
fn every_client_event_is_read() {
    let rows = [
        (
            json!({"type": "session.update", "event_id": "e1", "session": {"type": "realtime", "model": "other", "voice": "x",
                "output_modalities": ["audio"], "instructions": "Be brief.", "tool_choice": {"type": "function", "name": "f"},
                "max_output_tokens": 7, "temperature": null, "reasoning": {"effort": "low"}, "extensions": ["reprise"],
                "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}],
                "audio": {"input": {"turn_detection": {"type": "server_vad"}}}, "tracing": "auto"}}),
            Input::Configure(Box::new(ConfigUpdate {
                instructions: Some("Be brief.".into()),
                tools: Some(vec![Tool {
                    name: "f".into(),
                    description: Some("d".into()),
                    parameters: Some(r#"{"type":"object"}"#.into()),
                    verbatim: None,
                }]),
                tool_choice: Some(ToolChoice::Function("f".into())),
                max_output_tokens: Some(MaxTokens::Tokens(7)),
                temperature: Some(None),
                reasoning_effort: Some(Some("low".into())),
                parallel_tool_calls: None,
            })),
        ),
        (
            json!({"type": "conversation.item.create", "previous_item_id": "root", "item": {"id": "a", "type": "message",
                "role": "developer", "status": "completed", "object": "realtime.item",
                "content": [{"type": "input_text", "text": "x"}, {"type": "input_audio", "audio": "", "transcript": "y"}]}}),
            Input::AddItem {
                item: NewItem {
                    id: Some("a".into()),
                    body: ItemBody::Message { role: Role::System, parts: vec!["x".into(), "y".into()], speaker: None },
                },
                place: ItemPlace::Head,
            },
        ),
        (
            json!({"type": "conversation.item.create", "previous_item_id": "b", "item": {"id": "a", "type": "message",
                "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}}),
            Input::AddItem {
                item: NewItem { id: Some("a".into()), body: ItemBody::message(Role::Assistant, "x") },
                place: ItemPlace::After("b".into()),
            },
        ),
        (
            json!({"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c", "output": {"a": 1}}}),
            Input::AddItem {
                item: NewItem {
                    id: None,
                    body: ItemBody::FunctionCallOutput { call_id: "c".into(), output: "{\"a\":1}".into() },
                },
                place: ItemPlace::End,
            },
        ),
        (
            json!({"type": "conversation.item.create", "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}}),
            Input::AddItem {
                item: NewItem {
                    id: None,
                    body: ItemBody::FunctionCall { call_id: "c".into(), name: "f".into(), arguments: "{}".into() },
                },
                place: ItemPlace::End,
            },
        ),
        (json!({"type": "conversation.item.retrieve", "item_id": "a"}), Input::ReadItem { item_id: "a".into() }),
        (json!({"type": "conversation.item.delete", "item_id": "a"}), Input::DeleteItem { item_id: "a".into() }),
        (
            json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 0, "audio_end_ms": 1200.0}),
            Input::TruncateItem { item_id: "a".into(), part: 0, heard: Heard::Ms(1200) },
        ),
        (
            json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 0, "text_end": 5}),
            Input::TruncateItem { item_id: "a".into(), part: 0, heard: Heard::Chars(5) },
        ),
        (json!({"type": "response.create"}), Input::Respond(Box::default())),
        (
            json!({"type": "response.create", "response": {"conversation": "none", "instructions": "i", "max_output_tokens": "inf",
                "metadata": {"client_event_id": "m"}, "tools": [], "tool_choice": "none", "output_modalities": ["text"],
                "input": [{"type": "item_reference", "id": "a"}, {"type": "message", "role": "user", "content": "hi"}]}}),
            Input::Respond(Box::new(ResponseRequest {
                conversation: ConversationChoice::None,
                input: Some(vec![
                    InputItem::Reference("a".into()),
                    InputItem::Item(NewItem { id: None, body: ItemBody::message(Role::User, "hi") }),
                ]),
                config: ConfigUpdate {
                    instructions: Some("i".into()),
                    max_output_tokens: Some(MaxTokens::Unlimited),
                    tools: Some(vec![]),
                    tool_choice: Some(ToolChoice::None),
                    ..Default::default()
                },
                metadata: Some(r#"{"client_event_id":"m"}"#.into()),
                ..Default::default()
            })),
        ),
        (
            json!({"type": "response.create", "response": {"conversation": "conv_1", "temperature": 0.1,
                "reasoning": {"effort": "low"}}}),
            Input::Respond(Box::new(ResponseRequest {
                conversation: ConversationChoice::Named("conv_1".into()),
                config: ConfigUpdate {
                    temperature: Some(Some(0.1)),
                    reasoning_effort: Some(Some("low".into())),
                    ..Default::default()
                },
                ..Default::default()
            })),
        ),
        (json!({"type": "response.cancel"}), Input::CancelResponse { response_id: None }),
        (
            json!({"type": "response.cancel", "response_id": "r"}),
            Input::CancelResponse { response_id: Some("r".into()) },
        ),
        (json!({"type": "response.stop_thinking"}), Input::StopThinking { response_id: None }),
        (
            json!({"type": "response.stop_thinking", "response_id": "r"}),
            Input::StopThinking { response_id: Some("r".into()) },
        ),
        (json!({"type": "response.resume"}), Input::Resume(ResumeRequest::default())),
        (
            json!({"type": "response.resume", "item_id": "a", "text_end": 4}),
            Input::Resume(ResumeRequest { item_id: Some("a".into()), heard: Some(Heard::Chars(4)) }),
        ),
        (
            json!({"type": "response.resume", "audio_end_ms": 900}),
            Input::Resume(ResumeRequest { item_id: None, heard: Some(Heard::Ms(900)) }),
        ),
        (json!({"type": "input_audio_buffer.clear"}), Input::DropSpeech),
        (json!({"type": "input_text_buffer.update", "text": "what is"}), Input::Hear { text: "what is".into() }),
        (
            json!({"type": "input_text_buffer.commit", "item_id": "mine", "create_response": false}),
            Input::HeardAll { text: None, item_id: Some("mine".into()), speaker: None, respond: false },
        ),
        (
            json!({"type": "input_text_buffer.commit", "text": "Hi", "speaker": " Anna"}),
            Input::HeardAll {
                text: Some("Hi".into()),
                item_id: None,
                speaker: Some(NamedSpeaker { name: "Anna".into(), person: None }),
                respond: true,
            },
        ),
        (json!({"type": "input_text_buffer.clear"}), Input::Hear { text: String::new() }),
    ];
    for (value, expected) in rows {
        assert_eq!(input(value), expected);
    }
}

#[test]
fn extensions_are_told_from_what_stock_clients_say() {
    let rows = [
        (json!({"type": "input_text_buffer.update", "text": "x"}), true),
        (json!({"type": "input_text_buffer.commit", "text": "x"}), true),
        (json!({"type": "input_text_buffer.clear"}), true),
        (json!({"type": "response.stop_thinking"}), true),
        (json!({"type": "response.resume"}), true),
        (json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 0, "text_end": 1}), true),
        (json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 0, "audio_end_ms": 1}), false),
        (json!({"type": "response.create"}), false),
        (json!({"type": "session.update", "session": {"extensions": ["reprise"]}}), false),
    ];
    for (value, is_extension) in rows {
        assert_eq!(read(value.clone()).unwrap().is_extension, is_extension, "{value}");
    }
}

#[test]
fn every_refusal_has_a_code_and_names_the_field() {
    let item_id = || "a".to_owned();
    let no_item = |wanted| Refusal::NoSuchItem { item_id: item_id(), wanted };
    let rows = [
        (Refusal::TooManyItems { limit: 2 }, "too_many_items", None),
        (Refusal::TooMuchText { limit: 2 }, "too_much_text", None),
        (Refusal::NoRoom, "server_error", None),
        (Refusal::NoSuchPlace { item_id: item_id() }, "item_create_invalid_previous_item_id", Some("previous_item_id")),
        (Refusal::ItemExists { item_id: item_id() }, "item_create_duplicate_item_id", Some("item.id")),
        (no_item(ItemUse::Read), "item_retrieve_invalid_item_id", Some("item_id")),
        (no_item(ItemUse::Truncate), "item_truncate_invalid_item_id", Some("item_id")),
        (no_item(ItemUse::Delete), "item_delete_invalid_item_id", Some("item_id")),
        (Refusal::NotTruncatable, "item_truncate_invalid_item_id", Some("item_id")),
        (Refusal::NoSuchPart { parts: 1 }, "invalid_value", Some("content_index")),
        (
            Refusal::NoSuchReference { item_id: item_id(), index: 1 },
            "item_reference_invalid_item_id",
            Some("response.input[1].id"),
        ),
        (Refusal::NoSuchConversation { conversation_id: "c".into() }, "invalid_value", Some("response.conversation")),
        (Refusal::ResponseActive { response_id: "r".into() }, "conversation_already_has_active_response", None),
        (Refusal::TooManyResponses { limit: 2 }, "too_many_responses", None),
        (Refusal::NoActiveResponse, "response_cancel_not_active", None),
        (Refusal::NothingThinks, "stop_thinking_not_active", None),
        (Refusal::NothingToResume, "response_resume_not_possible", None),
        (Refusal::SaidSince, "conversation_went_on", None),
        (Refusal::NothingSaid, "input_text_buffer_commit_empty", Some("text")),
        (Refusal::StoreFailed { cause: "the disk is full".into() }, "store_failed", None),
        (Refusal::Stopping, "server_error", None),
    ];
    for (refusal, code, param) in rows {
        let error = error::error_body(&refusal, Some("mine".into()));
        assert_eq!((error.code, error.param.as_deref()), (code, param), "{refusal:?}");
        assert_eq!(error.event_id.as_deref(), Some("mine"));
        assert_eq!(error.kind == "server_error", matches!(code, "server_error" | "store_failed"), "{refusal:?}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let big = "x".repeat(LIMITS.item_bytes + 1);
    let long_id = "i".repeat(LIMITS.id_chars + 1);
    let message = |content: Value| json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}});
    let rows = [
        (json!({}), "missing_required_parameter", "type"),
        (json!({"type": 1}), "invalid_type", "type"),
        (json!({"type": "conversation.item.created"}), "invalid_value", "type"),
        (json!({"type": "session.update"}), "missing_required_parameter", "session"),
        (json!({"type": "session.update", "session": []}), "invalid_type", "session"),
        (json!({"type": "session.update", "session": {"type": "transcription"}}), "invalid_value", "session.type"),
        (
            json!({"type": "session.update", "session": {"tools": [{"type": "function"}]}}),
            "missing_required_parameter",
            "session.tools[0].name",
        ),
        (
            json!({"type": "session.update", "session": {"tools": [{"type": "mcp"}]}}),
            "invalid_value",
            "session.tools[0].type",
        ),
        (json!({"type": "session.update", "session": {"tools": [{}, {}, {}, {}]}}), "value_too_large", "session.tools"),
        (json!({"type": "session.update", "session": {"tool_choice": "some"}}), "invalid_value", "session.tool_choice"),
        (
            json!({"type": "session.update", "session": {"max_output_tokens": 0}}),
            "invalid_value",
            "session.max_output_tokens",
        ),
        (json!({"type": "session.update", "session": {"temperature": 3}}), "invalid_value", "session.temperature"),
        (
            json!({"type": "session.update", "session": {"instructions": big}}),
            "value_too_large",
            "session.instructions",
        ),
        (json!({"type": "conversation.item.create", "item": {"type": "song"}}), "invalid_value", "item.type"),
        (
            json!({"type": "conversation.item.create", "item": {"type": "message", "role": "bard", "content": []}}),
            "invalid_value",
            "item.role",
        ),
        (
            json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user"}}),
            "missing_required_parameter",
            "item.content",
        ),
        (
            json!({"type": "conversation.item.create", "item": {"type": "function_call_output", "output": ""}}),
            "missing_required_parameter",
            "item.call_id",
        ),
        (
            json!({"type": "conversation.item.create", "item": {"id": "root", "type": "message", "role": "user", "content": "x"}}),
            "invalid_value",
            "item.id",
        ),
        (
            json!({"type": "conversation.item.create", "item": {"id": long_id, "type": "message", "role": "user", "content": "x"}}),
            "value_too_large",
            "item.id",
        ),
        (
            message(json!([{"type": "input_audio", "audio": "AAAA"}])),
            "audio_not_supported",
            "item.content[0].transcript",
        ),
        (
            message(json!([{"type": "input_text", "text": "x"}, {"type": "input_image"}])),
            "content_not_supported",
            "item.content[1].type",
        ),
        (message(json!([{"type": "input_text"}])), "missing_required_parameter", "item.content[0].text"),
        (message(json!(["x"])), "invalid_type", "item.content[0]"),
        (message(json!(big)), "value_too_large", "item.content"),
        (json!({"type": "conversation.item.truncate", "item_id": "a"}), "missing_required_parameter", "audio_end_ms"),
        (
            json!({"type": "conversation.item.truncate", "item_id": "a", "audio_end_ms": -1}),
            "invalid_type",
            "audio_end_ms",
        ),
        (json!({"type": "conversation.item.truncate", "item_id": "a", "text_end": 1.5}), "invalid_type", "text_end"),
        (json!({"type": "conversation.item.delete"}), "missing_required_parameter", "item_id"),
        (json!({"type": "response.create", "response": {"metadata": {"k": 1}}}), "invalid_type", "response.metadata.k"),
        (
            json!({"type": "response.create", "response": {"reasoning": {"effort": "huge"}}}),
            "invalid_value",
            "response.reasoning.effort",
        ),
        (json!({"type": "input_audio_buffer.append", "audio": "no base64!"}), "invalid_value", "audio"),
        (json!({"type": "input_audio_buffer.append", "audio": "AAA"}), "invalid_value", "audio"),
        (json!({"type": "input_audio_buffer.append"}), "missing_required_parameter", "audio"),
        (json!({"type": "output_audio_buffer.clear"}), "audio_not_supported", "type"),
    ];
    for (mut value, code, param) in rows {
        value["event_id"] = json!("mine");
        let error = read(value.clone()).expect_err(&value.to_string());
        assert_eq!((error.code, error.param.as_deref()), (code, Some(param)), "{value}");
        assert_eq!(error.event_id.as_deref(), Some("mine"), "{value}");
        assert_eq!(error.kind, "invalid_request_error");
    }
    for message in ["", "{", "[]", "1", "null", "\"x\"", "{\"type\":\"response.create\"} x"] {
        assert_eq!(parse(message, &LIMITS).unwrap_err().code, "invalid_json", "{message}");
    }
    let error = read(json!({"type": "response.create", "event_id": long_id})).unwrap_err();
    assert_eq!((error.code, error.event_id), ("value_too_large", None));
}

#[test]
fn items_are_written_as_the_schema_says() {
    let bodies = [
        ItemBody::message(Role::Assistant, "hello"),
        ItemBody::FunctionCall { call_id: "c".into(), name: "f".into(), arguments: "{}".into() },
        ItemBody::FunctionCallOutput { call_id: "c".into(), output: "1".into() },
    ];
    for body in bodies {
        let value = item_value(&Item::new("a", body, ItemStatus::Completed));
        check_against_schema("ItemView", &value).unwrap();
    }
}

fn response(status: ResponseStatus) -> Response {
    Response {
        id: "resp_1".into(),
        status,
        details: None,
        output: Vec::new(),
        conversation_id: None,
        max_output_tokens: MaxTokens::Unlimited,
        usage: None,
        metadata: None,
    }
}

fn call(id: &str, arguments: &str, status: ItemStatus) -> Item {
    let body = ItemBody::FunctionCall { call_id: "call_1".into(), name: "light".into(), arguments: arguments.into() };
    Item::new(id, body, status)
}

/// One of each event that a session tells.
fn every_event() -> Vec<Event> {
    let (response_id, item_id) = ("resp_1".to_owned(), "item_2".to_owned());
    let started = Item::new(
        "item_2",
        ItemBody::Message { role: Role::Assistant, parts: vec![], speaker: None },
        ItemStatus::InProgress,
    );
    let done = Item::message("item_2", Role::Assistant, "Hello.");
    let mut config = SessionConfig::new("Be brief.");
    config.temperature = Some(0.7);
    config.reasoning_effort = Some("low".into());
    config.tools = vec![Tool {
        name: "light".into(),
        description: Some("Switches a light.".into()),
        parameters: Some(r#"{"type":"object","properties":{"on":{"type":"boolean"}}}"#.into()),
        verbatim: None,
    }];
    let state = |config| Box::new(SessionState { session_id: "sess_1".into(), model: "m".into(), config });
    let ended = |status, details, usage| Box::new(Response { details, usage, ..response(status) });
    let completed = Response {
        output: vec![done.clone()],
        conversation_id: Some("conv_1".into()),
        usage: Some(Usage { input_tokens: 20, cached_tokens: 15, output_tokens: 3, reasoning_tokens: 0 }),
        metadata: Some(r#"{"client_event_id":"mine"}"#.into()),
        ..response(ResponseStatus::Completed)
    };
    let failure = Failure::new(FailureCode::EngineFailed, "the model stopped");
    let placed = |before: &str| Some(Placed { previous_item_id: Some(before.into()) });
    let compaction = |stage| Event::Compaction(Compaction { stage, version: 1, tokens_before: 80 });
    vec![
        Event::Opened(state(SessionConfig::new(""))),
        Event::Configured(state(config)),
        Event::Refused { input_id: Some("mine".into()), refusal: session::Refusal::NotTruncatable },
        Event::ItemAdded { item: Item::message("item_1", Role::User, "Hi"), previous_item_id: None, is_new: true },
        Event::ItemAdded {
            item: Item::new(
                "item_4",
                ItemBody::FunctionCallOutput { call_id: "call_1".into(), output: "ok".into() },
                ItemStatus::Completed,
            ),
            previous_item_id: Some("item_3".into()),
            is_new: false,
        },
        Event::ItemRead { item: Item::message("item_1", Role::User, "Hi") },
        Event::ItemTruncated { item_id: item_id.clone(), part: 0, heard_ms: 300, heard_chars: 5 },
        Event::ItemDeleted { item_id: item_id.clone() },
        Event::SpeechDropped,
        Event::ResponseStarted { response: Box::new(response(ResponseStatus::InProgress)) },
        Event::ReplyStarted {
            response_id: response_id.clone(),
            output_index: 0,
            item: started,
            place: placed("item_1"),
        },
        Event::ReasoningDelta { response_id: response_id.clone(), text: "Hm.".into() },
        Event::TextDelta {
            response_id: response_id.clone(),
            item_id: item_id.clone(),
            output_index: 0,
            text: "Hel".into(),
            logprobs: vec![TokenLogprob { bytes: b"H".to_vec(), logprob: -0.5, top: vec![(b"H".to_vec(), -0.5)] }],
        },
        Event::SentenceDone {
            response_id: response_id.clone(),
            item_id: item_id.clone(),
            sentence: Sentence { index: 0, text: "Hello.".into(), text_start: 0, text_end: 6 },
        },
        Event::TextDone { response_id: response_id.clone(), item_id, output_index: 0, text: "Hello.".into() },
        Event::ReplyDone { response_id: response_id.clone(), output_index: 0, item: done, place: placed("item_1") },
        Event::ReplyStarted {
            response_id: response_id.clone(),
            output_index: 1,
            item: call("item_3", "", ItemStatus::InProgress),
            place: None,
        },
        Event::ArgumentsDelta {
            response_id: response_id.clone(),
            item_id: "item_3".into(),
            output_index: 1,
            call_id: "call_1".into(),
            json: "{".into(),
        },
        Event::ReplyDone {
            response_id: response_id.clone(),
            output_index: 1,
            item: call("item_3", "{\"on\": true}", ItemStatus::Completed),
            place: None,
        },
        Event::ResponseDone { response: Box::new(completed) },
        Event::ResponseDone {
            response: ended(ResponseStatus::Failed, Some(StatusDetails::Failed(failure)), Some(Usage::default())),
        },
        Event::ResponseDone { response: ended(ResponseStatus::Cancelled, Some(StatusDetails::Cancelled), None) },
        Event::ResponseDone {
            response: Box::new(Response {
                max_output_tokens: MaxTokens::Tokens(3),
                details: Some(StatusDetails::MaxOutputTokens),
                ..response(ResponseStatus::Incomplete)
            }),
        },
        Event::ThinkingStopped { response_id: response_id.clone() },
        Event::RecallDone { response_id: response_id.clone(), query: "tea".into(), places: 2, note: None },
        Event::ContextUpdated { tokens: 20, margin_tokens: 0, ctx_size: 100, fill: 0.2, arm: None },
        compaction(CompactionStage::Started),
        compaction(CompactionStage::Completed { tokens_after: 30, started_version: 1 }),
        compaction(CompactionStage::Dropped { tokens_after: 30 }),
        compaction(CompactionStage::Failed { message: "lost a name".into() }),
        Event::PinRefused { item_id: "item_1".into(), text: "Remember my code.".into(), limit_tokens: 40 },
        Event::FactLearned {
            fact: LearnedFact { id: "fact_2".into(), person: "ann".into(), text: "I like tea.".into(), asked: false },
            replaces: vec!["fact_1".into()],
        },
        Event::FactUnsure { fact_id: None, near: vec!["fact_0".into(), "fact_1".into()] },
        Event::Reported {
            response_id,
            report: TurnReport {
                reused_tokens: 15,
                computed_tokens: 5,
                queue_ms: 0.5,
                prefill_ms: 12.0,
                first_token_ms: Some(40.0),
                first_sentence_ms: Some(90.0),
                total_ms: 120.0,
                ..TurnReport::default()
            },
        },
    ]
}

/// The frames of a connection with or without extensions; their ids are left out.
fn frames(extensions: bool) -> Vec<Value> {
    let mut renderer = Renderer::new(Arc::new(AtomicBool::new(extensions)), 7);
    let mut frames = Vec::new();
    every_event().iter().for_each(|event| renderer.render(event, &mut frames));
    let limit = RateLimit { name: "requests", limit: 600, remaining: 599, reset_seconds: 0.1 };
    frames.push(renderer.rate_limits(vec![limit]));
    spoken::frames(&mut renderer, &mut frames);
    frames.iter().map(|frame| serde_json::from_str(frame).unwrap()).collect()
}

#[test]
fn every_event_is_written_as_the_schema_says() {
    let frames = frames(true);
    for frame in &frames {
        check_against_schema("server_event", frame).unwrap_or_else(|why| panic!("{frame}: {why}"));
    }
    let nameless = frames.iter().cloned().map(|mut frame| {
        frame["event_id"] = json!("event");
        frame.to_string()
    });
    insta::assert_snapshot!(nameless.collect::<Vec<_>>().join("\n"));

    // Each event of the schema is among them, so none is promised that never comes.
    let schema = schema();
    for reference in schema["$defs"]["server_event"]["oneOf"].as_array().unwrap() {
        let name = reference["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        assert!(frames.iter().any(|frame| frame["type"] == name), "{name} is never said");
    }
}

#[test]
fn stock_clients_know_every_event_that_is_no_extension() {
    // What Pipecat's receive loop survives.
    const KNOWN: &[&str] = &[
        "error",
        "session.created",
        "session.updated",
        "conversation.created",
        "input_audio_buffer.committed",
        "input_audio_buffer.cleared",
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.truncated",
        "conversation.item.deleted",
        "conversation.item.retrieved",
        "response.created",
        "response.done",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.delta",
        "response.output_audio_transcript.done",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
        "conversation.item.input_audio_transcription.failed",
        // Only for a client that asked for it with `idle_timeout_ms`.
        "input_audio_buffer.timeout_triggered",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "rate_limits.updated",
    ];
    for frame in frames(false) {
        assert!(KNOWN.contains(&frame["type"].as_str().unwrap()), "{}", frame["type"]);
    }
    assert!(frames(true).len() > frames(false).len());
}

#[test]
fn the_schema_is_a_promise() {
    insta::assert_json_snapshot!(schema());
}

#[test]
fn the_validator_can_fail() {
    let good = json!({"event_id": "e", "type": "conversation.item.deleted", "item_id": "a"});
    check_against_schema("server_event", &good).unwrap();
    for (key, value) in [("item_id", json!(1)), ("more", json!(1)), ("type", json!("other"))] {
        let mut bad = good.clone();
        bad[key] = value;
        assert!(check_against_schema("server_event", &bad).is_err(), "{bad}");
    }
    let lacking = json!({"event_id": "e", "type": "conversation.item.deleted"});
    assert!(check_against_schema("server_event", &lacking).is_err());
}
