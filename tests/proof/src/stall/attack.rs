//! One input, sent four times at once, and what it is answered.

use super::house::StallHouse;
use super::inputs::InputLimits;
use super::routes::{Attack, Target, TargetKind};
use anyhow::{Context, Result, anyhow};
use futures_util::future::{join, join_all};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tests::http::raw_however_long;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Taken,
    /// It says why it does not, with this status (0: over a websocket) and code.
    Refused {
        status: u16,
        code: String,
    },
}

const PATIENCE: Duration = Duration::from_secs(600); // hundreds of conversations of megabytes are deleted word by word
const BEHIND: &str = "behind";

/// Sends the input `times` at once. `None`: one was not answered.
pub async fn send(house: &StallHouse, target: &Target, attack: &Attack, times: usize) -> Result<Vec<Answer>> {
    let sent = match &target.kind {
        TargetKind::Http { method, path, scope } => {
            let body = match (&attack.form, &attack.body) {
                (Some(form), _) => form.to_vec(),
                (None, Some(body)) => body.text(&house.limits(house.body_bytes)).into_bytes(),
                (None, None) => Vec::new(),
            };
            let mut requests = Vec::new();
            for _ in 0..times {
                let path = house.path(method, path).await?;
                requests.push(request(house, method, &path, scope, attack, &body));
            }
            let asked = requests.into_iter().map(|request| async move { ask(&house.address, &request).await });
            join_all(asked).await
        }
        TargetKind::Socket { path } => {
            let limits: InputLimits = house.limits(house.message_bytes);
            let text: Arc<str> = attack.body.as_ref().map(|body| body.text(&limits)).unwrap_or_default().into();
            join_all((0..times).map(|_| say(house, path, text.clone()))).await
        }
        TargetKind::Wyoming { event } => {
            let limits: InputLimits = house.limits(house.wyoming_bytes);
            let data: Arc<str> = attack.body.as_ref().map(|body| body.text(&limits)).unwrap_or_default().into();
            let told = (0..times).map(|_| timeout(PATIENCE, tell(house.wyoming, event, data.clone())));
            join_all(told).await.into_iter().map(|told| told.context("no answer comes")?).collect()
        }
    };
    sent.into_iter().collect()
}

fn request(house: &StallHouse, method: &str, path: &str, scope: &str, attack: &Attack, body: &[u8]) -> Vec<u8> {
    let query: Vec<String> = attack.query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let kind = if attack.form.is_some() { "multipart/form-data; boundary=x" } else { "application/json" };
    let key = if scope == "admin" { &house.admin } else { &house.attacker };
    let head = format!(
        "{method} {path}{query} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         x-person: pen\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        house.address,
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

async fn ask(address: &str, request: &[u8]) -> Result<Answer> {
    let answer = timeout(PATIENCE, raw_however_long(address, request)).await.context("no answer comes")??;
    if answer.status < 300 {
        return Ok(Answer::Taken);
    }
    let told: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let code = told["error"]["code"].as_str().or(told["error"].as_str()).unwrap_or_default();
    Ok(Answer::Refused { status: answer.status, code: code.chars().take(80).collect() })
}

/// Tells an event to Wyoming's port, and reads on until it is answered.
async fn tell(address: SocketAddr, event: &str, data: Arc<str>) -> Result<Answer> {
    let (reading, mut writing) = TcpStream::connect(address).await?.into_split();
    let line = json!({"type": event, "data_length": data.len()});
    let all = format!("{line}\n{data}");
    // The service ends a connection whose event is too large before all of it was read.
    let sent = async { writing.write_all(all.as_bytes()).await.is_ok() };
    let answered = async {
        let mut lines = BufReader::new(reading);
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).await.unwrap_or(0) == 0 {
                return Ok(Answer::Refused { status: 0, code: "closed".to_owned() });
            }
            let head: Value = serde_json::from_str(&line).context("a line of Wyoming's port")?;
            let mut more = vec![0; head["data_length"].as_u64().unwrap_or(0) as usize];
            lines.read_exact(&mut more).await?;
            let told: Value = serde_json::from_slice(&more).unwrap_or_default();
            let code = told["code"].as_str().or(head["data"]["code"].as_str()).unwrap_or_default().to_owned();
            match head["type"].as_str().unwrap_or_default() {
                "info" | "pong" | "handled" | "not-handled" | "intent" => return Ok(Answer::Taken),
                "error" => return Ok(Answer::Refused { status: 0, code }),
                _ => {}
            }
        }
    };
    join(sent, answered).await.1
}

async fn say(house: &StallHouse, path: &str, text: Arc<str>) -> Result<Answer> {
    let mut request = format!("ws://{}{path}", house.address).into_client_request()?;
    request.headers_mut().insert("authorization", format!("Bearer {}", house.attacker).parse()?);
    request.headers_mut().insert("x-person", "pen".parse()?);
    let stream = TcpStream::connect(&house.address).await?;
    let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
    let (mut socket, _) = client_async_with_config(request, stream, Some(config)).await?;
    let is_realtime = path.starts_with("/v1/realtime");
    let said = async {
        socket.send(Message::text(&*text)).await?;
        if is_realtime {
            let behind = json!({"type": "conversation.item.retrieve", "item_id": "none", "event_id": BEHIND});
            socket.send(Message::text(behind.to_string())).await?;
        }
        let mut refused = None;
        loop {
            match socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    let event: Value = serde_json::from_str(&text).unwrap_or_default();
                    let code = || event["error"]["code"].as_str().unwrap_or_default().to_owned();
                    match event["type"].as_str().unwrap_or_default() {
                        "error" if event["error"]["event_id"] == BEHIND => {
                            return Ok(refused.unwrap_or(Answer::Taken));
                        }
                        "error" => {
                            refused = Some(Answer::Refused { status: 0, code: code() });
                            if !is_realtime {
                                return refused.ok_or(Error::ConnectionClosed);
                            }
                        }
                        "response.completed" | "response.incomplete" | "response.failed" if !is_realtime => {
                            return Ok(Answer::Taken);
                        }
                        _ => {}
                    }
                }
                Some(Ok(Message::Close(frame))) => {
                    let code = frame.map(|frame| format!("closed with {}", frame.code)).unwrap_or_default();
                    return Ok(refused.unwrap_or(Answer::Refused { status: 0, code }));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Err(Error::ConnectionClosed),
            }
        }
    };
    match timeout(PATIENCE, said).await {
        Ok(Ok(answer)) => Ok(answer),
        // The service closes on a message that is too large before all of it was read.
        Ok(Err(error)) => Ok(Answer::Refused { status: 0, code: format!("closed: {error}") }),
        Err(_) => Err(anyhow!("no answer comes")),
    }
}
