//! Bodies and messages of all doors, without a socket. A door tells a mistake of the bytes in words of one line; anything
//! else is a mistake of the door.

use super::told::told;
use doors::ApiError;
use doors::parsers::{
    ClientSecretRequest, ConversationUpdate, Feedback, FrameLimits, FrameReader, NamedModel, NewMemory, NewPin,
    PlacementRequest, SummaryEdit, SummaryVersion, event_limits, parse_chat, parse_completions, parse_conversation,
    parse_ollama_chat, parse_ollama_generate, parse_realtime, parse_responses, parse_responses_frame,
    parse_speech_form, parse_wyoming, read, read_body,
};
use prompt::{Wording, settle};
use serde::de::DeserializeOwned;
use serde_json::Value;
use settings::{Settings, Sources};
use std::sync::LazyLock;

pub type DoorReader = fn(&[u8]) -> Result<(), String>;

pub fn of_door(read: DoorReader, bytes: &[u8]) -> Result<bool, String> {
    match read(bytes) {
        Ok(()) => Ok(true),
        Err(message) if message.chars().any(char::is_control) => Err(format!("the error is no text: {message:?}")),
        Err(message) => told(&message),
    }
}

static SETTINGS: LazyLock<Settings> =
    LazyLock::new(|| Settings::load(&Sources::default()).expect("the defaults are right").settings);
static WORDING: LazyLock<Wording> = LazyLock::new(|| runtime::wording(&SETTINGS));

fn words(error: impl Into<ApiError>) -> String {
    error.into().message
}

pub fn chat(body: &[u8]) -> Result<(), String> {
    let mut request = parse_chat(body, &SETTINGS).map_err(words)?;
    settle(&mut request.completion.prompt.messages, &WORDING);
    Ok(())
}

pub fn completions(body: &[u8]) -> Result<(), String> {
    parse_completions(body, &SETTINGS).map(drop).map_err(words)
}

pub fn ollama_chat(body: &[u8]) -> Result<(), String> {
    parse_ollama_chat(body, &SETTINGS).map(drop).map_err(words)
}

pub fn ollama_generate(body: &[u8]) -> Result<(), String> {
    parse_ollama_generate(body, &SETTINGS).map(drop).map_err(words)
}

pub fn responses(body: &[u8]) -> Result<(), String> {
    parse_responses(body, &SETTINGS).map(drop).map_err(words)
}

pub fn responses_frame(message: &[u8]) -> Result<(), String> {
    let frame: Value = serde_json::from_slice(message).map_err(|error| error.to_string())?;
    parse_responses_frame(&frame, &SETTINGS).map(drop).map_err(words)
}

pub fn realtime(message: &[u8]) -> Result<(), String> {
    let message = String::from_utf8_lossy(message);
    parse_realtime(&message, &event_limits(&SETTINGS)).map(drop).map_err(|error| error.message)
}

/// Reads the bytes of one connection, in pieces of different lengths.
pub fn wyoming(bytes: &[u8]) -> Result<(), String> {
    let (mut reader, mut rest, mut length) = (FrameReader::new(FrameLimits::of(&SETTINGS.wyoming)), bytes, 1);
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(length.min(rest.len()));
        (rest, length) = (more, length * 3 + 1);
        reader.push(piece);
        while let Some(event) = reader.event().map_err(|wrong| wrong.message())? {
            parse_wyoming(event, &SETTINGS.limits).map_err(|wrong| wrong.message())?;
        }
    }
    Ok(())
}

/// Reads a form with a WAV file, and its audio at the rate of the ears.
pub fn speech_form(body: &[u8]) -> Result<(), String> {
    let form = parse_speech_form("multipart/form-data; boundary=x", body).ok_or("the body is no form")?;
    let audio = form.file.and_then(speech::wav::read).ok_or("the file is no WAV file")?;
    let resampler = speech::Resampler::new(audio.rate, speech::HEARD_RATE);
    let mut resampler = resampler.ok_or("the rate is none that audio has")?;
    let samples = resampler.push(&audio.samples);
    speech::Hearing::new(speech::Detection::silence(0.5, 300, 500), 1 << 16).hear(&samples);
    Ok(())
}

/// Reads what a server of speech sends, with its payloads.
pub fn speech_server(bytes: &[u8]) -> Result<(), String> {
    let mut reader = FrameReader::with_payloads(FrameLimits::of(&SETTINGS.wyoming));
    for piece in bytes.chunks(7) {
        reader.push(piece);
        while reader.event().map_err(|wrong| wrong.message())?.is_some() {
            speech::pcm::SampleBytes::default().push(&reader.payload());
        }
    }
    Ok(())
}

pub fn items(body: &[u8]) -> Result<(), String> {
    let mut parsed = parse_conversation(body, &SETTINGS).map_err(words)?;
    settle(&mut parsed.messages, &WORDING);
    Ok(())
}

pub fn bodies(body: &[u8]) -> Result<(), String> {
    let body = read_body(body).map_err(words)?;
    let mut refused = None;
    for kind in [
        is::<NamedModel>,
        is::<ClientSecretRequest>,
        is::<Feedback>,
        is::<PlacementRequest>,
        is::<SummaryEdit>,
        is::<SummaryVersion>,
        is::<NewPin>,
        is::<NewMemory>,
        is::<ConversationUpdate>,
    ] {
        match kind(&body) {
            Ok(()) => return Ok(()),
            Err(message) if message.trim().is_empty() => return Err(message),
            Err(message) => refused = Some(message),
        }
    }
    refused.map_or(Ok(()), Err)
}

fn is<T: DeserializeOwned>(body: &Value) -> Result<(), String> {
    read::<T>(body).map(drop).map_err(|wrong| wrong.message())
}
