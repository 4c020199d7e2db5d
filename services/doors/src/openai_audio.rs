//! `POST /v1/audio/transcriptions` and `/v1/audio/speech`: handed on to the ears and the voice of the configuration, so
//! that a frontend needs one address for speech and for replies.

mod form;

use crate::entry::Preparation;
use crate::json::read_fields;
use crate::{ApiError, App};
use access::Caller;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
pub use form::parse as parse_form;
use futures_util::{StreamExt, stream};
use runtime::{HeldShare, heavy};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use session::sentences::{Sentence, SentenceLimits, Sentences};
use speech::{HEARD_RATE, Resampler, wav};
use std::collections::VecDeque;
use std::sync::Arc;
use voices::{Error, Saying, VOICE_RATE, Voice, WantedVoice, is_language};

/// Request for speech, with OpenAI's fields.
#[derive(Deserialize, JsonSchema)]
pub struct SpeechBody {
    pub input: String,
    /// A speaker that the voice server has. Any other name means the configured one.
    pub voice: Option<String>,
    /// `wav` or `pcm`: 16 bits, one channel, 24,000 samples a second.
    #[schemars(extend("enum" = ["wav", "pcm", null]))]
    pub response_format: Option<String>,
    #[schemars(range(min = 0.25, max = 4.0))]
    pub speed: Option<f64>,
}

pub async fn transcriptions(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Preparation(preparation): Preparation,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let Some(ears) = app.speech.ears.clone() else { return Err(nothing("speech.stt")) };
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    let most = app.replies.settings.speech.turn_s;
    let read = || -> Result<_, ApiError> {
        let form = form::parse(&kind, &body)
            .ok_or_else(|| ApiError::bad("invalid_form", "the body is no multipart/form-data with a file"))?;
        let file = form.file.ok_or_else(|| ApiError::bad("missing_required_parameter", "a file").param("file"))?;
        let audio = wav::read(file).ok_or_else(|| {
            let message = "send a WAV file of 16 bits in one or two channels: nothing else is decoded here";
            ApiError::bad("unsupported_format", message).param("file")
        })?;
        if audio.samples.len() as u64 > most.saturating_mul(audio.rate.into()) {
            let message = format!("at most {most} seconds (speech.turn_s)");
            return Err(ApiError::bad("value_too_large", message).param("file"));
        }
        let resampler = Resampler::new(audio.rate, HEARD_RATE);
        let mut resampler =
            resampler.ok_or_else(|| ApiError::bad("unsupported_format", "a rate that audio has").param("file"))?;
        let mut samples = resampler.push(&audio.samples);
        samples.extend(resampler.finish());
        let language = form.text("language");
        if language.as_deref().is_some_and(|language| !is_language(language)) {
            return Err(ApiError::bad("invalid_value", "the name of a language, such as en").param("language"));
        }
        let is_text = match form.text("response_format").as_deref() {
            None | Some("json" | "verbose_json") => false,
            Some("text") => true,
            Some(_) => {
                return Err(ApiError::bad("invalid_value", "json, text or verbose_json").param("response_format"));
            }
        };
        Ok((samples, language, is_text))
    };
    let (samples, language, is_text) = heavy::run(body.len(), read).await?;
    let bytes = size_of_val(samples.as_slice());
    let _held = app.replies.runtime.held().taken(bytes).ok_or(runtime::Error::NoRoom)?;
    drop((body, preparation));
    let heard = ears.hear(&caller.identity.user, &samples, language.as_deref()).await.map_err(failed)?;
    if is_text {
        return Ok(format!("{}\n", heard.text).into_response());
    }
    let seconds = samples.len() as f64 / f64::from(HEARD_RATE);
    let usage = json!({ "type": "duration", "seconds": seconds.ceil() });
    Ok(Json(json!({ "text": heard.text, "usage": usage })).into_response())
}

pub async fn speech(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let Some(voice) = app.speech.voice.clone() else { return Err(nothing("speech.tts")) };
    let limits = &app.replies.settings;
    let SpeechBody { input, voice: name, response_format, speed } = read_fields(&body).await?;
    if input.len() > limits.limits.item_bytes {
        let message = format!("at most {} bytes (limits.item_bytes)", limits.limits.item_bytes);
        return Err(ApiError::bad("value_too_large", message).param("input"));
    }
    if input.trim().is_empty() {
        return Err(ApiError::bad("invalid_value", "there is nothing to say").param("input"));
    }
    let speed = speed.unwrap_or(1.0);
    if !(0.25..=4.0).contains(&speed) {
        return Err(ApiError::bad("invalid_value", "between 0.25 and 4").param("speed"));
    }
    let head = match response_format.as_deref() {
        None | Some("wav") => Some(wav::head(VOICE_RATE, None).to_vec()),
        Some("pcm") => None,
        Some(_) => return Err(ApiError::bad("invalid_value", "wav or pcm").param("response_format")),
    };
    let kind = if head.is_some() { "audio/wav" } else { "audio/pcm" };
    let sentences = SentenceLimits {
        first_clause_chars: limits.speech.first_clause_chars,
        max_sentence_chars: limits.speech.max_sentence_chars,
    };
    let pieces = heavy::run(input.len(), || pieces(&input, sentences)).await;
    let language = limits.speech.language.clone();
    let held = app.replies.runtime.held().taken(input.len()).ok_or(runtime::Error::NoRoom)?;
    let mut reading = Reading {
        voice,
        user: caller.identity.user,
        _held: held,
        speaker: WantedVoice { name, usual: None, language, speed },
        pieces,
        saying: None,
    };
    // What fails at once is an error, and what fails later breaks the answer off.
    let first = reading.next().await.transpose().map_err(failed)?.unwrap_or_default();
    let begun = stream::iter(head.into_iter().chain([first]).map(Ok::<_, Error>));
    let rest = stream::unfold(reading, |mut reading| async move { Some((reading.next().await?, reading)) });
    Ok(([(CONTENT_TYPE, kind)], Body::from_stream(begun.chain(rest))).into_response())
}

// Sentences of a text, as a voice is given them.
fn pieces(input: &str, limits: SentenceLimits) -> VecDeque<String> {
    let (mut sentences, mut out) = (Sentences::new(limits), Vec::new());
    sentences.push(input, &mut out);
    sentences.finish(&mut out);
    out.into_iter().map(|Sentence { text, .. }| text.trim().to_owned()).filter(|text| !text.is_empty()).collect()
}

struct Reading {
    voice: Arc<Voice>,
    // Whose turn at the voice it takes.
    user: String,
    // Room of the text in memory.
    _held: HeldShare,
    speaker: WantedVoice,
    pieces: VecDeque<String>,
    saying: Option<Saying>,
}

impl Reading {
    async fn next(&mut self) -> Option<Result<Vec<u8>, Error>> {
        loop {
            let saying = match &mut self.saying {
                Some(saying) => saying,
                None => {
                    let text = self.pieces.pop_front()?;
                    self.saying.insert(self.voice.say(&self.user, text, self.speaker.clone()))
                }
            };
            match saying.next().await {
                Some(Ok(piece)) if piece.samples.is_empty() => {}
                Some(Ok(piece)) => return Some(Ok(speech::pcm::to_bytes(&piece.samples))),
                Some(Err(error)) => {
                    self.pieces.clear();
                    self.saying = None;
                    return Some(Err(error));
                }
                None => self.saying = None,
            }
        }
    }
}

fn nothing(key: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "speech_not_configured", format!("there is no such server: set {key}"))
}

fn failed(error: Error) -> ApiError {
    let status = match error {
        Error::Silent { .. } => StatusCode::GATEWAY_TIMEOUT,
        Error::Busy { .. } => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    };
    ApiError::new(status, error.code(), error.to_string())
}
