//! Access of clients and limits of their requests, with the real binary and configurations from outside.

use serde_json::{Value, json};
use tests::client::{Client, Closed, PATIENCE, Refused, user, words};
use tests::service::{Service, run_ok};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

fn refused(answer: Result<Client, Refused>) -> (u16, String) {
    answer.err().expect("nobody is let in").code()
}

#[tokio::test]
async fn keys_are_made_used_and_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    for name in ["ann", "bob"] {
        let made = run_ok(folder.path(), &["keys", "create", "--user", name, "--json"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        keys.push(made["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned());
    }
    let service = Service::in_folder(folder, &["--set", "auth.required=always"]).await;
    let bearers: Vec<String> = keys.iter().map(|key| format!("Bearer {key}")).collect();
    let [ann, bob] = [&bearers[0], &bearers[1]].map(|bearer| [("authorization", bearer.as_str())]);

    assert_eq!(refused(service.try_connect("", &[]).await), (401, "missing_api_key".into()));
    let wrong = format!("{}x", bearers[0]);
    assert_eq!(refused(service.try_connect("", &[("authorization", &wrong)]).await), (401, "invalid_api_key".into()));
    let mut client = service.try_connect("", &ann).await.unwrap();
    let id = client.session_id().await;
    client.say(user("The safe's number is 4711.")).await;
    client.until("conversation.item.done").await;

    // Another user: not even that it is there.
    let other = service.try_connect(&format!("?session={id}"), &bob).await;
    assert_eq!(refused(other), (404, "session_not_found".into()));
    for (headers, status) in [(&bob[..], 404), (&ann[..], 200), (&[][..], 401)] {
        assert_eq!(service.http("GET", &format!("/v1/sessions/{id}"), headers, "").await.0, status);
    }

    // A browser: the key, and a secret for a page, as a sub-protocol.
    let protocols = |key: &str| format!("realtime, openai-insecure-api-key.{key}");
    let page = service.try_connect("", &[("sec-websocket-protocol", &protocols(&keys[0]))]).await.unwrap();
    assert_eq!(page.protocol.as_deref(), Some("realtime"));
    let (status, secret) = service.http("POST", "/v1/realtime/client_secrets", &ann, "{}").await;
    assert_eq!(status, 200, "{secret}");
    let secret: Value = serde_json::from_str(&secret).unwrap();
    let value = secret["value"].as_str().unwrap();
    service.try_connect("", &[("sec-websocket-protocol", &protocols(value))]).await.unwrap();

    // A revoked key opens nothing from the next request on, nor does the secret that was made with it.
    run_ok(service.folder(), &["keys", "revoke", &keys[0]]).await;
    assert_eq!(refused(service.try_connect("", &ann).await).0, 401);
    assert_eq!(refused(service.try_connect("", &[("sec-websocket-protocol", &protocols(value))]).await).0, 401);
    assert!(service.try_connect("", &bob).await.is_ok());
    let folder = service.stop().await;
    let store = std::fs::read(folder.path().join("data/reprise.sqlite3")).unwrap();
    let (_, hidden) = keys[1].rsplit_once('_').unwrap();
    assert!(hidden.len() > 16, "the secret is the last part of the key");
    assert!(!store.windows(hidden.len()).any(|window| window == hidden.as_bytes()), "a key is stored as it is");
}

#[tokio::test]
async fn pages_of_others_are_refused() {
    let service = Service::start(&["--set", "server.allowed_origins=https://panel.home"]).await;
    for (name, value, status) in
        [("origin", "https://evil.example", 403), ("origin", "null", 403), ("host", "evil.example", 421)]
    {
        assert_eq!(refused(service.try_connect("", &[(name, value)]).await).0, status, "{name}: {value}");
        let body = json!({"messages": [{"role": "user", "content": "x"}]}).to_string();
        assert_eq!(service.http("POST", "/v1/chat/completions", &[(name, value)], &body).await.0, status);
    }
    assert!(service.try_connect("", &[("origin", "https://panel.home")]).await.is_ok());
    service.stop().await;
}

#[tokio::test]
async fn what_is_too_large_ends_the_connection_and_not_the_session() {
    let limits = ["--set", "limits.frame_bytes=64KiB", "--set", "limits.message_bytes=64KiB"];
    let service = Service::start(&limits).await;
    let mut client = service.connect("").await;
    let id = client.session_id().await;
    client.say(user("Remember me.")).await;
    client.until("conversation.item.done").await;
    client.send(Message::text("not JSON")).await.unwrap();
    client.expect_error("invalid_json").await;
    // The service may hang up before everything is sent.
    let _ = client.send(Message::text("x".repeat(65 << 10))).await;
    assert_eq!(client.closed().await, Closed(Some(1009)));
    let mut client = service.connect(&format!("?session={id}")).await;
    assert_eq!(words(&client.until("conversation.item.added").await["item"]), "Remember me.");
    service.stop().await;
}

#[tokio::test]
async fn a_connection_that_never_says_what_it_wants_is_closed() {
    let service = Service::start(&["--set", "limits.handshake_ms=200"]).await;
    let begun = format!("GET /v1/realtime HTTP/1.1\r\nhost: {}\r\nupgrade: webs", service.address);
    for said in ["", "GET", &begun] {
        let mut stream = TcpStream::connect(&service.address).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the service hangs up");
        let answer = String::from_utf8_lossy(&answer);
        assert!(read.is_err() || answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{said:?}: {answer}");
    }
    // A client that says it is not hung up on, also when it says nothing more for longer than that.
    let mut client = service.connect("").await;
    client.session_id().await;
    let mut other = TcpStream::connect(&service.address).await.unwrap();
    timeout(PATIENCE, other.read_to_end(&mut Vec::new())).await.expect("the service hangs up").unwrap();
    client.say(user("Still here.")).await;
    client.until("conversation.item.done").await;
    service.stop().await;
}

#[tokio::test]
async fn connections_have_a_limit_for_an_address_and_one_for_all() {
    let limits = ["--set", "limits.connections_per_address=2", "--set", "limits.connections=3"];
    let service = Service::start(&limits).await;
    let mut first = service.connect("").await;
    let second = service.connect("").await;
    let one_too_many = service.try_connect("", &[]).await.err().expect("two are enough");
    assert_eq!(one_too_many.code(), (429, "too_many_connections".into()));
    let message = one_too_many.body["error"]["message"].to_string();
    assert!(message.contains("limits.connections_per_address"), "{message}");

    // Another client in the house is not kept out by that, up to the limit for all.
    let neighbour =
        Client::from([127, 0, 0, 2], &service.address).await.unwrap_or_else(|refused| panic!("{refused:?}"));
    let too_many = Client::from([127, 0, 0, 3], &service.address).await.err().expect("three are enough");
    assert_eq!(too_many.code(), (429, "too_many_connections".into()));
    assert!(too_many.body["error"]["message"].to_string().contains("(limits.connections)"), "{too_many:?}");

    // Clients that are in talk on, and one that leaves gives its place back.
    first.say(user("Still here.")).await;
    first.until("conversation.item.done").await;
    drop((second, neighbour));
    let back = async {
        while service.try_connect("", &[]).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, back).await.expect("the place is given back");
    service.stop().await;
}
