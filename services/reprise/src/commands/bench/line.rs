//! One websocket to the service. A task reads it, so that an event's time is when it came and pings are answered while
//! nobody listens.

use super::service::Service;
use anyhow::{Context, Result, anyhow, bail};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use settings::Settings;
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

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub struct Line {
    /// The session's id.
    pub session: String,
    sink: SplitSink<Socket, Message>,
    events: mpsc::Receiver<Result<Heard, String>>,
    reader: JoinHandle<()>,
    patience: Duration,
}

#[derive(Clone, Copy)]
pub struct Resume<'a> {
    pub session: &'a str,
    /// The last item that is known.
    pub after: &'a str,
}

pub struct Heard {
    pub at: Instant,
    pub event: Value,
}

impl Line {
    /// A new session, or one to go on with. `patience` is how long an event may take to come.
    pub async fn connect(
        service: &Service,
        settings: &Settings,
        patience: Duration,
        resume: Option<Resume<'_>>,
    ) -> Result<Line> {
        let limits = &settings.limits;
        let mut config = WebSocketConfig::default();
        config.max_message_size = Some(limits.message_bytes);
        config.max_frame_size = Some(limits.message_bytes);
        config.write_buffer_size = limits.header_bytes;
        config.max_write_buffer_size = limits.outgoing_bytes.max(2 * limits.header_bytes);
        let mut url = service.url.clone();
        url.set_path("/v1/realtime");
        url.query_pairs_mut().append_pair("extensions", "reprise");
        if let Some(Resume { session, after }) = resume {
            url.query_pairs_mut().append_pair("session", session).append_pair("after", after);
        }
        url.set_scheme("ws").map_err(|()| anyhow!("{url} is no address of a service"))?;
        let mut request = url.as_str().into_client_request()?;
        if let Some(key) = &service.key {
            let value = HeaderValue::from_str(&format!("Bearer {key}")).context("the key has characters no key has")?;
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let connecting = timeout(patience, connect_async_with_config(request, Some(config), true));
        let (socket, _) =
            connecting.await.with_context(|| format!("{} does not answer", service.url))?.map_err(refused)?;
        let (sink, mut stream) = socket.split();
        let (send, events) = mpsc::channel(limits.outgoing_events);
        let reader = tokio::spawn(async move {
            while let Some(message) = stream.next().await {
                let heard = match message {
                    Ok(Message::Text(text)) => match serde_json::from_str(&text) {
                        Ok(event) => Ok(Heard { at: Instant::now(), event }),
                        Err(error) => Err(format!("the service sends no JSON: {error}")),
                    },
                    Ok(Message::Close(Some(frame))) => Err(format!("the service hangs up: {}", frame.reason)),
                    Ok(_) => continue,
                    Err(error) => Err(format!("the connection is lost: {error}")),
                };
                if send.send(heard).await.is_err() {
                    return;
                }
            }
        });
        let mut line = Line { session: String::new(), sink, events, reader, patience };
        let created = line.until("session.created").await?;
        line.session = created.event["session"]["id"].as_str().context("the service names no session")?.to_owned();
        Ok(line)
    }

    pub async fn say(&mut self, event: &Value) -> Result<()> {
        let sending = timeout(self.patience, self.sink.send(Message::text(event.to_string())));
        Ok(sending.await.context("the service does not read")??)
    }

    /// An `error` of the service is one here: nothing that a measurement says should cause one.
    pub async fn next(&mut self) -> Result<Heard> {
        match timeout(self.patience, self.events.recv()).await.context("the service says nothing any more")? {
            Some(Ok(heard)) if heard.event["type"] == "error" => bail!("the service says: {}", heard.event["error"]),
            Some(Ok(heard)) => Ok(heard),
            Some(Err(why)) => bail!(why),
            None => bail!("the service hung up"),
        }
    }

    /// As `next`, None when nothing comes for this long.
    pub async fn next_within(&mut self, patience: Duration) -> Result<Option<Heard>> {
        match timeout(patience, self.next()).await {
            Ok(heard) => heard.map(Some),
            Err(_) => Ok(None),
        }
    }

    pub async fn until(&mut self, kind: &str) -> Result<Heard> {
        loop {
            let heard = self.next().await?;
            if heard.event["type"] == kind {
                return Ok(heard);
            }
        }
    }

    pub async fn close(mut self) {
        let _ = timeout(self.patience, self.sink.close()).await;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// What a service says in refusing is more than its status.
fn refused(error: tungstenite::Error) -> anyhow::Error {
    if let tungstenite::Error::Http(response) = &error {
        let body: Value = serde_json::from_slice(response.body().as_deref().unwrap_or_default()).unwrap_or_default();
        let message = body["error"]["message"].as_str().map_or_else(|| response.status().to_string(), str::to_owned);
        return anyhow!("the service refuses the websocket: {message}");
    }
    anyhow!(error).context("cannot connect to the service")
}
