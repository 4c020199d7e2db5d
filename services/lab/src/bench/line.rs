//! One websocket to the service. A task reads it, so that an event's time is when it came and pings are answered while
//! nobody listens.

use super::service::Service;
use crate::websocket::{Address, Socket, connect};
use anyhow::{Context, Result, bail};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use settings::Settings;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

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
        let address = Address { url: &service.url, key: service.key.as_deref() };
        let (session, after) = resume.map(|Resume { session, after }| (session, after)).unzip();
        let socket = connect(address, &[("session", session), ("after", after)], &settings.limits, patience).await?;
        let (sink, mut stream) = socket.split();
        let (send, events) = mpsc::channel(settings.limits.outgoing_events);
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
