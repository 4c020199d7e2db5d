//! The doors: each puts one word into the service.

use super::canary::word;
use futures_util::{SinkExt, StreamExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tests::client::PATIENCE;
use tests::http::try_http;
use tests::random::Random;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

#[derive(Debug)]
pub enum Trouble {
    CutOff,
    Wrong(String),
}

pub type Done<T> = Result<T, Trouble>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Door {
    Realtime,
    Chat,
    ChatLog,
    OllamaLog,
    Responses,
    Conversation,
    /// An item that a conversation and its fork have.
    Fork,
    Wyoming,
    Memory,
    /// A memory of what was said.
    Wish,
    Note,
    Pin,
    Summary,
    /// Private words, which are not kept.
    Private,
}

pub const DOORS: [Door; 14] = [
    Door::Realtime,
    Door::Chat,
    Door::ChatLog,
    Door::OllamaLog,
    Door::Responses,
    Door::Conversation,
    Door::Fork,
    Door::Wyoming,
    Door::Memory,
    Door::Wish,
    Door::Note,
    Door::Pin,
    Door::Summary,
    Door::Private,
];

#[derive(Clone, Debug)]
pub struct Planted {
    pub word: String,
    pub door: Door,
    pub person: String,
    pub id: String,
    pub session: String,
    pub at_ms: i64,
    // Its session may have gone by age, which leaves what was learned there.
    pub outlived: bool,
}

#[derive(Clone, Debug)]
pub struct Ways {
    pub address: String,
    pub wyoming: SocketAddr,
}

pub const PERSON: &str = "x-name";

impl Ways {
    pub async fn http(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Done<(u16, Value)> {
        let headers = [&[("content-type", "application/json")], headers].concat();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = try_http(&self.address, method, path, &headers, &body).await.map_err(|_| Trouble::CutOff)?;
        Ok((answer.0, serde_json::from_str(&answer.1).unwrap_or(Value::Null)))
    }

    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Done<Value> {
        match self.http(method, path, headers, &body).await? {
            (200..300, answer) => Ok(answer),
            (status, answer) => Err(Trouble::Wrong(format!("{method} {path} answers {status}: {answer}"))),
        }
    }

    pub async fn plant(&self, door: Door, number: u64, random: &mut Random) -> Done<Planted> {
        let (word, person) = (word(random), format!("p{number}"));
        let at_ms = runtime::wall_ms();
        let planted = |id: &str, session: &str| Planted {
            word: word.clone(),
            door,
            person: person.clone(),
            id: id.to_owned(),
            session: session.to_owned(),
            at_ms,
            outlived: false,
        };
        let said = format!("The parrot of house {number} is called {word}.");
        let headers = [(PERSON, person.as_str())];
        match door {
            Door::Realtime => {
                let session = self.speak(None, &[&said], &[]).await?;
                Ok(planted(&session, &session))
            }
            Door::Chat => {
                let session = self.chat("new", &said, &[("x-stainless-retry-count", "0")]).await?;
                Ok(planted(&session, &session))
            }
            Door::ChatLog => {
                let log = json!({ "max_tokens": 20, "messages": [{ "role": "user", "content": said }] });
                self.ask("POST", "/v1/chat/completions", &headers, log).await?;
                Ok(planted("", ""))
            }
            Door::OllamaLog => {
                let options = json!({ "num_predict": 20 });
                let log = json!({ "model": "", "stream": false, "options": options,
                    "messages": [{ "role": "user", "content": said }] });
                self.ask("POST", "/api/chat", &headers, log).await?;
                Ok(planted("", ""))
            }
            Door::Responses => {
                let response = self.respond(json!({ "input": said })).await?;
                self.respond(json!({ "input": "Good morning.", "previous_response_id": response["id"] })).await?;
                Ok(planted(text(&response["id"]), text(&response["conversation"]["id"])))
            }
            Door::Conversation => {
                let items = json!([{ "role": "user", "content": said }]);
                let begun = self.ask("POST", "/v1/conversations", &[], json!({ "items": items })).await?;
                self.respond(json!({ "input": "Good morning.", "conversation": begun["id"] })).await?;
                Ok(planted(text(&begun["id"]), text(&begun["id"])))
            }
            Door::Fork => {
                let first = self.respond(json!({ "input": said })).await?;
                let next = |input: &str| json!({ "input": input, "previous_response_id": first["id"] });
                self.respond(next("Good morning.")).await?;
                self.respond(next("Good evening.")).await?;
                Ok(planted(text(&first["id"]), text(&first["conversation"]["id"])))
            }
            Door::Wyoming => {
                let turn = tests::wyoming::turn(self.wyoming, &said, json!({ "conversation_id": person }));
                timeout(PATIENCE, turn).await.map_err(|_| Trouble::CutOff)?;
                Ok(planted("", ""))
            }
            Door::Memory => {
                let memory = json!({ "text": format!("The parrot is called {word}."), "person": person });
                let memory = self.ask("POST", "/v1/memories", &[], memory).await?;
                self.chat("new", "Good morning.", &headers).await?;
                Ok(planted(text(&memory["id"]), ""))
            }
            Door::Wish => {
                let said = format!("Remember that my parrot is called {word}.");
                let session = self.chat("new", &said, &headers).await?;
                // A next conversation hears what was asked for.
                self.chat("new", "Good morning.", &headers).await?;
                Ok(planted("", &session))
            }
            Door::Note => {
                let session = self.chat("new", &said, &headers).await?;
                self.chat("new", &format!("What is the parrot of house {number} called?"), &headers).await?;
                Ok(planted(&session, &session))
            }
            Door::Pin => {
                let session = self.chat("new", "Good morning.", &[]).await?;
                let pin = json!({ "text": said });
                let pin = self.ask("POST", &format!("/v1/sessions/{session}/pins"), &[], pin).await?;
                self.chat(&session, "Good evening.", &[]).await?;
                let id = [&pin["id"], &pin["pin"]["id"]].into_iter().find_map(Value::as_str).unwrap_or_default();
                Ok(planted(id, &session))
            }
            Door::Summary => {
                let long = "The kitchen has a table, a lamp, a clock and a door to the garden. ".repeat(8);
                let more: Vec<String> = (0..6).map(|turn| format!("Part {turn}. {long}")).collect();
                let all: Vec<&str> = [said.as_str()].into_iter().chain(more.iter().map(String::as_str)).collect();
                let session = self.speak(None, &all, &[]).await?;
                self.wait_for_summary(&session).await?;
                Ok(planted(&session, &session))
            }
            Door::Private => {
                let log = json!({ "max_tokens": 20, "messages": [{ "role": "user", "content": said }] });
                let headers = [(PERSON, person.as_str()), ("x-reprise-private", "true")];
                self.ask("POST", "/v1/chat/completions", &headers, log).await?;
                Ok(planted("", ""))
            }
        }
    }

    pub async fn chat(&self, session: &str, said: &str, headers: &[(&str, &str)]) -> Done<String> {
        let body = json!({ "max_tokens": 20, "messages": [{ "role": "user", "content": said }],
            "metadata": { "session_id": session } });
        let answer = self.ask("POST", "/v1/chat/completions", headers, body).await?;
        Ok(text(&answer["reprise"]["session_id"]).to_owned())
    }

    async fn respond(&self, mut body: Value) -> Done<Value> {
        body["max_output_tokens"] = json!(20);
        self.ask("POST", "/v1/responses", &[], body).await
    }

    pub async fn speak(&self, session: Option<&str>, said: &[&str], deleted: &[&str]) -> Done<String> {
        let query = session.map(|session| format!("?session={session}")).unwrap_or_default();
        let url = format!("ws://{}/v1/realtime{query}", self.address);
        let stream = TcpStream::connect(&self.address).await.map_err(|_| Trouble::CutOff)?;
        let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.map_err(|_| Trouble::CutOff)?;
        let created = until(&mut socket, "session.created").await?;
        for said in said {
            let item =
                json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": said }] });
            send(&mut socket, json!({ "type": "conversation.item.create", "item": item })).await?;
            send(&mut socket, json!({ "type": "response.create", "response": { "max_output_tokens": 20 } })).await?;
            until(&mut socket, "response.done").await?;
        }
        for item in deleted {
            send(&mut socket, json!({ "type": "conversation.item.delete", "item_id": item })).await?;
            until(&mut socket, "conversation.item.deleted").await?;
        }
        Ok(text(&created["session"]["id"]).to_owned())
    }

    /// Waits until a summary of the model's is in use. Where none comes, the word is told by items alone.
    async fn wait_for_summary(&self, session: &str) -> Done<()> {
        for _ in 0..SUMMARY_LOOKS {
            let all = self.ask("GET", &format!("/v1/sessions/{session}/summaries"), &[], Value::Null).await?;
            let is_made = |summary: &Value| summary["kind"] == "summary" && !summary["applied_at_ms"].is_null();
            if all["data"].as_array().is_some_and(|all| all.iter().any(is_made)) {
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

const SUMMARY_LOOKS: usize = 50;

type Socket = tokio_tungstenite::WebSocketStream<TcpStream>;

async fn send(socket: &mut Socket, event: Value) -> Done<()> {
    tests::kept_secret::note_said(&event);
    socket.send(Message::text(event.to_string())).await.map_err(|_| Trouble::CutOff)
}

async fn until(socket: &mut Socket, kind: &str) -> Done<Value> {
    loop {
        let message = timeout(PATIENCE, socket.next()).await.map_err(|_| Trouble::Wrong(format!("no {kind} comes")))?;
        match message {
            Some(Ok(Message::Text(text))) => {
                let event: Value = serde_json::from_str(&text).map_err(|_| Trouble::CutOff)?;
                match event["type"].as_str() {
                    Some(found) if found == kind => return Ok(event),
                    Some("error") => return Err(Trouble::Wrong(format!("instead of {kind} comes {event}"))),
                    _ => {}
                }
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Trouble::CutOff),
            Some(Ok(_)) => {}
        }
    }
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
