//! Service with a user that attacks and has a long past, and one that talks.

use super::inputs::{InputLimits, text};
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use settings::{Settings, Sources};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tests::http::raw;
use tests::service::{Service, run_ok};
use tests::speech::{ScriptedSpeech, vowel};
use tests::wyoming::own_address;

/// Limits that inputs reach, and how long the attacker's past is.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub body_bytes: usize,
    pub message_bytes: usize,
    pub wyoming_bytes: usize,
    pub item_bytes: usize,
    pub entries: usize,
    pub facts: usize,
    /// Fields that are made heavy at each route. The light request comes besides.
    pub attacks_of_a_route: usize,
}

impl Sizes {
    /// The limits that hold where nothing is configured.
    pub fn of_a_service() -> Result<Sizes> {
        let loaded = Settings::load(&Sources::default()).map_err(|error| anyhow!("{error}"))?;
        let limits = &loaded.settings.limits;
        Ok(Sizes {
            body_bytes: limits.body_bytes,
            message_bytes: limits.message_bytes,
            wyoming_bytes: loaded.settings.wyoming.data_bytes,
            item_bytes: limits.item_bytes,
            entries: limits.request_items,
            facts: loaded.settings.remember.facts,
            attacks_of_a_route: usize::MAX,
        })
    }

    pub fn small() -> Sizes {
        Sizes {
            body_bytes: 512 << 10,    // not a window: bytes of a body
            message_bytes: 256 << 10, // not a window: bytes of a message
            wyoming_bytes: 128 << 10, // not a window: bytes of an event
            item_bytes: 64 << 10,     // not a window: bytes of an item
            entries: 64,
            facts: 32,
            attacks_of_a_route: 2,
        }
    }
}

pub struct StallHouse {
    service: Service,
    pub address: String,
    pub talker: String,
    pub attacker: String,
    pub admin: String,
    sizes: Sizes,
    pub body_bytes: usize,
    pub message_bytes: usize,
    pub wyoming: SocketAddr,
    pub wyoming_bytes: usize,
    known: BTreeMap<String, Value>,
}

pub const MEMORY: u64 = 1 << 30;
const CONFIGURATION: &str = r#"
[remember]
who = [{ person = "*", header = "x-person" }]

[limits]
user_bytes_per_minute = 0
requests_per_minute_per_key = 1000000
requests_per_minute_per_address = 1000000
body_bytes_per_address = "1GiB"
"#;
const PREPARED: usize = 20;
const LEAST_PREPARED: usize = 64 << 20; // not a window: bytes of memory
const TOKENS: u64 = 4;
const AUDIO_RATE: u32 = 24_000;
const AROUND_A_FILE: usize = 1024; // not a window: bytes of a form

impl StallHouse {
    pub async fn open(sizes: Sizes) -> Result<StallHouse> {
        let folder = tempfile::tempdir()?;
        let lines = [
            format!("body_bytes = {}", sizes.body_bytes),
            format!("message_bytes = {}", sizes.message_bytes),
            format!("frame_bytes = {}", sizes.message_bytes),
            format!("item_bytes = {}", sizes.item_bytes),
            format!("request_items = {}", sizes.entries),
            // Room for one body of the largest size, with all that is made of it.
            format!(
                "[memory]\ntotal = {MEMORY}\nprepare_bytes = {}",
                (sizes.body_bytes * PREPARED).max(LEAST_PREPARED)
            ),
        ];
        std::fs::write(folder.path().join("reprise.toml"), format!("{CONFIGURATION}{}\n", lines.join("\n")))?;
        let key = async |user: &str, more: &[&str]| {
            let arguments = [&["keys", "create", "--user", user], more].concat();
            run_ok(folder.path(), &arguments).await.trim().to_owned()
        };
        let (talker, attacker) = (key("ann", &[]).await, key("ben", &[]).await);
        let admin = key("carer", &["--scope", "admin", "--scope", "talk", "--scope", "sessions"]).await;
        // Ears, so that audio is heard. A voice would answer for hours.
        let ears = format!("--set=speech.stt={}", ScriptedSpeech::start().await.url());
        let wyoming = own_address();
        let arguments = [
            "serve",
            &ears,
            "--port=0",
            "--preset=builtin",
            "--set=limits.status_s=1",
            &format!("--set=wyoming.host={}", wyoming.ip()),
            &format!("--set=wyoming.port={}", wyoming.port()),
            &format!("--set=wyoming.data_bytes={}", sizes.wyoming_bytes),
            "--set=wyoming.without_key=true",
            "--set=wyoming.user=ben",
            "--set=logging.level=error",
            "--set=auth.required=always",
        ];
        let started = Service::with_arguments(folder, &[], &arguments).await;
        let service = started.map_err(|(status, log)| anyhow!("the service does not start ({status}): {log}"))?;
        let (address, known) = (service.address.clone(), BTreeMap::new());
        let Sizes { body_bytes, message_bytes, wyoming_bytes, .. } = sizes;
        let mut house = StallHouse {
            service,
            address,
            talker,
            attacker,
            admin,
            sizes,
            body_bytes,
            message_bytes,
            wyoming,
            wyoming_bytes,
            known,
        };
        house.fill().await.context("the attacker's past")?;
        Ok(house)
    }

    /// Gives the attacker a past, and the names of what is in it.
    async fn fill(&mut self) -> Result<()> {
        let said = |text: &str| json!({"type": "message", "role": "user", "content": text});
        let message = json!({"role": "user", "content": "Where does my sister live?"});
        let tool = json!({"type": "function", "name": "light", "parameters": {"type": "object", "properties": {}}});
        let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]});
        let session = self.long_conversation().await?;
        let answer = self.post("/v1/responses", &json!({"input": "Hello.", "max_output_tokens": TOKENS})).await?;
        let response = answer["id"].clone();
        let talked = answer["conversation"]["id"].clone();
        let pin = self.post(&format!("/v1/sessions/{session}/pins"), &json!({"text": "Never play jazz."})).await?;
        for n in 0..self.sizes.facts {
            let fact = json!({"text": format!("The box {n} has the key of room {}.", n % 40), "person": "pen"});
            self.post("/v1/memories", &fact).await?;
        }
        let memory = self.post("/v1/memories", &json!({"text": "The gate's code is with Ann."})).await?;
        let items = self.get(&format!("/v1/conversations/{session}/items?limit=1")).await?;
        let models = self.get("/v1/models").await?;
        let model = models["data"][0]["id"].clone();
        self.known = BTreeMap::from_iter([
            ("session_id".to_owned(), json!(session)),
            ("conversation_id".to_owned(), json!(session)),
            ("response_id".to_owned(), response),
            ("pin_id".to_owned(), pin["id"].clone()),
            ("memory_id".to_owned(), memory["id"].clone()),
            ("item_id".to_owned(), items["data"][0]["id"].clone()),
            ("name".to_owned(), json!("pen")),
            ("model".to_owned(), model.clone()),
            ("preset".to_owned(), model),
            ("messages".to_owned(), json!([message])),
            ("input".to_owned(), json!([said("Where does my sister live?")])),
            ("items".to_owned(), json!([said("My sister lives in Lisbon.")])),
            ("item".to_owned(), item),
            ("tools".to_owned(), json!([tool])),
            ("prompt".to_owned(), json!("Where does my sister live?")),
            ("max_tokens".to_owned(), json!(TOKENS)),
            ("max_output_tokens".to_owned(), json!(TOKENS)),
            ("num_predict".to_owned(), json!(TOKENS)),
            ("value".to_owned(), json!(1)),
            ("audio".to_owned(), json!(STANDARD.encode(speech::pcm::to_bytes(&vowel(AUDIO_RATE, 200))))),
        ]);
        // Feedback is for a response of its session.
        self.known.insert("feedback".to_owned(), talked);
        Ok(())
    }

    /// Begins a conversation with as much in it as one request may bring.
    async fn long_conversation(&self) -> Result<String> {
        let around = 128;
        let each = (self.sizes.body_bytes / 2 / self.sizes.entries).saturating_sub(around).min(self.sizes.item_bytes);
        let words = text(each.max(16));
        let item = json!({"type": "message", "role": "user", "content": words});
        let begun = self.post("/v1/conversations", &json!({"items": vec![item; self.sizes.entries]})).await?;
        begun["id"].as_str().map(str::to_owned).context("a conversation has an id")
    }

    /// Forms with a WAV file: a short one, the longest turn that is heard, and the largest body at the lowest rate.
    pub fn forms(&self) -> [(&'static str, Vec<u8>); 3] {
        let form = |rate: u32, samples: usize| {
            let samples = samples.min((self.body_bytes - AROUND_A_FILE) / 2);
            let sound = vowel(rate, 1000).into_iter().cycle().take(samples).collect::<Vec<i16>>();
            let head = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n";
            [head.as_bytes(), &speech::wav::file(rate, &sound), b"\r\n--x--\r\n"].concat()
        };
        let (most, rate) = (usize::MAX, 16_000);
        [
            ("light", form(rate, 1600)),
            ("the longest turn", form(rate, 119 * 16_000)),
            ("the largest file", form(4000, most)),
        ]
    }

    pub fn limits(&self, bytes: usize) -> InputLimits {
        let Sizes { item_bytes, entries, .. } = self.sizes;
        InputLimits { bytes, item_bytes, entries, known: self.known.clone() }
    }

    pub fn query(&self, name: &str) -> Option<String> {
        match name {
            // Words that stand in much of the attacker's past.
            "q" => Some("sist* lamp* kitc* live* wohnt lives".to_owned()),
            "person" => Some("pen".to_owned()),
            "past" => Some("true".to_owned()),
            _ => None,
        }
    }

    /// Fills the names in a path. A request that deletes gets something of its own.
    pub async fn path(&self, method: &str, path: &str) -> Result<String> {
        let mut filled = path.to_owned();
        while let (Some(begin), Some(end)) = (filled.find('{'), filled.find('}')) {
            let name = filled[begin + 1..end].to_owned();
            let value = match (method, name.as_str()) {
                ("DELETE", "session_id") if path.ends_with("{session_id}") => self.long_conversation().await?,
                ("DELETE", "conversation_id") if path.ends_with("{conversation_id}") => {
                    self.long_conversation().await?
                }
                ("DELETE", "key_id") => {
                    let made = self.ask(&self.admin, "POST", "/v1/keys", "{}").await?;
                    made["id"].as_str().map(str::to_owned).context("a key has an id")?
                }
                _ => {
                    let known = self.known.get(&name).and_then(Value::as_str);
                    known.with_context(|| format!("no value can be built for '{{{name}}}' of {path}"))?.to_owned()
                }
            };
            filled.replace_range(begin..=end, &value);
        }
        Ok(filled)
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.ask(&self.attacker, "POST", path, &body.to_string()).await
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        self.ask(&self.attacker, "GET", path, "").await
    }

    async fn ask(&self, key: &str, method: &str, path: &str, body: &str) -> Result<Value> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {key}\r\nx-person: pen\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let answer = raw(&self.address, &[head.as_bytes(), body.as_bytes()].concat()).await?;
        if answer.status >= 300 {
            bail!("{method} {path}: {} {}", answer.status, answer.body);
        }
        Ok(serde_json::from_str(&answer.body)?)
    }

    pub fn peak_bytes(&self) -> u64 {
        self.service.memory_bytes("VmHWM")
    }

    pub async fn close(self) {
        self.service.stop().await;
    }
}
