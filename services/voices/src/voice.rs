use crate::Error;
use crate::http;
use crate::places::ServerPlace;
use crate::server::{Server, SpeechHealth};
use crate::wyoming::{WyomingCall, describe};
use futures_util::StreamExt;
use serde_json::{Value, json};
use settings::{SpeechServer, SpeechSettings};
use speech::Resampler;
use speech::pcm::SampleBytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Server that makes speech of text.
pub struct Voice {
    server: Server,
    speaker: Option<String>,
    piece_samples: u64,
}

/// Samples a second of all that a voice says here.
pub const VOICE_RATE: u32 = 24_000;

/// Wishes of a client about the voice.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedVoice {
    /// Name that a client wants. `None`: that of the configuration.
    pub name: Option<String>,
    pub language: Option<String>,
    /// Pace beside the usual one, where the server knows it.
    pub speed: f64,
}

impl Default for WantedVoice {
    fn default() -> WantedVoice {
        WantedVoice { name: None, language: None, speed: 1.0 }
    }
}

/// Speech of one text on its way. Dropping it cancels the request.
pub struct Saying {
    pieces: mpsc::Receiver<Result<Vec<i16>, Error>>,
}

// Pieces of audio that wait for a reader.
const WAITING: usize = 4;
// Samples of the largest piece.
const PIECE: usize = 4096; // not a window: samples
// Time after which a reader that takes nothing gives its place to others: a listener plays what it has for half a minute.
const PATIENCE: Duration = Duration::from_millis(250);

impl Saying {
    /// Returns the next samples at `VOICE_RATE`. `None`: all was said.
    pub async fn next(&mut self) -> Option<Result<Vec<i16>, Error>> {
        self.pieces.recv().await
    }
}

impl Voice {
    pub fn new(address: &SpeechServer, settings: &SpeechSettings, key: Option<String>) -> Result<Voice, Error> {
        let server = Server::new(("voice", address, &settings.tts_model), settings, key)?;
        let piece_samples = speech::samples_of(settings.piece_s * 1000, VOICE_RATE);
        Ok(Voice { server, speaker: settings.voice.clone(), piece_samples })
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

    /// Returns the name of the speaker that a client gets for the name `wanted`.
    pub fn speaker(&self, wanted: Option<&str>) -> Option<String> {
        let listed = wanted.filter(|wanted| !wanted.is_empty() && self.server.lists(wanted)).map(str::to_owned);
        listed.or_else(|| self.speaker.clone())
    }

    /// Says a text. `user`: whose turn it takes.
    pub fn say(self: &Arc<Voice>, user: &str, text: String, speaker: WantedVoice) -> Saying {
        let (sender, pieces) = mpsc::channel(WAITING);
        let (voice, user) = (self.clone(), user.to_owned());
        tokio::spawn(async move {
            let mut told = PieceWriter {
                sender: &sender,
                left: voice.piece_samples,
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
        if let Some(name) = self.speaker(speaker.name.as_deref()) {
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
        let name = self.speaker(speaker.name.as_deref()).unwrap_or_else(|| USUAL.to_owned());
        let body = http::speech(&self.server, text, &name, speaker.speed);
        let request = http::post(&self.server, base, "audio/speech").json(&body);
        let response = http::send(&self.server, request).await?;
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("application/json") || kind.starts_with("text/") {
            return Err(self.server.nonsense(format!("{kind} in place of audio")));
        }
        let mut pieces = response.bytes_stream();
        let mut begun = false;
        loop {
            match self.server.in_time(pieces.next()).await? {
                Some(Ok(piece)) => {
                    // Some servers put the head of a file before the samples.
                    let skipped = if !std::mem::replace(&mut begun, true) && piece.starts_with(b"RIFF") {
                        speech::wav::HEAD_BYTES.min(piece.len())
                    } else {
                        0
                    };
                    told.bytes((VOICE_RATE, 1), &piece[skipped..]).await?;
                }
                Some(Err(_)) => return Err(self.server.broke_off()),
                None => return told.end().await,
            }
        }
    }
}

// Voice where neither the client nor the configuration names one, and an HTTP server wants a name.
const USUAL: &str = "alloy";

// Samples on their way to the reader.
struct PieceWriter<'a> {
    sender: &'a mpsc::Sender<Result<Vec<i16>, Error>>,
    left: u64,
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
        if samples.is_empty() {
            return Ok(());
        }
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
            room.send(Ok(samples));
        }
        Ok(())
    }
}
