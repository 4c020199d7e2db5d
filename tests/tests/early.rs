//! Replies that begin before the user has finished, with the real binary, over real sockets, with a tiny random model.

use serde_json::{Value, json};
use std::time::Duration;
use tests::client::{Client, PATIENCE, words};
use tests::http::request;
use tests::service::Service;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

async fn looked_for<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("there is no {what}"))
}

async fn counted(service: &Service, line: &str, least: u64) {
    let look = async || {
        let (_, metrics) = service.http("GET", "/metrics", &[], "").await;
        let count = metrics.lines().find_map(|known| known.strip_prefix(line)?.trim().parse().ok());
        count.filter(|count: &f64| *count as u64 >= least)
    };
    looked_for(&format!("{least} of {line}"), look).await;
}

const HELD: &str = r#"reprise_answers_total{purpose="early_reply",priority="speculate",outcome="warm"}"#;

/// A turn of which the words are heard before they are final: what was said, and what the reply cost.
async fn turn(client: &mut Client, service: &Service, heard: &str, last: &str, held: u64) -> (String, Value) {
    let mut update = String::new();
    for word in heard.split_inclusive(' ') {
        update += word;
        client.say(json!({"type": "input_text_buffer.update", "text": update.trim_end()})).await;
    }
    if held > 0 {
        counted(service, HELD, held).await;
    }
    client.say(json!({"type": "input_text_buffer.commit", "text": last})).await;
    let done = client.until("response.done").await["response"].clone();
    assert!(matches!(done["status"].as_str(), Some("completed" | "incomplete")), "{done:#}");
    let report = client.until("turn.report").await;
    assert_eq!(
        done["usage"]["input_tokens"].as_u64(),
        sum(&report, ["reused_tokens", "computed_tokens"]),
        "{report:#}"
    );
    (done["output"].as_array().unwrap().iter().map(words).collect(), report)
}

fn sum(report: &Value, keys: [&str; 2]) -> Option<u64> {
    keys.iter().map(|key| report[key].as_u64()).sum()
}

/// Conversation and reports of a service with these settings; `early`: replies are begun in it.
async fn conversation(early: bool) -> Vec<(String, Value)> {
    let off = ["--set", "preset.speculation.tokens=0"];
    let on = ["--set", "preset.speculation.after_ms=20"];
    let exact = ["--set", "engine.precision=f32"];
    let service = Service::start(&[&exact[..], if early { &on[..] } else { &off[..] }].concat()).await;
    let mut client = service.connect("?extensions=reprise").await;
    client
        .say(json!({"type": "session.update", "session": {"type": "realtime", "temperature": 0, "max_output_tokens": 40}}))
        .await;
    client.until("session.updated").await;
    let mut turns = Vec::new();
    for (at, (heard, last)) in [
        ("Tell me a story", "Tell me a story"),
        ("What is the time in the kit", "What is the time in the kitchen?"),
        ("Is the light on", "Is the light on"),
        ("Never", "Is it warm?"),
    ]
    .into_iter()
    .enumerate()
    {
        let held = if early { at as u64 + 1 } else { 0 };
        turns.push(turn(&mut client, &service, heard, last, held).await);
    }
    let (_, metrics) = service.http("GET", "/metrics", &[], "").await;
    assert_eq!(metrics.contains("early_reply"), early);
    service.stop().await;
    turns
}

#[tokio::test]
async fn a_conversation_is_the_same_with_replies_that_begin_early() {
    let (on, off) = (conversation(true).await, conversation(false).await);
    let said = |turns: &[(String, Value)]| turns.iter().map(|(said, _)| said.clone()).collect::<Vec<_>>();
    assert_eq!(said(&on), said(&off));
    let is_early =
        |turns: &[(String, Value)]| turns.iter().map(|(_, report)| report["begun_early"].is_u64()).collect::<Vec<_>>();
    assert_eq!(is_early(&on), [true, false, true, false], "{on:#?}");
    assert_eq!(is_early(&off), [false; 4]);
}

const WARMED: &str = r#"reprise_answers_total{purpose="warm_partial",priority="speculate",outcome="warm"}"#;

#[tokio::test]
async fn a_turn_tells_what_was_read_while_the_user_spoke() {
    let service = Service::start(&["--set", "preset.speculation.tokens=0"]).await;
    let mut client = service.connect("?extensions=reprise").await;
    let session = client.session_id().await;
    // A long reply would be read again in the silence behind it.
    client.say(json!({"type": "session.update", "session": {"type": "realtime", "max_output_tokens": 8}})).await;
    client.until("session.updated").await;
    let words = "I have been thinking about the garden, and about what we could plant this year. ".repeat(8);
    client.say(json!({"type": "input_text_buffer.update", "text": words})).await;
    counted(&service, WARMED, 1).await;
    client.say(json!({"type": "input_text_buffer.commit", "text": format!("{words}Is it too late?")})).await;
    client.until("turn.report").await;
    // Words that came at once were not read ahead.
    client.say(json!({"type": "input_text_buffer.commit", "text": "Thank you."})).await;
    client.until("turn.report").await;
    // The store may have a turn a moment after its report.
    let both = async || {
        let turns = service.get(&format!("/v1/sessions/{session}/turns")).await;
        turns["data"].as_array().is_some_and(|turns| turns.len() == 2).then_some(turns)
    };
    let turns = looked_for("row of both turns", both).await;
    let counts = |turn: &Value| ["reused_tokens", "warm_tokens"].map(|key| turn[key].as_u64().expect("a number"));
    let [later, first] = [0, 1].map(|at| counts(&turns["data"][at]));
    assert!(first[1] > 100 && first[1] <= first[0], "{turns:#}");
    assert!(later[0] > first[0] && later[1] < 100, "{turns:#}");
}

/// Client that asks before its user is done, breaks off and asks again.
#[tokio::test]
async fn a_chat_completion_that_was_broken_off_goes_on_when_it_comes_again() {
    let service = Service::start(&["--set", "preset.speculation.tokens=200"]).await;
    for attempt in 1..=ATTEMPTS {
        let question = format!("{attempt}: {}", "the light in the kitchen is on and off and on ".repeat(120));
        let body = json!({"stream": true, "max_tokens": 40, "messages": [{"role": "user", "content": question}]});
        let path = "/v1/chat/completions";
        let headers = [("content-type", "application/json")];
        let mut early = TcpStream::connect(&service.address).await.unwrap();
        let bytes = request(&service.address, "POST", path, &headers, body.to_string().as_bytes());
        early.write_all(&bytes).await.unwrap();
        counted(&service, r#"reprise_engine_requests{priority="talk"}"#, 1).await;
        drop(early);
        let body = json!({"max_tokens": 40, "messages": [{"role": "user", "content": question}]});
        let (status, answer) = service.http("POST", path, &headers, &body.to_string()).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(status, 200, "{answer:#}");
        if answer["reprise"]["begun_early"].is_u64() {
            let count = |key: &str| answer["usage"][key].as_u64().unwrap();
            assert_eq!(Some(count("prompt_tokens")), sum(&answer["reprise"], ["reused_tokens", "computed_tokens"]));
            assert!(count("completion_tokens") <= 40);
            drop(service.stop().await);
            return;
        }
    }
    panic!("none of {ATTEMPTS} went on");
}

/// Its first words may have been on their way when it broke off.
const ATTEMPTS: u64 = 10;
