//! Conversations with the real binary, over real sockets, with a tiny model.

use serde_json::{Value, json};
use std::process::Stdio;
use tests::client::{Client, Closed, PATIENCE, user, words};
use tests::service::{Service, check_store, command, run_ok, tiny_model};
use tests::upstream::StandIn;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn it_starts_and_says_how_to_connect() {
    let service = Service::start(&[]).await;
    for part in ["Reprise ", "address   http://127.0.0.1:", "model     ", "window    ", "memory", "/v1/realtime"] {
        assert!(service.screen.contains(part), "no {part:?} in:\n{}", service.screen);
    }
    let health = service.get("/healthz").await;
    assert_eq!(health["status"], "ok", "{health}");
    service.stop().await;
}

#[tokio::test]
async fn three_turns_a_restart_and_a_fourth() {
    let service = Service::start(&[]).await;
    let mut client = service.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    // A random model may have nothing to say: then there is no item.
    let mut expected = Vec::new();
    for turn in 1..=3 {
        let question = format!("This is turn {turn}.");
        client.ask_for(&question, 12).await;
        let done = client.until("response.done").await;
        let response = &done["response"];
        assert!(matches!(response["status"].as_str(), Some("completed" | "incomplete")), "{response:#}");
        assert!(response["usage"]["input_tokens"].as_u64() > Some(0), "{response:#}");
        expected.push(question);
        expected.extend(response["output"].as_array().unwrap().iter().map(words));
        let report = client.until("turn.report").await;
        assert_eq!(report["response_id"], response["id"]);
        let context = client.until("context.updated").await;
        assert!(context["tokens"].as_u64() > Some(0) && context["ctx_size"].as_u64() > Some(0), "{context}");
        if turn > 1 {
            assert!(report["reused_tokens"].as_u64() > Some(0), "the past was read again: {report:#}");
        }
    }
    let folder = service.stop().await;
    assert_eq!(client.closed().await, Closed(Some(1001)));
    check_store(folder.path()).await;

    let service = Service::in_folder(folder, &[]).await;
    let mut client = service.connect(&format!("?session={id}")).await;
    assert_eq!(client.session_id().await, id);
    let mut items = Vec::new();
    while items.len() < expected.len() {
        items.push(client.until("conversation.item.added").await["item"].clone());
    }
    assert_eq!(items.iter().map(words).collect::<Vec<_>>(), expected);
    client.ask_for("And a fourth.", 8).await;
    let more = 1 + client.until("response.done").await["response"]["output"].as_array().unwrap().len();
    let session = service.get(&format!("/v1/sessions/{id}/items")).await;
    assert_eq!(session["data"].as_array().map(Vec::len), Some(expected.len() + more));
    service.stop().await;
}

#[tokio::test]
async fn events_come_in_the_order_that_clients_expect() {
    let service = Service::start(&[]).await;
    let mut client = service.connect("").await;
    let created = client.event().await;
    assert_eq!((&created["type"], &created["session"]["type"]), (&json!("session.created"), &json!("realtime")));
    // A random model may have nothing to say.
    for _ in 0..ATTEMPTS {
        client.ask_for("Say something.", 12).await;
        let (mut types, mut deltas, mut said) = (Vec::new(), 0, String::new());
        let done = loop {
            let event = client.event().await;
            let kind = event["type"].as_str().unwrap().to_owned();
            if kind == "response.output_text.delta" {
                deltas += 1;
                said += event["delta"].as_str().unwrap();
            } else {
                types.push(kind.clone());
            }
            if kind == "response.done" {
                break event["response"].clone();
            }
        };
        if deltas == 0 {
            continue;
        }
        assert_eq!(
            types,
            [
                "conversation.item.added",
                "conversation.item.done",
                "response.created",
                "rate_limits.updated",
                "response.output_item.added",
                "conversation.item.added",
                "response.content_part.added",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "conversation.item.done",
                "response.done",
            ]
        );
        assert_eq!(words(&done["output"][0]), said);
        let usage = &done["usage"];
        let count = |key: &str| usage[key].as_u64().unwrap_or_else(|| panic!("no {key}: {usage}"));
        assert_eq!(count("total_tokens"), count("input_tokens") + count("output_tokens"));
        assert!(usage["input_token_details"]["cached_tokens"].is_u64(), "{usage}");
        assert!(done.get("status_details").is_some(), "{done}");
        service.stop().await;
        return;
    }
    panic!("the model never said anything");
}

#[tokio::test]
async fn a_barge_in_stops_a_long_reply_and_the_history_says_what_was_heard() {
    let service = Service::start(&[]).await;
    let mut client = service.connect("?extensions=reprise").await;
    let id = client.session_id().await;

    // Before the first word.
    let (done, heard) = interrupted(&mut client, "Tell me everything.", 0).await;
    assert_eq!(done["output"].as_array().unwrap().iter().map(words).collect::<String>(), heard);

    // In the middle: what was said is what was heard until the end, and then only what the user heard of it.
    let (done, heard) = interrupted(&mut client, "Tell me everything again.", 20).await;
    assert_eq!(words(&done["output"][0]), heard);
    let cut = done["output"][0]["id"].as_str().unwrap().to_owned();
    client.say(json!({"type": "conversation.item.truncate", "item_id": cut, "content_index": 0, "text_end": 10})).await;
    let truncated = client.until("conversation.item.truncated").await;
    assert_eq!(truncated["text_end"], 10);
    let heard_of_cut: String = heard.chars().take(10).collect();

    // As LiveKit tells it: deleted, and created again under the same id at the same place.
    let (done, _) = interrupted(&mut client, "And once more.", 20).await;
    let question = previous_of(&client, &done["output"][0]);
    let replaced = done["output"][0]["id"].as_str().unwrap().to_owned();
    client.say(json!({"type": "conversation.item.delete", "item_id": replaced})).await;
    client
        .say(json!({"type": "conversation.item.create", "previous_item_id": question, "item": {
            "id": replaced, "type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "Only this was heard"}],
        }}))
        .await;
    assert_eq!(client.until("conversation.item.deleted").await["item_id"], replaced.as_str());
    let added = client.until("conversation.item.added").await;
    assert_eq!((&added["item"]["id"], &added["previous_item_id"]), (&json!(replaced), &json!(question)));

    // After the end, and a turn that goes on.
    client.say(json!({"type": "response.cancel", "event_id": "mine"})).await;
    assert_eq!(client.expect_error("response_cancel_not_active").await["error"]["event_id"], "mine");
    client.ask_for("Never mind.", 4).await;
    client.until("response.done").await;

    let items = service.get(&format!("/v1/sessions/{id}/items")).await;
    let item = |id: &str| items["data"].as_array().unwrap().iter().find(|item| item["item_id"] == id).unwrap();
    assert_eq!(item(&cut)["body"]["parts"][0]["text"], json!(heard_of_cut));
    assert_eq!((&item(&cut)["status"], &item(&cut)["heard_chars"]), (&json!("interrupted"), &json!(10)));
    assert_eq!(item(&replaced)["body"]["parts"][0]["text"], "Only this was heard");

    // All of that is so after a power cut too, also for a client that has the beginning already.
    let folder = service.kill().await;
    check_store(folder.path()).await;
    let service = Service::in_folder(folder, &[]).await;
    let mut client = service.connect(&format!("?session={id}&after={cut}")).await;
    client.session_id().await;
    let mut told = Vec::new();
    while told.last().is_none_or(|item: &Value| item["id"] != replaced.as_str()) {
        told.push(client.until("conversation.item.added").await["item"].clone());
    }
    // An item that is not complete may be known in part: it comes again, and nothing before it.
    let told = told.iter().map(words).collect::<Vec<_>>();
    assert_eq!(told, [heard_of_cut.as_str(), "And once more.", "Only this was heard"]);
    let mut client = service.connect(&format!("?session={id}&after={replaced}")).await;
    client.session_id().await;
    client.ask_for("And now?", 4).await;
    assert_eq!(
        client.until("conversation.item.added").await["item"]["role"],
        "user",
        "the service tells no item again"
    );
    client.until("response.done").await;
    service.stop().await;
}

/// Asks for a long reply and cancels it when so much of it was heard. The response, and all that was heard of it. A random
/// model may be done before that: then it is asked again.
async fn interrupted(client: &mut Client, question: &str, chars: usize) -> (Value, String) {
    for _ in 0..ATTEMPTS {
        client.ask_for(question, 300).await;
        let (mut heard, mut is_cancelled) = (String::new(), false);
        let done = loop {
            if !is_cancelled && heard.chars().count() >= chars {
                client.say(json!({"type": "response.cancel", "event_id": "barge-in"})).await;
                is_cancelled = true;
            }
            let event = client.event().await;
            match event["type"].as_str() {
                Some("response.output_text.delta") => heard += event["delta"].as_str().unwrap(),
                Some("response.done") => break event["response"].clone(),
                Some("error") => panic!("{event:#}"),
                _ => {}
            }
        };
        if done["status"] == "cancelled" {
            return (done, heard);
        }
        if is_cancelled {
            client.expect_error("response_cancel_not_active").await;
        }
    }
    panic!("the model never has much to say");
}

/// A random model ends when it likes; nine of ten long replies are long enough.
const ATTEMPTS: usize = 20;

fn previous_of(client: &Client, item: &Value) -> String {
    let mut added = client.heard.iter().filter(|event| event["type"] == "conversation.item.added");
    let added = added.find(|event| event["item"]["id"] == item["id"]).expect("it was added");
    added["previous_item_id"].as_str().expect("the question").to_owned()
}

#[tokio::test]
async fn two_sockets_on_one_session() {
    let mut stand_in = StandIn::start().await;
    let service = Service::start(&["--set", &format!("upstream.url={}", stand_in.url)]).await;
    let mut one = service.connect("").await;
    let id = one.session_id().await;
    let mut two = service.connect(&format!("?session={id}")).await;
    two.session_id().await;
    one.say(user("Hello")).await;
    two.until("conversation.item.done").await;
    one.say(json!({"type": "response.create"})).await;
    two.until("response.created").await;
    let mut reply = stand_in.next().await;
    two.say(json!({"type": "response.create", "event_id": "second"})).await;
    assert_eq!(two.expect_error("conversation_already_has_active_response").await["error"]["event_id"], "second");
    // One leaves in the middle: the other hears the reply to its end.
    reply.say("Hello").await;
    one.until("response.output_text.delta").await;
    drop(one);
    reply.say(" to both.").await;
    reply.done().await;
    let done = two.until("response.done").await["response"].clone();
    assert_eq!((&done["status"], words(&done["output"][0])), (&json!("completed"), "Hello to both.".into()));
    service.stop().await;
}

#[tokio::test]
async fn a_stop_lets_the_reply_finish_and_one_that_is_too_long_is_marked() {
    let service = Service::start(&[]).await;
    let mut client = service.connect("").await;
    client.session_id().await;
    client.ask_for("A short one.", 6).await;
    client.until("response.created").await;
    service.ask_to_stop();
    let done = client.until("response.done").await;
    assert_ne!(done["response"]["status"], "cancelled");
    assert_eq!(client.closed().await, Closed(Some(1001)));
    let (status, folder) = service.stopped().await;
    assert!(status.success());

    let mut stand_in = StandIn::start().await;
    let upstream = format!("upstream.url={}", stand_in.url);
    let service = Service::in_folder(folder, &["--set", "shutdown.drain_s=1", "--set", &upstream]).await;
    let mut client = service.connect("").await;
    let id = client.session_id().await;
    client.ask("A very long one.").await;
    let mut reply = stand_in.next().await;
    reply.say("It began long ago.").await;
    client.until("response.output_text.delta").await;
    service.ask_to_stop();
    let done = client.until("response.done").await;
    assert_eq!(client.closed().await, Closed(Some(1001)));
    let (status, folder) = service.stopped().await;
    assert!(status.success());
    let said = words(&done["response"]["output"][0]);
    assert_eq!(said, "It began long ago.");
    check_store(folder.path()).await;
    let export = run_ok(folder.path(), &["sessions", "export", &id]).await;
    let mut finished = export.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let item = finished.rfind(|line| line["type"] == "item" && line["change"] == "finished").unwrap();
    assert_eq!(item["body"]["parts"][0]["text"], json!(said));
}

#[tokio::test]
async fn the_terminal_client_talks_and_goes_on() {
    // A random model may have nothing to say.
    let service = Service::with_the_built_in_model().await;
    let url = format!("http://{}", service.address);
    let talk = async |more: &[&str], typed: &str| {
        let mut child = command(service.folder(), &["chat", "--url", &url])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(typed.as_bytes()).await.unwrap();
        drop(stdin);
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert!(output.status.success());
        (text(output.stdout), text(output.stderr))
    };
    let (reply, notes) = talk(&[], "Hello there\n/summary\n/nonsense\n/quit\n").await;
    assert!(!reply.trim().is_empty(), "{notes}");
    assert!(notes.contains("no summary yet") && notes.contains("no command /nonsense"), "{notes}");
    let id = notes.split("--session ").nth(1).unwrap().trim_end_matches(['\n', ']']).to_owned();
    let (shown, _) = talk(&["--session", &id], "/sessions\n").await;
    assert!(shown.contains("> Hello there") && shown.contains(&format!("{id} (this)")), "{shown}");
    service.stop().await;
}

#[tokio::test]
async fn what_cannot_start_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path(), &["serve", "--port", "0", "--preset", "default"]).output().await.unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no model to talk with") && error.contains("--model"), "{error}");

    let (status, error) =
        Service::try_start(tempfile::tempdir().unwrap(), &["--host", "0.0.0.0"]).await.err().expect("no open door");
    assert_eq!(status.code(), Some(1));
    assert!(error.contains("reprise keys create"), "{error}");

    let output = command(folder.path(), &["serve", "--print-config", "--port", "1234", "--model"])
        .arg(tiny_model())
        .output()
        .await
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("port = 1234") && printed.contains("--port"), "{printed}");
}

#[tokio::test]
async fn a_response_beside_the_conversation_has_its_own_words_and_leaves_none() {
    let mut stand_in = StandIn::start().await;
    let service = Service::start(&["--set", &format!("upstream.url={}", stand_in.url)]).await;
    let mut client = service.connect("").await;
    let id = client.session_id().await;
    client.ask("What is a harmonica?").await;
    let mut live = stand_in.next().await;
    live.say("A small").await;
    client.until("response.output_text.delta").await;

    let input =
        json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Name the topic."}]}]);
    client
        .say(json!({"type": "response.create", "response": {
            "conversation": "none", "input": input, "metadata": {"topic": "title"}}}))
        .await;
    let created = client.until("response.created").await;
    let beside_id = created["response"]["id"].clone();
    assert_eq!(created["response"]["metadata"], json!({"topic": "title"}));
    let mut beside = stand_in.next().await;
    let asked = beside.request["messages"].to_string();
    assert!(asked.contains("Name the topic.") && !asked.contains("harmonica"), "{asked}");
    beside.say("Instruments").await;
    beside.done().await;
    let done = client.until("response.done").await["response"].clone();
    assert_eq!(
        (&done["id"], &done["status"], &done["conversation_id"]),
        (&beside_id, &json!("completed"), &json!(null))
    );
    assert_eq!(words(&done["output"][0]), "Instruments");

    // The live one was neither stopped nor changed by it.
    live.say(" instrument.").await;
    live.done().await;
    let done = client.until("response.done").await["response"].clone();
    assert_eq!((&done["status"], words(&done["output"][0])), (&json!("completed"), "A small instrument.".into()));
    let told: Vec<String> = client
        .heard
        .iter()
        .filter(|event| event["type"] == "conversation.item.done")
        .map(|event| words(&event["item"]))
        .collect();
    assert_eq!(told, ["What is a harmonica?", "A small instrument."]);
    let items = service.get(&format!("/v1/sessions/{id}/items")).await;
    assert_eq!(items["data"].as_array().map(Vec::len), Some(2), "{items:#}");
    service.stop().await;
}

/// Stock clients send audio as soon as they are connected; an error for each piece ends some of them and floods the others.
#[tokio::test]
async fn audio_is_dropped_in_silence_and_text_goes_on() {
    let service = Service::start(&[]).await;
    let mut client = service.connect("").await;
    client.session_id().await;
    for _ in 0..50 {
        client.say(json!({"type": "input_audio_buffer.append", "audio": "AAAA"})).await;
    }
    client.say(json!({"type": "input_audio_buffer.commit"})).await;
    client.say(json!({"type": "output_audio_buffer.clear"})).await;
    client.say(json!({"type": "input_audio_buffer.clear"})).await;
    assert_eq!(client.event().await["type"], "input_audio_buffer.cleared");
    // Clients that can speak ask for speech: they are answered in text, and told so.
    client
        .say(json!({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["audio"]}}))
        .await;
    assert_eq!(client.until("session.updated").await["session"]["output_modalities"], json!(["text"]));
    client.ask_for("In words, then.", 4).await;
    client.until("response.done").await;
    service.stop().await;
}
