//! Golden frames: the very JSON that goes over the wire.

use super::stage::*;
use serde_json::json;
use session::{Delta, Finish, TurnReport, Usage};

#[test]
fn a_full_response() {
    let mut s = Stage::new();
    s.attach(1, false);
    s.client(
        1,
        json!({"type": "session.update", "session": {"type": "realtime", "instructions": "Be kind.",
        "tools": [{"type": "function", "name": "light", "parameters": {"type": "object", "properties": {}}}]}}),
    );
    s.client(1, user_as("u1", "Hi"));
    s.client(1, json!({"type": "response.create", "response": {"metadata": {"client_event_id": "mine"}}}));
    s.content("Hello");
    s.content(" there.");
    let usage = Usage { input_tokens: 31, cached_tokens: 20, output_tokens: 4, reasoning_tokens: 0 };
    s.model(Delta::Done { finish: Finish::Stop, usage: Some(usage), report: None });
    insta::assert_snapshot!(s.frames(1));
}

#[test]
fn a_tool_call() {
    let mut s = Stage::with_client(false);
    s.client(1, user_as("u1", "Light on"));
    s.client(1, json!({"type": "response.create"}));
    s.model(Delta::CallStarted { name: "light".into(), call_id: None });
    s.model(Delta::CallArguments { json: "{\"on\":".into(), tokens: 3 });
    s.model(Delta::CallArguments { json: " true}".into(), tokens: 3 });
    s.done();
    s.client(
        1,
        json!({"type": "conversation.item.create", "item": {"id": "o1", "type": "function_call_output",
        "call_id": "call_1", "output": "{\"ok\": true}"}}),
    );
    insta::assert_snapshot!(s.frames(1));
}

#[test]
fn a_cancel_and_what_was_heard() {
    let mut s = Stage::with_client(true);
    s.client(1, user_as("u1", "Tell me a story"));
    s.client(1, json!({"type": "response.create"}));
    s.content("Once upon a time. There");
    s.client(1, json!({"type": "response.cancel"}));
    let item_id = s.last_item();
    s.client(1, json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "text_end": 9}));
    s.model(Delta::Done { finish: Finish::Cancelled, usage: None, report: Some(TurnReport::default()) });
    insta::assert_snapshot!(s.frames(1));
}

#[test]
fn an_error_of_each_kind() {
    let mut s = Stage::with_client(true);
    s.client(1, user_as("u1", "Hi"));
    s.client(1, json!({"type": "response.cancel", "event_id": "c0"}));
    s.client(1, json!({"type": "response.create"}));
    s.frames(1);
    let truncate = |id: &str| json!({"type": "conversation.item.truncate", "item_id": id, "audio_end_ms": 1});
    let beside = json!({"type": "response.create", "response": {"conversation": "none"}});
    let events = [
        json!({"type": "nonsense"}),
        json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user"}}),
        json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [{"type": "input_image"}]}}),
        user_as("u1", "again"),
        json!({"type": "conversation.item.create", "previous_item_id": "x", "item": {"type": "message", "role": "user", "content": "y"}}),
        json!({"type": "conversation.item.retrieve", "item_id": "x"}),
        json!({"type": "conversation.item.delete", "item_id": "x"}),
        truncate("x"),
        truncate("u1"),
        json!({"type": "response.create"}),
        json!({"type": "response.cancel", "response_id": "resp_x"}),
        json!({"type": "response.create", "response": {"conversation": "none", "input": [{"type": "item_reference", "id": "x"}]}}),
        json!({"type": "input_text_buffer.commit"}),
        beside.clone(),
        beside.clone(),
        beside,
    ];
    for (index, mut event) in events.into_iter().enumerate() {
        event["event_id"] = json!(format!("mine_{index}"));
        s.client(1, event);
    }
    s.client(1, json!("not an object"));
    s.store_fails = true;
    s.client(1, json!({"type": "conversation.item.delete", "item_id": "u1", "event_id": "mine_store"}));
    let frames = s.frames(1);
    let errors: Vec<&str> = frames.lines().filter(|line| line.contains("\"type\":\"error\"")).collect();
    insta::assert_snapshot!(errors.join("\n"));
}
