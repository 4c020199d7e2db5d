//! A server to talk to.

use crate::client::{Client, PATIENCE, Refused};
use crate::scripted::{self, Asked, Script};
use access::{LOCAL_USER, check_access};
use doors::StartFacts;
use model::Model;
use runtime::{Presets, RuntimeParts};
use serde_json::{Map, Value};
use session::{GenerationPurpose, Prompt};
use settings::{DeviceChoice, Settings, Sources};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use store::{OpenedBy, Store, StoreOptions};
use tempfile::TempDir;
use text::template::{message_json, options_json, tool_json};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const SMALL_MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/dense-tied");

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
        let settings = Server::settings(change);
        let (model, script) = scripted::model();
        Server::of(folder, settings, model, script).await
    }

    /// Starts a server with an engine and a small model, whose replies no test writes.
    pub async fn with_engine(change: impl FnOnce(&mut Settings)) -> Server {
        let settings = Server::settings(|settings| {
            settings.presets.values_mut().for_each(|preset| preset.source.path = Some(SMALL_MODEL.into()));
            settings.engine.device = DeviceChoice::Cpu;
            settings.engine.threads = 1;
            (settings.memory.total, settings.memory.disk_path) = (Some(512 << 20), None);
            change(settings);
        });
        let started = Model::start(&settings).await.unwrap();
        let (_, script) = scripted::model();
        Server::of(tempfile::tempdir().unwrap(), started.settings, started.model, script).await
    }

    fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
        let mut settings = Settings::load(&Sources::default()).unwrap().settings;
        // The preset without a model, whatever a first start would take.
        settings.model.preset = "default".to_owned();
        settings.server.port = 0;
        // Tests that ask every route read the stream of states to its end.
        settings.limits.status_s = 1;
        settings.wyoming.port = Some(0);
        change(&mut settings);
        settings
    }

    async fn of(folder: TempDir, settings: Settings, model: Model, script: Script) -> Server {
        let store = open(folder.path()).await;
        store.put_user(LOCAL_USER, LOCAL_USER, 1).await.unwrap();
        let chosen = settings.chosen().unwrap().clone();
        let arms = settings.experiment.iter().flat_map(|experiment| &experiment.arms);
        let arms: Vec<_> = arms.map(|arm| settings.presets[&arm.preset].clone()).collect();
        let presets = Presets::new(arms, chosen, "test-model").with_names(&settings).unwrap();
        let listeners = doors::listen(&settings).await.unwrap();
        let address = listeners.main.local_addr().unwrap();
        let policy = check_access(&settings, &store).await.unwrap();
        let stop = CancellationToken::new();
        let parts = RuntimeParts { settings: Arc::new(settings), store: store.clone(), model, presets };
        let task = tokio::spawn(doors::serve(listeners, parts, policy, StartFacts::default(), stop.clone()));
        Server { address, script, store, folder: Some(folder), stop, task }
    }

    /// The next reply that is asked for; what is only read ahead is let go.
    pub async fn reply_asked(&mut self) -> Asked {
        loop {
            let asked = self.script.next().await;
            if asked.request.purpose == GenerationPurpose::Reply {
                return asked;
            }
        }
    }

    pub fn take_script(&mut self) -> Script {
        let (_, nothing) = scripted::model();
        std::mem::replace(&mut self.script, nothing)
    }

    /// Stops as on SIGTERM, and gives back the folder.
    pub async fn stop(mut self) -> TempDir {
        self.stop.cancel();
        timeout(PATIENCE, &mut self.task).await.expect("the server stops").unwrap();
        self.store.close().await.unwrap();
        self.folder.take().unwrap()
    }

    pub async fn http(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let response = self.request(method, path, headers, body).await;
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or(Value::Null))
    }

    pub async fn text(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        self.request(method, path, headers, "").await.text().await.unwrap()
    }

    pub async fn bytes(&self, path: &str) -> (u16, Vec<u8>) {
        let response = self.request("GET", path, &[], "").await;
        (response.status().as_u16(), response.bytes().await.unwrap().to_vec())
    }

    async fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> reqwest::Response {
        let url = format!("http://{}{path}", self.address);
        // The HTTP library wants to know how TLS is done, also where no server speaks it. Another test may have said so.
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

    pub async fn try_connect(&self, query: &str, headers: &[(&str, &str)]) -> Result<Client, Refused> {
        Client::connect(&self.address.to_string(), query, headers).await
    }

    pub async fn connect_with_little_room(&self, query: &str) -> Client {
        Client::with_little_room(&self.address.to_string(), &format!("/v1/realtime{query}")).await
    }
}

pub async fn open(folder: &Path) -> Store {
    let options = StoreOptions {
        path: folder.join("store.sqlite3"),
        opened_by: OpenedBy::Service,
        create: true,
        busy_timeout_ms: 1000,
        readers: 2,
        read_limit_ms: 0,
        sync_ms: 1000,
        user_bytes: 0,
        user_bytes_per_minute: 0,
        write_queue: 64,
        commit_group: 16,
        wal_limit_bytes: 1 << 20,
        max_pages: None,
        check_at_start: false,
    };
    Store::open(&options, 1).await.unwrap()
}

pub struct TemplateChat {
    pub messages: Vec<Value>,
    pub tools: Vec<Value>,
    pub options: Map<String, Value>,
}

pub trait Chat {
    fn chat(&self) -> TemplateChat;
}

impl Chat for Asked {
    fn chat(&self) -> TemplateChat {
        let Prompt { messages, tools, options } = &self.request.prompt;
        TemplateChat {
            messages: messages.iter().map(message_json).collect(),
            tools: tools.iter().map(tool_json).collect(),
            options: options_json(options),
        }
    }
}
