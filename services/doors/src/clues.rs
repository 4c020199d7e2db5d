//! Clues of a request to its speaker, without a socket.

use crate::{ApiError, ollama, openai_chat, openai_completions, openai_responses, wyoming};
use replies::BodyClues;
use serde_json::Value;
use settings::Settings;

/// Clues of a request, and whether it asks for a durable session by itself.
pub struct RequestClues {
    pub clues: BodyClues,
    pub is_durable: bool,
    /// True if the client asks for the session: OpenAI's clients store each response.
    pub is_asked_for: bool,
}

/// Reads the clues of a request. `route`: its path as the table of routes has it, or `wyoming` for a transcript's data.
pub fn clues_of(route: &str, query: &str, body: &Value, settings: &Settings) -> Result<RequestClues, ApiError> {
    let text = body.to_string();
    let bytes = text.as_bytes();
    let mut is_asked_for = None;
    let (clues, is_durable) = match route {
        "/v1/chat/completions" => {
            let request = openai_chat::parse(bytes, settings)?;
            (request.clues, request.completion.session_id.is_some())
        }
        "/v1/completions" => (openai_completions::parse(bytes, settings)?.clues, false),
        "/api/chat" => (ollama::clues(ollama::parse_chat(bytes, settings)?), false),
        "/api/generate" => (ollama::clues(ollama::parse_generate(bytes, settings)?), false),
        "/v1/responses" => {
            let request = openai_responses::parse(bytes, settings)?;
            is_asked_for = Some(request.store && request.goes_on_from.is_some());
            (request.clues, request.store)
        }
        "/v1/realtime" => {
            let of = |name: &str| {
                let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
            };
            let is_private = of("private").as_deref() == Some("true");
            let model = of("model").unwrap_or_default();
            (BodyClues { model, user: of("user"), is_private, ..BodyClues::default() }, true)
        }
        "wyoming" => (wyoming::clues(body, &settings.limits)?, true),
        _ => {
            let doors =
                "/v1/chat/completions, /v1/completions, /v1/responses, /v1/realtime, /api/chat, /api/generate, wyoming";
            let message = format!("no conversation begins at {route}: it does at {doors}");
            return Err(ApiError::bad("invalid_value", message));
        }
    };
    Ok(RequestClues { clues, is_durable, is_asked_for: is_asked_for.unwrap_or(is_durable) })
}
