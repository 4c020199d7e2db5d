//! Conversations with the real binary, over real sockets, with a tiny model.

use serde_json::{Value, json};
use std::process::Stdio;
use tests::client::{Closed, user, words};
use tests::service::{Service, check_store, command, run_ok, tiny_model};
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
        client.ask(&question, 12).await;
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
    client.ask("And a fourth.", 8).await;
    let more = 1 + client.until("response.done").await["response"]["output"].as_array().unwrap().len();
    let session = service.get(&format!("/v1/sessions/{id}/items")).await;
    assert_eq!(session["data"].as_array().map(Vec::len), Some(expected.len() + more));
    service.stop().await;
}

#[tokio::test]
async fn a_barge_in_stops_a_long_reply_and_the_history_says_what_was_heard() {
    let service = Service::start(&[]).await;
    let mut client = service.connect("?extensions=reprise").await;
    let id = client.session_id().await;

    // Before the first word.
    client.ask("Tell me everything.", 300).await;
    client.until("response.created").await;
    client.say(json!({"type": "response.cancel"})).await;
    let done = client.until("response.done").await;
    assert_eq!(done["response"]["status"], "cancelled");

    // In the middle.
    client.ask("Tell me everything again.", 300).await;
    let mut heard = String::new();
    while heard.chars().count() < 20 {
        heard += client.until("response.output_text.delta").await["delta"].as_str().unwrap();
    }
    client.say(json!({"type": "response.cancel"})).await;
    let (mut said, mut done) = (heard.clone(), Value::Null);
    while done.is_null() {
        let event = client.event().await;
        match event["type"].as_str() {
            Some("response.output_text.delta") => said += event["delta"].as_str().unwrap(),
            Some("response.done") => done = event["response"].clone(),
            _ => {}
        }
    }
    assert_eq!(done["status"], "cancelled");
    assert_eq!(words(&done["output"][0]), said);
    let item_id = done["output"][0]["id"].as_str().unwrap().to_owned();
    client
        .say(json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "text_end": 10}))
        .await;
    let truncated = client.until("conversation.item.truncated").await;
    assert_eq!(truncated["text_end"], 10);

    // After the end, and a turn that goes on.
    client.say(json!({"type": "response.cancel"})).await;
    client.expect_error("response_cancel_not_active").await;
    client.ask("Never mind.", 4).await;
    client.until("response.done").await;

    let items = service.get(&format!("/v1/sessions/{id}/items")).await;
    let item = items["data"].as_array().unwrap().iter().find(|item| item["item_id"] == item_id.as_str()).unwrap();
    let kept = item["body"]["parts"][0]["text"].as_str().unwrap();
    assert_eq!(kept, heard.chars().take(10).collect::<String>());
    assert_eq!((&item["status"], &item["heard_chars"]), (&json!("interrupted"), &json!(10)));
    service.stop().await;
}

#[tokio::test]
async fn two_sockets_on_one_session() {
    let service = Service::start(&[]).await;
    let mut one = service.connect("").await;
    let id = one.session_id().await;
    let mut two = service.connect(&format!("?session={id}")).await;
    two.session_id().await;
    one.say(user("Hello")).await;
    two.until("conversation.item.done").await;
    one.say(json!({"type": "response.create", "response": {"max_output_tokens": 60}})).await;
    two.until("response.created").await;
    two.say(json!({"type": "response.create", "event_id": "second"})).await;
    assert_eq!(two.expect_error("conversation_already_has_active_response").await["error"]["event_id"], "second");
    // One leaves in the middle: the other hears the reply to its end.
    one.until("response.output_text.delta").await;
    drop(one);
    let done = two.until("response.done").await;
    assert_ne!(done["response"]["status"], "cancelled");
    service.stop().await;
}

#[tokio::test]
async fn a_stop_lets_the_reply_finish_and_one_that_is_too_long_is_marked() {
    let service = Service::start(&[]).await;
    let mut client = service.connect("").await;
    client.session_id().await;
    client.ask("A short one.", 6).await;
    client.until("response.created").await;
    service.ask_to_stop();
    let done = client.until("response.done").await;
    assert_ne!(done["response"]["status"], "cancelled");
    assert_eq!(client.closed().await, Closed(Some(1001)));
    let (status, folder) = service.stopped().await;
    assert!(status.success());

    let service = Service::in_folder(folder, &["--set", "shutdown.drain_s=1"]).await;
    let mut client = service.connect("").await;
    let id = client.session_id().await;
    client.ask("A very long one.", 100_000).await;
    client.until("response.output_text.delta").await;
    service.ask_to_stop();
    let done = client.until("response.done").await;
    assert_eq!(client.closed().await, Closed(Some(1001)));
    let (status, folder) = service.stopped().await;
    assert!(status.success());
    let said = words(&done["response"]["output"][0]);
    assert!(!said.is_empty());
    check_store(folder.path()).await;
    let export = run_ok(folder.path(), &["sessions", "export", &id]).await;
    let mut finished = export.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let item = finished.rfind(|line| line["type"] == "item" && line["change"] == "finished").unwrap();
    assert_eq!(item["body"]["parts"][0]["text"], json!(said));
}

#[tokio::test]
async fn the_terminal_client_talks_and_goes_on() {
    let service = Service::start(&["--set", "preset.reply_reserve_tokens=16"]).await;
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
        let output = tokio::time::timeout(tests::client::PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert!(output.status.success());
        (text(output.stdout), text(output.stderr))
    };
    let (reply, notes) = talk(&[], "Hello there\n/summary\n/nonsense\n/quit\n").await;
    assert!(!reply.trim().is_empty(), "{notes}");
    assert!(notes.contains("none yet") && notes.contains("no command /nonsense"), "{notes}");
    let id = notes.split("--session ").nth(1).unwrap().trim_end_matches(['\n', ']']).to_owned();
    let (shown, _) = talk(&["--session", &id], "/sessions\n").await;
    assert!(shown.contains("> Hello there") && shown.contains(&format!("{id} (this)")), "{shown}");
    service.stop().await;
}

#[tokio::test]
async fn what_cannot_start_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path(), &["serve", "--port", "0"]).output().await.unwrap();
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
