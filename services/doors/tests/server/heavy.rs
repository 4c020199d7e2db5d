//! Requests as large as clients like: they are refused by count.

use crate::support::Server;
use serde_json::{Value, json};

const ENTRIES: usize = 16;

fn few(settings: &mut settings::Settings) {
    settings.limits.request_items = ENTRIES;
}

fn entry() -> Value {
    json!({ "role": "user", "content": "Hello." })
}

/// Entries one too many: in the list itself, and as parts of one entry.
fn too_many() -> [Vec<Value>; 2] {
    let parts = vec![json!({ "type": "input_text", "text": "Hello." }); ENTRIES];
    [vec![entry(); ENTRIES + 1], vec![json!({ "type": "message", "role": "user", "content": parts })]]
}

#[tokio::test]
async fn each_door_refuses_a_request_with_too_many_entries() {
    let server = Server::with(few).await;
    let post = async |path: &str, body: Value| server.http("POST", path, &[], &body.to_string()).await;
    let (status, conversation) = post("/v1/conversations", json!({ "items": vec![entry(); ENTRIES] })).await;
    assert_eq!(status, 200, "as many as there may be: {conversation}");
    let items = format!("/v1/conversations/{}/items", conversation["id"].as_str().unwrap());
    let images = vec!["iVBORw0KGgo="; ENTRIES + 1];
    let mut refused = vec![post("/api/generate", json!({ "model": "m", "prompt": "Hi.", "images": images })).await];
    for list in too_many() {
        for (path, field) in [
            ("/v1/chat/completions", "messages"),
            ("/v1/responses", "input"),
            ("/v1/conversations", "items"),
            (&items, "items"),
            ("/api/chat", "messages"),
        ] {
            refused.push(post(path, json!({ "model": "m", (field): list })).await);
        }
    }
    for (status, answer) in refused {
        assert!(status == 400 && answer.to_string().contains("limits.request_items"), "{answer}");
    }
    let mut client = server.connect("").await;
    client.session_id().await;
    let [list, mut long] = too_many();
    client.say(json!({ "type": "response.create", "response": { "conversation": "none", "input": list } })).await;
    client.expect_error("value_too_large").await;
    client.say(json!({ "type": "conversation.item.create", "item": long.remove(0) })).await;
    client.expect_error("value_too_large").await;
    server.stop().await;
}
