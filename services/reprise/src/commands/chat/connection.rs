//! The service as a client sees it: a websocket, and a few questions over HTTP.

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use lab::websocket::{self, Address, Socket};
use reqwest::{Client, Url};
use serde_json::Value;
use settings::LimitSettings;
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

/// Where the service is and how one comes in.
pub struct Door {
    url: Url,
    key: Option<String>,
    limits: LimitSettings,
    http: Client,
    patience: Duration,
    silence: Duration,
}

pub struct Connection {
    socket: Socket,
    patience: Duration,
    /// The service pings more often than this.
    silence: Duration,
}

/// Pings that may be missed.
const PINGS: u32 = 3;

pub enum Heard {
    Event(Value),
    /// Why there will be no more.
    Lost(String),
}

impl Door {
    pub fn new(url: String, key: Option<String>, limits: &LimitSettings) -> Result<Door> {
        let url = Url::parse(&url).with_context(|| format!("--url {url}"))?;
        if url.scheme() != "http" {
            bail!("--url {url}: only http:// is spoken here; for https put a proxy in front, or use a tunnel");
        }
        let patience = Duration::from_millis(limits.handshake_ms);
        let http = Client::builder().timeout(patience).build().context("the HTTP client")?;
        let silence = Duration::from_secs(limits.ping_s) * PINGS;
        Ok(Door { url, key, limits: limits.clone(), http, patience, silence })
    }

    pub async fn connect(
        &self,
        session: Option<&str>,
        after: Option<&str>,
        preset: Option<&str>,
    ) -> Result<Connection> {
        let address = Address { url: &self.url, key: self.key.as_deref() };
        let asked = [("session", session), ("after", after), ("model", preset)];
        let socket = websocket::connect(address, &asked, &self.limits, self.patience).await?;
        Ok(Connection { socket, patience: self.patience, silence: self.silence })
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        let mut request = self.http.get(self.url.join(path)?);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await?;
        let status = response.status();
        let body: Value = response.json().await?;
        if status.is_success() {
            return Ok(body);
        }
        bail!("{}", body["error"]["message"].as_str().unwrap_or("the service refuses"))
    }
}

impl Connection {
    /// `session.created`, with which the service opens.
    pub async fn first(&mut self) -> Result<Value> {
        match timeout(self.patience, self.next()).await.context("the service says nothing")? {
            Heard::Event(event) if event["type"] == "session.created" => Ok(event),
            Heard::Event(event) => bail!("the service opens with {}: is it Reprise?", event["type"]),
            Heard::Lost(why) => bail!("the service hangs up: {why}"),
        }
    }

    pub async fn next(&mut self) -> Heard {
        loop {
            let Ok(message) = timeout(self.silence, self.socket.next()).await else {
                return Heard::Lost("the service does not even send pings".to_owned());
            };
            match message {
                Some(Ok(Message::Text(text))) => {
                    if let Ok(event) = serde_json::from_str(&text) {
                        return Heard::Event(event);
                    }
                }
                Some(Ok(Message::Close(Some(frame)))) if !frame.reason.is_empty() => {
                    return Heard::Lost(frame.reason.to_string());
                }
                Some(Ok(Message::Close(_))) | None => return Heard::Lost("the service hung up".to_owned()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Heard::Lost(error.to_string()),
            }
        }
    }

    /// What cannot be sent is lost with the connection, and that is found out in reading.
    pub async fn say(&mut self, event: &Value) {
        let _ = timeout(self.patience, self.socket.send(Message::text(event.to_string()))).await;
    }

    pub async fn close(&mut self) {
        let _ = timeout(self.patience, self.socket.close(None)).await;
    }
}
