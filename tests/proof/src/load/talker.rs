//! A client that talks: turns over the websocket, some of which it interrupts.

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};
use tests::random::Random;
use tokio::net::TcpStream;
use tokio::time::timeout_at;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

pub struct TalkedSession {
    socket: WebSocketStream<TcpStream>,
    pub session: String,
    pub compactions: Compactions,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Compactions {
    pub started: u64,
    pub completed: u64,
    pub failed: u64,
    /// Times that oldest turns left the prompt because no summary was ready.
    pub dropped: u64,
    pub reasons: BTreeMap<String, u64>,
}

pub struct TimedTurn {
    pub first_word: Duration,
    /// Event before the first word that was waited for longest.
    pub waited_for: String,
    pub was_interrupted: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("refused with {status}: {body}")]
pub struct TooMany {
    pub status: u16,
    pub body: String,
}

const REPLY_TOKENS: u64 = 24;
/// Two thousand clients in one process should not take more than the service.
const CLIENT_BUFFER_BYTES: usize = 4096; // not a window: bytes of a buffer

impl Compactions {
    fn told(&mut self, event: &Value) {
        match event["type"].as_str().unwrap_or_default() {
            "compaction.started" => self.started += 1,
            "compaction.completed" => self.completed += 1,
            "compaction.dropped" => self.dropped += 1,
            "compaction.failed" => {
                self.failed += 1;
                let reason = event["message"].as_str().unwrap_or("?");
                *self.reasons.entry(reason.to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }

    pub fn add(&mut self, other: Compactions) {
        self.started += other.started;
        self.completed += other.completed;
        self.failed += other.failed;
        self.dropped += other.dropped;
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
    }
}

impl fmt::Display for Compactions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compactions { started, completed, dropped, .. } = self;
        write!(out, "{completed} compactions ({started} begun; {dropped} times oldest turns left before)")
    }
}

impl TalkedSession {
    /// `session` is one to go on with, or empty.
    pub async fn open(address: &str, key: &str, session: &str) -> Result<TalkedSession> {
        let session = if session.is_empty() { String::new() } else { format!("&session={session}") };
        let mut request = format!("ws://{address}/v1/realtime?extensions=reprise{session}").into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse()?);
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let config = WebSocketConfig::default().read_buffer_size(CLIENT_BUFFER_BYTES);
        let socket = match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => socket,
            Err(tungstenite::Error::Http(response)) => {
                let body = String::from_utf8_lossy(response.body().as_deref().unwrap_or_default()).into_owned();
                return Err(TooMany { status: response.status().as_u16(), body }.into());
            }
            Err(error) => return Err(error.into()),
        };
        let mut conversation = TalkedSession { socket, session: String::new(), compactions: Compactions::default() };
        let created = conversation.event().await?;
        conversation.session = created["session"]["id"].as_str().context("a session's id")?.to_owned();
        Ok(conversation)
    }

    pub async fn event(&mut self) -> Result<Value> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    let event = serde_json::from_str(&text)?;
                    self.compactions.told(&event);
                    return Ok(event);
                }
                Some(Ok(Message::Close(frame))) => bail!("the service closes: {frame:?}"),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => bail!("the connection is over"),
            }
        }
    }

    /// A client that says nothing for a while hears what comes, and is known to be there.
    pub async fn listen(&mut self, until: Instant) -> Result<()> {
        while let Ok(event) = timeout_at(until.into(), self.event()).await {
            event?;
        }
        Ok(())
    }

    async fn say(&mut self, event: Value) -> Result<()> {
        Ok(self.socket.send(Message::text(event.to_string())).await?)
    }

    pub async fn turn(&mut self, said: &str, random: &mut Random) -> Result<TimedTurn> {
        let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]});
        self.say(json!({"type": "conversation.item.create", "item": item})).await?;
        self.say(json!({"type": "response.create", "response": {"max_output_tokens": REPLY_TOKENS}})).await?;
        let asked = Instant::now();
        let interrupted_after = (random.below(4) == 0).then(|| 1 + random.below(4));
        let (mut words, mut first_word) = (0, None);
        let (mut before, mut longest, mut waited_for) = (asked, Duration::ZERO, String::new());
        loop {
            let event = self.event().await?;
            let waited = std::mem::replace(&mut before, Instant::now()).elapsed();
            if first_word.is_none() && waited > longest {
                (longest, waited_for) = (waited, event["type"].as_str().unwrap_or_default().to_owned());
            }
            match event["type"].as_str().unwrap_or_default() {
                "response.output_text.delta" => {
                    words += 1;
                    first_word.get_or_insert_with(|| asked.elapsed());
                    if Some(words) == interrupted_after {
                        self.say(json!({"type": "response.cancel"})).await?;
                    }
                }
                "response.done" => {
                    let (status, details) = (&event["response"]["status"], &event["response"]["status_details"]);
                    let status = status.as_str().unwrap_or_default();
                    if !matches!(status, "completed" | "incomplete" | "cancelled") {
                        bail!("a response is {status}: {details}");
                    }
                    let was_interrupted = status == "cancelled";
                    return Ok(TimedTurn {
                        first_word: first_word.unwrap_or_else(|| asked.elapsed()),
                        waited_for,
                        was_interrupted,
                    });
                }
                // The reply was done before the client's word came.
                "error" if event["error"]["code"] == "response_cancel_not_active" => {}
                "error" => bail!("{}", event["error"]),
                _ => {}
            }
        }
    }
}
