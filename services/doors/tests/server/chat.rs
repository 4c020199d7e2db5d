//! Chat completions over real sockets: what stock clients demand, and what hanging up does.

use crate::client::{PATIENCE, user};
use crate::support::{Chat, Server};
use futures_util::StreamExt;
use reqwest::Response;
use serde_json::{Value, json};
use session::{Delta, Failure, FailureCode, Finish, Priority};
use session::{GenerationPurpose, ToolChoice};
use session::{ResponseFormat, TokenLogprob};
use tokio::time::timeout;

pub fn url(server: &Server, path: &str) -> String {
    format!("http://{}{path}", server.address)
}

/// The library wants to know how TLS is done even where none is.
pub fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

async fn get(server: &Server, path: &str) -> Response {
    timeout(PATIENCE, client().get(url(server, path)).send()).await.expect("an answer").unwrap()
}

async fn post(server: &Server, body: &Value) -> Response {
    let request = client().post(url(server, "/v1/chat/completions")).body(body.to_string());
    timeout(PATIENCE, request.send()).await.expect("an answer").unwrap()
}

pub fn posting(server: &Server, body: Value) -> tokio::task::JoinHandle<(u16, Value)> {
    let request = client().post(url(server, "/v1/chat/completions")).body(body.to_string());
    tokio::spawn(async move {
        let response = timeout(PATIENCE, request.send()).await.expect("an answer").unwrap();
        (response.status().as_u16(), serde_json::from_str(&response.text().await.unwrap()).unwrap())
    })
}

pub fn says(text: &str, more: Value) -> Value {
    let mut body = json!({ "model": "gpt-4o", "messages": [{ "role": "user", "content": text }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

pub struct Lines {
    bytes: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<axum::body::Bytes>>>>,
    buffer: String,
}

impl Lines {
    pub fn of(response: Response) -> Lines {
        Lines { bytes: Box::pin(response.bytes_stream()), buffer: String::new() }
    }

    pub async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((line, rest)) = self.buffer.split_once('\n') {
                let line = line.to_owned();
                self.buffer = rest.to_owned();
                if !line.is_empty() {
                    return Some(line);
                }
                continue;
            }
            let bytes = timeout(PATIENCE, self.bytes.next()).await.expect("something comes")?.unwrap();
            self.buffer.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    async fn chunk(&mut self) -> Value {
        let line = self.next().await.expect("a chunk");
        serde_json::from_str(line.strip_prefix("data: ").expect(&line)).expect(&line)
    }

    pub async fn rest(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.next().await {
            lines.push(line);
        }
        lines
    }
}

#[tokio::test]
async fn a_stream_is_what_clients_expect() {
    let mut server = Server::start().await;
    let body =
        says("Is it late?", json!({ "stream": true, "stream_options": { "include_usage": true }, "unknown": 1 }));
    let response = post(&server, &body).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut lines = Lines::of(response);

    let mut asked = server.script.next().await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "Is it late?");
    assert_eq!((asked.request.priority, asked.request.purpose), (Priority::Talk, GenerationPurpose::Reply));
    asked.prompt(12, 4);
    let first = lines.chunk().await;
    assert_eq!(first["object"], "chat.completion.chunk");
    assert_eq!(first["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(first["usage"], Value::Null);
    asked.think("Hm.");
    assert_eq!(lines.chunk().await["choices"][0]["delta"], json!({ "reasoning_content": "Hm." }));
    asked.say("Not");
    asked.say(" yet.");
    assert_eq!(lines.chunk().await["choices"][0]["delta"], json!({ "content": "Not" }));
    assert_eq!(lines.chunk().await["choices"][0]["delta"], json!({ "content": " yet." }));
    asked.done(Finish::Stop);
    let last = lines.chunk().await;
    assert_eq!((&last["choices"][0]["finish_reason"], &last["choices"][0]["delta"]), (&json!("stop"), &json!({})));
    assert_eq!((&last["reprise"]["reused_tokens"], &last["reprise"]["reason"]), (&json!(4), &json!("new_text")));
    let usage = lines.chunk().await;
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["prompt_tokens"], 12);
    assert_eq!(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
    assert_eq!(usage["usage"]["completion_tokens_details"]["reasoning_tokens"], 1);
    assert_eq!(usage["usage"]["total_tokens"], 15);
    assert!(first["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!([&last, &usage].iter().all(|chunk| chunk["id"] == first["id"]));
    assert_eq!(lines.rest().await, ["data: [DONE]"]);
    server.stop().await;
}

#[tokio::test]
async fn calls_come_one_a_chunk_with_a_rising_index() {
    let mut server = Server::start().await;
    let tools = json!([{ "type": "function", "function": { "name": "light", "parameters": { "type": "object" } } }]);
    let body = says("Lights on", json!({ "stream": true, "tools": tools, "tool_choice": "required" }));
    let mut lines = Lines::of(post(&server, &body).await);
    let mut asked = server.script.next().await;
    assert_eq!((asked.chat().tools.len(), &asked.request.tool_choice), (1, &ToolChoice::Required));
    for room in ["kitchen", "hall"] {
        asked.push(Delta::CallStarted { name: "light".into(), call_id: None });
        asked.push(Delta::CallArguments { json: "{\"room\":".into(), tokens: 1 });
        asked.push(Delta::CallArguments { json: format!("\"{room}\"}}"), tokens: 1 });
    }
    asked.done(Finish::ToolCalls);
    assert_eq!(lines.chunk().await["choices"][0]["delta"]["role"], "assistant");
    let mut calls: Vec<(String, String)> = Vec::new();
    let finish = loop {
        let chunk = lines.chunk().await;
        let choice = &chunk["choices"][0];
        if !choice["finish_reason"].is_null() {
            break choice["finish_reason"].clone();
        }
        let parts = choice["delta"]["tool_calls"].as_array().unwrap();
        assert_eq!(parts.len(), 1);
        let (part, index) = (&parts[0], parts[0]["index"].as_u64().unwrap() as usize);
        if let Some(id) = part["id"].as_str() {
            assert_eq!(
                (index, &part["type"], &part["function"]["name"]),
                (calls.len(), &json!("function"), &json!("light"))
            );
            calls.push((id.to_owned(), String::new()));
        }
        assert_eq!(index, calls.len() - 1);
        calls[index].1 += part["function"]["arguments"].as_str().unwrap();
    };
    assert_eq!(finish, "tool_calls");
    assert_eq!([&calls[0].1, &calls[1].1], ["{\"room\":\"kitchen\"}", "{\"room\":\"hall\"}"]);
    assert_ne!(calls[0].0, calls[1].0);
    server.stop().await;
}

#[tokio::test]
async fn an_answer_in_one_piece() {
    let mut server = Server::start().await;
    let more = json!({
        "max_completion_tokens": 50, "max_tokens": 7, "temperature": 0.5, "seed": -3, "stop": ["\n", "END"],
        "logprobs": true, "top_logprobs": 1, "logit_bias": { "5": -100, "6": 1.5 }, "ignore_eos": true,
        "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": { "type": "object" } } },
        "reasoning_effort": "none", "parallel_tool_calls": false,
    });
    let answer = posting(&server, says("Is it late?", more));
    let mut asked = server.script.next().await;
    let ask = &asked.request;
    assert_eq!(
        (ask.max_tokens, ask.options.sampling.temperature, ask.options.seed),
        (Some(50), Some(0.5), Some(u64::MAX - 2))
    );
    assert_eq!(
        (ask.options.stop.len(), ask.options.logprobs, ask.options.ignore_eos, ask.parallel_tool_calls),
        (2, Some(1), true, false)
    );
    assert_eq!(ask.options.sampling.logit_bias, [(5, f32::NEG_INFINITY), (6, 1.5)]);
    assert!(matches!(&ask.options.response_format, ResponseFormat::JsonSchema { name, .. } if name == "x"));
    assert_eq!(asked.chat().options["enable_thinking"], false);
    assert_eq!(ask.priority, Priority::Talk, "a user waits for it as for a stream");
    asked.prompt(12, 0);
    let logprobs = vec![TokenLogprob { bytes: b"No".to_vec(), logprob: -0.5, top: vec![(b"No".to_vec(), -0.5)] }];
    asked.push(Delta::Text { text: "No".into(), tokens: 1, sentences: Vec::new(), logprobs });
    asked.done(Finish::Length);
    let (status, body) = answer.await.unwrap();
    assert_eq!(status, 200);
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("test-model")));
    let choice = &body["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("No"), &json!("length")));
    assert_eq!(choice["logprobs"]["content"][0]["top_logprobs"][0]["bytes"], json!([78, 111]));
    assert_eq!(body["usage"]["completion_tokens"], 1);
    let mut ahead = server.script.next().await;
    assert!(matches!(ahead.request.purpose, GenerationPurpose::WarmHistory), "the next turn is read ahead");
    ahead.done(Finish::Warm);

    let answer =
        posting(&server, says("Lights", json!({ "tools": [{"type": "function", "function": {"name": "f"}}] })));
    let mut asked = server.script.next().await;
    asked.call("f", "{}");
    asked.done(Finish::Stop);
    let (_, body) = answer.await.unwrap();
    let message = &body["choices"][0]["message"];
    assert_eq!((&message["content"], &message["tool_calls"][0]["function"]["name"]), (&Value::Null, &json!("f")));
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
    server.stop().await;
}

#[tokio::test]
async fn a_silent_stream_says_that_it_lives() {
    let mut server = Server::with(|settings| settings.limits.comment_ms = 10).await;
    let mut bytes = post(&server, &says("Think", json!({ "stream": true }))).await.bytes_stream();
    let mut asked = server.script.next().await;
    // Some clients take a comment for data, so an empty line says it.
    for _ in 0..3 {
        let part = timeout(PATIENCE, bytes.next()).await.expect("an empty line, while the prompt is read").unwrap();
        assert_eq!(&*part.unwrap(), b"\n");
    }
    asked.say("Done.");
    asked.done(Finish::Stop);
    let rest: Vec<u8> = bytes.map(|part| part.unwrap().to_vec()).concat().await;
    let rest = String::from_utf8(rest).unwrap();
    assert!(rest.ends_with("data: [DONE]\n\n") && !rest.lines().any(|line| line.starts_with(':')), "{rest}");
    server.stop().await;
}

#[tokio::test]
async fn hanging_up_cancels() {
    let mut server = Server::start().await;
    let response = post(&server, &says("A long story", json!({ "stream": true }))).await;
    let mut asked = server.script.next().await;
    let mut lines = Lines::of(response);
    asked.say("Once");
    lines.chunk().await;
    assert!(!asked.is_cancelled());
    drop(lines);
    timeout(PATIENCE, asked.cancelled()).await.expect("a stream that nobody reads is cancelled");

    let answer = posting(&server, says("A long story", json!({})));
    let mut asked = server.script.next().await;
    asked.say("Once");
    answer.abort();
    timeout(PATIENCE, asked.cancelled()).await.expect("an answer that nobody waits for is cancelled");
    server.stop().await;
}

#[tokio::test]
async fn the_silence_after_a_stream_is_used() {
    let mut server = Server::start().await;
    let mut lines = Lines::of(post(&server, &says("Good morning", json!({ "stream": true }))).await);
    let mut asked = server.script.next().await;
    asked.think("Hm.");
    asked.say("Good morning.");
    asked.done(Finish::Stop);
    lines.rest().await;
    let warm = server.script.next().await;
    assert_eq!((warm.request.purpose, warm.request.priority), (GenerationPurpose::WarmHistory, Priority::Speculate));
    let chat = warm.chat();
    let said: Vec<&Value> = chat.messages.iter().map(|message| &message["content"]).collect();
    assert_eq!(said, ["Good morning", "Good morning.", "…"]);

    // Not after a call: what comes then goes on from the reply itself.
    let mut lines = Lines::of(post(&server, &says("Lights", json!({ "stream": true }))).await);
    let mut asked = server.script.next().await;
    asked.call("f", "{}");
    asked.done(Finish::Stop);
    lines.rest().await;
    assert!(server.script.try_next().is_none());
    server.stop().await;
}

#[tokio::test]
async fn mistakes_are_told_in_the_shape_that_clients_read() {
    let mut server = Server::with(|settings| {
        settings.limits.body_bytes = 4000;
        settings.limits.tools = 1;
    })
    .await;
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    let cases = [
        (says("x", json!({ "n": 5 })), "n", "from 1 to 4"),
        (says("x", json!({ "n": 2, "metadata": { "session_id": "new" } })), "n", "durable session"),
        (says("x", json!({ "temperature": 9 })), "temperature", "from 0 to 2"),
        (says("x", json!({ "max_tokens": 0 })), "max_tokens", "from 1"),
        (says("x", json!({ "stream": "yes" })), "stream", "true or false"),
        (says("x", json!({ "stop": [1] })), "stop", "list of texts"),
        (says("x", json!({ "tools": [tool, tool] })), "tools", "limits.tools"),
        (says("x", json!({ "tool_choice": "sometimes" })), "tool_choice", "required"),
        (says("x", json!({ "response_format": { "type": "xml" } })), "response_format.type", "json_schema"),
        (says("x", json!({ "top_logprobs": 2 })), "top_logprobs", "logprobs: true"),
        (says("x", json!({ "logit_bias": { "a": 1 } })), "logit_bias", "token ids"),
        (json!({ "messages": [] }), "messages", "empty"),
    ];
    for (body, param, words) in cases {
        let response = post(&server, &body).await;
        assert_eq!(response.status(), 400, "{body}");
        let error: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_eq!(error["error"]["param"], param, "{error}");
        assert_eq!(error["error"]["type"], "invalid_request_error");
        assert!(error["error"]["message"].as_str().unwrap().contains(words), "{error}");
    }
    let response = post(&server, &json!("not an object")).await;
    assert_eq!(response.status(), 400);
    let response = post(&server, &says(&"x".repeat(5000), json!({}))).await;
    assert_eq!(response.status(), 413);
    assert!(response.text().await.unwrap().contains("limits.body_bytes"));
    let response = post(&server, &json!({ "model": "gtp", "messages": [{ "role": "user", "content": "x" }] })).await;
    assert_eq!(response.status(), 404);
    assert!(response.text().await.unwrap().contains("model_not_found"));
    assert!(server.script.try_next().is_none(), "nothing of that reached the backend");

    // What only the backend finds out has a status too, in a stream as well.
    for (code, status) in
        [(FailureCode::PromptTooLong, 400), (FailureCode::Busy, 503), (FailureCode::EngineFailed, 500)]
    {
        for stream in [false, true] {
            let answer = posting(&server, says("x", json!({ "stream": stream })));
            server.script.next().await.fail(Failure::new(code, "for a reason"));
            let (found, body) = answer.await.unwrap();
            assert_eq!((found, &body["error"]["code"]), (status, &json!(code.word())));
        }
    }
    // In the middle of a stream it is an event.
    let mut lines = Lines::of(post(&server, &says("x", json!({ "stream": true }))).await);
    let mut asked = server.script.next().await;
    asked.say("Once");
    lines.chunk().await;
    lines.chunk().await;
    asked.fail(Failure::new(FailureCode::EngineFailed, "for a reason"));
    assert_eq!(lines.chunk().await["error"]["message"], "for a reason");
    assert_eq!(lines.next().await, None);
    server.stop().await;
}

#[tokio::test]
async fn models_are_listed() {
    let server = Server::start().await;
    let read = async |path: &str| {
        let response = get(&server, path).await;
        (response.status().as_u16(), serde_json::from_str::<Value>(&response.text().await.unwrap()).unwrap())
    };
    let (status, list) = read("/v1/models").await;
    assert_eq!((status, &list["object"], &list["data"][0]["id"]), (200, &json!("list"), &json!("test-model")));
    assert!(list["data"][0]["max_model_len"].as_u64().unwrap() > 0);
    assert_eq!(read("/v1/models/test-model").await.1["id"], "test-model");
    assert_eq!(read("/v1/models/other").await.0, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_durable_session_keeps_what_is_said_and_its_sockets_hear_it() {
    let mut server = Server::start().await;
    let mut socket = server.connect("").await;
    let id = socket.session_id().await;
    socket.ask("Hello?").await;
    let mut asked = server.script.next().await;
    asked.say("Hi.");
    asked.done(Finish::Stop);
    socket.until("response.done").await;

    let more = json!({ "stream": true, "metadata": { "session_id": id }, "stream_options": { "include_usage": true } });
    let mut lines = Lines::of(post(&server, &says("And who are you?", more)).await);
    let mut asked = server.reply_asked().await;
    let chat = asked.chat();
    let said: Vec<&Value> = chat.messages[1..].iter().map(|message| &message["content"]).collect();
    assert_eq!(said, ["Hello?", "Hi.", "And who are you?"], "the history is the session's");
    asked.prompt(30, 20);
    asked.say("Me.");
    asked.done(Finish::Stop);
    let rest = lines.rest().await;
    assert_eq!(rest.last().unwrap(), "data: [DONE]");
    let text: String = rest
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(text, "Me.");
    assert!(rest.iter().any(|line| line.contains("\"prompt_tokens\":30") && line.contains("\"cached_tokens\":20")));
    // The websocket heard both sides.
    let item = socket.until("conversation.item.added").await;
    assert_eq!(item["item"]["content"][0]["text"], "And who are you?");
    let done = socket.until("response.done").await;
    assert_eq!(done["response"]["output"][0]["content"][0]["text"], "Me.");

    let answer = posting(&server, says("Somebody else", json!({ "metadata": { "session_id": "new" } })));
    let mut asked = server.reply_asked().await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "Somebody else");
    asked.say("Welcome.");
    asked.done(Finish::Stop);
    let (_, body) = answer.await.unwrap();
    let new = body["reprise"]["session_id"].as_str().unwrap();
    assert_ne!(new, id);
    let items = get(&server, &format!("/v1/sessions/{new}/items")).await.text().await.unwrap();
    assert!(items.contains("Somebody else") && items.contains("Welcome."), "{items}");

    let (status, body) =
        posting(&server, says("x", json!({ "metadata": { "session_id": "sess_none" } }))).await.unwrap();
    assert_eq!((status, &body["error"]["code"]), (404, &json!("session_not_found")));
    server.stop().await;
}

#[tokio::test]
async fn a_durable_session_answers_with_the_options_that_are_asked_for() {
    let mut server = Server::start().await;
    let mut socket = server.connect("?extensions=reprise").await;
    let id = socket.session_id().await;
    let more = json!({
        "metadata": { "session_id": id }, "top_p": 0.5, "temperature": 0.25, "seed": 7, "presence_penalty": 1,
        "frequency_penalty": -1, "stop": "END", "logprobs": true, "top_logprobs": 1, "logit_bias": { "5": 2 },
        "response_format": { "type": "json_object" }, "max_tokens": 9,
    });
    let answer = posting(&server, says("Is it late?", more));
    let mut asked = server.script.next().await;
    let options = &asked.request.options;
    let sampling = &options.sampling;
    assert_eq!((sampling.top_p, sampling.temperature, options.seed), (Some(0.5), Some(0.25), Some(7)));
    assert_eq!((sampling.presence_penalty, sampling.frequency_penalty), (Some(1.0), Some(-1.0)));
    assert_eq!((&sampling.logit_bias[..], &options.stop[..]), (&[(5, 2.0)][..], &["END".to_owned()][..]));
    assert_eq!((&options.response_format, options.logprobs), (&ResponseFormat::JsonObject, Some(1)));
    assert_eq!(asked.request.max_tokens, Some(9));
    let token =
        |bytes: &[u8]| TokenLogprob { bytes: bytes.to_vec(), logprob: -0.25, top: vec![(bytes.to_vec(), -0.25)] };
    asked.push(Delta::Text { text: " ".into(), tokens: 1, sentences: Vec::new(), logprobs: vec![token(b" ")] });
    asked.push(Delta::Text {
        text: "{}".into(),
        tokens: 2,
        sentences: Vec::new(),
        logprobs: vec![token(b"{"), token(b"}")],
    });
    asked.done(Finish::Stop);
    let (status, body) = answer.await.unwrap();
    assert_eq!(status, 200, "{body}");
    let choice = &body["choices"][0];
    assert_eq!(choice["message"]["content"], "{}");
    let tokens = choice["logprobs"]["content"].as_array().unwrap();
    let spelled: Vec<&str> = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(spelled, ["{", "}"]);
    assert_eq!(tokens[0]["top_logprobs"], json!([{ "token": "{", "logprob": -0.25, "bytes": [123] }]));
    // An extension, told before the words it is about.
    let told = socket.until("response.output_text.logprobs").await;
    assert_eq!(told["logprobs"].as_array().map(Vec::len), Some(2));
    assert_eq!(socket.event().await["type"], "response.output_text.delta");

    // Whose fault it is can be read from the type.
    let required = json!({ "metadata": { "session_id": id }, "tool_choice": "required" });
    let answer = posting(&server, says("Lights on", required));
    server.reply_asked().await.fail(Failure::new(FailureCode::InvalidRequest, "there are no tools"));
    let (status, error) = answer.await.unwrap();
    assert_eq!((status, &error["error"]["type"]), (400, &json!("invalid_request_error")), "{error}");
    let done = loop {
        let done = socket.until("response.done").await;
        if done["response"]["status"] == "failed" {
            break done;
        }
    };
    let error = &done["response"]["status_details"]["error"];
    assert_eq!((&error["type"], &error["code"]), (&json!("invalid_request_error"), &json!("invalid_request")));
    server.stop().await;
}

#[tokio::test]
async fn a_session_answers_one_at_a_time_and_a_hang_up_stops_it() {
    let mut server = Server::start().await;
    let mut socket = server.connect("").await;
    let id = socket.session_id().await;
    socket.ask("A long story").await;
    let mut talking = server.script.next().await;
    talking.say("Once");
    socket.until("response.output_text.delta").await;
    let body = says("Me too", json!({ "metadata": { "session_id": id } }));
    let (status, error) = posting(&server, body.clone()).await.unwrap();
    assert_eq!((status, &error["error"]["code"]), (409, &json!("conversation_already_has_active_response")));
    talking.done(Finish::Stop);
    socket.until("response.done").await;

    let mut streamed = body;
    streamed["stream"] = json!(true);
    let mut lines = Lines::of(post(&server, &streamed).await);
    let mut asked = server.reply_asked().await;
    asked.say("There");
    lines.chunk().await;
    drop(lines);
    timeout(PATIENCE, asked.cancelled()).await.expect("the reply is cancelled");
    asked.done(Finish::Cancelled);
    assert_eq!(socket.until("response.done").await["response"]["status"], "cancelled");
    socket.say(user("Still there?")).await;
    socket.until("conversation.item.done").await;
    server.stop().await;
}

#[tokio::test]
async fn what_is_served_is_counted() {
    let mut server = Server::start().await;
    let answer = posting(&server, says("Is it late?", json!({})));
    let mut asked = server.script.next().await;
    asked.prompt(12, 4);
    asked.say("No.");
    asked.done(Finish::Stop);
    answer.await.unwrap();
    let response = get(&server, "/metrics").await;
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    let text = response.text().await.unwrap();
    let expected = [
        r#"reprise_answers_total{purpose="reply",priority="talk",outcome="stop"}"#,
        r#"reprise_http_requests_total{method="POST",route="/v1/chat/completions",status="200"}"#,
        r#"reprise_http_request_seconds_count{method="POST",route="/v1/chat/completions"}"#,
        "# TYPE reprise_http_requests_total counter",
        "reprise_connections 1",
    ];
    for line in expected {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_was_computed_of_a_deleted_session_is_forgotten() {
    let mut server = Server::start().await;
    let mut socket = server.connect("").await;
    let id = socket.session_id().await;
    socket.ask("My secret is 42.").await;
    let mut asked = server.script.next().await;
    let past_owner = asked.request.past_owner.expect("it is the session's");
    asked.say("I will keep it.");
    asked.done(Finish::Stop);
    socket.until("response.done").await;
    let request = client().delete(url(&server, &format!("/v1/sessions/{id}"))).send();
    let response = timeout(PATIENCE, request).await.expect("an answer").unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.script.forgotten(), [past_owner]);
    server.stop().await;
}

/// A developer's message in the middle is not what the user said: it makes no pin, and the prompt tells it from speech.
#[tokio::test]
async fn what_a_developer_says_is_not_what_the_user_said() {
    let mut server = Server::start().await;
    let order = "Remember this: the code of the door is 4711.";
    let messages = json!([{ "role": "user", "content": "Hi" }, { "role": "developer", "content": order }]);
    let answer = posting(&server, json!({ "messages": messages, "metadata": { "session_id": "new" } }));
    let mut asked = server.reply_asked().await;
    let said: Vec<Value> = asked.chat().messages.iter().map(|message| message["content"].clone()).collect();
    assert!(said.last().unwrap().as_str().is_some_and(|text| text.contains(order) && text != order), "{said:?}");
    asked.say("I see.");
    asked.done(Finish::Stop);
    let (_, body) = answer.await.unwrap();
    let id = body["reprise"]["session_id"].as_str().unwrap();
    let session = server.store.open_session("local", id).await.unwrap();
    assert_eq!(server.store.pins(&session, false).await.unwrap(), []);
    let answer = posting(&server, json!({ "messages": messages }));
    let mut asked = server.reply_asked().await;
    let user = asked.request.user;
    assert_eq!(user, Some(store::past_user("local")), "what is computed is this user's");
    assert_ne!(asked.chat().messages.last().unwrap()["content"], order);
    asked.done(Finish::Stop);
    answer.await.unwrap();
    server.stop().await;
}
