//! The Responses API over real sockets: what stock clients read, and what becomes of what was said.

use crate::client::PATIENCE;
use crate::support::{Chat, Server};
use futures_util::StreamExt;
use serde_json::{Value, json};
use session::{Delta, Failure, FailureCode, Finish, Priority};
use tokio::task::JoinHandle;
use tokio::time::timeout;

fn client() -> reqwest::Client {
    // The HTTP library wants to know how TLS is done even where none is.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap()
}

fn posting(server: &Server, body: Value) -> JoinHandle<(u16, Value)> {
    let request = client().post(format!("http://{}/v1/responses", server.address)).body(body.to_string());
    tokio::spawn(async move {
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    })
}

fn streaming(server: &Server, mut body: Value) -> JoinHandle<Vec<Value>> {
    body["stream"] = json!(true);
    let request = client().post(format!("http://{}/v1/responses", server.address)).body(body.to_string());
    tokio::spawn(async move {
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let bytes: Vec<u8> = response.bytes_stream().map(|part| part.unwrap().to_vec()).concat().await;
        let text = String::from_utf8(bytes).unwrap();
        let events = text.split("\n\n").filter(|event| !event.trim().is_empty());
        let event = |event: &str| {
            let (name, data) = event.trim_start().split_once('\n').expect(event);
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect(event)).expect(event);
            assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
            data
        };
        events.map(event).collect()
    })
}

async fn turn(server: &mut Server, body: Value, reply: &str) -> (Vec<Value>, Value) {
    let answer = posting(server, body);
    let mut asked = server.reply_asked().await;
    let messages = asked.chat().messages;
    asked.prompt(12, 4);
    asked.say(reply);
    asked.done(Finish::Stop);
    let (status, response) = answer.await.unwrap();
    assert_eq!(status, 200, "{response}");
    (messages, response)
}

fn said(messages: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

fn pair(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

#[tokio::test]
async fn without_a_session_the_request_is_the_whole_conversation() {
    let mut server = Server::start().await;
    let body = json!({
        "model": "test-model", "store": false, "instructions": "Be short.", "max_output_tokens": 7,
        "input": [{ "role": "user", "content": "Hi." }, { "role": "assistant", "content": "Hello." },
                  { "role": "user", "content": [{ "type": "input_text", "text": "Is it late?" }] }],
    });
    let answer = posting(&server, body);
    let mut asked = server.reply_asked().await;
    let expected =
        [pair("system", "Be short."), pair("user", "Hi."), pair("assistant", "Hello."), pair("user", "Is it late?")];
    assert_eq!(said(&asked.chat().messages), expected);
    assert_eq!((asked.request.priority, asked.request.max_tokens), (Priority::Talk, Some(7)));
    asked.prompt(12, 4);
    asked.say("Not yet.");
    asked.done(Finish::Stop);
    let (status, response) = answer.await.unwrap();
    assert_eq!((status, &response["status"]), (200, &json!("completed")));
    assert_eq!(response["output"][0]["content"][0]["text"], "Not yet.");
    assert_eq!((&response["usage"]["input_tokens"], &response["store"]), (&json!(12), &json!(false)));
    assert_eq!(response["usage"]["input_tokens_details"], json!({ "cached_tokens": 4, "cache_write_tokens": 0 }));
    assert_eq!(server.http("GET", "/v1/sessions", &[], "").await.1["data"], json!([]));
    // Nothing is kept of it.
    let (status, error) = server.http("GET", &format!("/v1/responses/{}", id(&response)), &[], "").await;
    assert_eq!((status, &error["error"]["code"]), (404, &json!("response_not_found")));
    server.stop().await;
}

#[tokio::test]
async fn a_stream_has_its_events_in_order() {
    let mut server = Server::start().await;
    let answer = streaming(&server, json!({ "input": "Lamp on.", "store": false }));
    let mut asked = server.reply_asked().await;
    asked.prompt(12, 4);
    asked.say("One moment.");
    asked.push(Delta::CallStarted { name: "lamp".into(), call_id: None });
    asked.push(Delta::CallArguments { json: "{\"on\":true}".into(), tokens: 1 });
    asked.done(Finish::ToolCalls);
    let events = answer.await.unwrap();
    let kinds: Vec<&str> =
        events.iter().map(|event| event["type"].as_str().unwrap().trim_start_matches("response.")).collect();
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(kinds, expected);
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!(*output, json!([events[7]["item"], events[11]["item"]]));
    server.stop().await;
}

#[tokio::test]
async fn a_response_goes_on_from_the_one_before_also_after_a_restart() {
    let mut server = Server::start().await;
    let first = json!({
        "input": "My cat is Tom.", "instructions": "Be short.", "metadata": { "room": "hall" }, "temperature": 0.25,
        "max_output_tokens": 60,
    });
    let (asked, first) = turn(&mut server, first, "Noted.").await;
    assert_eq!(said(&asked), [pair("system", "Be short."), pair("user", "My cat is Tom.")]);
    assert_eq!(first["metadata"], json!({ "room": "hall" }));
    let folder = server.stop().await;

    let mut server = Server::in_folder(folder, |_| {}).await;
    let (status, kept) = server.http("GET", &format!("/v1/responses/{}", id(&first)), &[], "").await;
    assert_eq!((status, &kept["status"], &kept["output"]), (200, &json!("completed"), &first["output"]));
    assert_eq!((&kept["metadata"], &kept["usage"]), (&first["metadata"], &first["usage"]));
    for field in ["temperature", "max_output_tokens", "previous_response_id", "top_p", "reasoning"] {
        assert_eq!(kept[field], first[field], "{field}");
    }
    assert_eq!((&kept["temperature"], &kept["max_output_tokens"]), (&json!(0.25), &json!(60)));
    // Instructions are a response's own, and what comes without any has the configured ones.
    let next = json!({ "input": "And my dog Rex.", "previous_response_id": id(&first) });
    let (asked, second) = turn(&mut server, next, "Two pets.").await;
    let expected = [pair("user", "My cat is Tom."), pair("assistant", "Noted."), pair("user", "And my dog Rex.")];
    assert_eq!(said(&asked)[1..], expected);
    assert_ne!(said(&asked)[0].1, "Be short.");
    assert_eq!((&second["previous_response_id"], &second["conversation"]), (&first["id"], &first["conversation"]));
    let (_, kept) = server.http("GET", &format!("/v1/responses/{}", id(&second)), &[], "").await;
    assert_eq!(kept["previous_response_id"], first["id"]);

    // From the first again: what was said since is not seen, and neither mixes with the other.
    let branch = json!({ "input": "And a fish.", "previous_response_id": id(&first) });
    let (asked, branch) = turn(&mut server, branch, "A cat and a fish.").await;
    assert_eq!(said(&asked)[1..], [&expected[..2], &[pair("user", "And a fish.")]].concat());
    assert_ne!(branch["conversation"], first["conversation"]);
    for (previous, known, unknown) in [(&second, "Rex", "fish"), (&branch, "fish", "Rex")] {
        let next = json!({ "input": "Which pets?", "previous_response_id": id(previous) });
        let (asked, _) = turn(&mut server, next, "Some.").await;
        let all = json!(asked).to_string();
        assert!(all.contains("Tom") && all.contains(known) && !all.contains(unknown), "{all}");
    }
    // A response that is not kept may go on from one that is.
    let next = json!({ "input": "Which pets?", "previous_response_id": id(&first), "store": false });
    let (asked, _) = turn(&mut server, next, "A cat.").await;
    assert_eq!(said(&asked)[1..], [&expected[1..2], &[pair("user", "Which pets?")]].concat());
    server.stop().await;
}

#[tokio::test]
async fn a_log_that_is_sent_again_and_again_is_stored_once() {
    let mut server = Server::start().await;
    let mut log = vec![json!({ "role": "developer", "content": "Be short." })];
    let mut responses = Vec::new();
    for (question, reply) in [("My cat is Tom.", "Noted."), ("And a dog.", "Two pets."), ("Thanks.", "Bye.")] {
        log.push(json!({ "role": "user", "content": question }));
        let (asked, response) = turn(&mut server, json!({ "input": log }), reply).await;
        // The model reads what the client sent, wherever it is stored.
        let expected: Vec<_> = log.iter().map(|item| item["content"].as_str().unwrap()).collect();
        assert_eq!(said(&asked).iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), expected);
        log.push(json!({ "role": "assistant", "content": reply }));
        responses.push(response);
    }
    let sessions = |list: &Value| list["data"].as_array().unwrap().len();
    let (_, list) = server.http("GET", "/v1/sessions", &[], "").await;
    assert_eq!((sessions(&list), &list["data"][0]["items"]), (1, &json!(7)));
    assert!(responses.iter().all(|response| response["conversation"] == responses[0]["conversation"]));
    // A log that is another one stands on its own, and the first one stays as it was.
    log[2] = json!({ "role": "assistant", "content": "No" });
    log.truncate(5);
    log.push(json!({ "role": "user", "content": "Really?" }));
    let (_, other) = turn(&mut server, json!({ "input": log }), "Yes.").await;
    assert_ne!(other["conversation"], responses[0]["conversation"]);
    let (_, list) = server.http("GET", "/v1/sessions", &[], "").await;
    assert_eq!((sessions(&list), &list["data"][1]["items"]), (2, &json!(7)));
    // From an id that is not the last one any more it still branches off.
    let next = json!({ "input": "And a fish.", "previous_response_id": id(&responses[0]) });
    let (asked, _) = turn(&mut server, next, "Some.").await;
    assert!(!json!(asked).to_string().contains("dog"), "{asked:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_log_joins_no_session_that_a_client_names() {
    let mut server = Server::start().await;
    let json = [("content-type", "application/json")];
    let (_, made) = server.http("POST", "/v1/conversations", &json, "{}").await;
    let first = json!({ "input": "Turn on the light.", "conversation": made["id"] });
    let (_, kitchen) = turn(&mut server, first, "Okay.").await;
    let mut live = server.connect("?extensions=reprise").await;
    let live_id = live.session_id().await;
    live.ask("Turn on the light.").await;
    let mut asked = server.reply_asked().await;
    asked.say("Okay.");
    asked.done(Finish::Stop);
    live.until("response.done").await;
    // Another room says the same, and its log has no name.
    let log = json!({ "input": [
        { "role": "user", "content": "Turn on the light." },
        { "role": "assistant", "content": "Okay." },
        { "role": "user", "content": "And the fan." },
    ] });
    let (_, bedroom) = turn(&mut server, log, "Done.").await;
    assert_ne!(bedroom["conversation"]["id"], kitchen["conversation"]["id"]);
    assert_ne!(bedroom["conversation"]["id"], json!(live_id));
    server.stop().await;
}

/// Sends a request again, as openai-python does by itself.
fn posting_again(server: &Server, body: &Value, retries: u32) -> JoinHandle<(u16, Value)> {
    let request = client().post(format!("http://{}/v1/responses", server.address)).body(body.to_string());
    let request = request.header("x-stainless-retry-count", retries.to_string());
    tokio::spawn(async move {
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    })
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_one_turn() {
    let mut server = Server::start().await;
    let (_, first) = turn(&mut server, json!({ "input": "Hi." }), "Hello.").await;
    for body in [
        json!({ "input": "My cat is Tom." }),
        json!({ "input": "And you?", "conversation": first["conversation"] }),
        json!({ "input": "And now?", "previous_response_id": id(&first) }),
    ] {
        // Its client hung up before an answer came, and then in the middle of one.
        let cut = posting_again(&server, &body, 0);
        let mut asked = server.reply_asked().await;
        cut.abort();
        asked.cancelled().await;
        asked.done(Finish::Cancelled);
        let answer = posting_again(&server, &body, 1);
        let mut asked = server.reply_asked().await;
        let all = json!(asked.chat().messages).to_string();
        assert_eq!(all.matches(body["input"].as_str().unwrap()).count(), 1, "{all}");
        asked.say("Fine.");
        asked.done(Finish::Stop);
        let (status, answered) = answer.await.unwrap();
        assert_eq!(status, 200, "{answered}");
        // The answer was lost on its way: the same comes again, and nothing is asked of the model.
        let (status, again) = posting_again(&server, &body, 2).await.unwrap();
        assert_eq!((status, &again["id"], &again["output"]), (200, &answered["id"], &answered["output"]));
    }
    let (_, list) = server.http("GET", "/v1/sessions", &[], "").await;
    let items: Vec<&Value> = list["data"].as_array().unwrap().iter().map(|session| &session["items"]).collect();
    // The first with its conversation's turn, the one that went on from it, and the new one.
    assert_eq!(items.len(), 3, "{items:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_persona_is_one_where_it_was_asked_for() {
    let mut server = Server::with(|settings| {
        let (name, instructions) = ("anna".to_owned(), "You are Anna.".to_owned());
        let persona = settings::Persona { name, instructions, ..Default::default() };
        settings.personas.insert("anna".into(), persona);
    })
    .await;
    let (asked, first) = turn(&mut server, json!({ "input": "Hi.", "model": "anna" }), "Hello.").await;
    assert!(said(&asked)[0].1.contains("You are Anna."), "{asked:?}");
    assert_eq!(first["model"], "anna");
    let next = json!({ "input": "Who?", "model": "anna", "previous_response_id": id(&first) });
    let (asked, _) = turn(&mut server, next, "Anna.").await;
    assert!(said(&asked)[0].1.contains("You are Anna."), "{asked:?}");
    // The same log asked of another is another conversation.
    let log = json!([{ "role": "user", "content": "Hi." }, { "role": "assistant", "content": "Hello." },
        { "role": "user", "content": "Who?" }]);
    let (asked, other) = turn(&mut server, json!({ "input": log }), "The house.").await;
    assert!(!json!(asked).to_string().contains("Anna"), "{asked:?}");
    assert_ne!(other["conversation"], first["conversation"]);
    server.stop().await;
}

#[tokio::test]
async fn a_call_and_its_result_are_two_responses() {
    let mut server = Server::start().await;
    let tools = json!([{ "type": "function", "name": "lamp", "parameters": { "type": "object" }, "strict": true }]);
    let answer = posting(&server, json!({ "input": "Lamp on.", "tools": tools }));
    let mut asked = server.reply_asked().await;
    assert_eq!(asked.request.prompt.tools[0].name, "lamp");
    asked.push(Delta::CallStarted { name: "lamp".into(), call_id: Some("call_1".into()) });
    asked.push(Delta::CallArguments { json: "{\"on\":true}".into(), tokens: 1 });
    asked.done(Finish::ToolCalls);
    let (_, response) = answer.await.unwrap();
    let call = &response["output"][0];
    assert_eq!((&call["type"], &call["arguments"]), (&json!("function_call"), &json!("{\"on\":true}")));
    let result = json!([{ "type": "function_call_output", "call_id": call["call_id"], "output": "on" }]);
    let next = json!({ "input": result, "previous_response_id": id(&response), "tools": tools });
    let (asked, _) = turn(&mut server, next, "It is on.").await;
    assert_eq!(asked.last().unwrap()["tool_call_id"], call["call_id"]);
    // A result without its call is told of.
    let (status, error) = posting(&server, json!({ "input": result, "store": false })).await.unwrap();
    assert_eq!((status, &error["error"]["param"]), (400, &json!("input")));
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_told_before_a_stream_begins() {
    let server = Server::start().await;
    for (body, status, code, param) in [
        (
            json!({ "input": "Hi.", "previous_response_id": "resp_none" }),
            400,
            "previous_response_not_found",
            "previous_response_id",
        ),
        (json!({ "input": "Hi.", "conversation": "sess_none" }), 404, "session_not_found", "conversation"),
        (json!({ "input": "Hi.", "model": "no-such-model" }), 404, "model_not_found", "model"),
        (json!({ "input": [] }), 400, "missing_required_parameter", "input"),
        (json!({ "input": "Hi.", "background": true }), 400, "unsupported_parameter", "background"),
        (json!({ "input": "word ".repeat(1 << 20), "store": false }), 400, "value_too_large", "input"),
        (
            json!({ "input": [{ "role": "user", "content": [{ "type": "input_image", "image_url": "x" }] }] }),
            400,
            "unsupported_parameter",
            "input",
        ),
    ] {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = json!(stream);
            let (found, error) = posting(&server, body).await.unwrap();
            let error = &error["error"];
            assert_eq!((found, &error["code"], &error["param"]), (status, &json!(code), &json!(param)), "{error}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_told_as_in_chat_completions() {
    let server = Server::with(|settings| {
        let default = settings.presets["default"].with_ctx_size(512);
        settings.presets.insert("default".into(), default);
    })
    .await;
    let body = json!({ "input": "word ".repeat(2000), "store": false, "stream": true });
    let (status, error) = posting(&server, body).await.unwrap();
    assert_eq!((status, &error["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert_eq!(error["error"]["param"], "input");
    server.stop().await;
}

#[tokio::test]
async fn failures_within_a_stream_end_it_as_clients_know() {
    let mut server = Server::start().await;
    for store in [false, true] {
        let answer = streaming(&server, json!({ "input": "Is it late?", "store": store }));
        let mut asked = server.reply_asked().await;
        asked.prompt(12, 4);
        asked.say("It");
        asked.push(Delta::Failed(Failure::new(FailureCode::EngineFailed, "the engine failed")));
        let events = answer.await.unwrap();
        let last = events.last().unwrap();
        assert_eq!(last["type"], "response.failed");
        assert_eq!(last["response"]["error"], json!({ "code": "server_error", "message": "the engine failed" }));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_response_can_be_cancelled_from_another_connection() {
    let mut server = Server::start().await;
    let request = client().post(format!("http://{}/v1/responses", server.address));
    let body = json!({ "input": "Tell me a story.", "stream": true });
    let response = timeout(PATIENCE, request.body(body.to_string()).send()).await.unwrap().unwrap();
    let mut asked = server.reply_asked().await;
    asked.prompt(12, 4);
    asked.say("Once upon");
    let mut stream = response.bytes_stream();
    let mut text = String::new();
    while !text.contains("output_text.delta") {
        text.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    let id = text.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    // No client goes on from what is not over.
    let next = json!({ "input": "Go on.", "previous_response_id": id });
    assert_eq!(posting(&server, next).await.unwrap().0, 409);
    let (status, cancelled) = server.http("POST", &format!("/v1/responses/{id}/cancel"), &[], "").await;
    asked.cancelled().await;
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")));
    while let Some(part) = stream.next().await {
        text.push_str(std::str::from_utf8(&part.unwrap()).unwrap());
    }
    assert!(text.contains("event: response.incomplete") && !text.contains("response.completed"), "{text}");
    let (_, kept) = server.http("GET", &format!("/v1/responses/{id}"), &[], "").await;
    assert_eq!(kept["output"][0]["content"][0]["text"], "Once upon");
    let (status, error) = server.http("GET", &format!("/v1/responses/{id}?stream=true"), &[], "").await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("stream")));
    // It is over: a second time nothing happens.
    assert_eq!(server.http("POST", &format!("/v1/responses/{id}/cancel"), &[], "").await.1["status"], "cancelled");
    let (status, deleted) = server.http("DELETE", &format!("/v1/responses/{id}"), &[], "").await;
    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)));
    assert_eq!(server.http("GET", &format!("/v1/responses/{id}"), &[], "").await.0, 404);
    let next = json!({ "input": "Go on.", "previous_response_id": id });
    assert_eq!(posting(&server, next).await.unwrap().1["error"]["code"], "previous_response_not_found");
    server.stop().await;
}

#[tokio::test]
async fn two_that_go_on_from_one_never_mix() {
    let mut server = Server::start().await;
    let (_, first) = turn(&mut server, json!({ "input": "Hi." }), "Hello.").await;
    let next = |text: &str| json!({ "input": text, "previous_response_id": id(&first) });
    let one = posting(&server, next("One."));
    let mut asked = server.reply_asked().await;
    // While the first is answered, the second branches off.
    let two = posting(&server, next("Two."));
    let mut second = server.reply_asked().await;
    for (asked, own, other) in [(&asked, "One.", "Two."), (&second, "Two.", "One.")] {
        let all = json!(asked.chat().messages).to_string();
        assert!(all.contains(own) && !all.contains(other), "{all}");
    }
    for asked in [&mut asked, &mut second] {
        asked.prompt(1, 0);
        asked.say("Yes.");
        asked.done(Finish::Stop);
    }
    let (one, two) = (one.await.unwrap().1, two.await.unwrap().1);
    assert_ne!(one["conversation"], two["conversation"]);
    server.stop().await;
}

/// Realtime's events name the conversation by an id of its own form.
#[tokio::test]
async fn the_conversation_of_a_realtime_client_is_that_of_its_session() {
    let mut server = Server::start().await;
    let mut client = server.connect("").await;
    let session = client.session_id().await;
    client.ask("My cat is Tom.").await;
    let mut asked = server.reply_asked().await;
    asked.say("Noted.");
    asked.done(Finish::Stop);
    let conversation = client.until("response.done").await["response"]["conversation_id"].clone();
    let name = conversation.as_str().unwrap();
    assert!(name.starts_with("conv_"), "{name}");
    let (asked, response) = turn(&mut server, json!({ "input": "And you?", "conversation": name }), "Fine.").await;
    assert!(json!(asked).to_string().contains("Tom"));
    assert_eq!(response["conversation"]["id"], session);
    let mut again = server.connect(&format!("?session={name}")).await;
    assert_eq!(again.session_id().await, session);
    assert_eq!(server.http("GET", &format!("/v1/conversations/{name}"), &[], "").await.1["id"], session);
    let refused = server.try_connect("?session=conv_none", &[]).await.err().unwrap();
    assert_eq!(refused.code(), (404, "session_not_found".to_owned()));
    server.stop().await;
}
