//! What each door makes of bytes, without a socket: for proofs that send what no client would. A mistake of the bytes is told
//! in words; whatever else happens is a mistake of the door.

use crate::admin::{context, experiments, keys, memories};
use crate::json::read_body;
use crate::openai_realtime::{ErrorBody, event_limits};
use crate::openai_responses::conversations;
use crate::reader::read;
use crate::wyoming::{FrameLimits, FrameReader};
use crate::{ApiError, ollama, openai_chat, openai_realtime, openai_responses, wyoming};
use prompt::{Wording, settle};
use serde::de::DeserializeOwned;
use serde_json::Value;
use settings::{Settings, Sources};
use std::sync::LazyLock;

/// One door's reader.
pub struct HostileDoor {
    pub name: &'static str,
    /// The message, where the bytes are refused.
    pub read: fn(&[u8]) -> Result<(), String>,
}

pub const DOORS: [HostileDoor; 9] = [
    HostileDoor { name: "chat", read: chat },
    HostileDoor { name: "ollama_chat", read: ollama_chat },
    HostileDoor { name: "ollama_generate", read: ollama_generate },
    HostileDoor { name: "responses", read: responses },
    HostileDoor { name: "responses_frame", read: responses_frame },
    HostileDoor { name: "realtime", read: realtime },
    HostileDoor { name: "wyoming", read: wyoming },
    HostileDoor { name: "items", read: items },
    HostileDoor { name: "bodies", read: bodies },
];

static SETTINGS: LazyLock<Settings> =
    LazyLock::new(|| Settings::load(&Sources::default()).expect("the defaults are right").settings);
static WORDING: LazyLock<Wording> = LazyLock::new(|| runtime::wording(&SETTINGS));

fn told(error: impl Into<ApiError>) -> String {
    error.into().message
}

fn chat(body: &[u8]) -> Result<(), String> {
    let mut request = openai_chat::parse(body, &SETTINGS).map_err(told)?;
    settle(&mut request.completion.prompt.messages, &WORDING);
    Ok(())
}

fn ollama_chat(body: &[u8]) -> Result<(), String> {
    ollama::parse_chat(body, &SETTINGS).map(drop).map_err(told)
}

fn ollama_generate(body: &[u8]) -> Result<(), String> {
    ollama::parse_generate(body, &SETTINGS).map(drop).map_err(told)
}

fn responses(body: &[u8]) -> Result<(), String> {
    openai_responses::parse(body, &SETTINGS).map(drop).map_err(told)
}

fn responses_frame(message: &[u8]) -> Result<(), String> {
    let frame: Value = serde_json::from_slice(message).map_err(|error| error.to_string())?;
    openai_responses::parse_frame(&frame, &SETTINGS).map(drop).map_err(told)
}

fn realtime(message: &[u8]) -> Result<(), String> {
    let message = String::from_utf8_lossy(message);
    let parsed = openai_realtime::parse(&message, &event_limits(&SETTINGS));
    parsed.map(drop).map_err(|ErrorBody { message, .. }| message)
}

/// As they come on one connection, in pieces of which no two are of one length.
fn wyoming(bytes: &[u8]) -> Result<(), String> {
    let settings = &SETTINGS.wyoming;
    let limits = FrameLimits {
        line_bytes: settings.line_bytes,
        data_bytes: settings.data_bytes,
        payload_bytes: settings.payload_bytes,
    };
    let (mut reader, mut rest, mut length) = (FrameReader::new(limits), bytes, 1);
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(length.min(rest.len()));
        (rest, length) = (more, length * 3 + 1);
        reader.push(piece);
        while let Some(event) = reader.event().map_err(|wrong| wrong.message())? {
            wyoming::parse(event, &SETTINGS.limits).map_err(|wrong| wrong.message())?;
        }
    }
    Ok(())
}

fn items(body: &[u8]) -> Result<(), String> {
    let mut parsed = conversations::parse_new(body, &SETTINGS).map_err(told)?;
    settle(&mut parsed.messages, &WORDING);
    Ok(())
}

/// The small bodies, each asked whether it is this one.
fn bodies(body: &[u8]) -> Result<(), String> {
    let body = read_body(body).map_err(told)?;
    let mut refused = None;
    for kind in [
        is::<ollama::NamedModel>,
        is::<keys::ClientSecretRequest>,
        is::<experiments::Feedback>,
        is::<experiments::PlacementRequest>,
        is::<context::SummaryEdit>,
        is::<context::SummaryVersion>,
        is::<context::NewPin>,
        is::<memories::NewMemory>,
        is::<conversations::ConversationUpdate>,
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
