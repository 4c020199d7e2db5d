//! Errors of every route, in the form that clients read, and with a status that `/openapi.json` lists.

use crate::client::PATIENCE;
use crate::support::Server;
use serde_json::{Value, json};
use session::{Failure, FailureCode};
use tokio::time::timeout;

async fn answer(server: &Server, method: &str, path: &str, body: &str) -> (u16, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
    let url = format!("http://{}{path}", server.address);
    let request = client.request(method.to_uppercase().parse().unwrap(), url).body(body.to_owned());
    let response = request.header("content-type", "application/json").send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test]
async fn every_refusal_is_json_and_stands_in_the_document() {
    let server = Server::start().await;
    let (_, document) = server.http("GET", "/openapi.json", &[], "").await;
    let mut refused = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            for word in ["x", "%ff"] {
                let mut path = path.clone();
                while let (Some(begin), Some(end)) = (path.find('{'), path.find('}')) {
                    path.replace_range(begin..=end, word);
                }
                for (query, body) in [
                    ("", ""),
                    ("?limit=x&q=%ff&before=x", "[1"),
                    ("?q=*", "3"),
                    ("", r#"{"version": "x", "text": 1, "value": [], "model": {}, "session": 3, "messages": {}}"#),
                ] {
                    let path = format!("{path}{query}");
                    let (status, text) = answer(&server, method, &path, body).await;
                    if status < 400 {
                        continue;
                    }
                    refused += 1;
                    let told: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{method} {path}: {text}"));
                    let error = &told["error"];
                    let message = if path.starts_with("/api/") { error } else { &error["message"] };
                    assert!(message.as_str().is_some_and(|text| !text.is_empty()), "{method} {path}: {told}");
                    assert!(
                        operation["responses"][status.to_string()].is_object(),
                        "{method} {path} answers {status}, which the document does not list: {told}"
                    );
                }
            }
        }
    }
    assert!(refused > 100, "only {refused} refusals");
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_version_is_named() {
    let mut server = Server::start().await;
    let mut socket = server.connect("").await;
    let id = socket.session_id().await;
    for action in ["undo", "redo"] {
        let path = format!("/v1/sessions/{id}/summaries/{action}");
        let (status, error) = server.http("POST", &path, &[], r#"{"version": "last"}"#).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!("version")), "{error}");
        assert_eq!(server.http("POST", &path, &[], "").await.0, 404, "a body may be left out");
    }
    // What is read ahead meanwhile is no reply.
    while let Some(asked) = server.script.try_next() {
        assert_ne!(asked.request.purpose, session::GenerationPurpose::Reply);
    }
    server.stop().await;
}

/// litellm and others look for these words, and Home Assistant speaks them.
#[tokio::test]
async fn a_full_window_is_told_in_words_that_clients_know() {
    let mut server = Server::start().await;
    for stream in [false, true] {
        let body = json!({ "stream": stream, "messages": [{ "role": "user", "content": "x" }] }).to_string();
        let asking = server.address;
        let answer = tokio::spawn(async move {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let response = client.post(format!("http://{asking}/v1/chat/completions")).body(body).send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        });
        let mut asked = server.reply_asked().await;
        asked.fail(Failure::new(FailureCode::PromptTooLong, "the prompt has 900 tokens and the window is 512"));
        let (status, text) = timeout(PATIENCE, answer).await.unwrap().unwrap();
        let error: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &error["error"]["code"]), (400, &json!("context_length_exceeded")));
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.to_lowercase().contains("this model's maximum context length is"), "{message}");
        assert!(message.contains("900") && message.chars().count() < 200, "short enough to be spoken: {message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_openai_refuses_is_refused() {
    let mut server = Server::start().await;
    let user = json!({ "role": "user", "content": "Lights?" });
    let call = json!({ "id": "call_1", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let calls = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "on" });
    let cases = [
        (json!({ "model": "default" }), "messages"),
        (json!({ "messages": null }), "messages"),
        (json!({ "messages": [{ "role": "user", "content": null }] }), "messages[0].content"),
        (json!({ "messages": [user, { "role": "system" }] }), "messages[1].content"),
        (json!({ "messages": [user], "temperature": 3 }), "temperature"),
        (json!({ "messages": [user, result("call_1")] }), "messages[1].role"),
        (json!({ "messages": [user, calls, result("call_2")] }), "messages[2].tool_call_id"),
        (
            json!({ "messages": [{ "role": "user", "content": [{ "type": "input_audio", "input_audio": {} }] }] }),
            "messages[0].content[0].type",
        ),
        (json!({ "messages": [user], "tools": [{ "type": "mcp", "server_label": "x" }] }), "tools[0].type"),
        (json!({ "messages": [user], "modalities": ["text", "audio"] }), "modalities"),
        (json!({ "messages": [user], "web_search_options": {} }), "web_search_options"),
    ];
    for (body, param) in cases {
        let (status, error) = server.http("POST", "/v1/chat/completions", &[], &body.to_string()).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!(param)), "{body}: {error}");
        assert!(error["error"]["message"].as_str().unwrap().chars().count() < 160, "{error}");
    }
    assert!(server.script.try_next().is_none());
    server.stop().await;
}

#[tokio::test]
async fn an_id_of_the_services_own_is_refused_and_no_call_of_a_client_is_hidden() {
    let mut server = Server::start().await;
    let mut client = server.connect("").await;
    let id = client.session_id().await;
    let content = json!([{ "type": "input_text", "text": "Hello." }]);
    let item = json!({ "id": "recall_note_1", "type": "message", "role": "user", "content": content });
    client.say(json!({ "type": "conversation.item.create", "item": item })).await;
    let refused = client.until("error").await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("'recall_'") && message.contains("another id"), "{refused}");
    let call = json!({ "type": "function_call", "call_id": "recall_1", "name": "light", "arguments": "{}" });
    client.say(json!({ "type": "conversation.item.create", "item": call })).await;
    let added = client.until("conversation.item.added").await;
    assert_eq!(added["item"]["call_id"], "recall_1");
    let folder = server.stop().await;
    server = Server::in_folder(folder, |_| {}).await;
    let mut again = server.connect(&format!("?extensions=reprise&session={id}")).await;
    let told = again.until("conversation.item.added").await;
    assert_eq!(told["item"]["call_id"], "recall_1");
    server.stop().await;
}
