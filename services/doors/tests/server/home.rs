//! Requests that the frontends of a home send (`tests/data/home`, with its recipe). The tests read each answer by the
//! rules of its client.

use crate::client::PATIENCE;
use crate::scripted::Asked;
use crate::support::{Chat, Server};
use serde_json::{Value, json};
use session::{Delta, Finish, Priority};

const REQUESTS: &str = include_str!("../../../../tests/data/home/requests.jsonl");

/// Words, then two calls, the second without arguments: what Home Assistant's traps are about.
fn reply(asked: &mut Asked, with_calls: bool) {
    asked.prompt(900, 800);
    asked.say("Dimming it.");
    if with_calls {
        asked.push(Delta::CallStarted { name: "light__HassLightSet".into(), call_id: None });
        asked.push(Delta::CallArguments { json: "{\"name\":".into(), tokens: 1 });
        asked.push(Delta::CallArguments { json: "\"lamp\"}".into(), tokens: 1 });
        asked.push(Delta::CallStarted { name: "homeassistant__GetLiveContext".into(), call_id: None });
    }
    asked.done(if with_calls { Finish::ToolCalls } else { Finish::Stop });
}

#[derive(Debug, Default, PartialEq)]
struct Taken {
    text: String,
    calls: Vec<(String, Value)>,
}

/// ollama-python: an object a line, each with a message; arguments are an object.
fn ndjson(body: &str) -> Taken {
    let mut taken = Taken::default();
    assert!(body.ends_with('\n') && !body.contains("\n\n"), "{body}");
    let lines: Vec<Value> = body.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for (at, line) in lines.iter().enumerate() {
        let message = &line["message"];
        assert_eq!(message["role"], "assistant", "{line}");
        assert!(line["created_at"].is_string() && line["model"].is_string(), "{line}");
        assert_eq!(line["done"], at + 1 == lines.len(), "{line}");
        taken.text += message["content"].as_str().expect("content is text");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            assert!(function["arguments"].is_object(), "{line}");
            taken.calls.push((function["name"].as_str().unwrap().to_owned(), function["arguments"].clone()));
        }
    }
    let last = lines.last().unwrap();
    for count in ["total_duration", "load_duration", "prompt_eval_count", "eval_count"] {
        assert!(last[count].is_u64(), "{count} of {last}");
    }
    taken
}

/// Home Assistant's `llama_cpp`: it stops at the finish reason, reads one call of a chunk, and drops words behind a call.
fn sse(body: &str) -> Taken {
    let mut taken = Taken::default();
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for line in body.lines().filter(|line| !line.is_empty()) {
        let chunk: Value = serde_json::from_str(line.strip_prefix("data: ").expect(line)).expect(line);
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        if let Some(pieces) = delta["tool_calls"].as_array() {
            assert_eq!(pieces.len(), 1, "more than the first is not read: {chunk}");
            let piece = &pieces[0];
            let at = piece["index"].as_u64().expect("an index") as usize;
            if at == calls.len() {
                // One that reads ahead joins id and name to a key: both are in the first piece.
                let text = |value: &Value| value.as_str().expect("text in the first piece").to_owned();
                calls.push((text(&piece["id"]), text(&piece["function"]["name"]), String::new()));
            }
            calls[at].2 += piece["function"]["arguments"].as_str().unwrap_or_default();
        } else if let Some(text) = delta["content"].as_str() {
            assert!(calls.is_empty() || text.is_empty(), "words behind a call are dropped: {chunk}");
            taken.text += text;
        }
        if choice["finish_reason"].is_string() {
            break;
        }
    }
    let ids: std::collections::BTreeSet<&String> = calls.iter().map(|(id, ..)| id).collect();
    assert_eq!(ids.len(), calls.len(), "each call has its id");
    let parsed = |(_, name, arguments): &(String, String, String)| {
        (name.clone(), serde_json::from_str(arguments).expect("arguments are never empty"))
    };
    taken.calls = calls.iter().map(parsed).collect();
    taken
}

/// home-llm: every line that is not empty is JSON behind `data: `, and a piece of a call is taken for the whole.
fn lines(body: &str) -> Taken {
    let mut taken = Taken::default();
    for line in body.lines().map(str::trim) {
        let chunk = line.strip_prefix("data: ").unwrap_or(line);
        if chunk.contains("[DONE]") {
            break;
        }
        if chunk.is_empty() {
            continue;
        }
        let chunk: Value = serde_json::from_str(chunk).expect("a comment kills the turn");
        assert_eq!(chunk["object"], "chat.completion.chunk");
        let Some(choice) = chunk["choices"].get(0) else { continue };
        taken.text += choice["delta"]["content"].as_str().unwrap_or_default();
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let arguments = serde_json::from_str(function["arguments"].as_str().unwrap()).expect("whole arguments");
            taken.calls.push((function["name"].as_str().unwrap().to_owned(), arguments));
        }
    }
    taken
}

/// Reads an answer that is not streamed, as extended_openai_conversation does: it counts `usage.total_tokens`, and
/// takes the reason `length` for an error.
fn whole(body: &str) -> Taken {
    let whole: Value = serde_json::from_str(body).unwrap();
    let choice = &whole["choices"][0];
    assert!(whole["usage"]["total_tokens"].as_u64() > Some(800), "{whole}");
    let calls = choice["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
    assert_eq!(choice["finish_reason"], if calls.is_empty() { "stop" } else { "tool_calls" }, "{whole}");
    let call = |call: &Value| {
        let arguments = call["function"]["arguments"].as_str().expect("arguments are text");
        (call["function"]["name"].as_str().unwrap().to_owned(), serde_json::from_str(arguments).expect("whole"))
    };
    let text = choice["message"]["content"].as_str().unwrap_or_default().to_owned();
    Taken { text, calls: calls.iter().map(call).collect() }
}

#[tokio::test]
async fn each_frontend_reads_its_answer() {
    let mut server = Server::start().await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
    let records: Vec<Value> = REQUESTS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(records.len() > 20, "only {} requests", records.len());
    for record in &records {
        let (what, path, body) = (
            format!("{} {} {}", record["client"], record["what"], record["entities"]),
            record["path"].as_str().unwrap(),
            &record["body"],
        );
        let request = client.post(format!("http://{}{path}", server.address)).body(body.to_string());
        let answer = tokio::spawn(async move {
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        });
        let mut asked = server.reply_asked().await;
        let is_task = record["reads"] == "task";
        assert_eq!(asked.request.priority, if is_task { Priority::Background } else { Priority::Talk }, "{what}");
        let chat = asked.chat();
        let given = body["messages"].as_array().unwrap();
        // The home is read as it was written, and what the user asks stands last.
        if given[0]["role"] == "system" {
            assert_eq!(chat.messages[0]["content"], given[0]["content"], "{what}");
        }
        let last = given.last().unwrap()["content"].clone();
        let last = last.get(0).map_or(last.clone(), |part| part["text"].clone());
        assert_eq!(chat.messages.last().unwrap()["content"], last, "{what}");
        assert_eq!(chat.tools.len(), body["tools"].as_array().map_or(0, Vec::len), "{what}");
        // Every result stands behind the call that it answers; one whose call was cut is not there.
        let mut open: Vec<Value> = Vec::new();
        for message in &chat.messages {
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                open.push(call["id"].clone());
            }
            if message["role"] == "tool" {
                assert_eq!(message["tool_call_id"], open.remove(0), "{what}: results answer calls in their order");
            }
        }
        let with_calls = !chat.tools.is_empty() && chat.tools.len() > 1;
        reply(&mut asked, with_calls);
        let (status, text) = answer.await.unwrap();
        assert_eq!(status, 200, "{what}: {text}");
        let taken = match record["reads"].as_str().unwrap() {
            "ndjson" => ndjson(&text),
            "sse" => sse(&text),
            "lines" => lines(&text),
            "json" => whole(&text),
            "task" if path == "/api/chat" => ndjson(&format!("{text}\n")),
            "task" => whole(&text),
            other => panic!("{other}"),
        };
        let calls = [("light__HassLightSet", json!({ "name": "lamp" })), ("homeassistant__GetLiveContext", json!({}))];
        let calls: Vec<(String, Value)> =
            calls.into_iter().filter(|_| with_calls).map(|(name, arguments)| (name.to_owned(), arguments)).collect();
        assert_eq!(taken, Taken { text: "Dimming it.".to_owned(), calls }, "{what}");
    }
    server.stop().await;
}

/// Home Assistant hangs up when it has read the finish reason: the turn is finished, and kept as finished.
#[tokio::test]
async fn a_client_that_hangs_up_at_the_finish_reason_has_finished_its_turn() {
    use futures_util::StreamExt;
    let mut server = Server::start().await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
    let mut socket = server.connect("").await;
    let id = socket.session_id().await;
    let body = json!({
        "stream": true, "metadata": { "session_id": id }, "messages": [{ "role": "user", "content": "Is it late?" }],
    });
    let request = client.post(format!("http://{}/v1/chat/completions", server.address)).body(body.to_string());
    let response = tokio::spawn(request.send());
    let mut asked = server.reply_asked().await;
    asked.say("Not yet.");
    asked.done(Finish::Stop);
    let mut pieces = response.await.unwrap().unwrap().bytes_stream();
    let mut heard = String::new();
    while !heard.contains("\"finish_reason\":\"stop\"") {
        heard += std::str::from_utf8(&pieces.next().await.expect("a piece").unwrap()).unwrap();
    }
    drop(pieces);
    assert_eq!(socket.until("response.done").await["response"]["status"], "completed");
    let (_, items) = server.http("GET", &format!("/v1/sessions/{id}/items"), &[], "").await;
    let said = &items["data"][1];
    assert_eq!(
        (&said["status"], &said["body"]["parts"][0]["text"]),
        (&json!("completed"), &json!("Not yet.")),
        "{items}"
    );
    server.stop().await;
}

/// Home Assistant's log holds turns that no model produced: what it did by itself, failed turns, replies without words, and
/// the calls of a turn that was interrupted. They are history like any other.
#[tokio::test]
async fn turns_that_no_model_said_are_history_like_any_other() {
    let mut server = Server::start().await;
    let call = |arguments: Value| json!({ "id": "c1", "type": "function", "function": { "name": "light__HassLightSet", "arguments": arguments } });
    let said = |role: &str, text: &str| json!({ "role": role, "content": text });
    for (path, arguments) in
        [("/v1/chat/completions", json!("{}")), ("/api/chat", json!({})), ("/v1/chat/completions", json!(""))]
    {
        let messages = json!([
            said("system", "You are a voice assistant."),
            said("user", "turn on the lamp"),
            said("assistant", "Turned on the lamp"),
            said("user", "and now?"),
            said("assistant", "Error: CancelledError"),
            said("user", "hello?"),
            said("assistant", "(no response)"),
            said("user", "dim it"),
            { "role": "assistant", "content": "", "tool_calls": [call(arguments)] },
            { "role": "tool", "tool_call_id": "c1", "content": "{\"error\": \"HomeAssistantError\", \"error_text\": \"interrupted\"}" },
            said("assistant", ""),
            said("user", "So?"),
        ]);
        let body = json!({ "model": "test-model", "stream": false, "messages": messages });
        let asking = server.address;
        let answer = tokio::spawn(async move {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
            let response = client.post(format!("http://{asking}{path}")).body(body.to_string()).send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        });
        let mut asked = server.reply_asked().await;
        let chat = asked.chat();
        let all = json!(chat.messages).to_string();
        for words in ["Turned on the lamp", "Error: CancelledError", "(no response)", "interrupted"] {
            assert!(all.contains(words), "{path}: {all}");
        }
        assert_eq!(chat.messages.last().unwrap()["content"], "So?");
        reply(&mut asked, false);
        let (status, text) = answer.await.unwrap();
        assert_eq!(status, 200, "{path}: {text}");
    }
    server.stop().await;
}
