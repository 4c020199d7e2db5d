//! A disk that fails while a reply is said: what could be lost is not said, the client is told, and what was heard is there
//! after a kill.

use futures_util::{SinkExt, StreamExt};
use proof::crash::{Faults, Shim};
use serde_json::{Value, json};
use std::time::Duration;
use tests::service::Service;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

const NO_SPACE: i64 = 28;
const PATIENCE: Duration = Duration::from_secs(60);
const SERVICE: [&str; 5] =
    ["serve", "--port=0", "--preset=builtin-1k", "--set=wyoming.port=0", "--set=logging.level=error"];

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn next(socket: &mut Socket) -> Value {
    loop {
        let message = timeout(PATIENCE, socket.next()).await.expect("the service answers");
        if let Message::Text(text) = message.expect("the socket stays open").unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

async fn say(socket: &mut Socket, event: Value) {
    socket.send(Message::text(event.to_string())).await.unwrap();
}

async fn until(socket: &mut Socket, kind: &str) -> Value {
    loop {
        let event = next(socket).await;
        if event["type"] == kind {
            return event;
        }
    }
}

async fn ask(socket: &mut Socket) {
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Tell me about the kitchen."}]});
    say(socket, json!({"type": "conversation.item.create", "item": item})).await;
    say(socket, json!({"type": "response.create"})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_disk_could_lose_is_not_said() {
    let Some(shim) = Shim::build().unwrap() else { return println!("skipped: there is no C compiler") };
    let folder = tempfile::tempdir().unwrap();
    let service = Service::with_arguments(folder, &shim.variables(), &SERVICE).await;
    let service = service.unwrap_or_else(|(status, log)| panic!("{status}: {log}"));
    let (mut socket, _) = connect_async(format!("ws://{}/v1/realtime", service.address)).await.unwrap();
    let session = until(&mut socket, "session.created").await["session"]["id"].as_str().unwrap().to_owned();

    // The first words are heard, then the disk is full.
    ask(&mut socket).await;
    let mut heard = until(&mut socket, "response.output_text.delta").await["delta"].as_str().unwrap().to_owned();
    shim.tell(Faults { failing_writes: NO_SPACE, torn_writes: true, ..Faults::default() }).unwrap();
    let done = loop {
        let event = next(&mut socket).await;
        match event["type"].as_str().unwrap() {
            "response.output_text.delta" => heard += event["delta"].as_str().unwrap(),
            "response.output_text.done" => assert_eq!(event["text"], heard.as_str()),
            "response.done" => break event,
            _ => {}
        }
    };
    assert_eq!(done["response"]["status"], "failed", "{done}");
    let error = &done["response"]["status_details"]["error"];
    assert_eq!(error["code"], "store_failed", "{done}");
    assert!(error["message"].as_str().unwrap().contains("disk of the store is full"), "{done}");
    // What is said now is refused, and so is the next reply, before a word of it.
    ask(&mut socket).await;
    assert_eq!(until(&mut socket, "error").await["error"]["code"], "store_failed");
    let metrics = service.http("GET", "/metrics", &[], "").await.1;
    let failures = metrics.lines().find_map(|line| line.strip_prefix("reprise_store_failures_total "));
    assert!(failures.unwrap().parse::<f64>().unwrap() >= 1.0, "{failures:?}");

    // A kill, and what was heard is there.
    let folder = service.kill().await;
    shim.tell(Faults::default()).unwrap();
    let service = Service::with_arguments(folder, &shim.variables(), &SERVICE).await;
    let service = service.unwrap_or_else(|(status, log)| panic!("{status}: {log}"));
    let items = service.get(&format!("/v1/sessions/{session}/items")).await;
    let texts: Vec<&str> =
        items["data"].as_array().unwrap().iter().filter_map(|item| item["body"]["parts"][0]["text"].as_str()).collect();
    assert_eq!(texts, ["Tell me about the kitchen.", heard.as_str()]);

    // The disk is full for a moment, and the same socket goes on when there is room.
    let (mut socket, _) =
        connect_async(format!("ws://{}/v1/realtime?session={session}", service.address)).await.unwrap();
    until(&mut socket, "session.created").await;
    ask(&mut socket).await;
    until(&mut socket, "response.output_text.delta").await;
    shim.tell(Faults { failing_writes: NO_SPACE, ..Faults::default() }).unwrap();
    until(&mut socket, "response.done").await;
    shim.tell(Faults::default()).unwrap();
    ask(&mut socket).await;
    let done = until(&mut socket, "response.done").await;
    assert_ne!(done["response"]["status"], "failed", "{done}");
    service.stop().await;
}
