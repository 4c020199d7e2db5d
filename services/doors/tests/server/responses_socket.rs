use crate::client::{Client, Closed, PATIENCE};
use crate::scripted::Asked;
use crate::support::{Chat, Server};
use serde_json::{Value, json};
use session::{Delta, Failure, FailureCode, Finish, GenerationPurpose};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

async fn connect(server: &Server) -> Client {
    Client::at(&server.address.to_string(), "/v1/responses?model=test-model", &[]).await.unwrap()
}

async fn create(client: &mut Client, mut body: Value) {
    body["type"] = json!("response.create");
    client.say(body).await;
}

fn answer(asked: &mut Asked, text: &str) {
    asked.prompt(12, 4);
    asked.say(text);
    asked.done(Finish::Stop);
}

async fn turn(server: &mut Server, client: &mut Client, body: Value, reply: &str) -> (String, Value) {
    create(client, body).await;
    let mut asked = server.reply_asked().await;
    let messages = json!(asked.chat().messages).to_string();
    answer(&mut asked, reply);
    (messages, client.until("response.completed").await["response"].clone())
}

#[tokio::test]
async fn a_conversation_goes_on_by_its_ids_also_on_another_connection() {
    let mut server = Server::start().await;
    let mut client = connect(&server).await;
    let (_, first) = turn(&mut server, &mut client, json!({ "input": "My cat is Tom." }), "Noted.").await;
    let kinds: Vec<&str> = client.heard.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[1]), ("response.created", "response.in_progress"));
    for (at, event) in client.heard.iter().enumerate() {
        assert_eq!(event["sequence_number"], at, "{event}");
    }
    let mut other = connect(&server).await;
    let next = json!({ "input": "And a dog.", "previous_response_id": first["id"] });
    let (asked, second) = turn(&mut server, &mut other, next, "Two pets.").await;
    assert!(asked.contains("Tom") && asked.contains("Noted.") && asked.contains("dog"), "{asked}");
    assert_eq!(second["conversation"], first["conversation"]);
    // Over HTTP it is the same response.
    let path = format!("/v1/responses/{}", second["id"].as_str().unwrap());
    assert_eq!(server.http("GET", &path, &[], "").await.1["output"], second["output"]);
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_kept_lives_in_its_connection() {
    let mut server = Server::start().await;
    let mut client = connect(&server).await;
    let first = json!({ "input": "My cat is Tom.", "store": false, "instructions": "Be short." });
    let (asked, first) = turn(&mut server, &mut client, first, "Noted.").await;
    assert!(asked.contains("Be short."));
    let next = json!({ "input": "And a dog.", "store": false, "previous_response_id": first["id"] });
    let mut other = connect(&server).await;
    create(&mut other, next.clone()).await;
    let error = other.expect_error("previous_response_not_found").await;
    assert_eq!((&error["status"], &error["error"]["param"]), (&json!(400), &json!("previous_response_id")));
    let (asked, second) = turn(&mut server, &mut client, next.clone(), "Two pets.").await;
    assert!(asked.contains("Tom") && asked.contains("Noted.") && !asked.contains("Be short."), "{asked}");
    // Only the newest one: the client sends all of it again.
    create(&mut client, next).await;
    client.expect_error("previous_response_not_found").await;
    let next = json!({ "input": "Which?", "store": false, "previous_response_id": second["id"] });
    let (asked, _) = turn(&mut server, &mut client, next, "Tom and a dog.").await;
    assert!(asked.contains("Tom") && asked.contains("dog") && asked.contains("Two pets."), "{asked}");
    assert_eq!(server.http("GET", "/v1/sessions", &[], "").await.1["data"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn a_cancelled_response_ends_and_the_next_one_begins() {
    let mut server = Server::start().await;
    let mut client = connect(&server).await;
    for store in [true, false] {
        create(&mut client, json!({ "input": "Tell me a story.", "store": store })).await;
        let mut asked = server.reply_asked().await;
        asked.prompt(12, 4);
        asked.say("Once upon");
        let id = client.until("response.created").await["response"]["id"].clone();
        client.until("response.output_text.delta").await;
        // What speaks of another response is let go.
        client.say(json!({ "type": "response.cancel", "response_id": "resp_other" })).await;
        client.say(json!({ "type": "response.cancel", "response_id": id })).await;
        asked.cancelled().await;
        asked.done(Finish::Cancelled);
        let end = client.until("response.incomplete").await;
        assert_eq!((&end["response"]["status"], &end["response"]["id"]), (&json!("cancelled"), &id));
        assert_eq!(end["response"]["output"][0]["content"][0]["text"], "Once upon");
        client.say(json!({ "type": "response.cancel", "response_id": id })).await;
        let next = json!({ "input": "Never mind.", "store": store, "previous_response_id": id });
        let (asked, _) = turn(&mut server, &mut client, next, "Well.").await;
        assert!(asked.contains("Once upon"), "{asked}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_response() {
    let mut server = Server::start().await;
    for store in [true, false] {
        let mut client = connect(&server).await;
        create(&mut client, json!({ "input": "Tell me a story.", "store": store })).await;
        let mut asked = server.reply_asked().await;
        asked.prompt(12, 4);
        asked.say("Once");
        client.until("response.output_text.delta").await;
        drop(client);
        asked.cancelled().await;
    }
    server.stop().await;
}

#[tokio::test]
async fn one_response_waits_for_the_other() {
    let mut server = Server::start().await;
    let mut client = connect(&server).await;
    create(&mut client, json!({ "input": "One.", "store": false })).await;
    let mut first = server.reply_asked().await;
    create(&mut client, json!({ "input": "Two.", "store": false })).await;
    create(&mut client, json!({ "input": "Three.", "store": false })).await;
    client.expect_error("rate_limit_exceeded").await;
    answer(&mut first, "First.");
    assert_eq!(client.until("response.output_text.done").await["text"], "First.");
    let mut second = server.reply_asked().await;
    assert!(json!(second.chat().messages).to_string().contains("Two."));
    answer(&mut second, "Second.");
    assert_eq!(client.until("response.output_text.done").await["text"], "Second.");
    server.stop().await;
}

#[tokio::test]
async fn a_response_can_be_prepared() {
    let mut server = Server::start().await;
    let mut client = connect(&server).await;
    let body = json!({ "instructions": "Be short.", "input": [], "generate": false, "store": false });
    create(&mut client, body).await;
    let id = client.until("response.created").await["response"]["id"].clone();
    assert_eq!(client.until("response.completed").await["response"]["output"], json!([]));
    let warmed = server.script.next().await;
    assert_eq!((warmed.request.purpose, warmed.request.placeholders), (GenerationPurpose::WarmHistory, 1));
    let expected = warmed.chat().messages[0].clone();
    drop(warmed);
    let next = json!({ "instructions": "Be short.", "input": "Hi.", "previous_response_id": id, "store": false });
    create(&mut client, next).await;
    let mut asked = server.reply_asked().await;
    assert_eq!(asked.chat().messages[0], expected);
    answer(&mut asked, "Hello.");
    client.until("response.completed").await;
    server.stop().await;
}

#[tokio::test]
async fn mistakes_are_told_and_the_connection_stays() {
    let mut server = Server::start().await;
    let mut client = connect(&server).await;
    for (frame, code) in [
        ("no JSON", "invalid_json"),
        ("{}", "unsupported_parameter"),
        (r#"{"type":"response.steer"}"#, "unsupported_parameter"),
        (r#"{"type":"response.create","input":3}"#, "invalid_value"),
        (r#"{"type":"response.create","input":"Hi.","stream_id":"a"}"#, "unsupported_parameter"),
        (r#"{"type":"response.create","input":"Hi.","model":"no-such-model"}"#, "model_not_found"),
        (r#"{"type":"response.create","input":"Hi.","conversation":"sess_none"}"#, "session_not_found"),
    ] {
        client.send(Message::text(frame)).await.unwrap();
        let error = client.expect_error(code).await;
        assert!(error["status"].as_u64() >= Some(400) && error["error"]["message"].is_string(), "{error}");
    }
    client.send(Message::binary(vec![1, 2])).await.unwrap();
    client.expect_error("invalid_json").await;
    // A failure after the first words is the response's end.
    create(&mut client, json!({ "input": "Is it late?", "store": false })).await;
    let mut asked = server.reply_asked().await;
    asked.prompt(12, 4);
    asked.push(Delta::Failed(Failure::new(FailureCode::EngineFailed, "the engine failed")));
    assert_eq!(client.until("response.failed").await["response"]["error"]["code"], "server_error");
    turn(&mut server, &mut client, json!({ "input": "Hi." }), "Hello.").await;
    server.stop().await;
    assert_eq!(client.closed().await, Closed(Some(1001)));
}

#[tokio::test]
async fn its_limits_are_those_of_every_websocket() {
    let server = Server::with(|settings| {
        settings.limits.connections_per_key = 1;
        settings.limits.frame_bytes = 4096;
        settings.limits.message_bytes = 4096;
        settings.limits.first_message_ms = 200;
        settings.limits.requests_per_minute_per_key = 3;
    })
    .await;
    let silent = connect(&server).await;
    let refused = Client::at(&server.address.to_string(), "/v1/responses", &[]).await.err().unwrap();
    assert_eq!(refused.code(), (429, "too_many_connections".to_owned()));
    let mut silent = silent;
    assert_eq!(silent.closed().await, Closed(Some(1008)));
    drop(silent);
    let (status, error) = server.http("GET", "/v1/responses", &[], "").await;
    assert!(status == 400 && error["error"]["code"] == "websocket_expected" || status == 429, "{status} {error}");
    server.stop().await;

    let server = Server::with(|settings| {
        settings.limits.frame_bytes = 4096;
        settings.limits.message_bytes = 4096;
        settings.limits.requests_per_minute_per_key = 3;
    })
    .await;
    let mut client = connect(&server).await;
    for _ in 0..2 {
        create(&mut client, json!({ "input": [] })).await;
        client.expect_error("missing_required_parameter").await;
    }
    create(&mut client, json!({ "input": [] })).await;
    assert_eq!(client.expect_error("rate_limit_exceeded").await["status"], 429);
    let _ = client.send(Message::text("x".repeat(5000))).await;
    assert_eq!(client.closed().await, Closed(Some(1009)));
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_says_nothing_more_is_let_go() {
    let server = Server::with(|settings| settings.limits.idle_s = 1).await;
    let mut client = connect(&server).await;
    create(&mut client, json!({ "input": [], "generate": false, "store": false })).await;
    client.until("response.completed").await;
    assert_eq!(client.closed().await, Closed(Some(1000)));
    server.stop().await;
}

/// The service asks whether it is still there. Both websockets do.
#[tokio::test]
async fn a_client_that_answers_no_ping_is_gone() {
    let server = Server::with(|settings| settings.limits.ping_s = 1).await;
    for path in ["/v1/responses", "/v1/realtime"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let upgrade = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(upgrade.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        // Until the service hangs up, which it does by itself.
        timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("the service hangs up").unwrap();
        let pings = all.windows(2).filter(|bytes| *bytes == [0x89, 0x00]).count();
        assert!((2..=4).contains(&pings), "{path}: {pings} pings");
        // The code of the close, 1001.
        assert!(all.windows(4).any(|bytes| bytes[0] == 0x88 && bytes[2..] == [0x03, 0xe9]), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_its_response() {
    let mut server = Server::with(|settings| settings.limits.write_ms = 300).await;
    for store in [true, false] {
        let mut sleeper = Client::with_little_room(&server.address.to_string(), "/v1/responses").await;
        create(&mut sleeper, json!({ "input": "Tell me a very long story.", "store": store })).await;
        let mut asked = server.reply_asked().await;
        // More than the network between two programs holds.
        let piece = "word ".repeat(20 << 10);
        let telling = async {
            loop {
                asked.say(&piece);
                if timeout(Duration::from_millis(20), asked.cancelled()).await.is_ok() {
                    return;
                }
            }
        };
        timeout(PATIENCE, telling).await.expect("the response of a client that does not read is stopped");
        asked.done(Finish::Cancelled);
        drop(sleeper);
        // Another client is answered as ever.
        let mut client = connect(&server).await;
        turn(&mut server, &mut client, json!({ "input": "Hi.", "store": false }), "Hello.").await;
    }
    server.stop().await;
}
