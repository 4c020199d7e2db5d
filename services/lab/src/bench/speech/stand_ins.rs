//! Ears, a voice and a model that stand in for real ones: each takes a known time, and notes when it was asked and when it
//! answered.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use speech::{samples_of, vowel};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use voices::{FrameLimits, FrameReader, write, write_with_payload};

#[derive(Clone)]
pub struct SpeechStandIns {
    pub wyoming: String,
    pub upstream: String,
    script: Arc<StandInScript>,
}

/// Times that the stand-ins take.
#[derive(Clone, Copy, Debug)]
pub struct StandInTimes {
    pub ears: Duration,
    pub voice: Duration,
    pub model: Duration,
}

struct StandInScript {
    times: StandInTimes,
    sound: Vec<i16>,
    answers: Mutex<StandInAnswers>,
}

#[derive(Default)]
struct StandInAnswers {
    reply: String,
    tells_words: bool,
    taken: Vec<(StandInKind, Range<Instant>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandInKind {
    Ears,
    Model,
    Voice,
}

/// Samples a second of the stand-in's voice.
const RATE: u32 = 22_050;
const PIECE: usize = 1024;
// Bytes of an event, and of a request to the model.
const MOST_BYTES: usize = 4 << 20;

impl SpeechStandIns {
    pub async fn start(times: StandInTimes) -> Result<SpeechStandIns> {
        let (wyoming, upstream) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
        let stand_ins = SpeechStandIns {
            wyoming: format!("wyoming://{}", wyoming.local_addr()?),
            upstream: format!("http://{}/v1", upstream.local_addr()?),
            script: Arc::new(StandInScript { times, sound: vowel(RATE, LONGEST_WORD_MS), answers: Mutex::default() }),
        };
        let (speaking, thinking) = (stand_ins.clone(), stand_ins.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = wyoming.accept().await {
                let script = speaking.script.clone();
                tokio::spawn(async move { script.speak(stream).await });
            }
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = upstream.accept().await {
                let script = thinking.script.clone();
                tokio::spawn(async move { script.think(stream).await });
            }
        });
        Ok(stand_ins)
    }

    /// Sets what the model says from now on, and whether the voice tells the times of its words.
    pub fn reply(&self, text: &str, tells_words: bool) {
        let mut answers = self.script.answers();
        (answers.reply, answers.tells_words) = (text.to_owned(), tells_words);
    }

    /// Takes the times at which they worked.
    pub fn taken(&self) -> Vec<(StandInKind, Range<Instant>)> {
        std::mem::take(&mut self.script.answers().taken)
    }
}

impl StandInScript {
    fn answers(&self) -> std::sync::MutexGuard<'_, StandInAnswers> {
        self.answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn took(&self, stand_in: StandInKind, from: Instant) {
        self.answers().taken.push((stand_in, from..Instant::now()));
    }

    // Serves one connection of ears or of a voice until it ends.
    async fn speak(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let limits = FrameLimits { line_bytes: MOST_BYTES, data_bytes: MOST_BYTES, payload_bytes: MOST_BYTES as u64 };
        let (mut reader, mut buffer) = (FrameReader::with_payloads(limits), vec![0; 16 << 10]); // not a window: bytes
        loop {
            let Some(event) = reader.event().map_err(|wrong| anyhow::anyhow!("{}", wrong.message()))? else {
                match stream.read(&mut buffer).await? {
                    0 => return Ok(()),
                    count => reader.push(&buffer[..count]),
                }
                continue;
            };
            drop(reader.payload());
            let asked = Instant::now();
            match event.kind.as_str() {
                "describe" => stream.write_all(write("info", info()).as_bytes()).await?,
                "audio-stop" => {
                    tokio::time::sleep(self.times.ears).await;
                    stream.write_all(write("transcript", object(json!({ "text": HEARD }))).as_bytes()).await?;
                    self.took(StandInKind::Ears, asked);
                }
                "synthesize" => {
                    let text = event.data.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
                    self.say(&mut stream, &text, asked).await?;
                }
                _ => {}
            }
        }
    }

    async fn say(&self, stream: &mut TcpStream, text: &str, asked: Instant) -> Result<()> {
        tokio::time::sleep(self.times.voice).await;
        let words = word_times(text);
        let mut start = object(json!({ "rate": RATE, "width": 2, "channels": 1 }));
        if self.answers().tells_words {
            let told = words.iter().map(|(word, span)| {
                json!({ "word": word, "start_time": span.start as f64 / 1e3, "end_time": span.end as f64 / 1e3 })
            });
            start.insert("timestamps".to_owned(), told.collect());
        }
        stream.write_all(write("audio-start", start).as_bytes()).await?;
        let mut samples = vec![0; samples_of(words.last().map_or(0, |(_, span)| span.end), RATE) as usize];
        for (_, span) in &words {
            let (begin, end) = (samples_of(span.start, RATE) as usize, samples_of(span.end, RATE) as usize);
            samples[begin..end].iter_mut().zip(&self.sound).for_each(|(sample, sound)| *sample = *sound);
        }
        for (number, piece) in samples.chunks(PIECE).enumerate() {
            let form = json!({ "rate": RATE, "width": 2, "channels": 1 });
            stream.write_all(&write_with_payload("audio-chunk", form, &speech::pcm::to_bytes(piece))).await?;
            if number == 0 {
                self.took(StandInKind::Voice, asked);
            }
        }
        Ok(stream.write_all(write("audio-stop", Map::new()).as_bytes()).await?)
    }

    // Answers one request to the model.
    async fn think(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let (mut request, mut buffer) = (Vec::new(), vec![0; 16 << 10]); // not a window: bytes
        let body = loop {
            let count = stream.read(&mut buffer).await?;
            request.extend_from_slice(&buffer[..count]);
            if count == 0 || request.len() > MOST_BYTES {
                bail!("the request has no end");
            }
            let Some(head) = request.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
            let length =
                text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if request.len() >= head + 4 + length.unwrap_or(0) {
                break text;
            }
        };
        let asked = Instant::now();
        let is_chat = body.lines().next().context("a request")?.contains("/chat/completions");
        if !is_chat {
            let models = json!({ "data": [{ "id": "stand-in" }] }).to_string();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
            return Ok(stream.write_all(format!("{head}{models}").as_bytes()).await?);
        }
        tokio::time::sleep(self.times.model).await;
        let choice =
            |delta: Value, end: Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": end }] });
        let said = choice(json!({ "content": self.answers().reply.clone() }), Value::Null);
        let end = choice(json!({}), json!("stop"));
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        stream.write_all(format!("{head}data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n").as_bytes()).await?;
        self.took(StandInKind::Model, asked);
        Ok(())
    }
}

const LONGEST_WORD_MS: u64 = 1000;
const HEARD: &str = "How warm is it today?";

/// Words with the milliseconds in which the stand-in says them. Their lengths do not follow their letters.
pub fn word_times(text: &str) -> Vec<(&str, Range<u64>)> {
    let mut at = 0;
    let words = text.split_whitespace().enumerate().map(|(number, word)| {
        let start = at + 30;
        at = start + 110 + (number as u64 * 7 + word.len() as u64) % 6 * 90;
        (word, start..at)
    });
    words.collect()
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn info() -> Map<String, Value> {
    let whose = json!({ "name": "bench", "url": "" });
    let one = json!({ "name": "stand-in", "attribution": whose, "installed": true, "languages": ["en"] });
    let program = |list: &str| json!([{ "name": "stand-in", "attribution": whose, "installed": true, list: [one] }]);
    object(json!({ "asr": program("models"), "tts": program("voices") }))
}
