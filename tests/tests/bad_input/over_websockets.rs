//! Events and frames of the two websockets.

use crate::bodies::{WrongField, huge_history, malformed, wrong_fields};
use crate::house::House;
use crate::http_doors::check_words;
use serde_json::{Value, json};
use tests::client::{Client, user};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

const REALTIME: &str = "/v1/realtime?extensions=reprise";
const RESPONSES: &str = "/v1/responses";

/// Errors as each of the two tells them.
fn check_error(path: &str, event: &Value) -> Result<(), String> {
    let error = &event["error"];
    let form = match path {
        RESPONSES => event["status"].as_u64().is_some_and(|status| (400..500).contains(&status)),
        _ => event["event_id"].is_string() && error.get("event_id").is_some(),
    };
    let (kind, code) = (error["type"].as_str(), error["code"].as_str());
    if !form || kind.is_none() || code.is_none() || !(error["param"].is_string() || error["param"].is_null()) {
        return Err(format!("it is not in the form that clients read: {event}"));
    }
    check_words(error["message"].as_str().unwrap_or_default()).map_err(|why| format!("{why}: {event:.400}"))
}

/// Says something and reads until the service answers what is said after it. Returns the error, where there was one.
async fn told(client: &mut Client, path: &str, message: Message) -> Option<Value> {
    client.send(message).await.expect("the connection is there");
    client.say(json!({ "type": "the.end" })).await;
    let mut told = None;
    loop {
        let event = client.event().await;
        if event["type"] != "error" {
            continue;
        }
        let error = check_error(path, &event);
        assert!(error.is_ok(), "{path}: {error:?}");
        if event["error"]["message"].as_str().is_some_and(|message| message.contains("'the.end'")) {
            return told;
        }
        told = Some(event);
    }
}

/// A turn on a new connection, and on this one.
async fn goes_on(house: &House, path: &str, client: Option<&mut Client>) {
    let mut fresh = Client::at(&house.service.address, path, &[]).await.expect("a connection");
    for client in [Some(&mut fresh), client].into_iter().flatten() {
        if path == RESPONSES {
            client
                .say(json!({ "type": "response.create", "input": "Hi.", "max_output_tokens": 16, "store": false }))
                .await;
            let end = client.until_one_of(&["response.completed", "response.incomplete"]).await;
            assert_eq!(end["response"]["object"], "response");
        } else {
            client.say(user("Hi.")).await;
            client.until("conversation.item.done").await;
        }
    }
}

fn realtime_events() -> Vec<Value> {
    serde_json::from_str(include_str!("full/realtime.json")).expect("a list")
}

fn responses_event() -> Value {
    let mut body: Value = serde_json::from_str(include_str!("full/responses.json")).expect("a body");
    body["type"] = json!("response.create");
    // What is right is only prepared for.
    body["generate"] = json!(false);
    body
}

/// Fields that take more kinds than the one that they have here, and which.
const TAKES: [(&str, &str); 8] = [
    ("item.content", "string"),
    ("item.output", "bool number list object"),
    ("event_id", "bool number list object"),
    ("session.reasoning", ""),
    ("input", "string"),
    ("input.*.content", "string"),
    ("input.*.output", "bool number object"),
    ("response.input.*.content", "string"),
];

#[tokio::test]
async fn a_field_of_a_wrong_kind_is_an_error_event() {
    let house = House::new().await;
    let (mut refused, mut wrong) = (0, Vec::new());
    for (path, events) in [(REALTIME, realtime_events()), (RESPONSES, vec![responses_event()])] {
        let mut client = Client::at(&house.service.address, path, &[]).await.expect("a connection");
        for event in events {
            for WrongField { field, kind, body } in wrong_fields(&event) {
                // This service has neither ears nor a voice: it reads nothing of audio.
                let takes = field.starts_with("session.audio.")
                    || field == "audio"
                    || TAKES
                        .iter()
                        .any(|(known, kinds)| *known == field && kinds.split(' ').any(|known| known == kind));
                let told = told(&mut client, path, Message::text(body.to_string())).await;
                refused += usize::from(told.is_some());
                let name = field.split('.').rfind(|part| *part != "*").expect("a name");
                match told {
                    None if !takes => wrong.push(format!("{path} {} {field} {kind} is no error", event["type"])),
                    Some(told) if !told.to_string().contains(name) => {
                        wrong.push(format!("{path} {field} {kind}: {told}"))
                    }
                    _ => {}
                }
            }
        }
        goes_on(&house, path, Some(&mut client)).await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(refused > 300, "only {refused} fields");
    house.ends_as_it_began().await;
}

#[tokio::test]
async fn messages_that_are_no_events_are_told_and_the_connection_stays() {
    let house = House::new().await;
    for path in [REALTIME, RESPONSES] {
        let mut client = Client::at(&house.service.address, path, &[]).await.expect("a connection");
        for (what, bytes) in malformed() {
            let message = match String::from_utf8(bytes) {
                Ok(text) => Message::text(text),
                Err(bytes) => Message::binary(bytes.into_bytes()),
            };
            assert!(told(&mut client, path, message).await.is_some(), "{path} {what}");
        }
        let types: [Value; 7] = [
            json!(null),
            json!(3),
            json!(""),
            json!("session.created"),
            json!("x".repeat(50_000)),
            json!([]),
            json!({}),
        ];
        for kind in types {
            let told = told(&mut client, path, Message::text(json!({ "type": kind }).to_string())).await;
            assert!(told.is_some(), "{path} {kind:.40}");
        }
        goes_on(&house, path, Some(&mut client)).await;
    }
    // A history that no window holds.
    let mut client = Client::at(&house.service.address, RESPONSES, &[]).await.expect("a connection");
    client.say(json!({ "type": "response.create", "input": huge_history(), "store": false })).await;
    let error = client.expect_error("context_length_exceeded").await;
    assert!(check_error(RESPONSES, &error).is_ok(), "{error}");
    goes_on(&house, RESPONSES, Some(&mut client)).await;
    house.ends_as_it_began().await;
}

/// One frame as the protocol writes it: two bytes, more of the length, a mask, and the masked bytes.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = match payload.len() {
        short @ 0..126 => vec![0x80 | short as u8],
        long => [&[0x80 | 126], &(long as u16).to_be_bytes()[..]].concat(),
    };
    [&[first], &length[..], &[0; 4], payload].concat()
}

#[tokio::test]
async fn frames_that_break_the_protocol_end_their_connection_alone() {
    let house = House::new().await;
    let lie = |bytes: [u8; 8]| [&[0x81, 0x80 | 127], &bytes[..], &[0; 4], b"{}"].concat();
    let frames: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("a frame without a mask", vec![0x81, 0x02, b'{', b'}'], &[1002]),
        ("an opcode that there is not", frame(0x83, b"{}"), &[1002]),
        ("a control opcode that there is not", frame(0x8b, b""), &[1002]),
        ("a reserved bit", frame(0xc1, b"{}"), &[1002]),
        ("a ping in pieces", frame(0x09, b"x"), &[1002]),
        ("a ping that is too long", frame(0x89, &[b'x'; 200]), &[1002]),
        ("a piece of no message", frame(0x80, b"{}"), &[1002]),
        ("a message within a message", [frame(0x01, b"{"), frame(0x81, b"}")].concat(), &[1002]),
        ("a text of invalid UTF-8", frame(0x81, b"\xff\xfe"), &[1002, 1007]),
        ("a text that ends within a letter", [frame(0x01, b"\xc3"), frame(0x80, b"\x28")].concat(), &[1002, 1007]),
        ("a length beyond every limit", lie(u64::MAX.to_be_bytes()), &[1002, 1009]),
        ("a length that is negative", lie(i64::MIN.to_be_bytes()), &[1002, 1009]),
        ("a message larger than there may be", lie((1_u64 << 30).to_be_bytes()), &[1009]),
        ("a close of half a code", frame(0x88, b"\x03"), &[1002]),
        ("a close with a code that there is not", frame(0x88, b"\x00\x01"), &[1002]),
        ("bytes that are no frame", b"GET / HTTP/1.1\r\n\r\n".to_vec(), &[1002]),
    ];
    for path in [REALTIME, RESPONSES] {
        for (what, bytes, codes) in &frames {
            let code = closed_after(&house.service.address, path, bytes).await;
            assert!(code.is_none_or(|code| codes.contains(&code)), "{path} {what}: closed with {code:?}");
            goes_on(&house, path, None).await;
        }
    }
    house.ends_as_it_began().await;
}

/// The code with which the service closes. None: it hangs up.
async fn closed_after(address: &str, path: &str, bytes: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let upgrade = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(upgrade.as_bytes()).await.expect("the service reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream.write_all(bytes).await.expect("the service reads");
    // What the service sends, frame after frame, until it closes or hangs up.
    let reading = async {
        loop {
            let (first, second) = (stream.read_u8().await.ok()?, stream.read_u8().await.ok()?);
            let length = match second {
                126 => usize::from(stream.read_u16().await.ok()?),
                127 => stream.read_u64().await.ok()? as usize,
                short => usize::from(short),
            };
            let mut payload = vec![0; length];
            stream.read_exact(&mut payload).await.ok()?;
            if first == 0x88 {
                return payload.first_chunk().map(|code| u16::from_be_bytes(*code));
            }
        }
    };
    timeout(tests::client::PATIENCE, reading).await.expect("the connection ends")
}
