//! The Wyoming protocol over real sockets, as Home Assistant speaks it and as it should not be spoken.

use crate::scripted::Asked;
use crate::support::{Chat, Server};
use crate::wyoming_client::{WyomingClient, own_address, turn};
use serde_json::{Value, json};
use session::{Delta, Failure, FailureCode, Finish};
use settings::{Persona, Settings};
use std::net::SocketAddr;
use store::{SessionRecord, Store};
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

async fn server(change: impl FnOnce(&mut Settings)) -> (Server, SocketAddr) {
    in_folder(tempfile::tempdir().unwrap(), change).await
}

async fn in_folder(folder: tempfile::TempDir, change: impl FnOnce(&mut Settings)) -> (Server, SocketAddr) {
    let address = own_address();
    let with_port = |settings: &mut Settings| {
        (settings.wyoming.host, settings.wyoming.port) = (Some(address.ip()), Some(address.port()));
        change(settings);
    };
    (Server::in_folder(folder, with_port).await, address)
}

fn kitchen(conversation: &str) -> Value {
    json!({ "conversation_id": conversation, "device_id": "d1", "satellite_id": "assist_satellite.kitchen" })
}

fn saying(address: SocketAddr, text: &str, context: Value) -> JoinHandle<(String, Value)> {
    let text = text.to_owned();
    tokio::spawn(async move { turn(address, &text, context).await })
}

fn replies(mut asked: Asked, text: &str) {
    asked.prompt(12, 4);
    asked.say(text);
    asked.done(Finish::Stop);
}

fn said(asked: &Asked) -> Vec<String> {
    let messages = asked.chat().messages;
    let of_user = messages.iter().filter(|message| message["role"] == "user");
    of_user.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

async fn sessions(store: &Store) -> Vec<SessionRecord> {
    let mut sessions = Vec::new();
    for line in store.list_sessions("local", None, 100).await.unwrap() {
        let session = store.open_session("local", &line.session.id).await.unwrap();
        sessions.push(store.session(&session).await.unwrap());
    }
    sessions
}

async fn until_stored(store: &Store, text: &str) {
    let stored = async {
        loop {
            let id = sessions(store).await[0].id.clone();
            let session = store.open_session("local", &id).await.unwrap();
            if store.items(&session, None, 100).await.unwrap().iter().any(|item| item.said() == text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(crate::client::PATIENCE, stored).await.expect("it is stored");
}

#[tokio::test]
async fn a_turn_streams_and_is_said_as_a_whole_with_its_context() {
    let (mut server, address) = server(|_| {}).await;
    let mut client = WyomingClient::connect(address).await;
    let context = kitchen("01K");
    client.say("transcript", json!({ "text": "Is it late?", "language": "en", "context": context })).await;
    let mut asked = server.reply_asked().await;
    assert_eq!(said(&asked), ["Is it late?"]);
    asked.prompt(12, 4);
    asked.say("Not ");
    assert_eq!(client.event().await, Some(("handled-start".into(), json!({ "context": context }))));
    assert_eq!(client.event().await, Some(("handled-chunk".into(), json!({ "text": "Not " }))));
    asked.say("yet.");
    asked.done(Finish::Stop);
    assert_eq!(client.event().await, Some(("handled-chunk".into(), json!({ "text": "yet." }))));
    let whole = json!({ "text": "Not yet.", "context": context });
    assert_eq!(client.event().await, Some(("handled".into(), whole)));
    assert_eq!(client.event().await, Some(("handled-stop".into(), json!({}))));
    let metrics = server.text("GET", "/metrics", &[]).await;
    for line in
        [r#"reprise_wyoming_events_total{event="transcript"}"#, r#"reprise_wyoming_turns_total{outcome="handled"}"#]
    {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    server.stop().await;
}

/// Home Assistant gives up a conversation after five minutes; its satellite stays the same.
#[tokio::test]
async fn a_satellites_conversation_goes_on_over_conversations_and_restarts() {
    let (mut server, address) = server(|_| {}).await;
    for (conversation, text, count) in [("01A", "One.", 1), ("01B", "Two.", 2)] {
        let told = saying(address, text, kitchen(conversation));
        let asked = server.reply_asked().await;
        assert_eq!(said(&asked).len(), count);
        replies(asked, "Yes.");
        assert_eq!(told.await.unwrap().1["text"], "Yes.");
    }
    let told = saying(address, "In the hall.", json!({ "conversation_id": "01A", "device_id": "d1" }));
    let asked = server.reply_asked().await;
    assert_eq!(said(&asked), ["In the hall."], "the device is not the satellite");
    replies(asked, "Yes.");
    told.await.unwrap();

    let (mut server, address) = in_folder(server.stop().await, |_| {}).await;
    let told = saying(address, "Three.", kitchen("01C"));
    let asked = server.reply_asked().await;
    assert_eq!(said(&asked), ["One.", "Two.", "Three."]);
    replies(asked, "Yes.");
    told.await.unwrap();
    let sessions = sessions(&server.store).await;
    let titles: Vec<(&str, &str)> =
        sessions.iter().map(|session| (session.title.as_str(), session.room.as_str())).collect();
    assert_eq!(titles, [("satellite assist_satellite.kitchen", "kitchen"), ("device d1", "")], "with its room");
    server.stop().await;
}

#[tokio::test]
async fn a_deleted_session_is_followed_by_a_new_one() {
    let (mut server, address) = server(|_| {}).await;
    for text in ["One.", "Two."] {
        let told = saying(address, text, kitchen("01A"));
        let asked = server.reply_asked().await;
        assert_eq!(said(&asked), [text]);
        replies(asked, "Yes.");
        assert_eq!(told.await.unwrap().0, "handled");
        let id = sessions(&server.store).await[0].id.clone();
        assert_eq!(server.http("DELETE", &format!("/v1/sessions/{id}"), &[], "").await.0, 200);
    }
    assert!(sessions(&server.store).await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_connection_without_a_name_is_one_conversation() {
    let (mut server, address) = server(|_| {}).await;
    let mut script = server.take_script();
    let model = tokio::spawn(async move {
        let mut heard = Vec::new();
        while heard.len() < 3 {
            let asked = script.next().await;
            if asked.request.purpose == session::GenerationPurpose::Reply {
                heard.push(said(&asked).len());
                replies(asked, "Yes.");
            }
        }
        heard
    });
    let mut client = WyomingClient::connect(address).await;
    for text in ["One.", "Two."] {
        assert_eq!(client.turn(text, Value::Null).await.0, "handled");
    }
    assert_eq!(turn(address, "One.", json!({})).await.0, "handled");
    assert_eq!(model.await.unwrap(), [1, 2, 1]);
    server.stop().await;
}

#[tokio::test]
async fn what_is_said_over_a_reply_interrupts_it() {
    let (mut server, address) = server(|_| {}).await;
    let first = saying(address, "Tell me a story.", kitchen("01A"));
    let mut asked = server.reply_asked().await;
    asked.prompt(12, 4);
    asked.say("Once upon a time ");
    let second = saying(address, "Stop.", kitchen("01A"));
    asked.cancelled().await;
    asked.done(Finish::Cancelled);
    assert_eq!(first.await.unwrap().0, "not-handled");
    let asked = server.reply_asked().await;
    assert_eq!(said(&asked), ["Tell me a story.", "Stop."]);
    replies(asked, "Yes.");
    assert_eq!(second.await.unwrap().1["text"], "Yes.");
    // Also on one connection.
    let mut client = WyomingClient::connect(address).await;
    for text in ["A.", "B."] {
        client.say("transcript", json!({ "text": text, "context": kitchen("01A") })).await;
    }
    assert_eq!(client.answer().await.0, "not-handled");
    loop {
        let asked = server.reply_asked().await;
        if said(&asked).last().unwrap() == "B." {
            replies(asked, "Yes.");
            break;
        }
    }
    assert_eq!(client.answer().await, ("handled".into(), json!({ "text": "Yes.", "context": kitchen("01A") })));
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_response_and_what_was_said_stays() {
    let (mut server, address) = server(|_| {}).await;
    let mut client = WyomingClient::connect(address).await;
    client.say("transcript", json!({ "text": "Are you there?", "context": kitchen("01A") })).await;
    let mut asked = server.reply_asked().await;
    asked.prompt(12, 4);
    asked.say("I am ");
    client.event().await;
    client.event().await;
    drop(client);
    asked.cancelled().await;
    asked.done(Finish::Cancelled);
    // One that leaves before it hears anything.
    let mut client = WyomingClient::connect(address).await;
    client.say("transcript", json!({ "text": "Hello?", "context": kitchen("01A") })).await;
    drop(client);
    until_stored(&server.store, "Hello?").await;
    let told = saying(address, "Again.", kitchen("01B"));
    let asked = loop {
        // The model may have been asked before the client left.
        let asked = server.reply_asked().await;
        if said(&asked).last().is_some_and(|last| last == "Again.") {
            break asked;
        }
    };
    assert_eq!(said(&asked), ["Are you there?", "Hello?", "Again."]);
    let messages = asked.chat().messages;
    assert!(messages.iter().any(|message| message["content"] == "I am"), "{messages:?}");
    replies(asked, "Yes.");
    assert_eq!(told.await.unwrap().1["text"], "Yes.");
    server.stop().await;
}

#[tokio::test]
async fn troubles_are_told_in_words_that_can_be_spoken() {
    let (mut server, address) = server(|settings| settings.limits.requests_per_minute_per_key = 2).await;
    let told = saying(address, "One.", kitchen("01A"));
    let mut asked = server.reply_asked().await;
    asked.prompt(12, 4);
    asked.push(Delta::Failed(Failure::new(FailureCode::Busy, "too many requests wait already")));
    let busy = json!({ "text": "too many requests wait already", "code": "busy" });
    assert_eq!(told.await.unwrap(), ("error".into(), busy));
    let told = saying(address, "Two.", kitchen("01A"));
    let mut asked = server.reply_asked().await;
    asked.push(Delta::CallStarted { name: "light".into(), call_id: None });
    asked.done(Finish::ToolCalls);
    assert_eq!(told.await.unwrap().0, "not-handled");
    let (kind, data) = turn(address, "Three.", kitchen("01A")).await;
    assert_eq!((kind.as_str(), &data["code"]), ("error", &json!("rate_limit_exceeded")));
    // A mistake of the client's leaves the connection as it was.
    let mut client = WyomingClient::connect(address).await;
    for (data, code) in [
        (json!({ "language": "en" }), "missing_required_parameter"),
        (json!({ "text": "" }), "nothing_said"),
        (json!({ "text": "x", "context": { "satellite_id": "x".repeat(300) } }), "value_too_large"),
    ] {
        client.say("transcript", data).await;
        assert_eq!(client.answer().await.1["code"], code);
    }
    client.say("describe", json!({})).await;
    assert_eq!(client.event().await.unwrap().0, "info");
    server.stop().await;
}

/// Every half minute from every Home Assistant.
#[tokio::test]
async fn describing_asks_neither_the_store_nor_the_model() {
    let (mut server, address) = server(|_| {}).await;
    server.store.close().await.unwrap();
    for _ in 0..3 {
        let mut client = WyomingClient::connect(address).await;
        client.say("describe", json!({})).await;
        let (kind, info) = client.event().await.unwrap();
        let program = &info["handle"][0];
        assert_eq!((kind.as_str(), &program["name"], &program["installed"]), ("info", &json!("reprise"), &json!(true)));
        assert_eq!(program["models"][0]["languages"], json!([]));
        client.say("ping", json!({ "text": "x" })).await;
        assert_eq!(client.event().await, Some(("pong".into(), json!({ "text": "x" }))));
    }
    assert!(timeout(Duration::ZERO, server.script.next()).await.is_err());
    // The store is closed indeed: a turn needs it.
    assert_eq!(turn(address, "Hello?", kitchen("01A")).await.0, "error");
}

#[tokio::test]
async fn hostile_frames_are_refused_and_the_connection_ends() {
    let (server, address) = server(|_| {}).await;
    let long = "x".repeat(70_000);
    for (bytes, code) in [
        ("\n".to_owned(), "invalid_json"),
        ("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), "invalid_json"),
        (long.clone(), "value_too_large"),
        (format!("{{\"type\":\"transcript\",\"data\":{{\"text\":\"{long}\"}}}}\n"), "value_too_large"),
        ("{\"type\":\"transcript\",\"data_length\":18446744073709551615}\n".to_owned(), "value_too_large"),
        ("{\"type\":\"transcript\",\"data_length\":-1}\n".to_owned(), "invalid_type"),
        ("{\"type\":\"transcript\",\"data_length\":3}\n{\"text\":\"hi\"}".to_owned(), "invalid_json"),
        ("{\"type\":\"transcript\",\"data_length\":4}\nnull".to_owned(), "invalid_json"),
        ("{\"type\":\"audio-chunk\",\"payload_length\":1e18}\n".to_owned(), "value_too_large"),
        ("{\"type\":\"transcript\",\"data\":{\"text\":NaN}}\n".to_owned(), "invalid_json"),
        (format!("{{\"type\":\"transcript\",\"data\":{}1{}}}\n", "[".repeat(9000), "]".repeat(9000)), "invalid_json"),
    ] {
        let mut client = WyomingClient::connect(address).await;
        client.send(bytes.as_bytes()).await;
        let (kind, data) = client.event().await.unwrap_or_else(|| panic!("no answer to {bytes:.60}"));
        assert_eq!((kind.as_str(), &data["code"]), ("error", &json!(code)), "{bytes:.60}");
        assert_eq!(client.event().await, None, "{bytes:.60}");
    }
    // What means nothing here is let go, payload and all.
    let mut client = WyomingClient::connect(address).await;
    let chunk = [b"{\"type\":\"audio-chunk\",\"payload_length\":200000}\n".as_slice(), &[7; 200_000]].concat();
    client.send(&chunk).await;
    client.send(b"{\"type\":\"no-such-event\",\"data\":null,\"x\":[]}\n{\"type\":\"describe\"}\n").await;
    assert_eq!(client.event().await.unwrap().0, "info");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_never_ends_its_event_is_left() {
    let (server, address) = server(|settings| settings.wyoming.idle_s = 1).await;
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut byte = [0];
    let dripping = async {
        loop {
            tokio::select! {
                read = stream.read(&mut byte) => return read,
                () = tokio::time::sleep(Duration::from_millis(50)) => {
                    stream.try_write(b" ")?;
                }
            }
        }
    };
    let ended = timeout(crate::client::PATIENCE, dripping).await.expect("the connection ends");
    assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    server.stop().await;
}

#[tokio::test]
async fn connections_count_like_all_others() {
    let (server, address) = server(|settings| settings.limits.connections_per_address = 2).await;
    let mut first = WyomingClient::connect(address).await;
    first.say("ping", json!({})).await;
    assert_eq!(first.event().await.unwrap().0, "pong");
    let mut second = WyomingClient::connect(address).await;
    second.say("ping", json!({})).await;
    assert_eq!(second.event().await.unwrap().0, "pong");
    let mut third = WyomingClient::connect(address).await;
    assert_eq!(third.event().await.unwrap().1["code"], "too_many_connections");
    assert_eq!(third.event().await, None);
    server.stop().await;
}

#[tokio::test]
async fn a_reply_that_is_under_way_is_finished_when_the_service_stops() {
    let (mut server, address) = server(|_| {}).await;
    let mut idle = WyomingClient::connect(address).await;
    let told = saying(address, "One.", kitchen("01A"));
    let mut asked = server.reply_asked().await;
    asked.prompt(12, 4);
    asked.say("Not ");
    let stopping = tokio::spawn(server.stop());
    assert_eq!(idle.event().await, None, "a silent connection ends at once");
    asked.say("yet.");
    asked.done(Finish::Stop);
    assert_eq!(told.await.unwrap().1["text"], "Not yet.");
    stopping.await.unwrap();
}

/// Home Assistant takes one program from a port, so each persona has one.
#[tokio::test]
async fn a_persona_has_a_port_and_sessions_of_its_own() {
    let butlers = own_address();
    let (mut server, address) = server(|settings| {
        let (name, instructions) = ("butler".to_owned(), "You are a butler.".to_owned());
        let butler = Persona { name: name.clone(), instructions, wyoming_port: butlers.port(), ..Persona::default() };
        settings.personas.insert(name, butler);
    })
    .await;
    for (address, name, instructions) in
        [(address, "reprise", "voice assistant"), (butlers, "butler", "You are a butler.")]
    {
        let mut client = WyomingClient::connect(address).await;
        client.say("describe", json!({})).await;
        assert_eq!(client.event().await.unwrap().1["handle"][0]["name"], name);
        let told = saying(address, "Good morning.", kitchen("01A"));
        let asked = server.reply_asked().await;
        assert_eq!(said(&asked), ["Good morning."]);
        let head = asked.chat().messages[0]["content"].as_str().unwrap().to_owned();
        assert!(head.contains(instructions), "{head}");
        replies(asked, "Yes.");
        assert_eq!(told.await.unwrap().0, "handled");
    }
    assert_eq!(sessions(&server.store).await.len(), 2);
    server.stop().await;
}

/// Home Assistant reads the first `intent` as the end of the turn, carries it out and says its text.
#[tokio::test]
async fn a_call_is_an_intent_that_home_assistant_carries_out() {
    let (mut server, address) = server(|settings| settings.wyoming.intents = true).await;
    let told = saying(address, "Dim the lamp.", kitchen("01A"));
    let mut asked = server.reply_asked().await;
    let tools = asked.chat().tools;
    assert!(tools.iter().any(|tool| tool["function"]["name"] == "HassLightSet"), "{tools:?}");
    assert!(!asked.request.parallel_tool_calls, "one call is the end of a turn");
    asked.say("Dimming it.");
    asked.call("HassLightSet", "{\"name\":\"lamp\",\"brightness\":30}");
    asked.done(Finish::ToolCalls);
    let expected = json!({
        "name": "HassLightSet", "text": "Dimming it.", "context": kitchen("01A"),
        "entities": [{ "name": "name", "value": "lamp" }, { "name": "brightness", "value": 30 }],
    });
    assert_eq!(told.await.unwrap(), ("intent".to_owned(), expected));
    // The conversation goes on, with what was done in it.
    let told = saying(address, "Thanks.", kitchen("01B"));
    let asked = server.reply_asked().await;
    assert!(json!(asked.chat().messages).to_string().contains("HassLightSet"));
    replies(asked, "You are welcome.");
    assert_eq!(told.await.unwrap().1["text"], "You are welcome.");
    server.stop().await;
}

#[tokio::test]
async fn device_control_is_announced_only_where_it_is_on() {
    for is_on in [false, true] {
        let (mut server, address) = server(|settings| settings.wyoming.intents = is_on).await;
        let mut client = WyomingClient::connect(address).await;
        client.say("describe", json!({})).await;
        let (_, info) = client.event().await.unwrap();
        assert_eq!(info["handle"][0]["supports_home_control"], is_on, "{info}");
        let told = saying(address, "Good morning.", kitchen("01A"));
        let asked = server.reply_asked().await;
        let has_devices = asked.chat().tools.iter().any(|tool| tool["function"]["name"] == "HassTurnOn");
        assert_eq!(has_devices, is_on);
        replies(asked, "Yes.");
        assert_eq!(told.await.unwrap().0, "handled");
        server.stop().await;
    }
}
