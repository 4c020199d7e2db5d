//! A client of the Wyoming protocol that waits for events and never for time.

use crate::kept_secret;
use serde_json::{Map, Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than anything takes on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(180);

/// An address on this machine where no other test listens: each process has a loopback address, and counts its ports
/// from behind the usual one.
pub fn own_address() -> SocketAddr {
    static PORTS: AtomicU16 = AtomicU16::new(10_501);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    (Ipv4Addr::new(127, 64 | high & 63, middle, low), PORTS.fetch_add(1, Ordering::Relaxed)).into()
}

pub struct WyomingClient {
    stream: BufReader<TcpStream>,
}

impl WyomingClient {
    pub async fn connect(address: SocketAddr) -> WyomingClient {
        let stream = timeout(PATIENCE, TcpStream::connect(address)).await.expect("an answer").expect("a connection");
        WyomingClient { stream: BufReader::new(stream) }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the service reads");
    }

    pub async fn say(&mut self, kind: &str, data: Value) {
        kept_secret::note_said(&data);
        let mut line = json!({ "type": kind, "version": "1.10.2" });
        let data = if data == json!({}) { String::new() } else { data.to_string() };
        if !data.is_empty() {
            line["data_length"] = json!(data.len());
        }
        self.send(format!("{line}\n{data}").as_bytes()).await;
    }

    pub async fn event(&mut self) -> Option<(String, Value)> {
        timeout(PATIENCE, self.read()).await.expect("an event")
    }

    async fn read(&mut self) -> Option<(String, Value)> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let mut data: Map<String, Value> = line["data"].as_object().cloned().unwrap_or_default();
        let mut more = vec![0; line["data_length"].as_u64().unwrap_or(0) as usize];
        self.stream.read_exact(&mut more).await.ok()?;
        if !more.is_empty() {
            data.extend(serde_json::from_slice::<Map<String, Value>>(&more).expect("an object"));
        }
        Some((line["type"].as_str().expect("a type").to_owned(), Value::Object(data)))
    }

    /// Says something as Home Assistant does, and reads on until the turn is over.
    pub async fn turn(&mut self, text: &str, context: Value) -> (String, Value) {
        self.say("transcript", json!({ "text": text, "language": "en", "context": context })).await;
        self.answer().await
    }

    pub async fn answer(&mut self) -> (String, Value) {
        loop {
            let (kind, data) = self.event().await.expect("an answer");
            if ["handled", "not-handled", "error", "intent"].contains(&kind.as_str()) {
                return (kind, data);
            }
        }
    }
}

pub async fn turn(address: SocketAddr, text: &str, context: Value) -> (String, Value) {
    WyomingClient::connect(address).await.turn(text, context).await
}
