//! A server to talk to, and a client that waits for events instead of for time.

use conversation::backend::scripted::{Asked, Script};
use conversation::backend::{Backend, Purpose};
use conversation::live::{Parts, Presets};
use conversation::server::{self, LOCAL_USER};
use conversation::store::{Options, Owner, Store};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use settings::{Settings, Sources};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;

/// Longer than anything takes on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Server {
    pub address: SocketAddr,
    pub script: Script,
    pub store: Store,
    folder: Option<TempDir>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Server {
        Server::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Settings)) -> Server {
        Server::in_folder(tempfile::tempdir().unwrap(), change).await
    }

    pub async fn in_folder(folder: TempDir, change: impl FnOnce(&mut Settings)) -> Server {
        let mut settings = Settings::load(&Sources::default()).unwrap().settings;
        settings.server.port = 0;
        change(&mut settings);
        let store = open(folder.path()).await;
        store.put_user(LOCAL_USER, LOCAL_USER, 1).await.unwrap();
        let (backend, script) = Backend::scripted();
        let chosen = settings.chosen().unwrap().clone();
        let arms = settings.experiment.iter().flat_map(|experiment| &experiment.arms);
        let arms: Vec<_> = arms.map(|arm| settings.presets[&arm.preset].clone()).collect();
        let presets = Presets::new(arms, chosen, "test-model");
        let listener = server::listen(&settings).await.unwrap();
        let address = listener.local_addr().unwrap();
        let doors = server::check_doors(&settings, &store).await.unwrap();
        let stop = CancellationToken::new();
        let parts = Parts { settings: Arc::new(settings), store: store.clone(), backend, presets };
        let task = tokio::spawn(server::serve(listener, parts, doors, stop.clone()));
        Server { address, script, store, folder: Some(folder), stop, task }
    }

    /// The next reply that is asked for; what is only read ahead is let go.
    pub async fn reply_asked(&mut self) -> Asked {
        loop {
            let asked = self.script.next().await;
            if asked.ask.purpose == Purpose::Reply {
                return asked;
            }
        }
    }

    /// Stops as on SIGTERM, and gives back the folder.
    pub async fn stop(mut self) -> TempDir {
        self.stop.cancel();
        timeout(PATIENCE, &mut self.task).await.expect("the server stops").unwrap();
        self.store.close().await.unwrap();
        self.folder.take().unwrap()
    }

    /// One request over HTTP: the status, and the body where it is JSON.
    pub async fn http(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let response = self.request(method, path, headers, body).await;
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or(Value::Null))
    }

    pub async fn text(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        self.request(method, path, headers, "").await.text().await.unwrap()
    }

    async fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> reqwest::Response {
        let url = format!("http://{}{path}", self.address);
        // The HTTP library wants to know how TLS is done, also where nobody speaks it. Another test may have said so.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
        let mut request = client.request(method.parse().unwrap(), url).body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    pub async fn connect(&self, query: &str) -> Client {
        self.try_connect(query, &[]).await.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// The status and the body, when the server does not want to.
    pub async fn try_connect(&self, query: &str, headers: &[(&str, &str)]) -> Result<Client, (u16, Value)> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.upgrade(stream, query, headers).await
    }

    /// A client whose system holds little of what it does not read.
    pub async fn connect_with_little_room(&self, query: &str) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stream = socket.connect(self.address).await.unwrap();
        self.upgrade(stream, query, &[]).await.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    async fn upgrade(&self, stream: TcpStream, query: &str, headers: &[(&str, &str)]) -> Result<Client, (u16, Value)> {
        let mut request = format!("ws://{}/v1/realtime{query}", self.address).into_client_request().unwrap();
        for (name, value) in headers {
            let name: tungstenite::http::HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        // A reply that tests the queues comes in one frame at its end.
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let upgrading = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
        match timeout(PATIENCE, upgrading).await.expect("an answer") {
            Ok((socket, response)) => {
                let protocol = response.headers().get("sec-websocket-protocol");
                let protocol = protocol.map(|protocol| protocol.to_str().unwrap().to_owned());
                Ok(Client { socket, protocol, heard: Vec::new() })
            }
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err((response.status().as_u16(), serde_json::from_slice(body).unwrap_or(Value::Null)))
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub async fn open(folder: &Path) -> Store {
    let options = Options {
        path: folder.join("store.sqlite3"),
        owner: Owner::Service,
        create: true,
        busy_timeout_ms: 1000,
        readers: 2,
        write_queue: 64,
        commit_group: 16,
        wal_limit_bytes: 1 << 20,
        max_pages: None,
        check_at_start: false,
    };
    Store::open(&options, 1).await.unwrap()
}

pub struct Client {
    socket: WebSocketStream<TcpStream>,
    pub protocol: Option<String>,
    /// Everything that was heard, for messages of failed tests.
    heard: Vec<Value>,
}

impl Client {
    pub async fn say(&mut self, event: Value) {
        self.send(Message::text(event.to_string())).await.unwrap();
    }

    pub async fn send(&mut self, message: Message) -> Result<(), tungstenite::Error> {
        timeout(PATIENCE, self.socket.send(message)).await.expect("the server reads")
    }

    pub async fn ask(&mut self, text: &str) {
        self.say(user(text)).await;
        self.say(json!({"type": "response.create"})).await;
    }

    /// The next event. Panics when there is none.
    pub async fn event(&mut self) -> Value {
        match self.next().await {
            Ok(event) => event,
            Err(close) => panic!("closed with {close:?} after {:#?}", self.heard),
        }
    }

    /// The next event, or the code of the close.
    pub async fn next(&mut self) -> Result<Value, Option<u16>> {
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await;
            match message.unwrap_or_else(|_| panic!("nothing comes after {:#?}", self.heard)) {
                Some(Ok(Message::Text(text))) => {
                    let event: Value = serde_json::from_str(&text).unwrap();
                    self.heard.push(event.clone());
                    return Ok(event);
                }
                Some(Ok(Message::Close(frame))) => return Err(frame.map(|frame| frame.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// Skips what comes before an event of this type.
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
            types.push(event["type"].as_str().unwrap().to_owned());
            if event["type"] == kind {
                return types;
            }
        }
    }

    /// The code with which the server closes, skipping events.
    pub async fn closed(&mut self) -> Option<u16> {
        loop {
            if let Err(code) = self.next().await {
                return code;
            }
        }
    }

    pub async fn session_id(&mut self) -> String {
        self.until("session.created").await["session"]["id"].as_str().unwrap().to_owned()
    }
}

pub fn user(text: &str) -> Value {
    json!({"type": "conversation.item.create", "item": {
        "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}],
    }})
}
