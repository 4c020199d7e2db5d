//! Users that share an engine: the crowd of one keeps no other waiting.

use crate::support::Server;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::KeyScope;
use tokio::sync::mpsc;

async fn key(server: &Server, user: &str) -> String {
    server.store.put_user(user, user, 1).await.unwrap();
    format!("Bearer {}", server.store.create_key(user, "", &[KeyScope::Talk], 1).await.unwrap().1)
}

fn asked(tokens: u32, stream: bool) -> Value {
    let messages = [json!({ "role": "user", "content": "Good morning." })];
    json!({ "messages": messages, "max_tokens": tokens, "ignore_eos": true, "stream": stream })
}

/// Reads a reply to its end. `begun` gets a note for each piece. Returns false if the request was refused.
async fn read_reply(address: SocketAddr, key: String, begun: mpsc::UnboundedSender<()>) -> bool {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("http://{address}/v1/chat/completions")).header("authorization", key);
    let response = request.body(asked(12_000, true).to_string()).send().await.unwrap();
    let is_answered = response.status() == 200;
    let mut pieces = response.bytes_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        if is_answered && piece.starts_with(b"data: ") {
            // The test may have ended.
            let _ = begun.send(());
        }
    }
    is_answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_reply_comes_beside_the_long_ones_of_another_users_crowd() {
    let server = Server::with_engine(|settings| {
        (settings.engine.max_sequences, settings.engine.max_waiting) = (3, 4);
    });
    let server = server.await;
    let (bob, alice) = (key(&server, "bob").await, key(&server, "alice").await);
    let over: Arc<[AtomicUsize; 2]> = Arc::default();
    let [refused, whole] = [0, 1].map(|which| {
        let over = over.clone();
        move || over[which].load(Ordering::Relaxed)
    });
    let (begun, mut begins) = mpsc::unbounded_channel();
    let mut crowd = Vec::new();
    for count in 0..24 {
        let (reply, over) = (read_reply(server.address, bob.clone(), begun.clone()), over.clone());
        crowd.push(tokio::spawn(async move { over[usize::from(reply.await)].fetch_add(1, Ordering::Relaxed) }));
        if count < 3 {
            begins.recv().await.unwrap();
        }
    }
    // The engine writes three replies, and four requests may wait.
    while refused() < 24 - 3 - 4 {
        begins.recv().await.unwrap();
    }
    for _ in 0..3 {
        let headers = [("authorization", &alice[..])];
        let (status, reply) = server.http("POST", "/v1/chat/completions", &headers, &asked(3, false).to_string()).await;
        assert_eq!((status, &reply["usage"]["completion_tokens"]), (200, &json!(3)), "{reply}");
    }
    assert_eq!(whole(), 0, "replies of the crowd were told to their end before");
    crowd.iter().for_each(|reply| reply.abort());
    server.stop().await;
}
