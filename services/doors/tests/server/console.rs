//! Routes of the page beside the conversation: the window, the turns, titles, keys, the server. Each user sees their own.

use crate::support::Server;
use serde_json::{Value, json};
use session::Finish;
use store::KeyScope;

async fn said(server: &mut Server, key: &str, text: &str) -> String {
    let bearer = format!("Bearer {key}");
    let mut client = server.try_connect("?extensions=reprise", &[("authorization", &bearer)]).await.unwrap();
    let session = client.until("session.created").await["session"]["id"].as_str().unwrap().to_owned();
    client.say(json!({ "type": "input_text_buffer.commit", "text": text })).await;
    let mut asked = server.reply_asked().await;
    asked.think("They greet me.");
    asked.say("I see.");
    asked.done(Finish::Stop);
    let thought = client.until("response.reasoning.delta").await;
    assert_eq!(thought["delta"], "They greet me.");
    client.until("turn.report").await;
    session
}

async fn key(server: &Server, user: &str, scopes: &[KeyScope]) -> String {
    server.store.put_user(user, user, 1).await.unwrap();
    server.store.create_key(user, "", scopes, 1).await.unwrap().1
}

async fn ask(server: &Server, key: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    let bearer = format!("Bearer {key}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.http(method, path, &[("authorization", &bearer)], &body).await
}

const ALL: [KeyScope; 3] = [KeyScope::Talk, KeyScope::Sessions, KeyScope::Admin];

#[tokio::test]
async fn a_conversation_is_shown_to_its_user_alone() {
    let mut server = Server::start().await;
    let (ann, ben) = (key(&server, "ann", &ALL).await, key(&server, "ben", &ALL).await);
    let session = said(&mut server, &ann, "Good morning.\nIt is cold.").await;
    let path = |tail: &str| format!("/v1/sessions/{session}{tail}");

    let (_, list) = ask(&server, &ann, "GET", "/v1/sessions", Value::Null).await;
    assert_eq!(
        (&list["data"][0]["title"], &list["data"][0]["first_words"]),
        (&json!(""), &json!("Good morning.\nIt is cold."))
    );
    let (status, _) = ask(&server, &ann, "POST", &path(""), json!({ "title": " Weather " })).await;
    let (_, list) = ask(&server, &ann, "GET", "/v1/sessions", Value::Null).await;
    assert_eq!((status, &list["data"][0]["title"]), (200, &json!("Weather")));
    let (status, _) = ask(&server, &ann, "POST", &path(""), json!({ "title": "x".repeat(121) })).await;
    assert_eq!(status, 400);

    let (_, window) = ask(&server, &ann, "GET", &path("/window"), Value::Null).await;
    let parts = ["instructions", "tools", "facts", "summary", "pins", "turns", "marks"];
    let sum: u64 = parts.iter().map(|part| window[format!("{part}_tokens")].as_u64().unwrap()).sum();
    assert_eq!(json!(sum), window["total_tokens"], "{window}");
    assert!(window["turns_tokens"].as_u64() > Some(0), "{window}");
    // The turn is stored right behind its report.
    let turn = loop {
        let (_, turns) = ask(&server, &ann, "GET", &path("/turns"), Value::Null).await;
        if let Some(turn) = turns["data"].get(0) {
            break turn.clone();
        }
    };
    assert!(turn["response_id"].is_string() && turn["feedback"].is_null(), "{turn}");

    for (method, tail, body) in [
        ("GET", "/window", Value::Null),
        ("GET", "/turns", Value::Null),
        ("POST", "", json!({ "title": "Mine" })),
        ("DELETE", "", Value::Null),
    ] {
        assert_eq!(ask(&server, &ben, method, &path(tail), body).await.0, 404, "{method} {tail}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_export_comes_in_again_as_the_callers_own() {
    let mut server = Server::start().await;
    let (ann, ben) = (key(&server, "ann", &ALL).await, key(&server, "ben", &ALL).await);
    let session = said(&mut server, &ann, "Good morning.").await;
    let bearer = format!("Bearer {ann}");
    let lines = server.text("GET", &format!("/v1/sessions/{session}/export"), &[("authorization", &bearer)]).await;
    let import = async |key: &str, lines: &str| {
        let bearer = format!("Bearer {key}");
        server.http("POST", "/v1/sessions/import", &[("authorization", &bearer)], lines).await
    };
    assert_eq!(import(&ann, &lines).await.0, 400, "the session is there");
    // A file decides no window, no arm, and no place before the sessions of today.
    let ctx_size = server.store.list_sessions("ann", None, 1).await.unwrap()[0].session.placement.ctx_size;
    let boasting = lines
        .replace(&format!("\"ctx_size\":{ctx_size}"), "\"ctx_size\":1000000")
        .replace("\"experiment\":null,\"arm\":null", "\"experiment\":\"mine\",\"arm\":\"mine\"");
    assert_ne!(boasting, lines);
    assert_eq!(import(&ben, &boasting).await, (200, json!({ "object": "sessions.imported", "ids": [session] })));
    let (status, items) = ask(&server, &ben, "GET", &format!("/v1/sessions/{session}/items"), Value::Null).await;
    assert_eq!((status, items["data"].as_array().unwrap().len()), (200, 2));
    let placement = server.store.list_sessions("ben", None, 1).await.unwrap().remove(0).session.placement;
    assert_eq!((placement.ctx_size, placement.experiment, placement.arm), (ctx_size, None, None));
    assert!(server.store.experiments().await.unwrap().is_empty());
    assert_eq!(import(&ben, "{\"no\": \"export\"}").await.0, 400);
    server.stop().await;
}

#[tokio::test]
async fn a_key_makes_keys_of_its_user_with_no_more_rights() {
    let server = Server::with(|settings| settings.limits.keys_per_user = 2).await;
    let (ann, ben) = (key(&server, "ann", &[KeyScope::Admin]).await, key(&server, "ben", &ALL).await);
    let new = json!({ "name": "tablet", "scopes": ["talk"] });
    assert_eq!(ask(&server, &ann, "POST", "/v1/keys", new.clone()).await.0, 400, "ann's key may not talk");
    let (status, made) = ask(&server, &ben, "POST", "/v1/keys", new.clone()).await;
    assert_eq!((status, &made["user"], &made["scopes"]), (200, &json!("ben"), &json!(["talk"])));
    let tablet = made["key"].as_str().unwrap();
    assert_eq!(ask(&server, tablet, "GET", "/v1/sessions", Value::Null).await.0, 403);
    assert_eq!(ask(&server, &ben, "POST", "/v1/keys", new).await.0, 409, "two are the most");
    let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(ask(&server, &ann, "DELETE", &path, Value::Null).await.0, 404, "it is ben's");
    assert_eq!(ask(&server, &ben, "DELETE", &path, Value::Null).await.0, 200);
    // Where no key is demanded, a revoked one counts as none: its bearer is the local user.
    let (_, own) = ask(&server, tablet, "GET", "/v1/keys", Value::Null).await;
    assert_eq!((&own["user"], &own["data"]), (&json!("local"), &json!([])));
    server.stop().await;
}

#[tokio::test]
async fn the_servers_state_is_for_administrators() {
    let server = Server::with(|settings| {
        settings.limits.status_ms = 100;
        settings.limits.status_s = 1;
    })
    .await;
    let talker = key(&server, "ann", &[KeyScope::Talk, KeyScope::Sessions]).await;
    for path in ["/v1/server", "/v1/server/events", "/v1/settings", "/v1/keys", "/v1/experiments", "/v1/experiments/x"]
    {
        assert_eq!(ask(&server, &talker, "GET", path, Value::Null).await.0, 403, "{path}");
    }
    // The stream ends by itself, so that a revoked key sees no more.
    let events = server.text("GET", "/v1/server/events", &[]).await;
    let states: Vec<Value> =
        events.split("\n\n").filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok()).collect();
    assert!(states.len() >= 2 && states.iter().all(|state| state["model"] == "test-model"), "{events}");
    assert_eq!(server.http("GET", "/v1/experiments/x", &[], "").await.0, 404);
    server.stop().await;
}
