//! Events of the Wyoming protocol.

use crate::bodies::wrong_fields;
use crate::house::House;
use crate::http_doors::check_words;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tests::wyoming::{WyomingClient, turn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The error event that the bytes are answered with, and whether the connection then ended.
async fn refused(address: SocketAddr, what: &str, bytes: &[u8], ends: bool) -> String {
    let mut client = WyomingClient::connect(address).await;
    client.send(bytes).await;
    let (kind, data) = client.event().await.unwrap_or_else(|| panic!("no answer to {what}"));
    let words = data["text"].as_str().unwrap_or_default();
    assert_eq!(kind, "error", "{what}: {data}");
    assert!(check_words(words).is_ok() && data["code"].is_string(), "{what}: {data}");
    if ends {
        assert_eq!(client.event().await, None, "{what}");
    } else {
        client.say("ping", json!({ "text": "still here" })).await;
        assert_eq!(client.event().await, Some(("pong".to_owned(), json!({ "text": "still here" }))), "{what}");
    }
    words.to_owned()
}

fn transcript(data: &Value) -> Vec<u8> {
    let data = data.to_string();
    format!("{{\"type\":\"transcript\",\"data_length\":{}}}\n{data}", data.len()).into_bytes()
}

#[tokio::test]
async fn frames_that_lie_are_refused_in_words_and_end_their_connection() {
    let house = House::new().await;
    let long = "x".repeat(70_000);
    let deep = format!("{{\"type\":\"transcript\",\"data\":{}1{}}}\n", "[".repeat(30_000), "]".repeat(30_000));
    let text = |text: &str| text.as_bytes().to_vec();
    let mut frames: Vec<(&str, Vec<u8>)> = vec![
        ("an empty line", text("\n")),
        ("another protocol", text("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")),
        ("a line of more than 64 KiB", text(&format!("{{\"type\":\"{long}\"}}\n"))),
        ("a line that never ends", text(&long)),
        ("a line of invalid UTF-8", b"{\"type\":\"transcript\",\"data\":{\"text\":\"\xff\"}}\n".to_vec()),
        ("bytes without sense", (0..=255).collect()),
        ("no object", text("[1]\n")),
        ("no type", text("{}\n")),
        ("lists in lists", text(&deep)),
        ("data shorter than it says", text("{\"type\":\"transcript\",\"data_length\":3}\n{\"text\":\"hi\"}")),
        ("data that are none", text("{\"type\":\"transcript\",\"data_length\":4}\nnull")),
        ("data of invalid UTF-8", b"{\"type\":\"transcript\",\"data_length\":12}\n{\"text\":\"\xff\xfe\"}".to_vec()),
    ];
    for length in ["-1", "1.5", "\"9\"", "[]", "true", "1e300", "65537", "18446744073709551615", "99999999999999999999"]
    {
        frames.push(("a data length", text(&format!("{{\"type\":\"transcript\",\"data_length\":{length}}}\n"))));
    }
    for length in ["-1", "0.5", "\"9\"", "{}", "1e18", "1048577", "18446744073709551615"] {
        frames.push(("a payload length", text(&format!("{{\"type\":\"audio-chunk\",\"payload_length\":{length}}}\n"))));
    }
    for (at, (what, bytes)) in frames.iter().enumerate() {
        refused(house.wyoming, what, bytes, true).await;
        let mut client = WyomingClient::connect(house.wyoming).await;
        client.say("describe", json!({})).await;
        assert_eq!(client.event().await.map(|(kind, _)| kind).as_deref(), Some("info"), "after {what}");
        // A reply takes longer.
        if at % 9 == 0 {
            let (kind, data) = client.turn("Hello?", json!({ "satellite_id": "garage" })).await;
            assert_eq!(kind, "handled", "after {what}: {data}");
        }
    }
    assert!(frames.len() > 25);
    house.ends_as_it_began().await;
}

#[tokio::test]
async fn data_of_a_wrong_kind_is_refused_by_name_and_the_connection_stays() {
    let house = House::new().await;
    let full = json!({ "text": "Hi.", "context": { "conversation_id": "a", "device_id": "b", "satellite_id": "c" } });
    let mut wrong = 0;
    for field in wrong_fields(&full) {
        let name = field.field.split('.').next_back().unwrap();
        let words = refused(house.wyoming, &field.field, &transcript(&field.body), false).await;
        assert!(words.contains(name), "{}: {words}", field.field);
        wrong += 1;
    }
    assert!(wrong >= 18);
    for (data, word) in [
        (json!({}), "text"),
        (json!({ "text": "" }), "say something"),
        (json!({ "text": "x", "context": { "satellite_id": "x".repeat(300) } }), "limits.id_chars"),
    ] {
        let words = refused(house.wyoming, word, &transcript(&data), false).await;
        assert!(words.contains(word), "{words}");
    }
    // Longer than a window, as one utterance: it is told, and what comes next is answered.
    let mut client = WyomingClient::connect(house.wyoming).await;
    let (kind, data) = client.turn(&"so long ".repeat(7000), json!({ "satellite_id": "attic" })).await;
    assert!(
        kind == "handled" || (kind == "error" && check_words(data["text"].as_str().unwrap()).is_ok()),
        "{kind} {data}"
    );
    assert_eq!(client.turn("Hello?", json!({ "satellite_id": "attic" })).await.0, "handled");
    house.ends_as_it_began().await;
}

/// Clients that announce what never comes cost one connection each, and no other waits for them.
#[tokio::test]
async fn payloads_that_never_come_hold_up_no_other_client() {
    let house = House::new().await;
    let mut waiting = Vec::new();
    for begun in [
        "{\"type\":\"transcript\",\"data_length\":60000}\n{\"text\":\"a",
        "{\"type\":\"audio-chunk\",\"payload_length\":1000000}\nabc",
        "{\"type\":\"descr",
    ] {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(house.wyoming).await.unwrap();
            stream.write_all(begun.as_bytes()).await.unwrap();
            waiting.push(stream);
        }
    }
    assert_eq!(turn(house.wyoming, "Hello?", json!({ "satellite_id": "garage" })).await.0, "handled");
    for stream in &mut waiting {
        let mut byte = [0];
        assert!(stream.try_read(&mut byte).is_err(), "nothing is said to a client that is not done");
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut byte).await.unwrap(), 0, "a client that leaves is let go");
    }
    house.ends_as_it_began().await;
}
