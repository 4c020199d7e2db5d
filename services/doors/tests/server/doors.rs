//! Admission of clients, their allowances, and the ends of connections that misbehave.

use crate::client::{Client, Closed, Refused, user};
use crate::support::{Chat, Server};
use serde_json::json;
use session::Finish;
use settings::KeysRequired;
use store::KeyScope;
use tokio_tungstenite::tungstenite::Message;

pub async fn locked(change: impl FnOnce(&mut settings::Settings)) -> (Server, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    let store = crate::support::open(folder.path()).await;
    for user in ["ann", "bob"] {
        store.put_user(user, user, 1).await.unwrap();
        let made = store.create_key(user, "", &[KeyScope::Talk, KeyScope::Sessions], 1).await;
        keys.push(format!("Bearer {}", made.unwrap().1));
    }
    store.close().await.unwrap();
    let server = Server::in_folder(folder, |settings| {
        settings.auth.required = KeysRequired::Always;
        change(settings);
    })
    .await;
    let bob = keys.pop().unwrap();
    (server, keys.pop().unwrap(), bob)
}

fn code(answer: Result<Client, Refused>) -> (u16, String) {
    let refused = answer.err().expect("nobody is let in");
    let error = &refused.body["error"];
    assert!(error["message"].is_string() && error["type"].is_string() && error.get("param").is_some(), "{refused:?}");
    refused.code()
}

#[tokio::test]
async fn without_a_key_there_is_no_server_that_demands_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::support::open(folder.path()).await;
    let mut settings = settings::Settings::load(&settings::Sources::default()).unwrap().settings;
    settings.server.host = "0.0.0.0".parse().unwrap();
    let error = access::check_access(&settings, &store).await.unwrap_err().to_string();
    assert!(error.contains("reprise keys create") && error.contains("0.0.0.0"), "{error}");
    store.put_user("ann", "ann", 1).await.unwrap();
    let (key, _) = store.create_key("ann", "", &[KeyScope::Talk], 1).await.unwrap();
    assert!(access::check_access(&settings, &store).await.is_ok());
    store.revoke_key(&key.id, 2).await.unwrap();
    assert!(access::check_access(&settings, &store).await.is_err());
}

#[tokio::test]
async fn keys_are_checked_and_guessing_is_stopped() {
    let (server, ann, _) = locked(|settings| settings.auth.failures_per_minute = 3).await;
    assert_eq!(code(server.try_connect("", &[]).await), (401, "missing_api_key".into()));
    for key in ["Bearer rk_0_0", "Bearer sk-none", "Basic YQ=="] {
        let expected = if key.starts_with("Basic") { "missing_api_key" } else { "invalid_api_key" };
        assert_eq!(code(server.try_connect("", &[("authorization", key)]).await), (401, expected.into()), "{key}");
    }
    assert!(server.try_connect("", &[("authorization", &ann)]).await.is_ok());
    let last = if ann.ends_with('0') { '1' } else { '0' };
    let almost = format!("{}{last}", &ann[..ann.len() - 1]);
    let refused = server.try_connect("", &[("authorization", &almost)]).await;
    assert_eq!(code(refused).0, 401);
    // From now on wrong ones are told to wait, and the right one still lets its user in.
    let refused = server.try_connect("", &[("authorization", &almost)]).await;
    assert_eq!(code(refused), (429, "rate_limit_exceeded".into()));
    assert!(server.try_connect("", &[("authorization", &ann)]).await.is_ok());
    server.stop().await;
}

#[tokio::test]
async fn browsers_send_the_key_as_a_sub_protocol() {
    let (server, ann, _) = locked(|_| {}).await;
    let key = ann.trim_start_matches("Bearer ");
    let protocols = format!("realtime, openai-insecure-api-key.{key}, openai-beta.realtime-v1");
    let client = server.try_connect("", &[("sec-websocket-protocol", &protocols)]).await.unwrap();
    assert_eq!(client.protocol.as_deref(), Some("realtime"));
    let wrong = "realtime, openai-insecure-api-key.rk_no_no";
    assert_eq!(code(server.try_connect("", &[("sec-websocket-protocol", wrong)]).await).0, 401);
    server.stop().await;
}

#[tokio::test]
async fn a_client_secret_may_talk_and_nothing_else() {
    let (server, ann, bob) = locked(|_| {}).await;
    let body = json!({"session": {"type": "realtime", "instructions": "Be a page.", "model": "default"}, "expires_after": {"seconds": 60}});
    let (status, made) =
        server.http("POST", "/v1/realtime/client_secrets", &[("authorization", &ann)], &body.to_string()).await;
    assert_eq!(status, 200, "{made}");
    assert_eq!(made["session"]["instructions"], "Be a page.");
    let secret = format!("Bearer {}", made["value"].as_str().unwrap());
    let mut client = server.try_connect("", &[("authorization", &secret)]).await.unwrap();
    let created = client.until("session.created").await;
    assert_eq!(created["session"]["instructions"], "Be a page.");
    let id = created["session"]["id"].as_str().unwrap();
    for (method, path) in [("GET", "/v1/sessions"), ("GET", "/metrics"), ("POST", "/v1/realtime/client_secrets")] {
        let (status, body) = server.http(method, path, &[("authorization", &secret)], "").await;
        assert_eq!((status, &body["error"]["code"]), (403, &json!("insufficient_scope")), "{path}");
    }
    // It speaks for Ann.
    assert_eq!(server.http("GET", &format!("/v1/sessions/{id}"), &[("authorization", &ann)], "").await.0, 200);
    assert_eq!(server.http("GET", &format!("/v1/sessions/{id}"), &[("authorization", &bob)], "").await.0, 404);
    for body in [
        "[1]",
        r#"{"expires_after": {"seconds": 0}}"#,
        r#"{"session": {"tools": 1}}"#,
        r#"{"session": {"model": "no"}}"#,
    ] {
        let (status, answer) =
            server.http("POST", "/v1/realtime/client_secrets", &[("authorization", &ann)], body).await;
        assert!(matches!(status, 400 | 404), "{body}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn nobody_sees_the_sessions_of_others() {
    let (mut server, ann, bob) = locked(|_| {}).await;
    let mut client = server.try_connect("", &[("authorization", &ann)]).await.unwrap();
    let id = client.session_id().await;
    client.ask("The safe's number is 4711.").await;
    let mut asked = server.reply_asked().await;
    asked.say("I will keep it.");
    asked.done(Finish::Stop);
    client.until("response.done").await;

    let bobs = [("authorization", bob.as_str())];
    let refused = code(server.try_connect(&format!("?session={id}"), &bobs).await);
    assert_eq!(refused, (404, "session_not_found".into()));
    for path in ["", "/items", "/export"] {
        let (status, _) = server.http("GET", &format!("/v1/sessions/{id}{path}"), &bobs, "").await;
        assert_eq!(status, 404, "{path}");
    }
    assert_eq!(server.http("DELETE", &format!("/v1/sessions/{id}"), &bobs, "").await.0, 404);
    assert_eq!(server.http("GET", "/v1/sessions", &bobs, "").await.1["data"], json!([]));
    assert_eq!(server.http("GET", "/v1/sessions/search?q=safe", &bobs, "").await.1["data"], json!([]));
    let path = format!("/v1/sessions/search?q=safe&session={id}");
    assert_eq!(server.http("GET", &path, &bobs, "").await.0, 404);

    let anns = [("authorization", ann.as_str())];
    let (_, found) = server.http("GET", "/v1/sessions/search?q=safe", &anns, "").await;
    assert!(found["data"][0]["excerpt"].as_str().unwrap().contains("**safe**"), "{found}");
    let (_, items) = server.http("GET", &format!("/v1/sessions/{id}/items?limit=1"), &anns, "").await;
    assert_eq!((items["data"].as_array().map(Vec::len), &items["has_more"]), (Some(1), &json!(true)));
    let after = items["after"].as_str().unwrap();
    let (_, rest) = server.http("GET", &format!("/v1/sessions/{id}/items?after={after}"), &anns, "").await;
    assert_eq!(rest["data"][0]["body"]["parts"][0]["text"], "I will keep it.");
    let lines = server.text("GET", &format!("/v1/sessions/{id}/export"), &anns).await;
    assert!(lines.lines().count() >= 4 && lines.lines().last().unwrap().contains(r#""type":"end""#), "{lines}");

    // Deleted: connected clients are told, and it is gone.
    assert_eq!(server.http("DELETE", &format!("/v1/sessions/{id}"), &anns, "").await.0, 200);
    assert_eq!(client.closed().await, Closed(Some(1001)));
    assert_eq!(server.http("GET", &format!("/v1/sessions/{id}"), &anns, "").await.0, 404);
    assert_eq!(server.http("GET", "/v1/sessions/search?q=safe", &anns, "").await.1["data"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn foreign_pages_and_foreign_names_are_refused() {
    let server = Server::with(|settings| settings.server.allowed_origins = vec!["https://panel.home".into()]).await;
    for (name, value, status) in
        [("origin", "https://evil.example", 403), ("origin", "null", 403), ("host", "evil.example", 421)]
    {
        assert_eq!(code(server.try_connect("", &[(name, value)]).await).0, status, "{name}: {value}");
        let (answer, _) = server.http("GET", "/v1/sessions", &[(name, value)], "").await;
        assert_eq!(answer, status, "{name}: {value}");
    }
    let own = format!("http://{}", server.address);
    for origin in ["https://panel.home", &own] {
        assert!(server.try_connect("", &[("origin", origin)]).await.is_ok(), "{origin}");
    }
    server.stop().await;
}

#[tokio::test]
async fn everybody_gets_as_much_as_the_limits_say() {
    let mut server = Server::with(|settings| {
        settings.limits.connections_per_key = 2;
        settings.limits.requests_per_minute_per_key = 6;
    })
    .await;
    let mut one = server.connect("").await;
    let two = server.connect("").await;
    assert_eq!(code(server.try_connect("", &[]).await), (429, "too_many_connections".into()));
    drop(two);
    // Three requests were connections, refused ones too.
    for remaining in [2, 1, 0] {
        one.ask("Hello").await;
        let notice = one.until("rate_limits.updated").await;
        let limit = &notice["rate_limits"][0];
        assert_eq!((&limit["name"], &limit["limit"]), (&json!("requests"), &json!(6)));
        assert_eq!(limit["remaining"], json!(remaining), "{notice}");
        server.reply_asked().await.done(Finish::Stop);
        one.until("response.done").await;
    }
    one.say(json!({"type": "response.create", "event_id": "more"})).await;
    let error = one.expect_error("rate_limit_exceeded").await;
    assert_eq!(error["error"]["event_id"], "more");
    assert_eq!(server.http("GET", "/v1/models", &[], "").await.0, 429);
    // What costs nothing goes on.
    one.say(user("I can still say this.")).await;
    one.until("conversation.item.done").await;
    server.stop().await;
}

#[tokio::test]
async fn messages_that_are_too_large_or_no_text() {
    let server = Server::with(|settings| {
        settings.limits.frame_bytes = 64 << 10;
        settings.limits.message_bytes = 64 << 10;
        settings.limits.item_bytes = 2 << 10;
    })
    .await;
    let mut client = server.connect("").await;
    client.session_id().await;
    client.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    client.expect_error("invalid_json").await;
    client.send(Message::text("{")).await.unwrap();
    client.expect_error("invalid_json").await;
    client.say(user(&"x".repeat(3 << 10))).await;
    client.expect_error("value_too_large").await;
    client.say(user("Still here.")).await;
    client.until("conversation.item.done").await;
    // The library on our side may find out before everything is sent.
    let _ = client.send(Message::text("x".repeat(65 << 10))).await;
    assert_eq!(client.closed().await, Closed(Some(1009)));

    let big = "x".repeat(40 << 10);
    let (status, _) = server.http("GET", "/healthz", &[("x-big", &big)], "").await;
    assert_eq!(status, 431);
    server.stop().await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_is_closed_and_the_session_lives_on() {
    let mut server = Server::with(|settings| {
        settings.limits.outgoing_events = 32;
        // The whole reply comes again at its end, which must not be what fills the queue.
        settings.limits.outgoing_bytes = 1 << 30;
    })
    .await;
    let mut reader = server.connect("").await;
    let id = reader.session_id().await;
    let mut sleeper = server.connect_with_little_room(&format!("?session={id}")).await;
    sleeper.session_id().await;
    reader.ask("Tell me a very long story.").await;
    let mut asked = server.reply_asked().await;
    // More than the network between two programs holds.
    let piece = "word ".repeat(20 << 10);
    for _ in 0..128 {
        asked.say(&piece);
        reader.until("response.output_text.delta").await;
    }
    asked.done(Finish::Stop);
    let done = reader.until("response.done").await;
    assert_eq!(done["response"]["status"], "completed");
    reader.say(user("Thank you.")).await;
    reader.until("conversation.item.done").await;
    let ended = sleeper.closed().await;
    assert!(matches!(ended, Closed(None | Some(1008))), "{ended:?}");
    server.stop().await;
}

#[tokio::test]
async fn silent_connections_are_closed() {
    let server = Server::with(|settings| settings.limits.first_message_ms = 300).await;
    let mut silent = server.connect("").await;
    assert_eq!(silent.closed().await, Closed(Some(1008)));
    server.stop().await;

    let server = Server::with(|settings| settings.limits.idle_s = 1).await;
    let mut idle = server.connect("").await;
    idle.say(user("Hello")).await;
    idle.until("conversation.item.done").await;
    assert_eq!(idle.closed().await, Closed(Some(1000)));
    server.stop().await;
}

#[tokio::test]
async fn sessions_leave_memory_and_come_back() {
    let mut server = Server::with(|settings| settings.limits.live_sessions = 2).await;
    let mut ids = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let mut client = server.connect("").await;
        ids.push(client.session_id().await);
        client.say(user(name)).await;
        client.until("conversation.item.done").await;
    }
    let (_, health) = server.http("GET", "/healthz", &[], "").await;
    assert!(health["sessions_in_memory"].as_u64() <= Some(2), "{health}");
    let mut first = server.connect(&format!("?session={}", ids[0])).await;
    first.until("conversation.item.added").await;
    first.say(json!({"type": "response.create"})).await;
    let mut asked = server.reply_asked().await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "one");
    asked.done(Finish::Stop);
    let _second = server.connect(&format!("?session={}", ids[1])).await;
    let refused = server.try_connect(&format!("?session={}", ids[2]), &[]).await;
    assert_eq!(code(refused), (503, "too_many_sessions".into()));
    server.stop().await;
}

#[tokio::test]
async fn one_users_sessions_keep_no_other_user_out() {
    let change = |settings: &mut settings::Settings| {
        (settings.limits.live_sessions, settings.limits.live_sessions_per_user) = (4, 2);
    };
    let (server, ann, bob) = locked(change).await;
    let connect = async |key: &str| server.try_connect("", &[("authorization", key)]).await;
    let (_one, two) = (connect(&ann).await.unwrap(), connect(&ann).await.unwrap());
    assert_eq!(code(connect(&ann).await), (503, "too_many_sessions".into()));
    let _bobs = connect(&bob).await.unwrap();
    // A session that is not in use makes room for another one of its user.
    drop(two);
    let _three = loop {
        if let Ok(client) = connect(&ann).await {
            break client;
        }
        tokio::task::yield_now().await;
    };
    server.stop().await;
}

#[tokio::test]
async fn a_key_that_is_revoked_closes_its_connections() {
    let (server, ann, bob) = locked(|_| {}).await;
    let mut anns = server.try_connect("", &[("authorization", &ann)]).await.unwrap();
    let mut bobs = server.try_connect("", &[("authorization", &bob)]).await.unwrap();
    let keys = server.store.keys(Some("ann")).await.unwrap();
    // As a command beside the service does it.
    server.store.revoke_key(&keys[0].id, 2).await.unwrap();
    assert_eq!(anns.closed().await, Closed(Some(1008)));
    bobs.say(user("Hello")).await;
    bobs.until("conversation.item.done").await;
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_told_in_openais_words() {
    let server = Server::start().await;
    for (method, path, status, code) in [
        ("GET", "/no/such/page", 404, "not_found"),
        ("PUT", "/v1/sessions", 405, "method_not_allowed"),
        ("GET", "/v1/sessions/sess_none", 404, "session_not_found"),
        ("GET", "/v1/sessions?limit=many", 400, "invalid_value"),
        ("GET", "/v1/sessions/search?q=%22%22", 400, "invalid_value"),
        ("GET", "/v1/realtime", 400, "websocket_expected"),
    ] {
        let (answer, body) = server.http(method, path, &[], "").await;
        assert_eq!((answer, &body["error"]["code"]), (status, &json!(code)), "{method} {path}: {body}");
    }
    assert_eq!(code(server.try_connect("?model=no-such-preset", &[]).await), (404, "model_not_found".into()));
    server.stop().await;
}

/// Every route of the document is served, and says something else than that it is not there.
#[tokio::test]
async fn the_document_and_the_routes_agree() {
    let server = Server::start().await;
    let (_, document) = server.http("GET", "/openapi.json", &[], "").await;
    let mut count = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let path = path.replace("{session_id}", "sess_none").replace("{model}", "default");
            let (status, body) = server.http(&method.to_uppercase(), &path, &[], "").await;
            assert!(status != 405 && body["error"]["code"] != "not_found", "{method} {path}: {status} {body}");
            count += 1;
        }
    }
    assert!(count >= 12);
    let (_, schema) = server.http("GET", "/v1/realtime/schema.json", &[], "").await;
    assert!(schema.to_string().contains("response.output_text.delta"));
    server.stop().await;
}
