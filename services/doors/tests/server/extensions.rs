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

#[tokio::test]
async fn a_client_that_asks_for_unknown_extensions_alone_is_told_the_name_of_ours() {
    let server = Server::start().await;
    for (names, is_taken) in [("", true), ("reprise,newer", true), ("foo", false), ("foo,%20bar", false)] {
        match server.try_connect(&format!("?extensions={names}"), &[]).await {
            Ok(_) => assert!(is_taken, "{names}"),
            Err(refused) => {
                assert_eq!((refused.code(), is_taken), ((400, "invalid_value".to_owned()), false), "{names}");
                let error = &refused.body["error"];
                assert_eq!(error["param"], "extensions");
                assert_eq!(error["message"], "there is no extension 'foo': there is 'reprise'");
            }
        }
    }
    server.stop().await;
}
