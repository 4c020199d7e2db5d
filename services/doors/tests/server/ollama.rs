//! Ollama's API over real sockets: what its Python client and Home Assistant read.

use crate::client::PATIENCE;
use crate::support::{Chat, Server};
use futures_util::StreamExt;
use serde_json::{Value, json};
use session::{Delta, Failure, FailureCode, Finish, Priority};
use tokio::task::JoinHandle;

fn turn(text: &str, more: Value) -> Value {
    let mut body = json!({
        "model": "test-model:latest", "stream": true, "options": { "num_ctx": 8192 }, "keep_alive": -1.0, "tools": [],
        "messages": [{ "role": "system", "content": "Be short." }, { "role": "user", "content": text }],
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Posts in the background, because the test is the model. Gives the status, the kind of the body and its lines.
fn posting(server: &Server, path: &str, body: Value) -> JoinHandle<(u16, String, Vec<Value>)> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
    let request = client.post(format!("http://{}{path}", server.address)).body(body.to_string());
    tokio::spawn(async move {
        let response = request.send().await.unwrap();
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let status = response.status().as_u16();
        let text: Vec<u8> = response.bytes_stream().map(|part| part.unwrap().to_vec()).concat().await;
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("\n\n"), "an empty line is no JSON: {text}");
        (status, kind, text.lines().map(|line| serde_json::from_str(line).expect(line)).collect())
    })
}

#[tokio::test]
async fn a_turn_is_lines_of_json() {
    let mut server = Server::start().await;
    let answer = posting(&server, "/api/chat", turn("Is it late?", json!({})));
    let mut asked = server.reply_asked().await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "Is it late?");
    assert_eq!(asked.request.priority, Priority::Talk);
    asked.prompt(12, 4);
    asked.think("Hm.");
    asked.say("Not yet.");
    asked.push(Delta::CallStarted { name: "light".into(), call_id: None });
    asked.push(Delta::CallArguments { json: "{\"on\":".into(), tokens: 1 });
    asked.push(Delta::CallArguments { json: "true}".into(), tokens: 1 });
    asked.done(Finish::ToolCalls);
    let (status, kind, lines) = answer.await.unwrap();
    assert_eq!((status, kind.as_str()), (200, "application/x-ndjson"));
    assert!(lines.iter().all(|line| line["message"]["role"] == "assistant" && line["model"] == "test-model:latest"));
    assert_eq!(lines[0]["message"]["thinking"], "Hm.");
    assert_eq!(lines[1]["message"]["content"], "Not yet.");
    assert_eq!(lines[2]["message"]["tool_calls"][0]["function"]["arguments"], json!({ "on": true }));
    let last = lines.last().unwrap();
    assert_eq!((&last["done"], &last["done_reason"]), (&json!(true), &json!("stop")));
    assert_eq!(last["prompt_eval_count"], 12);
    assert!(last["total_duration"].is_u64());
    server.stop().await;
}

#[tokio::test]
async fn an_answer_in_one_object() {
    let mut server = Server::start().await;
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let answer = posting(&server, "/api/chat", turn("How many?", json!({ "stream": false, "format": schema })));
    let mut asked = server.reply_asked().await;
    assert!(matches!(asked.request.options.response_format, session::ResponseFormat::JsonSchema { .. }));
    // A user waits for it, streamed or not.
    assert_eq!(asked.request.priority, Priority::Talk);
    asked.say("{\"a\":1}");
    asked.done(Finish::Stop);
    let (status, kind, lines) = answer.await.unwrap();
    assert_eq!((status, kind.as_str(), lines.len()), (200, "application/json", 1));
    assert_eq!(lines[0]["message"]["content"], "{\"a\":1}");
    server.stop().await;
}

#[tokio::test]
async fn errors_are_text_before_and_within_a_stream() {
    let mut server = Server::start().await;
    for (path, body, status) in [
        ("/api/chat", json!({ "model": "no-such-model", "messages": [{ "role": "user", "content": "Hi." }] }), 404),
        ("/api/chat", json!({ "messages": 3 }), 400),
        ("/api/show", json!({ "model": "no-such-model" }), 404),
        ("/api/pull", json!({ "model": "no-such-model", "stream": false }), 404),
        ("/api/embed", json!({ "model": "test-model" }), 404),
        ("/api", json!({}), 404),
        ("/api/", json!({}), 404),
        ("/api/tags", json!({}), 405),
        ("/kitchen/api/chat", json!({ "model": "test-model" }), 404),
    ] {
        let (found, _, lines) = posting(&server, path, body).await.unwrap();
        assert_eq!(found, status, "{path}: {lines:?}");
        assert!(lines[0]["error"].is_string(), "{path}: {lines:?}");
    }
    let (status, error) = server.http("GET", "/api/tags", &[("host", "evil.example")], "").await;
    assert!(status == 421 && error["error"].is_string(), "{status} {error}");
    let (status, error) = server.http("POST", "/v1/embeddings", &[], "{}").await;
    assert!(status == 404 && error["error"]["code"] == "not_found", "{status} {error}");
    let answer = posting(&server, "/api/chat", turn("Is it late?", json!({})));
    let mut asked = server.reply_asked().await;
    asked.say("It");
    asked.push(Delta::Failed(Failure::new(FailureCode::EngineFailed, "the engine failed")));
    let (status, _, lines) = answer.await.unwrap();
    assert_eq!((status, lines.last().unwrap()), (200, &json!({ "error": "the engine failed" })));
    server.stop().await;
}

#[tokio::test]
async fn models_are_listed_shown_and_here_already() {
    let server = Server::start().await;
    let (status, tags) = server.http("GET", "/api/tags", &[], "").await;
    assert_eq!((status, &tags["models"][0]["model"]), (200, &json!("test-model")));
    let (_, ps) = server.http("GET", "/api/ps", &[], "").await;
    assert!(ps["models"][0]["expires_at"].is_string(), "{ps}");
    let (_, show) = server.http("POST", "/api/show", &[], "{\"model\":\"test-model\"}").await;
    assert!(show["model_info"]["reprise.context_length"].is_u64(), "{show}");
    let (_, version) = server.http("GET", "/api/version", &[], "").await;
    assert!(version["version"].is_string());
    let (_, pulled) = server.http("POST", "/api/pull", &[], "{\"model\":\"test-model\",\"stream\":false}").await;
    assert_eq!(pulled, json!({ "status": "success" }));
    let (_, loaded) = server.http("POST", "/api/generate", &[], "{\"model\":\"test-model\"}").await;
    assert_eq!((&loaded["done_reason"], &loaded["response"]), (&json!("load"), &json!("")));
    server.stop().await;
}

/// An empty line or a comment ends the turn of Ollama's Python client. It shows an empty word and goes on.
#[tokio::test]
async fn a_silent_stream_says_an_empty_word() {
    let mut server = Server::with(|settings| settings.limits.comment_ms = 10).await;
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
    // A client that says nothing of a stream wants one.
    let mut body = turn("Is it late?", json!({}));
    body.as_object_mut().unwrap().remove("stream");
    let request = client.post(format!("http://{}/api/chat", server.address)).body(body.to_string());
    let asking = tokio::spawn(request.send());
    let mut asked = server.reply_asked().await;
    let mut lines = asking.await.unwrap().unwrap().bytes_stream();
    for _ in 0..3 {
        let line: Value = serde_json::from_slice(&lines.next().await.unwrap().unwrap()).unwrap();
        assert_eq!((&line["message"]["content"], &line["done"]), (&json!(""), &json!(false)), "{line}");
        assert_eq!(line["message"]["role"], "assistant", "{line}");
    }
    asked.say("Not yet.");
    asked.done(Finish::Stop);
    let rest: Vec<u8> = lines.map(|part| part.unwrap().to_vec()).concat().await;
    let rest = String::from_utf8(rest).unwrap();
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert!(!rest.contains("\n\n") && last["done"] == true, "{rest}");
    server.stop().await;
}

/// Programs look for Ollama at 11434 and ask `HEAD /` first. The gate is the same on both ports.
#[tokio::test]
async fn a_port_of_its_own_answers_as_ollama_does() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (server, ann, _) = crate::doors::locked(|settings| settings.ollama.port = port).await;
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
    let own = format!("http://127.0.0.1:{port}");
    let main = format!("http://{}", server.address);
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
    assert_eq!(client.get(&own).send().await.unwrap().text().await.unwrap(), "Ollama is running");
    for url in [&own, &main] {
        assert_eq!(status(client.head(url)).await, 200, "{url}");
        assert_eq!(status(client.get(format!("{url}/api/tags"))).await, 401, "{url}");
        assert_eq!(status(client.get(format!("{url}/api/tags")).header("authorization", &ann)).await, 200, "{url}");
        assert_eq!(status(client.get(format!("{url}/v1/models")).header("authorization", &ann)).await, 200, "{url}");
        assert_eq!(status(client.get(url).header("origin", "https://evil.example")).await, 403, "{url}");
        assert_eq!(status(client.get(url).header("host", "evil.example")).await, 421, "{url}");
    }
    assert!(client.get(&main).send().await.unwrap().text().await.unwrap().contains("<html"), "the page is there");
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_here_is_fetched_only_where_that_is_allowed() {
    let server = Server::start().await;
    for stream in [true, false] {
        let body = json!({ "model": "hf.co/someone/Model-GGUF", "stream": stream, "insecure": false });
        let (status, error) = server.http("POST", "/api/pull", &[], &body.to_string()).await;
        let message = error["error"].as_str().unwrap();
        assert_eq!(status, 404);
        assert!(message.contains("reprise pull") && message.contains("ollama.pull"), "{message}");
    }
    server.stop().await;
}
