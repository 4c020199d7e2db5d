//! What the rules of `[remember]` make of a recorded request.

use crate::ApiError;
use crate::{ollama, openai_chat, openai_responses, wyoming};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use replies::identity::{BodyClues, Clues, Outcome, Recognised, changed_head_of, outcomes, recognise};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use settings::{KeptConversations, RuleClue, Settings, WantedText};
use std::collections::BTreeMap;

/// A request as a proxy or a client's log has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRequest {
    /// `POST` where it is left out.
    pub method: Option<String>,
    /// As in the request's first line; `wyoming` for the data of a transcript.
    pub path: String,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub body: Value,
}

#[derive(Debug, Serialize)]
pub struct Explanation {
    pub rules: Vec<RuleTrial>,
    /// The first that holds, counted from 1. None: no rule knows the request.
    pub rule: Option<usize>,
    /// Empty: the home's guest.
    pub person: String,
    pub room: String,
    /// What becomes of the conversation.
    pub kept: &'static str,
    /// It leaves facts, and other conversations find what was said in it.
    pub is_remembered: bool,
    pub continue_minutes: u64,
    /// How instructions are put that the client changes, where the preset leaves it to the rules of `[prompt]`.
    pub changed_head: &'static str,
}

#[derive(Debug, Serialize)]
pub struct RuleTrial {
    /// Counted from 1.
    pub rule: usize,
    pub holds: bool,
    pub conditions: Vec<ConditionTrial>,
}

#[derive(Debug, Serialize)]
pub struct ConditionTrial {
    /// As the rule has it.
    pub condition: String,
    pub holds: bool,
    /// The name that it found.
    pub name: Option<String>,
    /// Why it does not hold.
    pub why: Option<&'static str>,
}

/// What a request of a door tells, and whether it asks for a durable session by itself.
struct Heard {
    clues: BodyClues,
    is_durable: bool,
}

impl RecordedRequest {
    /// The key that came with it, without its secret: `rk_ID_...`.
    pub fn key_id(&self) -> Option<&str> {
        let value = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"))?.1;
        let mut pieces = value.split_once(' ').map_or(value.as_str(), |(_, key)| key).trim().splitn(3, '_');
        pieces.next().filter(|kind| *kind == "rk")?;
        pieces.next()
    }
}

/// `key`: id and name of the key that the request came with.
pub fn explain(
    request: &RecordedRequest,
    key: Option<(&str, &str)>,
    settings: &Settings,
) -> Result<Explanation, ApiError> {
    let rules = &settings.remember.who;
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let of_clients = settings.prompt.clients.iter().flat_map(|rule| &rule.conditions);
    let conditions = rules.iter().flat_map(|rule| &rule.conditions).chain(of_clients);
    let named = conditions.filter_map(|condition| match &condition.wanted {
        WantedText::Exactly(path) if condition.clue == RuleClue::Path => Some(path.as_str()),
        _ => None,
    });
    let before = named.into_iter().find(|named| {
        path.strip_prefix('/').and_then(|path| path.strip_prefix(named)).is_some_and(|rest| rest.starts_with('/'))
    });
    let route = before.map_or(path, |before| &path[1 + before.len()..]);
    let headers = headers(&request.headers)?;
    let Heard { mut clues, is_durable } = heard(request, route, query, settings)?;
    clues.is_private |=
        headers.get("x-reprise-private").is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
    let speaker = clues.speaker.clone();
    let most = settings.remember.rule_bytes;
    let clues = Clues { key, path: before, headers: &headers, body: &clues, speaker: speaker.as_deref(), most };
    let Recognised { person, room, rule, is_private, continue_minutes, .. } = recognise(rules, &clues);
    let trials = rules.iter().enumerate().map(|(at, rule)| {
        let trials = rule.conditions.iter().zip(outcomes(rule, &clues));
        let conditions: Vec<ConditionTrial> = trials.map(|(condition, outcome)| trial(condition, outcome)).collect();
        RuleTrial { rule: at + 1, holds: conditions.iter().all(|condition| condition.holds), conditions }
    });
    let is_named = !person.is_empty() || !room.is_empty();
    let conversations = settings.remember.conversations;
    let is_to_be_kept = conversations.keeps(is_named);
    let kept = match (is_durable, is_private, is_to_be_kept) {
        (true, _, _) => "in a durable session, which the client asks for",
        (false, true, _) => "no: it is private",
        (false, false, true) => "beside the reply, in a session that the next request is recognised by",
        (false, false, false) if conversations == KeptConversations::None => "no: remember.conversations is \"none\"",
        (false, false, false) => "no: no rule names a person or a room, and remember.conversations is \"named\"",
    };
    Ok(Explanation {
        rules: trials.collect(),
        rule: rule.map(|at| at + 1),
        person,
        room,
        kept,
        is_remembered: is_to_be_kept && !is_private,
        continue_minutes: continue_minutes.unwrap_or(settings.conversation.continue_minutes),
        changed_head: changed_head_of(&settings.prompt.clients, &clues).into(),
    })
}

fn heard(request: &RecordedRequest, route: &str, query: &str, settings: &Settings) -> Result<Heard, ApiError> {
    let body = request.body.to_string();
    let body = body.as_bytes();
    match route {
        "/v1/chat/completions" => {
            let request = openai_chat::parse(body, settings)?;
            Ok(Heard { clues: request.clues, is_durable: request.completion.session_id.is_some() })
        }
        "/api/chat" => Ok(Heard { clues: ollama::clues(ollama::parse_chat(body, settings)?), is_durable: false }),
        "/api/generate" => {
            Ok(Heard { clues: ollama::clues(ollama::parse_generate(body, settings)?), is_durable: false })
        }
        "/v1/responses" => {
            let request = openai_responses::parse(body, settings)?;
            Ok(Heard { clues: request.clues, is_durable: request.store })
        }
        "/v1/realtime" => {
            let of =
                |name: &str| query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
            let of = |name: &str| of(name).map(|(_, value)| value.to_owned());
            let is_private = of("private").as_deref() == Some("true");
            let model = of("model").unwrap_or_default();
            let clues = BodyClues { model, user: of("user"), is_private, ..BodyClues::default() };
            Ok(Heard { clues, is_durable: true })
        }
        "wyoming" => Ok(Heard { clues: wyoming::clues(&request.body, &settings.limits)?, is_durable: true }),
        _ => {
            let doors = "/v1/chat/completions, /v1/responses, /v1/realtime, /api/chat, /api/generate, wyoming";
            Err(ApiError::bad("invalid_value", format!("no conversation begins at {route}: it does at {doors}")))
        }
    }
}

fn headers(given: &BTreeMap<String, String>) -> Result<HeaderMap, ApiError> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let wrong = || ApiError::bad("invalid_value", format!("{name:?} is no header, or its value is none"));
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?;
        headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value);
    }
    Ok(headers)
}

fn trial(condition: &settings::RuleCondition, outcome: Outcome) -> ConditionTrial {
    let wanted = match &condition.wanted {
        WantedText::Any => "*".to_owned(),
        WantedText::Exactly(text) => text.clone(),
        WantedText::Around { before, after } => format!("{before}{{name}}{after}"),
    };
    let clue = match &condition.clue {
        RuleClue::Header(name) => format!("header {name}"),
        clue => clue.key().to_owned(),
    };
    let why = match &outcome {
        Outcome::Holds(_) => None,
        Outcome::Absent => Some("the request has none"),
        Outcome::Other => Some("the request has another"),
        Outcome::Ulid => Some("a ULID names a conversation and no person"),
        Outcome::NoName => Some("what stands there is no name"),
    };
    let name = if let Outcome::Holds(name) = outcome { name } else { None };
    ConditionTrial { condition: format!("{clue} = {wanted:?}"), holds: why.is_none(), name, why }
}
