//! Scripted servers of speech that speak Wyoming: ears that hear what a test says they hear, and a voice whose every
//! character takes the same time.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::f32::consts::PI;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Fault of a server, in place of a good answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Reads, and never answers.
    Hangs,
    /// Closes the connection as soon as it is asked.
    HangsUp,
    /// Answers with these bytes, and waits.
    Says(Vec<u8>),
    Refuses(String),
    /// Answers so many pieces of audio, then closes.
    DiesAfter(usize),
    /// Sends pieces of audio for ever.
    NeverEnds,
    /// Waits before it answers.
    Late(Duration),
}

#[derive(Default)]
struct Script {
    texts: VecDeque<String>,
    fault: Fault,
    asked: Vec<Asked>,
    tells_words: bool,
    tells_partials: bool,
    // Words after which the ears break off while they hear.
    breaks_off: Option<usize>,
    described: usize,
}

/// A request as the server got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub kind: String,
    /// Data of `transcribe` or `synthesize`.
    pub data: Value,
    /// Samples that the ears heard.
    pub samples: usize,
}

#[derive(Clone)]
pub struct ScriptedSpeech {
    pub address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

/// Samples a second and milliseconds of a character of the scripted voice.
pub const VOICE_RATE: u32 = 22_050;
pub const CHAR_MS: u64 = 60;
// Samples of a word that the ears tell while they hear.
const LIVE_WORD: usize = 3200;

impl ScriptedSpeech {
    pub async fn start() -> ScriptedSpeech {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = ScriptedSpeech { address: listener.local_addr().expect("an address"), script: Arc::default() };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = serving.clone();
                tokio::spawn(async move {
                    let _ = server.serve(stream).await;
                });
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("wyoming://{}", self.address)
    }

    /// Adds what the ears hear next, one text a turn.
    pub fn will_hear(&self, texts: &[&str]) {
        self.script.lock().expect("a script").texts.extend(texts.iter().map(|text| (*text).to_owned()));
    }

    pub fn set_fault(&self, fault: Fault) {
        self.script.lock().expect("a script").fault = fault;
    }

    /// Lets each word take a time of its own, whatever its letters, and tells it.
    pub fn tell_words(&self) {
        self.script.lock().expect("a script").tells_words = true;
    }

    /// Lets the ears tell a word for each fifth of a second that they have heard of a turn. `breaks_off`: words after which they hang up once.
    pub fn tell_partials(&self, breaks_off: Option<usize>) {
        let mut script = self.script.lock().expect("a script");
        (script.tells_partials, script.breaks_off) = (true, breaks_off);
    }

    pub fn tell_no_partials(&self) {
        self.script.lock().expect("a script").tells_partials = false;
    }

    pub async fn is_described(&self) {
        while self.script.lock().expect("a script").described == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.script.lock().expect("a script").asked.clone()
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let (mut data, mut samples, mut told) = (json!({}), 0, 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let head: Value = serde_json::from_str(&line)?;
            let mut own = head["data"].clone();
            for (length, is_data) in [(&head["data_length"], true), (&head["payload_length"], false)] {
                let mut bytes = vec![0; length.as_u64().unwrap_or(0) as usize];
                stream.read_exact(&mut bytes).await?;
                if is_data && !bytes.is_empty() {
                    own = serde_json::from_slice(&bytes)?;
                } else if !is_data {
                    samples += bytes.len() / 2;
                }
            }
            let kind = head["type"].as_str().unwrap_or_default();
            match kind {
                "describe" => {
                    let tells_partials = self.script.lock().expect("a script").tells_partials;
                    send(&mut stream, "info", info(tells_partials), &[]).await?;
                    self.script.lock().expect("a script").described += 1;
                }
                "transcribe" => (data, told) = (own, 0),
                "audio-chunk" if self.next_partial(told, samples).is_some() => {
                    while let Some(word) = self.next_partial(told, samples) {
                        let kind = if told == 0 { "transcript-start" } else { "ping" };
                        send(&mut stream, kind, json!({}), &[]).await?;
                        send(&mut stream, "transcript-chunk", json!({ "text": word? }), &[]).await?;
                        told += 1;
                    }
                }
                "audio-stop" | "synthesize" => {
                    if kind == "synthesize" {
                        data = own;
                    }
                    let asked =
                        Asked { kind: kind.to_owned(), data: data.clone(), samples: std::mem::take(&mut samples) };
                    let fault = {
                        let mut script = self.script.lock().expect("a script");
                        script.asked.push(asked);
                        script.fault.clone()
                    };
                    self.answer(&mut stream, kind, &data, fault).await?;
                }
                _ => {}
            }
        }
    }

    // Word that the ears tell next of the audio so far. An error: they hang up.
    fn next_partial(&self, told: usize, samples: usize) -> Option<std::io::Result<String>> {
        let mut script = self.script.lock().expect("a script");
        if !script.tells_partials || samples < (told + 1) * LIVE_WORD {
            return None;
        }
        let word = script.texts.front()?.split_inclusive(' ').nth(told)?.to_owned();
        let is_over = script.breaks_off.take_if(|words| told >= *words).is_some();
        Some(if is_over { Err(std::io::Error::other("hangs up")) } else { Ok(word) })
    }

    async fn answer(
        &self,
        stream: &mut BufReader<TcpStream>,
        kind: &str,
        data: &Value,
        fault: Fault,
    ) -> std::io::Result<()> {
        let mut pieces = usize::MAX;
        match fault {
            Fault::None => {}
            Fault::Hangs => std::future::pending().await,
            Fault::HangsUp => return Err(std::io::Error::other("hangs up")),
            Fault::Says(bytes) => {
                stream.write_all(&bytes).await?;
                std::future::pending().await
            }
            Fault::Refuses(text) => return send(stream, "error", json!({ "text": text, "code": "no" }), &[]).await,
            Fault::DiesAfter(count) => pieces = count,
            Fault::NeverEnds => loop {
                audio(stream, &[9000; 1024]).await?;
            },
            Fault::Late(wait) => tokio::time::sleep(wait).await,
        }
        if kind == "audio-stop" {
            let text = self.script.lock().expect("a script").texts.pop_front().unwrap_or_default();
            send(stream, "transcript", json!({ "text": text }), &[]).await?;
            return send(stream, "transcript-stop", json!({}), &[]).await;
        }
        let form = json!({ "rate": VOICE_RATE, "width": 2, "channels": 1 });
        send(stream, "audio-start", form, &[]).await?;
        let text = data["text"].as_str().unwrap_or_default();
        let words = word_times(text);
        let (words, ms) = match self.script.lock().expect("a script").tells_words {
            true => (words.as_slice(), words.last().map_or(0, |(_, _, end)| *end)),
            false => (&[][..], CHAR_MS * text.trim().chars().count() as u64),
        };
        let samples = u64::from(VOICE_RATE) * ms / 1000;
        for (at, piece) in vec![9000_i16; samples as usize].chunks(1024).enumerate() {
            let begins = |ms: u64| (u64::from(VOICE_RATE) * ms / 1000) as usize / 1024 == at;
            let told: Vec<Value> = words
                .iter()
                .filter(|(_, start, _)| begins(*start))
                .map(|(word, start, end)| json!({ "word": word, "start_time": *start as f64 / 1e3, "end_time": *end as f64 / 1e3 }))
                .collect();
            if !told.is_empty() {
                send(stream, "words", json!({ "timestamps": told }), &[]).await?;
            }
            pieces = match pieces.checked_sub(1) {
                Some(left) => left,
                None => return Err(std::io::Error::other("dies")),
            };
            audio(stream, piece).await?;
        }
        send(stream, "audio-stop", json!({}), &[]).await
    }
}

/// Words of a text with their begins and ends in milliseconds, as a voice says them that tells its words.
pub fn word_times(text: &str) -> Vec<(String, u64, u64)> {
    let mut at = 0;
    let word = |(number, word): (usize, &str)| {
        let start = at + 40;
        at = start + 90 + (number as u64 * 7 + 3) % 5 * 210;
        (word.to_owned(), start, at)
    };
    text.split_whitespace().enumerate().map(word).collect()
}

async fn audio(stream: &mut BufReader<TcpStream>, samples: &[i16]) -> std::io::Result<()> {
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    send(stream, "audio-chunk", json!({ "rate": VOICE_RATE, "width": 2, "channels": 1 }), &bytes).await
}

async fn send(stream: &mut BufReader<TcpStream>, kind: &str, data: Value, payload: &[u8]) -> std::io::Result<()> {
    let data = data.to_string();
    let head = json!({ "type": kind, "version": "1.10.2", "data_length": data.len(), "payload_length": payload.len() });
    stream.write_all(&[format!("{head}\n{data}").as_bytes(), payload].concat()).await
}

fn info(tells_partials: bool) -> Value {
    let whose = json!({ "name": "tests", "url": "" });
    let model = |name: &str| json!({ "name": name, "attribution": whose, "installed": true, "languages": ["en"] });
    json!({
        "asr": [{
            "name": "scripted ears", "attribution": whose, "installed": true, "models": [model("script")],
            "supports_transcript_streaming": tells_partials,
        }],
        "tts": [{ "name": "scripted voice", "attribution": whose, "installed": true, "voices": [model("anna"), model("ben")] }],
    })
}

/// A buzz with the formants of an open vowel, which a detector takes for a voice.
pub fn vowel(rate: u32, ms: u64) -> Vec<i16> {
    let mut state = [[0.0_f32; 2]; 3];
    let formants = [(730.0_f32, 90.0_f32), (1090.0, 110.0), (2440.0, 170.0)];
    let rate = rate as f32;
    let sample = |at: usize| {
        let pitch = 120.0 + 12.0 * (at as f32 * 5.3 / rate).sin();
        let pulse = if at.is_multiple_of((rate / pitch) as usize) { 1.0 } else { 0.0 };
        let mut sum = 0.0;
        for ((hertz, width), [one, two]) in formants.into_iter().zip(&mut state) {
            let radius = (-PI * width / rate).exp();
            let next = pulse + 2.0 * radius * (2.0 * PI * hertz / rate).cos() * *one - radius * radius * *two;
            (*two, *one) = (*one, next);
            sum += next;
        }
        (sum * 2000.0).clamp(-30_000.0, 30_000.0) as i16
    };
    (0..(rate * ms as f32 / 1000.0) as usize).map(sample).collect()
}
