//! Attacks that once broke the service, and now fail.

use crate::doors::locked;
use crate::support::Server;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

async fn raw(server: &Server, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn to_the_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the server closes the connection");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn an_invented_method_makes_no_series() {
    let server = Server::start().await;
    for method in ["INVENTED-7f3a", "BREW", "PROPFIND"] {
        let request = format!("{method} /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        to_the_end(raw(&server, &request).await).await;
    }
    let text = server.text("GET", "/metrics", &[]).await;
    assert!(text.contains(r#"method="other",route="/v1/models""#), "{text}");
    assert!(!text.contains("INVENTED") && !text.contains("BREW") && !text.contains("PROPFIND"));
    server.stop().await;
}

#[tokio::test]
async fn a_stranger_behind_the_same_proxy_does_not_lock_a_user_out() {
    let (server, ann, _) = locked(|settings| {
        settings.auth.failures_per_minute = 3;
        settings.server.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let ask = async |key: &str, address: &str| {
        let headers = [("authorization", key), ("x-forwarded-for", address)];
        server.http("GET", "/v1/sessions", &headers, "").await.0
    };
    for _ in 0..3 {
        assert_eq!(ask("Bearer rk_0_0", "192.0.2.1, 198.51.100.7").await, 401);
    }
    assert_eq!(ask("Bearer rk_0_0", "192.0.2.1, 198.51.100.7").await, 429);
    // What the client wrote itself stands in front of what the proxy saw, and counts for nothing.
    assert_eq!(ask("Bearer rk_0_0", "192.0.2.99, 198.51.100.7").await, 429);
    assert_eq!(ask("Bearer rk_0_0", "192.0.2.1").await, 401);
    assert_eq!(ask(&ann, "198.51.100.7").await, 200);
    server.stop().await;
}

/// nginx, Caddy and Traefik pass on `Forwarded` as the client wrote it.
#[tokio::test]
async fn a_header_that_the_proxy_does_not_set_gives_no_new_tries_and_takes_none_of_others() {
    let (server, _, _) = locked(|settings| {
        settings.auth.failures_per_minute = 3;
        settings.server.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let guess = async |from: &str, says: &str| {
        let forwarded = format!("for={says}");
        let headers = [
            ("authorization", "Bearer rk_0_0"),
            ("forwarded", forwarded.as_str()),
            ("x-real-ip", says),
            ("x-forwarded-for", from),
        ];
        server.http("GET", "/v1/sessions", &headers, "").await.0
    };
    let mut answers = Vec::new();
    for guessed in 0..20 {
        answers.push(guess("198.51.100.7", &format!("192.0.2.{guessed}")).await);
    }
    assert_eq!((&answers[..3], answers[3..].iter().filter(|status| **status == 429).count()), (&[401; 3][..], 17));
    assert_eq!(guess("192.0.2.1", "198.51.100.7").await, 401, "its own allowance is whole");
    server.stop().await;
}

#[tokio::test]
async fn a_proxy_that_writes_forwarded_is_believed_where_the_operator_says_so() {
    let (server, _, _) = locked(|settings| {
        settings.auth.failures_per_minute = 1;
        settings.server.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        settings.server.proxy_header = settings::ProxyHeader::Forwarded;
    })
    .await;
    let guess = async |forwarded: &str, other: &str| {
        let headers = [("authorization", "Bearer rk_0_0"), ("forwarded", forwarded), ("x-forwarded-for", other)];
        server.http("GET", "/v1/sessions", &headers, "").await.0
    };
    assert_eq!(guess("for=198.51.100.7;proto=https", "192.0.2.1").await, 401);
    assert_eq!(guess("for=198.51.100.7;proto=https", "192.0.2.2").await, 429);
    assert_eq!(guess("for=198.51.100.8", "192.0.2.2").await, 401);
    server.stop().await;
}

/// The header of a client that no proxy vouches for is not believed.
#[tokio::test]
async fn without_a_trusted_proxy_the_header_is_ignored() {
    let (server, ann, _) = locked(|settings| settings.auth.failures_per_minute = 1).await;
    let wrong = |address| [("authorization", "Bearer rk_0_0"), ("x-forwarded-for", address)];
    assert_eq!(server.http("GET", "/v1/sessions", &wrong("192.0.2.1"), "").await.0, 401);
    assert_eq!(server.http("GET", "/v1/sessions", &wrong("192.0.2.2"), "").await.0, 429);
    assert_eq!(server.http("GET", "/v1/sessions", &[("authorization", &ann)], "").await.0, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_client_secret_opens_no_session_but_its_own() {
    let (server, ann, _) = locked(|_| {}).await;
    let anns = [("authorization", ann.as_str())];
    let mut client = server.try_connect("", &anns).await.unwrap();
    let earlier = client.session_id().await;
    let secret_for = async |body: &str| {
        let (status, made) = server.http("POST", "/v1/realtime/client_secrets", &anns, body).await;
        assert_eq!(status, 200, "{made}");
        format!("Bearer {}", made["value"].as_str().unwrap())
    };
    let secret = secret_for("").await;
    let with = [("authorization", secret.as_str())];
    let refused = server.try_connect(&format!("?session={earlier}"), &with).await.err().unwrap();
    assert_eq!(refused.code(), (403, "insufficient_scope".into()));
    let message = json!({"role": "user", "content": "What was said?"});
    let chat = json!({"messages": [message], "metadata": {"session_id": earlier}});
    let feedback = json!({"session_id": earlier, "response_id": "resp_1", "value": 1});
    for (path, body) in [("/v1/chat/completions", chat), ("/v1/feedback", feedback)] {
        let headers = [with[0], ("content-type", "application/json")];
        let (status, answer) = server.http("POST", path, &headers, &body.to_string()).await;
        assert_eq!((status, &answer["error"]["code"]), (403, &json!("insufficient_scope")), "{path}: {answer}");
    }
    // What it began it may go on with, and also what it was made for.
    let own = server.try_connect("", &with).await.unwrap().session_id().await;
    assert!(server.try_connect(&format!("?session={own}"), &with).await.is_ok());
    let secret = secret_for(&json!({"session_id": earlier}).to_string()).await;
    assert!(server.try_connect(&format!("?session={earlier}"), &[("authorization", &secret)]).await.is_ok());
    let unknown = json!({"session_id": "sess_none"}).to_string();
    assert_eq!(server.http("POST", "/v1/realtime/client_secrets", &anns, &unknown).await.0, 404);
    server.stop().await;
}

#[tokio::test]
async fn without_a_key_no_trouble_is_told() {
    let (server, ann, _) = locked(|_| {}).await;
    for headers in [&[][..], &[("authorization", ann.as_str())]] {
        let (status, health) = server.http("GET", "/healthz", headers, "").await;
        assert_eq!((status, &health["status"]), (200, &json!("ok")));
        assert!(health.get("trouble").is_none() && health.get("model").is_none(), "{health}");
    }
    server.stop().await;
    let server = Server::start().await;
    let (_, health) = server.http("GET", "/healthz", &[], "").await;
    assert!(health.get("trouble").is_some() && health["model"] == "test-model", "{health}");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_never_ends_is_not_waited_for() {
    let server = Server::with(|settings| settings.limits.body_ms = 300).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{";
    let answer = to_the_end(raw(&server, head).await).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("limits.body_ms"), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn bodies_of_one_address_are_bounded_together() {
    let server = Server::with(|settings| {
        settings.limits.body_bytes = 100_000;
        settings.limits.body_bytes_per_address = 150_000;
    })
    .await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90000\r\n\r\n";
    let first = raw(&server, &format!("{head}{}", "x".repeat(80_000))).await;
    sleep(Duration::from_millis(200)).await;
    let answer = to_the_end(raw(&server, &format!("{head}{}", "x".repeat(80_000))).await).await;
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("limits.body_bytes_per_address"), "{answer}");
    drop(first);
    sleep(Duration::from_millis(200)).await;
    let mut third = raw(&server, &format!("{head}{}", "x".repeat(90_000))).await;
    let mut status = [0; 12];
    timeout(PATIENCE, third.read_exact(&mut status)).await.unwrap().unwrap();
    assert_eq!(&status, b"HTTP/1.1 400");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_ends_its_connection() {
    let server = Server::with(|settings| settings.limits.body_bytes = 4000).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 300000\r\n\r\n";
    let answer = to_the_end(raw(&server, &format!("{head}{}", "x".repeat(300_000))).await).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("limits.body_bytes"), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_never_read_ends() {
    let server = Server::with(|settings| {
        settings.limits.write_ms = 500;
        settings.limits.session_bytes = 64 << 20;
    });
    let server = server.await;
    let mut client = server.connect("").await;
    let id = client.session_id().await;
    for _ in 0..24 {
        client
            .say(json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
            "content": "x".repeat(1_000_000)}}))
            .await;
        client.until("conversation.item.done").await;
    }
    let request = format!("GET /v1/sessions/{id}/export HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let stream = raw(&server, &request).await;
    sleep(Duration::from_millis(3000)).await;
    let answer = to_the_end(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains(r#""type":"end""#), "{} bytes", answer.len());
    server.stop().await;
}
