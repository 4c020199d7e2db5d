//! A stand-in for a hub of models: its listing, its downloads (on another server, as at the real one), and their failures.

use crate::http::Head;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

pub const REPO: &str = "someone/Model-GGUF";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

pub struct StandInHub {
    pub url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    token: Option<String>,
    gated: bool,
    troubles: VecDeque<Trouble>,
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The connection ends after so many bytes.
    Cut(usize),
    Status(u16),
    /// One byte is changed.
    Damage,
    /// The whole file, whatever range the client asked for.
    NoRanges,
    /// Stop after this number of bytes, until the client gives up.
    Stall(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub download: bool,
    pub path: String,
    pub range: Option<String>,
    pub token: Option<String>,
}

impl StandInHub {
    pub fn start(files: &[(&str, Vec<u8>)]) -> StandInHub {
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect();
        let state = Arc::new(Mutex::new(State { files, ..State::default() }));
        let [downloads, pages] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [of_downloads, of_pages] =
            [&downloads, &pages].map(|listener| format!("http://{}", listener.local_addr().expect("an address")));
        for (listener, is_download) in [(downloads, true), (pages, false)] {
            let (state, of_downloads) = (state.clone(), of_downloads.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let (state, of_downloads) = (state.clone(), of_downloads.clone());
                    // A client may hang up in the middle: the error is not the hub's.
                    std::thread::spawn(move || serve(stream, is_download, &state, &of_downloads));
                }
            });
        }
        StandInHub { url: of_pages, state }
    }

    pub fn next_downloads(&self, troubles: &[Trouble]) {
        lock(&self.state).troubles.extend(troubles);
    }

    pub fn demand(&self, token: &str) {
        lock(&self.state).token = Some(token.to_owned());
    }

    pub fn gate(&self) {
        lock(&self.state).gated = true;
    }

    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        lock(&self.state).files.insert(name.to_owned(), bytes);
    }

    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut lock(&self.state).seen)
    }
}

fn serve(stream: TcpStream, download: bool, state: &Mutex<State>, downloads: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut head = Head::default();
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 && head.take(&line) {
        line.clear();
    }
    let range = head.header("range").map(str::to_owned);
    let token = head.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
    let path = head.path;
    let seen = Seen { download, path: path.clone(), range: range.clone(), token: token.clone() };
    let (files, wanted, gated, trouble) = {
        let mut state = lock(state);
        state.seen.push(seen);
        let trouble = if download { state.troubles.pop_front() } else { None };
        (state.files.clone(), state.token.clone(), state.gated, trouble)
    };
    let mut out = reader.into_inner();
    if download {
        let bytes = files.get(path.trim_start_matches("/files/"));
        return give(&mut out, bytes, range.as_deref(), trouble);
    }
    let allowed = wanted.is_none() || wanted == token;
    let answer = |out: &mut TcpStream, status: &str, headers: &str, body: &str| {
        let length = body.len();
        write!(out, "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
    };
    if gated {
        return answer(&mut out, "403 Forbidden", "x-error-code: GatedRepo\r\n", "");
    }
    if !allowed || !path.contains(REPO) {
        return answer(&mut out, "401 Unauthorized", "x-error-code: RepoNotFound\r\n", "");
    }
    if let Some(revision) = path.strip_prefix(&format!("/api/models/{REPO}/revision/")) {
        if !revision.starts_with("main?") && !revision.starts_with("v1?") {
            return answer(&mut out, "404 Not Found", "x-error-code: RevisionNotFound\r\n", "");
        }
        return answer(&mut out, "200 OK", "content-type: application/json\r\n", &listing(&files).to_string());
    }
    // A file is asked for at its commit, and downloaded from the other server.
    match path.strip_prefix(&format!("/{REPO}/resolve/{COMMIT}/")) {
        Some(file) if files.contains_key(file) => {
            answer(&mut out, "302 Found", &format!("location: {downloads}/files/{file}\r\n"), "")
        }
        _ => answer(&mut out, "404 Not Found", "x-error-code: EntryNotFound\r\n", ""),
    }
}

fn listing(files: &BTreeMap<String, Vec<u8>>) -> serde_json::Value {
    let siblings = files.iter().map(|(name, bytes)| {
        let mut entry = json!({"rfilename": name, "size": bytes.len(), "blobId": "0000"});
        // The real hub keeps small texts without a checksum.
        if !name.ends_with(".json") {
            let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            entry["lfs"] = json!({"sha256": sha256, "size": bytes.len(), "pointerSize": 130});
        }
        entry
    });
    json!({"id": REPO, "sha": COMMIT, "siblings": siblings.collect::<Vec<_>>()})
}

fn give(
    out: &mut TcpStream,
    bytes: Option<&Vec<u8>>,
    range: Option<&str>,
    trouble: Option<Trouble>,
) -> std::io::Result<()> {
    let Some(bytes) = bytes else { return write!(out, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n") };
    if let Some(Trouble::Status(status)) = trouble {
        return write!(
            out,
            "HTTP/1.1 {status} Trouble\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    let asked = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let start = asked.filter(|_| trouble != Some(Trouble::NoRanges)).unwrap_or(0);
    let mut body = bytes.get(start..).unwrap_or_default().to_vec();
    if trouble == Some(Trouble::Damage) {
        let middle = body.len() / 2;
        body[middle] ^= 1;
    }
    let (length, total) = (body.len(), bytes.len());
    match asked.filter(|_| trouble != Some(Trouble::NoRanges)) {
        Some(start) => write!(
            out,
            "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {start}-{}/{total}\r\ncontent-length: {length}\r\n\r\n",
            total - 1
        )?,
        None => write!(out, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")?,
    }
    match trouble {
        Some(Trouble::Cut(bytes)) => out.write_all(&body[..bytes.min(length)]),
        Some(Trouble::Stall(bytes)) => {
            out.write_all(&body[..bytes.min(length)])?;
            std::io::Read::read(out, &mut [0]).map(|_| ())
        }
        _ => out.write_all(&body),
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
