//! Requests as large as clients like: they are refused by count, and no other conversation waits for what they left.

use crate::remember::{home, noted, remembered, says};
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

#[tokio::test]
async fn a_name_that_rules_look_at_is_no_book() {
    let server = Server::start().await;
    for path in ["/v1/chat/completions", "/v1/responses"] {
        for field in ["model", "user", "safety_identifier", "prompt_cache_key"] {
            let body = json!({ "messages": [entry()], "input": "Hello.", (field): "x".repeat(257) });
            let (status, answer) = server.http("POST", path, &[], &body.to_string()).await;
            let message = answer["error"]["message"].as_str().unwrap_or_default();
            assert!(status == 400 && message.contains(field) && message.contains("limits.id_chars"), "{answer}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn stop_strings_are_few_and_short() {
    let server = Server::with(|settings| settings.limits.stop_bytes = 8).await;
    let many: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    for (path, at) in [("/v1/chat/completions", "stop"), ("/api/chat", "options")] {
        for (stop, limit) in [(json!("123456789"), "limits.stop_bytes"), (json!(many), "limits.stop_strings")] {
            let stop = if at == "options" { json!({ "stop": stop }) } else { stop };
            let body = json!({ "model": "m", "messages": [entry()], (at): stop }).to_string();
            let (status, answer) = server.http("POST", path, &[], &body).await;
            assert!(status == 400 && answer.to_string().contains(limit), "{path}: {answer}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn what_a_session_keeps_is_no_longer_than_an_item() {
    let server = Server::with(|settings| settings.limits.item_bytes = 1024).await;
    let mut client = server.connect("").await;
    let session = client.session_id().await;
    for list in ["pins", "summaries"] {
        let body = json!({ "text": "x".repeat(1025) }).to_string();
        let (status, answer) = server.http("POST", &format!("/v1/sessions/{session}/{list}"), &[], &body).await;
        assert!(status == 400 && answer.to_string().contains("limits.item_bytes"), "{answer}");
    }
    for store in [true, false] {
        let body = json!({ "instructions": "x".repeat(1025), "input": "Hello", "store": store }).to_string();
        let (status, answer) = server.http("POST", "/v1/responses", &[], &body).await;
        let error = &answer["error"];
        assert!(status == 400 && error["code"] == "value_too_large" && error["param"] == "instructions", "{answer}");
    }
    for role in ["system", "user"] {
        let messages = json!([{ "role": role, "content": "x".repeat(1025) }, { "role": "user", "content": "Hello" }]);
        let body = json!({ "messages": messages, "metadata": { "session_id": "new" } }).to_string();
        let (status, answer) = server.http("POST", "/v1/chat/completions", &[], &body).await;
        let error = &answer["error"];
        assert!(status == 400 && error["code"] == "value_too_large" && error["param"] == "messages", "{answer}");
    }
    server.stop().await;
}

fn facts(from: usize, count: usize) -> String {
    let word =
        |n: usize| (0..5).map(|place| char::from(b'a' + (n / 26_usize.pow(place) % 26) as u8)).collect::<String>();
    (from..from + count).map(|n| format!("I like {}. ", word(n))).collect()
}

#[tokio::test]
async fn a_new_conversation_hears_some_of_much_that_was_said_and_silence_the_rest() {
    let few = |settings: &mut settings::Settings| {
        home(settings);
        (settings.remember.heard_bytes, settings.remember.facts_per_message) = (1024, 4);
        settings.remember.silence_s = 1;
    };
    let server = Server::with(few).await;
    let said = |n: usize| json!({ "role": "user", "content": facts(50 * n, 50) });
    let items: Vec<Value> = (0..40).map(said).collect();
    let (status, begun) = server.http("POST", "/v1/conversations", &[], &json!({ "items": items }).to_string()).await;
    assert_eq!(status, 200, "{begun}");
    let mut client = server.connect("").await;
    client.session_id().await;
    let heard = server.store.facts("local", None).await.unwrap().len();
    assert!((1..=16 * 4).contains(&heard), "{heard} facts before a conversation begins");
    let all = async {
        while server.store.facts("local", None).await.unwrap().len() < 40 * 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::client::PATIENCE, all).await.expect("the rest is heard");
    assert_eq!(server.store.facts("local", None).await.unwrap().len(), 40 * 4);
    server.stop().await;
}

#[tokio::test]
async fn wishes_have_a_limit_and_a_question_still_finds_what_it_is_about() {
    let few = |settings: &mut settings::Settings| {
        home(settings);
        settings.remember.facts = 4;
        settings.presets.values_mut().for_each(|preset| preset.remember.prompt_tokens = 40);
    };
    let mut server = Server::with(few).await;
    let wishes: Vec<String> = (0..60).map(|n| format!("Remember that {}", facts(n, 1))).collect();
    let items: Vec<Value> = wishes.iter().map(|wish| json!({ "role": "user", "content": wish })).collect();
    let first = json!({ "items": [{ "role": "user", "content": "Remember that my sister lives in Lisbon." }] });
    for body in [first, json!({ "items": items })] {
        assert_eq!(server.http("POST", "/v1/conversations", &[], &body.to_string()).await.0, 200);
    }
    let prompts = says(&mut server, &["Where does my sister live?"]).await;
    let count = server.store.facts("local", None).await.unwrap().len();
    assert_eq!(count, 40, "ten times remember.facts");
    let told = remembered(&prompts[0]);
    assert!(told.lines().count() < 10 && !told.contains("Lisbon"), "the newest fit: {told}");
    assert!(noted(&prompts[0]).contains("Lisbon"), "{prompts:?}");
    server.stop().await;
}

#[tokio::test]
async fn an_id_of_megabytes_is_refused_before_it_is_looked_for() {
    let server = Server::start().await;
    let long = "i".repeat(1 << 20);
    for (path, body) in [
        ("/v1/realtime/client_secrets", json!({ "session_id": long })),
        ("/v1/responses", json!({ "input": "Hello.", "previous_response_id": long })),
        ("/v1/responses", json!({ "input": "Hello.", "conversation": long })),
        ("/v1/responses", json!({ "input": "Hello.", "reasoning": { "summary": long } })),
        ("/v1/responses", json!({ "input": "Hello.", "conversation": { "id": long } })),
        ("/api/show", json!({ "model": long })),
        ("/api/pull", json!({ "model": long })),
        ("/api/chat", json!({ "model": long, "messages": [{ "role": "user", "content": "Hello." }] })),
        ("/api/generate", json!({ "model": long, "prompt": "Hello." })),
    ] {
        let (status, answer) = server.http("POST", path, &[], &body.to_string()).await;
        let told = answer.to_string();
        assert!(status == 400 && told.contains("limits.id_chars") && told.len() < 1000, "{path}: {status} {told}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_secret_keeps_no_book() {
    let server = Server::with(|settings| settings.limits.item_bytes = 4000).await;
    let ask = async |format: String| {
        let session =
            json!({ "audio": { "input": { "format": { "type": "audio/pcm", "rate": 24_000, "name": format } } } });
        server.http("POST", "/v1/realtime/client_secrets", &[], &json!({ "session": session }).to_string()).await
    };
    assert_eq!(ask("a".repeat(3000)).await.0, 200);
    let (status, answer) = ask("a".repeat(5000)).await;
    assert!(status == 400 && answer["error"]["code"] == "value_too_large", "{status} {answer}");
    server.stop().await;
}
