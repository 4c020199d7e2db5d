//! Thinking that is ended by a client, over the websocket and over HTTP.

use crate::client::PATIENCE;
use crate::support::Server;
use serde_json::{Value, json};
use session::Finish;
use tokio::time::{Duration, timeout};

/// A response is told of before the store has it.
async fn until_stored(server: &Server, response: &str) {
    let stored = async {
        while server.http("GET", &format!("/v1/responses/{response}"), &[], "").await.0 == 404 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, stored).await.expect("it is stored");
}

#[tokio::test]
async fn the_words_follow_when_a_client_ends_the_thinking() {
    let mut server = Server::start().await;
    let mut client = server.connect("?extensions=reprise").await;
    let session = client.session_id().await;
    let of_session = format!("/v1/sessions/{session}/stop_thinking");
    let (status, refused) = server.http("POST", &of_session, &[], "").await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("no_active_response")));
    for way in ["event", "session", "response"] {
        client.ask("Why is the sky blue?").await;
        let response = client.until("response.created").await["response"]["id"].as_str().unwrap().to_owned();
        let mut asked = server.reply_asked().await;
        asked.prompt(12, 4);
        asked.think("Let me think about light.");
        let path = match way {
            "session" => of_session.clone(),
            _ => format!("/v1/responses/{response}/stop_thinking"),
        };
        until_stored(&server, &response).await;
        if way == "event" {
            client.say(json!({"type": "response.stop_thinking"})).await;
        } else {
            let (status, told) = server.http("POST", &path, &[], "").await;
            assert_eq!((status, &told["response_id"]), (200, &json!(response)), "{told}");
        }
        asked.thinking_stopped().await;
        assert_eq!(client.until("response.thinking_stopped").await["response_id"], json!(response));
        asked.say("Air scatters blue light.");
        asked.done(Finish::Stop);
        let done = client.until("response.done").await;
        assert_eq!(done["response"]["output"][0]["content"][0]["text"], "Air scatters blue light.", "{way}");
        client.until("turn.report").await;
        let (status, refused) = server.http("POST", &path, &[], "").await;
        assert_eq!(status, 409, "{refused}");
    }
    // What was thought is not kept.
    let (_, items) = server.http("GET", &format!("/v1/sessions/{session}/items"), &[], "").await;
    let said: Vec<&Value> = items["data"].as_array().unwrap().iter().collect();
    assert!(said.len() == 6 && !items.to_string().contains("about light"), "{items}");
    let (status, _) = server.http("POST", "/v1/responses/resp_none/stop_thinking", &[], "").await;
    assert_eq!(status, 404);
    server.stop().await;
}
