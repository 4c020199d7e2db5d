//! A client that waits for events and never for time.

use crate::kept_secret;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderName;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

/// Longer than anything takes on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(180);

pub struct Client {
    socket: WebSocketStream<TcpStream>,
    pub protocol: Option<String>,
    pub heard: Vec<Value>,
}

#[derive(Debug)]
pub struct Refused {
    pub status: u16,
    pub body: Value,
}

/// The connection is over: the code of the close, where the server sent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed(pub Option<u16>);

impl Refused {
    pub fn code(&self) -> (u16, String) {
        (self.status, self.body["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}

impl Client {
    /// `query` is empty or begins with a question mark.
    pub async fn connect(address: &str, query: &str, headers: &[(&str, &str)]) -> Result<Client, Refused> {
        Client::at(address, &format!("/v1/realtime{query}"), headers).await
    }

    pub async fn at(address: &str, path: &str, headers: &[(&str, &str)]) -> Result<Client, Refused> {
        let stream = TcpStream::connect(address).await.expect("a connection");
        Client::on(stream, address, path, headers).await
    }

    pub async fn from(ip: [u8; 4], address: &str) -> Result<Client, Refused> {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((ip, 0).into()).expect("an address of its own");
        let stream = socket.connect(address.parse().expect("an address")).await.expect("a connection");
        Client::on(stream, address, "/v1/realtime", &[]).await
    }

    /// A client with a small receive buffer: the server soon notices that it does not read.
    pub async fn with_little_room(address: &str, path: &str) -> Client {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        let stream = socket.connect(address.parse().expect("an address")).await.expect("a connection");
        Client::on(stream, address, path, &[]).await.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    async fn on(stream: TcpStream, address: &str, path: &str, headers: &[(&str, &str)]) -> Result<Client, Refused> {
        stream.set_nodelay(true).expect("it is a socket");
        let mut request = format!("ws://{address}{path}").into_client_request().expect("a URL");
        for (name, value) in headers {
            kept_secret::note_header(name, value);
            let name: HeaderName = name.parse().expect("a header's name");
            request.headers_mut().insert(name, value.parse().expect("a header's value"));
        }
        // Tests send messages on purpose that are too large.
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let connecting = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
        match timeout(PATIENCE, connecting).await.expect("an answer") {
            Ok((socket, response)) => {
                let protocol = response.headers().get("sec-websocket-protocol");
                let protocol = protocol.and_then(|protocol| protocol.to_str().ok()).map(str::to_owned);
                Ok(Client { socket, protocol, heard: Vec::new() })
            }
            Err(tungstenite::Error::Http(response)) => {
                let body = serde_json::from_slice(response.body().as_deref().unwrap_or_default());
                Err(Refused { status: response.status().as_u16(), body: body.unwrap_or_default() })
            }
            Err(error) => panic!("cannot connect: {error}"),
        }
    }

    pub async fn say(&mut self, event: Value) {
        kept_secret::note_said(&event);
        self.send(Message::text(event.to_string())).await.expect("the connection is there");
    }

    pub async fn send(&mut self, message: Message) -> Result<(), tungstenite::Error> {
        timeout(PATIENCE, self.socket.send(message)).await.expect("the server reads")
    }

    pub async fn ask(&mut self, text: &str) {
        self.say(user(text)).await;
        self.say(json!({"type": "response.create"})).await;
    }

    /// The same, with a response of at most so many tokens.
    pub async fn ask_for(&mut self, text: &str, max_tokens: u32) {
        self.say(user(text)).await;
        self.say(json!({"type": "response.create", "response": {"max_output_tokens": max_tokens}})).await;
    }

    pub async fn next(&mut self) -> Result<Value, Closed> {
        // A server without events pings all the same, so the deadline is not for each frame.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match timeout_at(deadline, self.socket.next()).await {
                Err(_) => panic!("nothing comes after {:#?}", self.heard.last()),
                Ok(Some(Ok(Message::Text(text)))) => {
                    let event: Value = serde_json::from_str(&text).expect("JSON");
                    self.heard.push(event.clone());
                    return Ok(event);
                }
                Ok(Some(Ok(Message::Close(frame)))) => return Err(Closed(frame.map(|frame| frame.code.into()))),
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(_)) | None) => return Err(Closed(None)),
            }
        }
    }

    pub async fn event(&mut self) -> Value {
        match self.next().await {
            Ok(event) => event,
            Err(closed) => panic!("{closed:?} after {:#?}", self.heard.last()),
        }
    }

    pub async fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event().await;
            if event["type"] == kind {
                return event;
            }
            assert_ne!(event["type"], "error", "{event:#}");
        }
    }

    pub async fn expect_error(&mut self, code: &str) -> Value {
        loop {
            let event = self.event().await;
            if event["type"] == "error" {
                assert_eq!(event["error"]["code"], code, "{event:#}");
                return event;
            }
        }
    }

    /// The types of the events up to one of this type.
    pub async fn types_until(&mut self, kind: &str) -> Vec<String> {
        let mut types = Vec::new();
        loop {
            let event = self.event().await;
            types.push(event["type"].as_str().expect("a type").to_owned());
            if event["type"] == kind {
                return types;
            }
        }
    }

    pub async fn until_one_of(&mut self, kinds: &[&str]) -> Value {
        loop {
            let event = self.event().await;
            if kinds.iter().any(|kind| event["type"] == *kind) {
                return event;
            }
        }
    }

    pub async fn closed(&mut self) -> Closed {
        loop {
            if let Err(closed) = self.next().await {
                return closed;
            }
        }
    }

    pub async fn session_id(&mut self) -> String {
        self.until("session.created").await["session"]["id"].as_str().expect("an id").to_owned()
    }
}

pub fn user(text: &str) -> Value {
    json!({"type": "conversation.item.create", "item": {
        "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}],
    }})
}

pub fn words(item: &Value) -> String {
    let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}
