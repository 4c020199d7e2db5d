//! Memory of sessions and connections: one limit covers all of it, and small requests have room beside large ones.

use crate::client::{Client, Closed};
use crate::support::Server;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// All hold so much together, and each may hold 16 KiB.
async fn house(text_bytes: u64) -> Server {
    Server::with(|settings| {
        settings.memory.text_bytes = Some(text_bytes);
        settings.limits.connections = usize::try_from(text_bytes >> 14).unwrap();
    })
    .await
}

fn words(bytes: usize) -> Value {
    json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": "x".repeat(bytes)}})
}

async fn add(client: &mut Client, bytes: usize) {
    client.say(words(bytes)).await;
    client.until("conversation.item.done").await;
}

/// A websocket on which a message of so many bytes is begun and not ended.
async fn begin_message(server: &Server, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "GET /v1/realtime HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    for (opcode, piece) in [1, 0].into_iter().zip([bytes / 2, bytes - bytes / 2]) {
        let mut frame = vec![opcode, 0x80 | 127];
        frame.extend((piece as u64).to_be_bytes());
        frame.extend([0; 4]);
        frame.resize(frame.len() + piece, b'x');
        let _ = stream.write_all(&frame).await;
    }
    stream
}

async fn close_code(stream: &mut TcpStream) -> u16 {
    let mut bytes = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the server ends the connection");
    let mut rest = &bytes[..];
    while let [head, length, ..] = rest {
        let (start, length) = match *length {
            126 => (4, usize::from(rest[2]) << 8 | usize::from(rest[3])),
            length => (2, usize::from(length)),
        };
        if head & 0x0f == 8 {
            return u16::from(rest[start]) << 8 | u16::from(rest[start + 1]);
        }
        rest = &rest[start + length..];
    }
    panic!("no close frame in {} bytes", bytes.len())
}

#[tokio::test]
async fn messages_that_do_not_end_have_one_limit_together() {
    let server = house(1 << 20).await;
    let unended = begin_message(&server, 900_000).await;
    let mut refused = begin_message(&server, 900_000).await;
    assert_eq!(close_code(&mut refused).await, 1013);
    let mut client = server.connect("").await;
    add(&mut client, 8_000).await;
    drop(unended);
    let mut next = begin_message(&server, 900_000).await;
    let ended = timeout(Duration::from_millis(500), next.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_err(), "there is room again: {ended:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_message_that_does_not_end_has_the_time_of_a_body() {
    let server = Server::with(|settings| {
        settings.limits.body_ms = 300;
        settings.limits.ping_s = 1;
    })
    .await;
    let mut slow = begin_message(&server, 200_000).await;
    // A pong within the message, as clients that are there send them.
    let pong = async |stream: &mut TcpStream| stream.write_all(&[0x8a, 0x80, 0, 0, 0, 0]).await.is_ok();
    while pong(&mut slow).await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.stop().await;
}

/// Adds items of 900 kB, so many at the most, until the server refuses one or ends the connection. How many, and the code of the
/// end.
async fn fill(client: &mut Client, most: usize) -> (usize, Option<u16>) {
    for taken in 0..most {
        client.say(words(900_000)).await;
        loop {
            match client.next().await {
                Ok(answer) if answer["type"] == "conversation.item.done" => break,
                Ok(answer) if answer["type"] == "error" => return (taken, None),
                Ok(_) => {}
                Err(Closed(code)) => return (taken, code),
            }
        }
    }
    (most, None)
}

#[tokio::test]
async fn sessions_in_memory_hold_no_more_than_they_may_together() {
    let server = house(8 << 20).await;
    let (mut large, mut small) = (server.connect("").await, server.connect("").await);
    let id = large.session_id().await;
    for _ in 0..3 {
        add(&mut large, 900_000).await;
    }
    let mut greedy = server.connect("").await;
    let (taken, code) = fill(&mut greedy, 100).await;
    assert!((3..=6).contains(&taken) && matches!(code, None | Some(1008 | 1013)), "{taken} {code:?}");
    add(&mut small, 8_000).await;
    drop(large);
    let full = loop {
        // The sessions of clients that left go from memory.
        let mut client = server.connect("").await;
        if fill(&mut client, 7).await.0 == 7 {
            break client;
        }
    };
    let refused = server.try_connect(&format!("?session={id}"), &[]).await.err().unwrap();
    assert!(format!("{refused:?}").contains("503"), "{refused:?}");
    drop(full);
    while server.try_connect(&format!("?session={id}"), &[]).await.is_err() {}
    server.stop().await;
}

#[tokio::test]
async fn a_page_is_no_longer_than_an_answer_should_be() {
    let server = Server::start().await;
    let mut client = server.connect("").await;
    let id = client.session_id().await;
    for _ in 0..5 {
        add(&mut client, 200_000).await;
    }
    for path in [format!("/v1/sessions/{id}/items?x="), format!("/v1/conversations/{id}/items?order=asc")] {
        let (mut after, mut pages) = (String::new(), Vec::new());
        loop {
            let (status, page) = server.http("GET", &format!("{path}{after}"), &[], "").await;
            assert_eq!(status, 200, "{page}");
            let rows = page["data"].as_array().unwrap();
            pages.push(rows.len());
            if page["has_more"] != true {
                break;
            }
            let last = rows.last().unwrap();
            after = format!("&after={}", last["item_id"].as_str().or(last["id"].as_str()).unwrap());
        }
        assert_eq!(pages, [2, 2, 1], "{path}");
    }
    for _ in 0..3 {
        let mut client = server.connect("").await;
        let session = json!({"type": "realtime", "instructions": "x".repeat(300_000)});
        client.say(json!({"type": "session.update", "session": session})).await;
        client.until("session.updated").await;
        add(&mut client, 1).await;
    }
    let (_, page) = server.http("GET", "/v1/sessions", &[], "").await;
    assert_eq!((page["data"].as_array().unwrap().len(), &page["has_more"]), (1, &json!(true)));
    server.stop().await;
}

#[tokio::test]
async fn what_is_prepared_on_a_websocket_of_responses_has_its_limit() {
    let server = house(4 << 20).await;
    let mut client = Client::at(&server.address.to_string(), "/v1/responses?model=test-model", &[]).await.unwrap();
    let mut id = Value::Null;
    let mut taken = 0;
    let code = loop {
        client
            .say(json!({"type": "response.create", "generate": false, "store": false, "previous_response_id": id,
            "input": "x".repeat(200_000)}))
            .await;
        match client.next().await {
            Ok(answer) if answer["type"] == "error" => break None,
            Ok(mut answer) => {
                while answer["type"] != "response.completed" {
                    answer = client.event().await;
                }
                (id, taken) = (answer["response"]["id"].clone(), taken + 1);
            }
            Err(Closed(code)) => break code,
        }
    };
    assert!((10..=21).contains(&taken) && matches!(code, None | Some(1013)), "{taken} {code:?}");
    server.stop().await;
}
