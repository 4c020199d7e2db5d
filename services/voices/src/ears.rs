use crate::Error;
use crate::frames::WyomingEvent;
use crate::http;
use crate::server::{Server, SpeechHealth};
use crate::wyoming::{WyomingCall, describe};
use serde_json::{Value, json};
use settings::{SpeechServer, SpeechSettings};
use speech::{HEARD_RATE, wav};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Server that makes text of speech.
pub struct Ears {
    pub(crate) server: Server,
    language: Option<String>,
    // Utterances that they hear while users speak.
    pub(crate) live: Arc<Semaphore>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeardWords {
    pub text: String,
    /// Tokens that the server read and wrote, where it counts them.
    pub tokens: Option<(u64, u64)>,
}

/// Tells if a text can be the name of a language, such as "de" or "zh-Hant-TW". It goes into a form and must not end its field.
pub fn is_language(text: &str) -> bool {
    const LONGEST: usize = 35; // that of a tag which all programs must read
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    (1..=LONGEST).contains(&text.len()) && text.chars().all(is_part)
}

// Samples of a piece that is sent at once.
pub const PIECE: usize = 16_000;

/// Asks ears over Wyoming for the words of the audio that follows.
pub async fn begin(request: &mut WyomingCall<'_>, language: Option<&str>) -> Result<(), Error> {
    let language = language.map_or_else(|| json!({}), |language| json!({ "language": language }));
    request.send("transcribe", language).await?;
    request.send("audio-start", json!({ "rate": HEARD_RATE, "width": 2, "channels": 1 })).await
}

pub fn transcript(server: &Server, event: &WyomingEvent) -> Result<HeardWords, Error> {
    let text = event.data.get("text").and_then(Value::as_str);
    let text = text.ok_or_else(|| server.nonsense("a transcript without text"))?;
    Ok(HeardWords { text: text.trim().to_owned(), tokens: None })
}

impl Ears {
    pub fn new(address: &SpeechServer, settings: &SpeechSettings, key: Option<String>) -> Result<Ears, Error> {
        let server = Server::new(("ears", address, &settings.stt_model), settings, key)?;
        let live = Arc::new(Semaphore::new(settings.live_turns));
        Ok(Ears { server, language: settings.language.clone(), live })
    }

    pub fn state(&self) -> SpeechHealth {
        self.server.state()
    }

    pub fn address(&self) -> &SpeechServer {
        &self.server.address
    }

    pub async fn probe(&self) {
        let found = match &self.server.address {
            SpeechServer::Wyoming(place) => describe(&self.server, place, "asr").await,
            SpeechServer::Http(base) => http::describe(&self.server, base).await.map(|(name, _)| (name, Vec::new())),
        };
        self.server.set(found);
    }

    /// Returns the text of audio at `HEARD_RATE`. `user`: whose turn it takes. `language`: `None` for that of the configuration.
    pub async fn hear(&self, user: &str, samples: &[i16], language: Option<&str>) -> Result<HeardWords, Error> {
        let language = self.language(language);
        let _place = self.server.place(user).await?;
        let asked = async {
            match &self.server.address {
                SpeechServer::Wyoming(place) => self.over_wyoming(place, samples, language).await,
                SpeechServer::Http(base) => self.over_http(base, samples, language).await,
            }
        };
        // A server that keeps sending something that is no answer is given up too.
        let heard = self.server.in_time(asked).await.and_then(|heard| heard);
        if let Err(error) = &heard {
            self.server.failed(error);
        }
        heard
    }

    pub(crate) fn language<'a>(&'a self, wanted: Option<&'a str>) -> Option<&'a str> {
        wanted.filter(|language| is_language(language)).or(self.language.as_deref())
    }

    async fn over_wyoming(&self, place: &str, samples: &[i16], language: Option<&str>) -> Result<HeardWords, Error> {
        let mut request = WyomingCall::connect(&self.server, place).await?;
        let sent = async {
            begin(&mut request, language).await?;
            for piece in samples.chunks(PIECE) {
                request.send_audio(HEARD_RATE, piece).await?;
            }
            request.send("audio-stop", json!({})).await
        };
        let sent = sent.await;
        loop {
            // A server that hung up early may have said why.
            let (event, _) = request.next().await.map_err(|error| match &sent {
                Err(sent) if matches!(error, Error::BrokeOff { .. }) => sent.clone(),
                _ => error,
            })?;
            if event.kind == "transcript" {
                return transcript(&self.server, &event);
            }
        }
    }

    async fn over_http(&self, base: &str, samples: &[i16], language: Option<&str>) -> Result<HeardWords, Error> {
        let mut fields = vec![("model", self.server.model.as_str()), ("response_format", "json")];
        fields.extend(language.map(|language| ("language", language)));
        let mut mark = [0; 16];
        let cannot_be_asked = |error: getrandom::Error| self.server.unreachable(error);
        getrandom::fill(&mut mark).map_err(cannot_be_asked)?;
        let (kind, body) = http::form(&wav::file(HEARD_RATE, samples), &fields, u128::from_le_bytes(mark));
        let request = http::post(&self.server, base, "audio/transcriptions").header("content-type", kind).body(body);
        let answer = http::whole(&self.server, http::send(&self.server, request).await?).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| self.server.nonsense(error))?;
        let text = answer["text"].as_str().ok_or_else(|| self.server.nonsense("an answer without text"))?;
        let tokens = answer["usage"]["input_tokens"].as_u64().zip(answer["usage"]["output_tokens"].as_u64());
        Ok(HeardWords { text: text.trim().to_owned(), tokens })
    }
}
