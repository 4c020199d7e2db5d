//! Adding the integration of a home while another client talks.

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tests::client::PATIENCE;
use tests::service::Service;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Tokens of the replies that are spoken meanwhile.
const LONG: usize = 1500; // not a window: tokens of a reply

struct Talker {
    pieces: Arc<AtomicUsize>,
    begun: Arc<Notify>,
    reading: tokio::task::JoinHandle<()>,
}

async fn talk(service: &Service) -> Talker {
    let body = json!({
        "stream": true, "max_tokens": LONG, "ignore_eos": true, "messages": [{ "role": "user", "content": "A story." }],
    })
    .to_string();
    let mut stream = TcpStream::connect(&service.address).await.unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    let (pieces, begun) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let (counted, notify) = (pieces.clone(), begun.clone());
    let reading = tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = timeout(PATIENCE, stream.read(&mut buffer)).await.expect("the reply goes on").unwrap();
            if read == 0 {
                return;
            }
            let found = buffer[..read].split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"data: {")).count();
            counted.fetch_add(found, Ordering::SeqCst);
            notify.notify_one();
        }
    });
    Talker { pieces, begun, reading }
}

/// Home Assistant's `llama_cpp` asks twice when it is added, first without a stream, and gives up after a while. Between two
/// streams it is answered in a few steps, each of which is a token of theirs, and not when they are done.
#[tokio::test]
async fn a_probe_takes_its_turn_between_two_streams() {
    let service = Service::start(&[]).await;
    let talkers = [talk(&service).await, talk(&service).await];
    for talker in &talkers {
        while talker.pieces.load(Ordering::SeqCst) < 3 {
            timeout(PATIENCE, talker.begun.notified()).await.expect("it begins to talk");
        }
    }
    let tool = json!({ "type": "function", "function": { "name": "test_function", "description": "A test function.",
        "parameters": { "type": "object", "properties": {} } } });
    for stream in [false, true] {
        let before = talkers.each_ref().map(|talker| talker.pieces.load(Ordering::SeqCst));
        let body = json!({
            "model": "default", "max_tokens": 3, "tools": [tool], "stream": stream,
            "messages": [
                { "role": "system", "content": "You are a helpful assistant." },
                { "role": "user", "content": "What is the capital of France?" },
            ],
        });
        let (status, text) = service.http("POST", "/v1/chat/completions", &[], &body.to_string()).await;
        assert_eq!(status, 200, "{text}");
        if !stream {
            let reply: Value = serde_json::from_str(&text).unwrap();
            assert!(reply["usage"]["completion_tokens"].as_u64().is_some_and(|tokens| (1..=3).contains(&tokens)));
        }
        for (talker, before) in talkers.iter().zip(before) {
            let meanwhile = talker.pieces.load(Ordering::SeqCst) - before;
            assert!(!talker.reading.is_finished(), "the probe was answered when the talkers were done");
            assert!(meanwhile < LONG / 4, "{meanwhile} of {LONG} tokens were said before the probe was answered");
        }
    }
    talkers.into_iter().for_each(|talker| talker.reading.abort());
    service.stop().await;
}

/// Unknown fields of a client are in the log once; fields that would change the answer are refused by name.
#[tokio::test]
async fn no_field_is_let_go_in_silence() {
    let service = Service::start(&["--set", "model.unknown=default"]).await;
    for (path, body) in [
        (
            "/v1/chat/completions",
            json!({ "model": "maid", "store": true, "max_tokens": 1, "prediction": { "type": "content" } }),
        ),
        (
            "/api/chat",
            json!({ "model": "maid", "stream": false, "options": { "num_predict": 1, "mirostat": 1, "num_ctx": 9999999 } }),
        ),
    ] {
        for _ in 0..2 {
            let mut body = body.clone();
            body["messages"] = json!([{ "role": "user", "content": "Hi." }]);
            let (status, text) = service.http("POST", path, &[], &body.to_string()).await;
            assert_eq!(status, 200, "{text}");
        }
    }
    let mut client = service.connect("").await;
    client.session_id().await;
    let turn_detection = json!({ "type": "semantic_vad", "idle_timeout_ms": 5000 });
    for _ in 0..2 {
        let session = json!({ "type": "realtime", "tracing": "auto", "audio": { "input": { "turn_detection": turn_detection } } });
        client.say(json!({ "type": "session.update", "session": session })).await;
        client.until("session.updated").await;
    }
    for (session, code) in [
        (json!({ "prompt": { "id": "pmpt_1" } }), "prompt_not_supported"),
        (json!({ "tools": [{ "type": "mcp", "server_label": "x" }] }), "invalid_value"),
    ] {
        client.say(json!({ "type": "session.update", "session": session })).await;
        client.expect_error(code).await;
    }
    let log = service.stop_and_read_log().await;
    for named in [
        "\"store\"",
        "\"prediction.type\"",
        "\"options.mirostat\"",
        "\"session.tracing\"",
        "num_ctx=9999999",
        "model=\"maid\"",
    ] {
        let lines = log.lines().filter(|line| line.contains(named)).count();
        assert_eq!(lines, 1, "{named} in\n{log}");
    }
}
