//! The service as a client sees it: a websocket, and a few questions over HTTP.

use anyhow::{Context, Result, anyhow, bail};
use futures_util::{SinkExt, StreamExt};
use reqwest::{Client, Url};
use serde_json::Value;
use settings::Limits;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// Where the service is and how one comes in.
pub struct Door {
    url: Url,
    key: Option<String>,
    config: WebSocketConfig,
    http: Client,
    patience: Duration,
    silence: Duration,
}

pub struct Connection {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
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
    pub fn new(url: String, key: Option<String>, limits: &Limits) -> Result<Door> {
        let url = Url::parse(&url).with_context(|| format!("--url {url}"))?;
        if url.scheme() != "http" {
            bail!("--url {url}: only http:// is spoken here; for https put a proxy in front, or use a tunnel");
        }
        // The library's own outgoing buffer has no limit.
        let mut config = WebSocketConfig::default();
        config.max_message_size = Some(limits.message_bytes);
        config.max_frame_size = Some(limits.message_bytes);
        config.write_buffer_size = limits.header_bytes;
        config.max_write_buffer_size = limits.outgoing_bytes.max(2 * limits.header_bytes);
        let patience = Duration::from_millis(limits.handshake_ms);
        // The HTTP library wants to know how TLS is done, also where nobody speaks it. Another one may have said so.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder().timeout(patience).build().context("the HTTP client")?;
        let silence = Duration::from_secs(limits.ping_s) * PINGS;
        Ok(Door { url, key, config, http, patience, silence })
    }

    pub async fn connect(
        &self,
        session: Option<&str>,
        after: Option<&str>,
        preset: Option<&str>,
    ) -> Result<Connection> {
        let mut url = self.url.clone();
        url.set_path("/v1/realtime");
        let asked = [("session", session), ("after", after), ("model", preset), ("extensions", Some("reprise"))];
        url.query_pairs_mut().extend_pairs(asked.iter().filter_map(|(name, value)| Some((name, (*value)?))));
        url.set_scheme("ws").map_err(|()| anyhow!("--url {url} is no address of a service"))?;
        let mut request = url.as_str().into_client_request()?;
        if let Some(key) = &self.key {
            let value = HeaderValue::from_str(&format!("Bearer {key}")).context("the key has characters no key has")?;
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let connecting = connect_async_with_config(request, Some(self.config), true);
        let connected = timeout(self.patience, connecting).await;
        match connected.with_context(|| format!("{} does not answer", self.url))? {
            Ok((socket, _)) => Ok(Connection { socket, patience: self.patience, silence: self.silence }),
            Err(tungstenite::Error::Http(response)) => {
                let body: Value =
                    serde_json::from_slice(response.body().as_deref().unwrap_or_default()).unwrap_or_default();
                match body["error"]["message"].as_str() {
                    Some(message) => bail!("{message}"),
                    None => bail!("{} refuses: {}", self.url, response.status()),
                }
            }
            Err(error) => {
                let error = anyhow!(error);
                Err(error.context(format!("cannot connect to {}: is the service started? (`reprise serve`)", self.url)))
            }
        }
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
