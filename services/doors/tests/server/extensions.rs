//! A connection opts in to the extensions and out of them again.

use crate::support::Server;
use serde_json::json;

#[tokio::test]
async fn no_client_gets_extensions_that_it_did_not_ask_for() {
    let server = Server::start().await;
    let mut client = server.connect("").await;
    let extensions = [
        json!({"type": "input_text_buffer.update", "text": "x"}),
        json!({"type": "input_text_buffer.commit", "text": "x"}),
        json!({"type": "input_text_buffer.clear"}),
        json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 0, "text_end": 1}),
        json!({"type": "response.stop_thinking"}),
        json!({"type": "response.resume"}),
    ];
    for mut event in extensions {
        event["event_id"] = json!("mine");
        client.say(event).await;
        let error = client.expect_error("extension_not_enabled").await;
        assert_eq!((&error["error"]["event_id"], &error["error"]["param"]), (&json!("mine"), &json!("type")));
    }
    // It may ask later, and take it back.
    client.say(json!({"type": "session.update", "session": {"extensions": ["reprise", "unknown"]}})).await;
    assert_eq!(client.until("session.updated").await["session"]["extensions"], json!(["reprise"]));
    client.say(json!({"type": "input_text_buffer.update", "text": "x"})).await;
    client.say(json!({"type": "session.update", "session": {"extensions": []}})).await;
    assert_eq!(client.until("session.updated").await["session"].get("extensions"), None);
    client.say(json!({"type": "input_text_buffer.update", "text": "x"})).await;
    client.expect_error("extension_not_enabled").await;
    server.stop().await;
}
