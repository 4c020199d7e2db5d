//! Scripted conversations that go on until the service is gone.

use super::known::{Known, Step};
use super::pulse::Pulse;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tests::client::{PATIENCE, words};
use tests::http::try_http;
use tests::random::Random;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

pub struct CutOff;

/// Sayings of the user in turn: things to remember, to look up, to be answered at length.
const SAYINGS: [&str; 6] = [
    "Remember that the code of the door is {}.",
    "My sister Lena comes on Friday at {} with the dog. What should we do about it?",
    "What is the code of the door, number {}?",
    "Good morning, this is day {}.",
    "From now on call me captain {}.",
    "Tell me about the kitchen, part {}.",
];

/// Each is said once in a run: `name` is of this conversation and this kill.
fn saying(random: &mut Random, name: &str, turn: usize) -> String {
    let saying = SAYINGS[random.below(SAYINGS.len() as u64) as usize];
    saying.replace("{}", &format!("{name}t{turn}"))
}

/// Talks over the websocket, and interrupts replies.
pub async fn by_websocket(
    address: String,
    mut known: Known,
    mut random: Random,
    name: String,
    pulse: Arc<Pulse>,
) -> Known {
    if let Ok(mut talk) = Talk::open(&address, &known, pulse).await {
        let mut turn = 0;
        while talk.turn(&mut known, &mut random, &name, turn).await.is_ok() {
            turn += 1;
            let version = known.version;
            let silence = async {
                while talk.fill > NEARLY_FULL && known.version == version {
                    if talk.hear(&mut known).await.is_err() {
                        return;
                    }
                }
            };
            // Where no summary comes, the user goes on.
            let _ = timeout(SILENCE, silence).await;
        }
        // What had been sent before the end is heard.
        while talk.hear(&mut known).await.is_ok() {}
    }
    known
}

struct Talk {
    socket: WebSocketStream<TcpStream>,
    /// The last error of the store, which refuses what was asked last.
    was_refused: bool,
    fill: f64,
    pulse: Arc<Pulse>,
}

/// Fill from which a summary is made in the next silence.
const NEARLY_FULL: f64 = 0.6;
const SILENCE: Duration = Duration::from_millis(600);

impl Talk {
    async fn open(address: &str, known: &Known, pulse: Arc<Pulse>) -> Result<Talk, CutOff> {
        let session = if known.id.is_empty() { String::new() } else { format!("&session={}", known.id) };
        let url = format!("ws://{address}/v1/realtime?extensions=reprise{session}");
        let stream = TcpStream::connect(address).await.map_err(|_| CutOff)?;
        stream.set_nodelay(true).map_err(|_| CutOff)?;
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.map_err(|_| CutOff)?;
        Ok(Talk { socket, was_refused: false, fill: 0.0, pulse })
    }

    async fn turn(&mut self, known: &mut Known, random: &mut Random, name: &str, turn: usize) -> Result<(), CutOff> {
        while known.id.is_empty() {
            self.hear(known).await?;
        }
        let said = saying(random, name, turn);
        known.asked(&said);
        self.was_refused = false;
        self.say(json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": said}]}}))
            .await?;
        while known.turns.last().is_some_and(|turn| turn.kept == Step::Asked) {
            self.hear(known).await?;
            if self.was_refused {
                return Ok(());
            }
        }
        self.say(json!({"type": "response.create", "response": {"max_output_tokens": 40}})).await?;
        let interrupts_after = random.below(3) * 4;
        let mut deltas = 0;
        let done = loop {
            let event = self.hear(known).await?;
            match event["type"].as_str() {
                Some("response.output_text.delta") => deltas += 1,
                Some("response.done") => break event,
                Some("error") if self.was_refused => return Ok(()),
                _ => {}
            }
            if interrupts_after > 0 && deltas == interrupts_after {
                deltas += 1;
                self.say(json!({"type": "response.cancel"})).await?;
            }
        };
        let item = &done["response"]["output"][0];
        if let (Some(id), true) = (item["id"].as_str(), interrupts_after == 8 && words(item).chars().count() > 3) {
            let last = known.turns.last_mut().expect("it was asked");
            (last.cut, last.cut_chars) = (Step::Asked, 3);
            self.was_refused = false;
            let event_id = "cut";
            self.say(json!({"type": "conversation.item.truncate", "event_id": event_id, "item_id": id,
                "content_index": 0, "text_end": 3}))
                .await?;
            while known.turns.last().is_some_and(|turn| turn.cut == Step::Asked) && !self.was_refused {
                self.hear(known).await?;
            }
        }
        Ok(())
    }

    async fn say(&mut self, event: Value) -> Result<(), CutOff> {
        self.socket.send(Message::text(event.to_string())).await.map_err(|_| CutOff)
    }

    async fn hear(&mut self, known: &mut Known) -> Result<Value, CutOff> {
        let event = loop {
            let message = timeout(PATIENCE, self.socket.next()).await.expect("the service answers or is gone");
            match message {
                Some(Ok(Message::Text(text))) => break serde_json::from_str::<Value>(&text).map_err(|_| CutOff)?,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(CutOff),
                Some(Ok(_)) => {}
            }
        };
        self.pulse.beat();
        let last = known.turns.last_mut();
        match (event["type"].as_str().unwrap_or_default(), last) {
            ("session.created", _) => known.id = event["session"]["id"].as_str().unwrap_or_default().to_owned(),
            ("conversation.item.added", Some(last)) if words(&event["item"]) == last.said => {
                last.kept = Step::Acknowledged;
            }
            ("response.output_text.delta", Some(last)) => {
                last.heard.push_str(event["delta"].as_str().unwrap_or_default());
            }
            ("response.done", Some(last)) => {
                let status = event["response"]["status"].as_str();
                last.is_whole = matches!(status, Some("completed" | "incomplete" | "cancelled"));
            }
            ("conversation.item.truncated", Some(last)) => last.cut = Step::Acknowledged,
            ("compaction.completed", _) => known.version = event["version"].as_u64().or(known.version),
            ("context.updated", _) => {
                let tokens = |key: &str| event[key].as_f64().unwrap_or(0.0);
                self.fill = tokens("tokens") / tokens("ctx_size").max(1.0);
            }
            ("turn.report", _) if known.first_turn.is_none() => {
                let tokens = |key: &str| event[key].as_u64().unwrap_or(0);
                known.first_turn = Some((tokens("reused_tokens"), tokens("computed_tokens")));
            }
            ("error", _) => self.was_refused |= event["error"]["code"] == "store_failed",
            _ => {}
        }
        Ok(event)
    }
}

/// Talks over chat completions in a durable session, streamed.
pub async fn by_chat(address: String, mut known: Known, mut random: Random, name: String) -> Known {
    let mut turn = 0;
    while chat_turn(&address, "", &mut known, &saying(&mut random, &name, turn)).await.is_ok() {
        turn += 1;
    }
    known
}

pub async fn chat_turn(address: &str, path: &str, known: &mut Known, said: &str) -> Result<(), CutOff> {
    let session = if known.id.is_empty() { "new" } else { &known.id };
    let body = json!({"stream": true, "max_tokens": 40, "messages": [{"role": "user", "content": said}],
        "metadata": {"session_id": session}});
    known.asked(said);
    let path = format!("{path}/v1/chat/completions");
    let json = [("content-type", "application/json")];
    let (status, stream) = try_http(address, "POST", &path, &json, &body.to_string()).await.map_err(|_| CutOff)?;
    let is_over = status == 200 && stream.contains("[DONE]");
    if status != 200 {
        known.refusals.push(format!("{said:?} is answered {status}: {stream}"));
    }
    for line in stream.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(chunk) = serde_json::from_str::<Value>(line) else { continue };
        if let Some(id) = chunk["reprise"]["session_id"].as_str() {
            known.id = id.to_owned();
        }
        if let (Some(reused), None) = (chunk["reprise"]["reused_tokens"].as_u64(), known.first_turn) {
            known.first_turn = Some((reused, chunk["reprise"]["computed_tokens"].as_u64().unwrap_or(0)));
        }
        let Some(last) = known.turns.last_mut() else { continue };
        if let Some(text) = chunk["choices"][0]["delta"]["content"].as_str().filter(|text| !text.is_empty()) {
            last.kept = Step::Acknowledged;
            last.heard.push_str(text);
        }
        last.is_whole |= matches!(chunk["choices"][0]["finish_reason"].as_str(), Some("stop" | "length"));
    }
    if is_over { Ok(()) } else { Err(CutOff) }
}

pub async fn deleting(address: String, name: String) -> Vec<Known> {
    let mut all = Vec::new();
    for number in 0.. {
        let mut known = Known::default();
        let mut is_cut = false;
        for turn in 0..2 {
            let said = format!("This will be forgotten, {name}n{number}t{turn}.");
            is_cut |= chat_turn(&address, "", &mut known, &said).await.is_err();
        }
        if !is_cut && !known.id.is_empty() {
            known.deletion = Step::Asked;
            match try_http(&address, "DELETE", &format!("/v1/sessions/{}", known.id), &[], "").await {
                Ok((200, _)) => known.deletion = Step::Acknowledged,
                Ok((404 | 503, _)) | Err(_) => is_cut = true,
                Ok((status, body)) => {
                    known.refusals.push(format!("a deletion answers {status}: {body}"));
                    is_cut = true;
                }
            }
        }
        all.push(known);
        if is_cut {
            break;
        }
    }
    all
}
