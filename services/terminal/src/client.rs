//! A client of a running service: requests over HTTP, and a websocket with our extensions. A task reads the socket, so
//! that an event's time is its arrival, and pings are answered while the command is busy.

use crate::flags::wrong_use;
use anyhow::{Context, Result, anyhow, bail};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use reqwest::{Client, Method, RequestBuilder, Url};
use serde_json::{Value, json};
use settings::LimitSettings;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

type Connection = WebSocketStream<MaybeTlsStream<TcpStream>>;

#[derive(Clone)]
pub struct ServiceAddress {
    pub url: Url,
    pub key: Option<String>,
}

impl ServiceAddress {
    pub fn parse(url: &str, key: Option<String>) -> Result<ServiceAddress> {
        let give = || wrong_use(anyhow!("--url {url}: give an address such as http://127.0.0.1:8080"));
        let parsed = Url::parse(url).map_err(|_| give())?;
        if parsed.scheme() != "http" {
            bail!("--url {url}: only http:// is supported; for https put a proxy in front, or use a tunnel");
        }
        Ok(ServiceAddress { url: parsed, key })
    }

    pub fn request(&self, http: &Client, method: Method, path: &str) -> RequestBuilder {
        // A base URL for clients may already end in /v1.
        let base = self.url.as_str().trim_end_matches('/').trim_end_matches("/v1");
        let request = http.request(method, format!("{base}{path}"));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    pub async fn get(&self, http: &Client, path: &str) -> Result<Value> {
        self.ask(http, Method::GET, path).await
    }

    pub async fn ask(&self, http: &Client, method: Method, path: &str) -> Result<Value> {
        let response = self.request(http, method, path).send().await?;
        let status = response.status();
        let body: Value = response.json().await?;
        if status.is_success() {
            return Ok(body);
        }
        bail!("{}", body["error"]["message"].as_str().unwrap_or("the service refused the request"))
    }
}

#[derive(Clone, Copy)]
pub struct Patience {
    /// Wait for a connection, for an expected event, and until the service has read what the client sends.
    pub answer: Duration,
    pub silence: Duration, // for any frame, a ping included
}

pub struct ServiceClient {
    pub session: Value, // as the service opened with it
    sink: SplitSink<Connection, Message>,
    arrivals: mpsc::Receiver<Result<Arrival, String>>,
    reader: JoinHandle<()>,
    patience: Duration,
}

#[derive(Clone)]
pub struct Arrival {
    pub at: Instant,
    pub event: Value,
}

impl ServiceClient {
    pub async fn connect(
        address: &ServiceAddress,
        query: &[(&str, Option<&str>)],
        limits: &LimitSettings,
        patience: Patience,
    ) -> Result<ServiceClient> {
        let (sink, mut stream) = open(address, query, limits, patience.answer).await?.split();
        let (send, arrivals) = mpsc::channel(limits.outgoing_events);
        let reader = tokio::spawn(async move {
            loop {
                let arrival = match timeout(patience.silence, stream.next()).await {
                    Err(_) => Err("the service does not even send pings".to_owned()),
                    Ok(Some(Ok(Message::Text(text)))) => match serde_json::from_str(&text) {
                        Ok(event) => Ok(Arrival { at: Instant::now(), event }),
                        Err(error) => Err(format!("the service sends no JSON: {error}")),
                    },
                    Ok(Some(Ok(Message::Close(Some(frame))))) if !frame.reason.is_empty() => {
                        Err(frame.reason.to_string())
                    }
                    Ok(Some(Ok(Message::Close(_))) | None) => Err("the service hung up".to_owned()),
                    Ok(Some(Ok(_))) => continue,
                    Ok(Some(Err(error))) => Err(error.to_string()),
                };
                let ends = arrival.is_err();
                if send.send(arrival).await.is_err() || ends {
                    return;
                }
            }
        });
        let mut client = ServiceClient { session: Value::Null, sink, arrivals, reader, patience: patience.answer };
        let mut opening = client.next().await?.event;
        if opening["type"] != "session.created" || !opening["session"]["id"].is_string() {
            bail!("the service's first event is {}: is it Reprise?", opening["type"]);
        }
        client.session = opening["session"].take();
        Ok(client)
    }

    pub fn session_id(&self) -> &str {
        self.session["id"].as_str().unwrap_or_default()
    }

    pub async fn say(&mut self, event: Value) -> Result<()> {
        let sending = timeout(self.patience, self.sink.send(Message::text(event.to_string())));
        Ok(sending.await.context("the service did not read a message in time")??)
    }

    pub async fn update(&mut self, session: Value) -> Result<()> {
        self.say(json!({ "type": "session.update", "session": session })).await?;
        self.until("session.updated").await.map(drop)
    }

    /// Adds a message behind the last item, or behind `after`.
    pub async fn create(&mut self, id: Option<&str>, role: &str, text: &str, after: Option<&str>) -> Result<()> {
        let kind = if role == "assistant" { "output_text" } else { "input_text" };
        let mut item = json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] });
        let mut event = json!({ "type": "conversation.item.create" });
        for (object, key, value) in [(&mut item, "id", id), (&mut event, "previous_item_id", after)] {
            if let Some(value) = value {
                object[key] = value.into();
            }
        }
        event["item"] = item;
        self.say(event).await
    }

    pub async fn respond(&mut self) -> Result<()> {
        self.say(json!({ "type": "response.create" })).await
    }

    pub async fn arrival(&mut self) -> Result<Arrival, String> {
        self.arrivals.recv().await.unwrap_or_else(|| Err("the service hung up".to_owned()))
    }

    /// Waits for an event. An `error` of the service is an error here: no input of a measurement should cause one.
    pub async fn next(&mut self) -> Result<Arrival> {
        match timeout(self.patience, self.arrival()).await.context("no event came from the service in time")? {
            Ok(arrival) if arrival.event["type"] == "error" => {
                bail!("the service reported an error: {}", arrival.event["error"])
            }
            Ok(arrival) => Ok(arrival),
            Err(why) => bail!("the connection is lost: {why}"),
        }
    }

    pub async fn next_within(&mut self, patience: Duration) -> Result<Option<Arrival>> {
        match timeout(patience, self.next()).await {
            Ok(arrival) => arrival.map(Some),
            Err(_) => Ok(None),
        }
    }

    pub async fn until(&mut self, kind: &str) -> Result<Arrival> {
        loop {
            let arrival = self.next().await?;
            if arrival.event["type"] == kind {
                return Ok(arrival);
            }
        }
    }

    pub async fn close(mut self) {
        let _ = timeout(self.patience, self.sink.close()).await;
    }
}

impl Drop for ServiceClient {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn open(
    address: &ServiceAddress,
    query: &[(&str, Option<&str>)],
    limits: &LimitSettings,
    patience: Duration,
) -> Result<Connection> {
    let ServiceAddress { url, key } = address;
    let mut at = url.clone();
    at.set_path("/v1/realtime");
    let query = query.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    at.query_pairs_mut().append_pair("extensions", "reprise").extend_pairs(query);
    at.set_scheme("ws").map_err(|()| anyhow!("{url} is no address of a service"))?;
    let mut request = at.as_str().into_client_request()?;
    if let Some(key) = key {
        let value =
            HeaderValue::from_str(&format!("Bearer {key}")).context("the key contains characters that no key has")?;
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    // The library's own outgoing buffer has no limit.
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(limits.message_bytes);
    config.max_frame_size = Some(limits.message_bytes);
    config.write_buffer_size = limits.header_bytes;
    config.max_write_buffer_size = limits.outgoing_bytes.max(2 * limits.header_bytes);
    let connecting = timeout(patience, connect_async_with_config(request, Some(config), true));
    let connected = connecting.await.with_context(|| format!("{url} did not answer in time"))?;
    connected.map(|(connection, _)| connection).map_err(|error| refused(url, error))
}

fn refused(url: &Url, error: tungstenite::Error) -> anyhow::Error {
    if let tungstenite::Error::Http(response) = &error {
        let body: Value = serde_json::from_slice(response.body().as_deref().unwrap_or_default()).unwrap_or_default();
        let message = body["error"]["message"].as_str().map_or_else(|| response.status().to_string(), str::to_owned);
        return anyhow!("{url} refused the connection: {message}");
    }
    anyhow!(error).context(format!("cannot connect to {url}: is the service started? (`reprise serve`)"))
}
