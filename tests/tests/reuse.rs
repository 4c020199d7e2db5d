//! A person goes back in a conversation and nothing is read again: with the real binary, over both doors.

use serde_json::{Value, json};
use tests::client::{Client, user};
use tests::service::{Service, run, run_ok};

/// Long enough that reading it again would be seen, and that it is worth a file.
fn instructions() -> String {
    (0..60).map(|n| format!("Rule {n}: be short. ")).collect()
}

struct CountedAnswer {
    computed: u64,
    reused: u64,
    reason: String,
    items: Vec<String>,
}

async fn answer(client: &mut Client) -> CountedAnswer {
    client.say(json!({"type": "response.create", "response": {"max_output_tokens": 8}})).await;
    let done = client.until("response.done").await;
    let output = done["response"]["output"].as_array().unwrap();
    let items = output.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect();
    let report = client.until("turn.report").await;
    let count = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("no {key} in {report:#}"));
    let cached = done["response"]["usage"]["input_token_details"]["cached_tokens"].as_u64();
    assert_eq!(cached, Some(count("reused_tokens")), "usage and report are one number");
    for key in ["queue", "prefill"] {
        assert!(report["ms"][key].is_number(), "{report:#}");
    }
    let reason = report["reason"].as_str().unwrap().to_owned();
    CountedAnswer { computed: count("computed_tokens"), reused: count("reused_tokens"), reason, items }
}

async fn say(client: &mut Client, text: &str) -> String {
    client.say(user(text)).await;
    let added = client.until("conversation.item.added").await;
    added["item"]["id"].as_str().unwrap().to_owned()
}

/// Begins a session with long instructions and a greeting that waits for its answer. Returns the session's id, too.
async fn greeted(service: &Service) -> (Client, String) {
    let mut client = service.connect("?extensions=reprise").await;
    let session = client.session_id().await;
    client
        .say(json!({"type": "session.update", "session": {"type": "realtime", "instructions": instructions()}}))
        .await;
    client.until("session.updated").await;
    say(&mut client, "Good morning.").await;
    (client, session)
}

async fn delete(client: &mut Client, items: &[String]) {
    for item in items {
        client.say(json!({"type": "conversation.item.delete", "item_id": item})).await;
        client.until("conversation.item.deleted").await;
    }
}

/// Tokens between the words of a message and the reply, and one or two that depend on what follows.
const AROUND: u64 = 16;

#[tokio::test]
async fn branches_are_returned_to_over_the_websocket() {
    let service = Service::start(&["--set", "memory.disk_idle_s=0"]).await;
    let (mut client, session) = greeted(&service).await;
    let cold = answer(&mut client).await;
    assert_eq!((cold.reason.as_str(), cold.reused), ("cold", 0));
    assert!(cold.computed > 400, "{}", cold.computed);

    let question = "What is the weather like in the north of the country today?";
    let asked = say(&mut client, question).await;
    let first = answer(&mut client).await;
    assert!(first.computed < 200 && first.reason == "new_text", "{} {}", first.computed, first.reason);

    // The same again, twice: a regenerated reply, and the other one to compare it with.
    let mut reply = first.items;
    for _ in 0..2 {
        delete(&mut client, &reply).await;
        let again = answer(&mut client).await;
        assert!(again.computed <= AROUND, "{} tokens were read again", again.computed);
        reply = again.items;
    }

    // Undone, something else said, and back.
    delete(&mut client, &reply).await;
    delete(&mut client, std::slice::from_ref(&asked)).await;
    let other = say(&mut client, "Turn on the light.").await;
    let aside = answer(&mut client).await;
    assert!(aside.computed < 120 && aside.reused > 400, "{} of {}", aside.computed, aside.reused);
    delete(&mut client, &aside.items).await;
    delete(&mut client, &[other]).await;
    say(&mut client, question).await;
    let back = answer(&mut client).await;
    assert!(back.computed <= AROUND, "{} tokens were read again", back.computed);

    // A power cut. What was written in silence is there.
    let state = service.folder().join("data/state");
    let is_written = || {
        let entries = std::fs::read_dir(&state).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.path().extension().is_some_and(|end| end == "line"))
    };
    while !is_written() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let folder = service.kill().await;
    let service = Service::in_folder(folder, &[]).await;
    let mut client = service.connect(&format!("?extensions=reprise&session={session}")).await;
    client.until("session.created").await;
    say(&mut client, "And tomorrow?").await;
    let after = answer(&mut client).await;
    assert!(after.reused > 400, "{} reused, {} computed: {}", after.reused, after.computed, after.reason);
    service.stop().await;
}

#[tokio::test]
async fn a_conversation_that_moves_to_another_machine_is_not_read_again() {
    let service = Service::start(&[]).await;
    let (mut client, session) = greeted(&service).await;
    assert!(answer(&mut client).await.computed > 400);
    let here = service.stop().await;
    run_ok(here.path(), &["sessions", "export", "--all", "-o", "moved.jsonl", "--computed", "moved"]).await;

    let there = tempfile::tempdir().unwrap();
    let moved = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    let (file, computed) = (moved("moved.jsonl"), moved("moved"));
    let told = run_ok(there.path(), &["sessions", "import", &file, "--computed", &computed]).await;
    // A reply that is read again in other tokens than it was said in is a line of its own.
    let files = std::fs::read_dir(&computed).unwrap().flatten();
    let lines = files.filter(|file| file.path().extension().is_some_and(|end| end == "line")).count();
    assert!(lines > 0 && told.contains(&format!("1 session imported, and {lines} files")), "{told}");
    let service = Service::in_folder(there, &[]).await;
    let mut client = service.connect(&format!("?extensions=reprise&session={session}")).await;
    client.until("session.created").await;
    say(&mut client, "And tomorrow?").await;
    let after = answer(&mut client).await;
    assert!(after.reused > 400 && after.computed < 120, "{} of {}", after.computed, after.reused);
    let there = service.stop().await;
    for wrong in [["--user", "ann"], ["--set", "memory.disk_path="]] {
        let output =
            run(there.path(), &[&["sessions", "import", &file, "--computed", &computed], &wrong[..]].concat()).await;
        assert!(!output.status.success(), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_changed_line_at_the_top_is_told_and_a_note_behind_the_history_costs_nothing() {
    let service = Service::start(&[]).await;
    let ask = async |messages: &Value| {
        let body = json!({"max_tokens": 4, "messages": messages}).to_string();
        let (status, body) =
            service.http("POST", "/v1/chat/completions", &[("content-type", "application/json")], &body).await;
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        let ours = &answer["reprise"];
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], ours["reused_tokens"], "{answer:#}");
        for key in ["queue", "prefill", "first_token"] {
            assert!(ours["ms"][key].is_number(), "{answer:#}");
        }
        (ours["reason"].as_str().unwrap().to_owned(), ours["computed_tokens"].as_u64().unwrap())
    };
    let said = |system: String, minutes: std::ops::Range<usize>, notes: bool| {
        let mut messages = vec![json!({"role": "system", "content": system})];
        for minute in minutes {
            if notes {
                messages.push(json!({"role": "system", "content": format!("It is 10:{minute:02}.")}));
            }
            messages.push(json!({"role": "user", "content": format!("Question {minute}.")}));
            messages.push(json!({"role": "assistant", "content": "Yes."}));
        }
        messages.pop();
        Value::Array(messages)
    };
    let at = |minute: usize| format!("It is 10:{minute:02}. {}", instructions());
    ask(&said(at(1), 0..2, false)).await;
    let (reason, computed) = ask(&said(at(2), 0..3, false)).await;
    assert!(reason == "edited" && computed > 400, "{reason}, {computed}");

    ask(&said(instructions(), 0..2, true)).await;
    let (reason, computed) = ask(&said(instructions(), 0..3, true)).await;
    // The reply that comes back is not the one that was made, so it may be told as edited; the notes before it cost nothing.
    assert!(reason != "cold" && computed < 150, "{reason}, {computed}");
    service.stop().await;
}
