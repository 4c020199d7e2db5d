//! A stand-in for a hub that takes models: repositories, objects (on another server, as at the real one), commits, and failures.

use crate::http::Head;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

pub const REPO: &str = "someone/Model-GGUF";
const BRANCH: &str = "main";

pub struct UploadHub {
    pub url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    pages: String,
    objects_url: String,
    exists: bool,
    token: Option<String>,
    may_write: bool,
    /// Bytes of a part; `None`: objects are sent whole.
    part_bytes: Option<usize>,
    files: BTreeMap<String, Vec<u8>>,
    commits: usize,
    objects: BTreeMap<String, Vec<u8>>,
    parts: BTreeMap<(String, usize), Vec<u8>>,
    troubles: BTreeMap<RequestKind, VecDeque<Trouble>>,
    seen: Vec<SeenUpload>,
}

/// Kind of a request that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    Create,
    Object,
    Commit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Status(u16),
    /// The connection ends after this number of the request's bytes.
    Cut(usize),
    /// The request is done, and its answer is lost.
    Unanswered,
    /// Another commit comes first.
    Overtaken,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenUpload {
    pub line: String,
    pub token: Option<String>,
}

impl UploadHub {
    pub fn start(token: &str) -> UploadHub {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [pages, objects_url] =
            listeners.each_ref().map(|listener| format!("http://{}", listener.local_addr().expect("an address")));
        let state = State {
            pages: pages.clone(),
            objects_url,
            token: Some(token.to_owned()),
            may_write: true,
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        for listener in listeners {
            let state = state.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let state = state.clone();
                    // A client may hang up in the middle: the error is not the hub's.
                    std::thread::spawn(move || serve(stream, &state));
                }
            });
        }
        UploadHub { url: pages, state }
    }

    pub fn next(&self, kind: RequestKind, troubles: &[Trouble]) {
        lock(&self.state).troubles.entry(kind).or_default().extend(troubles);
    }

    pub fn in_parts(&self, bytes: usize) {
        lock(&self.state).part_bytes = Some(bytes);
    }

    pub fn forbid(&self) {
        lock(&self.state).may_write = false;
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = lock(&self.state);
        state.exists = true;
        state.files.insert(name.to_owned(), bytes.to_vec());
    }

    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        lock(&self.state).files.clone()
    }

    pub fn commits(&self) -> usize {
        lock(&self.state).commits
    }

    /// The requests since the last call.
    pub fn seen(&self) -> Vec<SeenUpload> {
        std::mem::take(&mut lock(&self.state).seen)
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut line, mut first) = (Head::default(), String::new(), String::new());
    while reader.read_line(&mut line)? > 0 && head.take(&line) {
        if first.is_empty() {
            first = line.trim().trim_end_matches(" HTTP/1.1").to_owned();
        }
        line.clear();
    }
    let token = head.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
    let kind = match &first {
        first if first.contains("/api/repos/create") => Some(RequestKind::Create),
        first if first.contains("/commit/") => Some(RequestKind::Commit),
        first if first.starts_with("PUT ") => Some(RequestKind::Object),
        _ => None,
    };
    let trouble = {
        let mut state = lock(state);
        state.seen.push(SeenUpload { line: first.clone(), token: token.clone() });
        kind.and_then(|kind| state.troubles.get_mut(&kind)?.pop_front())
    };
    let length = head.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let length = match trouble {
        Some(Trouble::Cut(bytes)) => length.min(bytes),
        _ => length,
    };
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut out = reader.into_inner();
    let (status, headers, answer) = match trouble {
        Some(Trouble::Cut(_)) => return Ok(()),
        Some(Trouble::Status(status)) => (status, "retry-after: 0\r\n".to_owned(), Value::Null),
        _ => {
            let mut state = lock(state);
            if trouble == Some(Trouble::Overtaken) {
                state.commits += 1;
            }
            answer(&mut state, &first, token.as_deref(), &body)
        }
    };
    if trouble == Some(Trouble::Unanswered) {
        return Ok(());
    }
    let text = match answer {
        Value::Null => Vec::new(),
        Value::Array(bytes) => bytes.iter().filter_map(Value::as_u64).map(|byte| byte as u8).collect(),
        other => other.to_string().into_bytes(),
    };
    write!(out, "HTTP/1.1 {status} Status\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", text.len())?;
    out.write_all(&text)
}

type Answer = (u16, String, Value);

fn answer(state: &mut State, line: &str, token: Option<&str>, body: &[u8]) -> Answer {
    let plain = |status: u16, answer: Value| (status, String::new(), answer);
    let (method, path) = line.split_once(' ').unwrap_or_default();
    if let Some(object) = path.strip_prefix("/objects/") {
        return take_object(state, method, object, body);
    }
    if token != state.token.as_deref() {
        return plain(401, Value::Null);
    }
    let json: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    match path {
        "/api/repos/create" if !state.may_write => plain(403, Value::Null),
        "/api/repos/create" if state.exists => plain(409, Value::Null),
        "/api/repos/create" => {
            state.exists = true;
            plain(200, json!({ "url": format!("{}/{REPO}", state.pages) }))
        }
        "/verify" => match state.objects.get(json["oid"].as_str().unwrap_or_default()) {
            Some(object) if json["size"] == object.len() => plain(200, Value::Null),
            _ => plain(404, Value::Null),
        },
        _ if path == format!("/api/models/{REPO}/revision/{BRANCH}?blobs=true") => plain(200, listing(state)),
        _ if path == format!("/api/models/{REPO}/preupload/{BRANCH}") => {
            let mode =
                |path: &Value| if path.as_str().unwrap_or_default().ends_with(".gguf") { "lfs" } else { "regular" };
            let files = json["files"].as_array().into_iter().flatten();
            let files = files.map(|file| json!({ "path": file["path"], "uploadMode": mode(&file["path"]) }));
            plain(200, json!({ "files": files.collect::<Vec<_>>() }))
        }
        _ if path == format!("/{REPO}.git/info/lfs/objects/batch") => plain(200, batch(state, &json)),
        _ if path == format!("/api/models/{REPO}/commit/{BRANCH}") => commit(state, body),
        _ => match path.strip_prefix(&format!("/{REPO}/resolve/{}/", name_of(state.commits))) {
            Some(file) if state.files.contains_key(file) => {
                plain(200, Value::Array(state.files[file].iter().map(|byte| json!(byte)).collect()))
            }
            _ => plain(404, Value::Null),
        },
    }
}

fn name_of(commits: usize) -> String {
    format!("{commits:040x}")
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn listing(state: &State) -> Value {
    let siblings = state.files.iter().map(|(name, bytes)| {
        let mut entry = json!({ "rfilename": name, "size": bytes.len() });
        if name.ends_with(".gguf") {
            entry["lfs"] = json!({ "sha256": sha256(bytes), "size": bytes.len() });
        }
        entry
    });
    json!({ "id": REPO, "sha": name_of(state.commits), "siblings": siblings.collect::<Vec<_>>() })
}

fn batch(state: &State, wanted: &Value) -> Value {
    let objects = wanted["objects"].as_array().into_iter().flatten().map(|object| {
        let oid = object["oid"].as_str().unwrap_or_default();
        let size = object["size"].as_u64().unwrap_or(0) as usize;
        if state.objects.contains_key(oid) {
            return json!({ "oid": oid, "size": size });
        }
        let url = &state.objects_url;
        let upload = match state.part_bytes {
            None => json!({ "href": format!("{url}/objects/{oid}"), "header": { "x-amz-meta": "yes" } }),
            Some(bytes) => {
                let parts = (1..=size.div_ceil(bytes)).map(|part| (part.to_string(), json!(format!("{url}/objects/{oid}/{part}"))));
                let mut header: serde_json::Map<String, Value> = parts.collect();
                header.insert("chunk_size".to_owned(), json!(bytes.to_string()));
                json!({ "href": format!("{url}/objects/{oid}/complete"), "header": header })
            }
        };
        json!({ "oid": oid, "size": size, "actions": { "upload": upload, "verify": { "href": format!("{}/verify", state.pages) } } })
    });
    json!({ "transfer": "basic", "objects": objects.collect::<Vec<_>>() })
}

fn take_object(state: &mut State, method: &str, object: &str, body: &[u8]) -> Answer {
    let plain = |status: u16| (status, String::new(), Value::Null);
    match (method, object.split_once('/')) {
        ("PUT", None) if sha256(body) == object => {
            state.objects.insert(object.to_owned(), body.to_vec());
            plain(200)
        }
        ("PUT", Some((oid, part))) => {
            let Ok(part) = part.parse() else { return plain(404) };
            state.parts.insert((oid.to_owned(), part), body.to_vec());
            (200, format!("etag: \"part-{part}\"\r\n"), Value::Null)
        }
        ("POST", Some((oid, "complete"))) => {
            let told: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
            let parts = told["parts"].as_array().into_iter().flatten();
            let mut whole = Vec::new();
            for (at, part) in parts.enumerate() {
                let found = state.parts.get(&(oid.to_owned(), at + 1));
                match found.filter(|_| part["etag"] == format!("\"part-{}\"", at + 1)) {
                    Some(bytes) => whole.extend_from_slice(bytes),
                    None => return plain(400),
                }
            }
            if sha256(&whole) != oid {
                return plain(400);
            }
            state.objects.insert(oid.to_owned(), whole);
            plain(200)
        }
        _ => plain(400),
    }
}

fn commit(state: &mut State, body: &[u8]) -> Answer {
    let plain = |status: u16, answer: Value| (status, String::new(), answer);
    let lines: Vec<Value> =
        String::from_utf8_lossy(body).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let Some(header) = lines.first().filter(|line| line["key"] == "header") else { return plain(400, Value::Null) };
    if header["value"]["parentCommit"] != name_of(state.commits) {
        return plain(412, Value::Null);
    }
    let mut files = state.files.clone();
    for line in &lines[1..] {
        let value = &line["value"];
        let path = value["path"].as_str().unwrap_or_default().to_owned();
        let bytes = match line["key"].as_str() {
            Some("lfsFile") => state.objects.get(value["oid"].as_str().unwrap_or_default()).cloned(),
            Some("file") => from_base64(value["content"].as_str().unwrap_or_default()),
            _ => None,
        };
        let Some(bytes) = bytes else { return plain(400, Value::Null) };
        files.insert(path, bytes);
    }
    (state.files, state.commits) = (files, state.commits + 1);
    plain(200, json!({ "commitOid": name_of(state.commits), "commitUrl": "" }))
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.decode(text).ok()
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
