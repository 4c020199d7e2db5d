use crate::Error;
use crate::http;
use crate::places::ServerPlace;
use crate::server::{Server, SpeechHealth};
use crate::words::{WordTimes, captioned};
use crate::wyoming::{WyomingCall, describe};
use futures_util::StreamExt;
use serde_json::{Value, json};
use settings::{SpeechServer, SpeechSettings};
use speech::pcm::SampleBytes;
use speech::wav::{WavHead, read_head};
use speech::{Resampler, WordTime};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Server that makes speech of text.
pub struct Voice {
    server: Server,
    speaker: Option<String>,
    piece_samples: u64,
    // True if an HTTP server is asked for the times of words too.
    tells_words: bool,
}

/// Samples a second of all that a voice says here.
pub const VOICE_RATE: u32 = 24_000;

/// Wishes of a client about the voice.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedVoice {
    /// Name that a client wants. `None`: that of the configuration.
    pub name: Option<String>,
    /// Speaker where the client wants none that there is. `None`: that of the configuration.
    pub usual: Option<String>,
    pub language: Option<String>,
    /// Pace beside the usual one, where the server knows it.
    pub speed: f64,
}

impl Default for WantedVoice {
    fn default() -> WantedVoice {
        WantedVoice { name: None, usual: None, language: None, speed: 1.0 }
    }
}

/// Speech of one text on its way. Dropping it cancels the request.
pub struct Saying {
    pieces: mpsc::Receiver<Result<SaidPiece, Error>>,
}

/// Part of a speech, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaidPiece {
    // Samples at `VOICE_RATE`.
    pub samples: Vec<i16>,
    /// Times of words, where the voice tells them. They may come before or behind their sound.
    pub words: Vec<WordTime>,
}

// Pieces of audio that wait for a reader.
const WAITING: usize = 4;
// Samples of the largest piece.
const PIECE: usize = 4096; // not a window: samples
// Time after which a reader that takes nothing gives its place to others: a listener plays what it has for half a minute.
const PATIENCE: Duration = Duration::from_millis(250);

impl Saying {
    /// Returns the next part. `None`: all was said.
    pub async fn next(&mut self) -> Option<Result<SaidPiece, Error>> {
        self.pieces.recv().await
    }
}

impl Voice {
    pub fn new(address: &SpeechServer, settings: &SpeechSettings, key: Option<String>) -> Result<Voice, Error> {
        let server = Server::new(("voice", address, &settings.tts_model), settings, key)?;
        let piece_samples = speech::samples_of(settings.piece_s * 1000, VOICE_RATE);
        Ok(Voice { server, speaker: settings.voice.clone(), piece_samples, tells_words: settings.tts_word_times })
    }

    pub fn state(&self) -> SpeechHealth {
        self.server.state()
    }

    pub fn address(&self) -> &SpeechServer {
        &self.server.address
    }

    pub async fn probe(&self) {
        let found = match &self.server.address {
            SpeechServer::Wyoming(place) => describe(&self.server, place, "tts").await,
            SpeechServer::Http(base) => http::describe(&self.server, base).await,
        };
        self.server.set(found);
    }

    /// Returns the name of the speaker that a client gets.
    pub fn speaker(&self, wanted: &WantedVoice) -> Option<String> {
        let listed = wanted.name.as_ref().filter(|name| !name.is_empty() && self.server.lists(name)).cloned();
        listed.or_else(|| wanted.usual.clone()).or_else(|| self.speaker.clone())
    }

    /// Says a text. `user`: whose turn it takes.
    pub fn say(self: &Arc<Voice>, user: &str, text: String, speaker: WantedVoice) -> Saying {
        let (sender, pieces) = mpsc::channel(WAITING);
        let (voice, user) = (self.clone(), user.to_owned());
        tokio::spawn(async move {
            let mut told = PieceWriter {
                sender: &sender,
                left: voice.piece_samples,
                words_left: text.len(),
                server: &voice.server,
                resampler: None,
                user: &user,
                place: None,
            };
            let said = tokio::select! {
                said = voice.speak(&text, &speaker, &mut told) => said,
                () = sender.closed() => return,
            };
            drop(told);
            if let Err(error) = said {
                voice.server.failed(&error);
                let _ = sender.send(Err(error)).await;
            }
        });
        Saying { pieces }
    }

    async fn speak(&self, text: &str, speaker: &WantedVoice, told: &mut PieceWriter<'_>) -> Result<(), Error> {
        told.place = Some(self.server.place(told.user).await?);
        match &self.server.address {
            SpeechServer::Wyoming(place) => self.over_wyoming(place, text, speaker, told).await,
            SpeechServer::Http(base) if self.tells_words => self.with_captions(base, text, speaker, told).await,
            SpeechServer::Http(base) => self.over_http(base, text, speaker, told).await,
        }
    }

    async fn over_wyoming(
        &self,
        place: &str,
        text: &str,
        speaker: &WantedVoice,
        told: &mut PieceWriter<'_>,
    ) -> Result<(), Error> {
        let mut request = WyomingCall::connect(&self.server, place).await?;
        let mut voice = json!({});
        if let Some(name) = self.speaker(speaker) {
            voice["name"] = json!(name);
        } else if let Some(language) = &speaker.language {
            voice["language"] = json!(language);
        }
        let mut data = json!({ "text": text });
        if voice != json!({}) {
            data["voice"] = voice;
        }
        request.send("synthesize", data).await?;
        let mut form = None;
        loop {
            let (event, payload) = request.next().await?;
            told.words(WordTimes::of(&event.data)).await?;
            match event.kind.as_str() {
                "audio-start" => form = Some(self.form(&event.data)?),
                "audio-chunk" => {
                    let form = match form {
                        Some(form) => form,
                        None => *form.insert(self.form(&event.data)?),
                    };
                    told.bytes(form, &payload).await?;
                }
                "audio-stop" => return told.end().await,
                _ => {}
            }
        }
    }

    // Rate and channels of what comes.
    fn form(&self, data: &serde_json::Map<String, Value>) -> Result<(u32, usize), Error> {
        let number = |name: &str| data.get(name).and_then(Value::as_u64);
        let rate = number("rate").and_then(|rate| u32::try_from(rate).ok()).filter(|rate| speech::RATES.contains(rate));
        let rate = rate.ok_or_else(|| self.server.nonsense("audio without a rate that audio has"))?;
        let channels = number("channels").unwrap_or(1);
        if number("width").unwrap_or(2) != 2 || !(1..=2).contains(&channels) {
            return Err(self.server.nonsense("audio that is not of 16 bits in one or two channels"));
        }
        Ok((rate, channels as usize))
    }

    async fn over_http(
        &self,
        base: &str,
        text: &str,
        speaker: &WantedVoice,
        told: &mut PieceWriter<'_>,
    ) -> Result<(), Error> {
        let name = self.speaker(speaker).unwrap_or_else(|| USUAL.to_owned());
        let body = http::speech(&self.server, text, &name, speaker.speed);
        let request = http::post(&self.server, base, "audio/speech").json(&body);
        let response = http::send(&self.server, request).await?;
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if NO_SAMPLES.iter().any(|no_samples| kind.starts_with(no_samples)) {
            return Err(self.server.nonsense(format!("{kind} in place of samples (response_format pcm)")));
        }
        let mut pieces = response.bytes_stream();
        let (mut head, mut form) = (Vec::new(), None);
        while let Some(piece) = self.server.in_time(pieces.next()).await? {
            let piece = piece.map_err(|_| self.server.broke_off())?;
            if let Some(form) = form {
                told.bytes(form, &piece).await?;
                continue;
            }
            head.extend_from_slice(&piece);
            if let Some(WavHead { rate, channels, begin }) = self.begin(&head)? {
                told.bytes((rate, channels), &head[begin..]).await?;
                (form, head) = (Some((rate, channels)), Vec::new());
            }
        }
        if !head.is_empty() {
            return Err(self.server.nonsense("the head of a file alone"));
        }
        told.end().await
    }

    // Finds the form of an answer's samples and the byte at which they begin. Some servers send a WAV file whatever they are asked for.
    // `None`: its head is not all there.
    fn begin(&self, bytes: &[u8]) -> Result<Option<WavHead>, Error> {
        if !bytes.iter().zip(b"RIFF").all(|(one, other)| one == other) {
            return Ok(Some(WavHead { rate: VOICE_RATE, channels: 1, begin: 0 }));
        }
        match read_head(bytes).filter(|head| speech::RATES.contains(&head.rate)) {
            Some(head) => Ok(Some(head)),
            None if bytes.len() < MOST_HEAD => Ok(None),
            None => Err(self.server.nonsense("a WAV file that is not of 16 bits in one or two channels")),
        }
    }

    // Asks for audio with the times of words: a JSON object a line.
    async fn with_captions(
        &self,
        base: &str,
        text: &str,
        speaker: &WantedVoice,
        told: &mut PieceWriter<'_>,
    ) -> Result<(), Error> {
        let name = self.speaker(speaker).unwrap_or_else(|| USUAL.to_owned());
        let mut body = http::speech(&self.server, text, &name, speaker.speed);
        (body["stream"], body["return_timestamps"]) = (json!(true), json!(true));
        let base = base.trim_end_matches("/v1");
        let response = http::send(&self.server, http::post(&self.server, base, CAPTIONS).json(&body)).await?;
        let (mut pieces, mut unread) = (response.bytes_stream(), Vec::new());
        loop {
            let piece = match self.server.in_time(pieces.next()).await? {
                Some(piece) => piece.map_err(|_| self.server.broke_off())?,
                None => break,
            };
            unread.extend_from_slice(&piece);
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = unread.drain(..=end).collect();
                self.caption(&line, told).await?;
            }
            if unread.len() > self.server.answer_bytes {
                return Err(self.server.nonsense("a line that is too long (speech.answer_bytes)"));
            }
        }
        self.caption(&unread, told).await?;
        told.end().await
    }

    async fn caption(&self, line: &[u8], told: &mut PieceWriter<'_>) -> Result<(), Error> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let (audio, words) = captioned(line).ok_or_else(|| self.server.nonsense("a line without audio"))?;
        told.words(words).await?;
        told.bytes((VOICE_RATE, 1), &audio).await
    }
}

// Types of answers that are no samples.
const NO_SAMPLES: [&str; 10] = [
    "application/json",
    "text/",
    "audio/mp",
    "audio/ogg",
    "audio/opus",
    "audio/aac",
    "audio/flac",
    "audio/x-flac",
    "audio/webm",
    "video/",
];
// Bytes of the longest head of a WAV file.
const MOST_HEAD: usize = 4096; // not a window: bytes of a head
// Path at which Kokoro's server tells the times of words.
const CAPTIONS: &str = "dev/captioned_speech";
// Voice where neither the client nor the configuration names one, and an HTTP server wants a name.
const USUAL: &str = "alloy";

// Samples on their way to the reader.
struct PieceWriter<'a> {
    sender: &'a mpsc::Sender<Result<SaidPiece, Error>>,
    left: u64,
    // Times of words that a text of its length may have at most.
    words_left: usize,
    server: &'a Server,
    resampler: Option<((u32, usize), SampleBytes, Resampler)>,
    user: &'a str,
    place: Option<ServerPlace>,
}

impl PieceWriter<'_> {
    async fn bytes(&mut self, form: (u32, usize), bytes: &[u8]) -> Result<(), Error> {
        if self.resampler.as_ref().is_none_or(|(before, ..)| *before != form) {
            let resampler = Resampler::new(form.0, VOICE_RATE).ok_or_else(|| self.server.nonsense("a wrong rate"))?;
            self.resampler = Some((form, SampleBytes::default(), resampler));
        }
        for bytes in bytes.chunks(2 * PIECE) {
            let Some((_, reader, resampler)) = &mut self.resampler else { return Ok(()) };
            let mut samples = reader.push(bytes);
            if form.1 == 2 {
                samples = samples.chunks(2).map(|pair| pair[0]).collect();
            }
            let samples = resampler.push(&samples);
            self.samples(samples).await?;
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), Error> {
        match self.resampler.take() {
            Some((.., mut resampler)) => self.samples(resampler.finish()).await,
            None => Ok(()),
        }
    }

    async fn samples(&mut self, samples: Vec<i16>) -> Result<(), Error> {
        let left = self.left.checked_sub(samples.len() as u64);
        self.left = left.ok_or_else(|| self.server.nonsense("speech that never ends (speech.piece_s)"))?;
        match samples.is_empty() {
            true => Ok(()),
            false => self.send(SaidPiece { samples, words: Vec::new() }).await,
        }
    }

    async fn words(&mut self, WordTimes(mut words): WordTimes) -> Result<(), Error> {
        words.truncate(self.words_left);
        self.words_left -= words.len();
        match words.is_empty() {
            true => Ok(()),
            false => self.send(SaidPiece { samples: Vec::new(), words }).await,
        }
    }

    /// Hands a part on. Meanwhile a reader that takes nothing has no place at the server.
    async fn send(&mut self, piece: SaidPiece) -> Result<(), Error> {
        let sender = self.sender;
        let room = match timeout(PATIENCE, sender.reserve()).await {
            Ok(room) => room,
            Err(_) => {
                self.place = None;
                let room = sender.reserve().await;
                self.place = Some(self.server.place(self.user).await?);
                room
            }
        };
        // Without a reader the whole request is dropped.
        if let Ok(room) = room {
            room.send(Ok(piece));
        }
        Ok(())
    }
}
