//! The persons and rooms of each user that are known, and how many there may be whose names come from clients.

use super::{BodyClues, Clues, Recognised, changed_head_of, percent_decoded, recognise};
use crate::ApiError;
use crate::access::Caller;
use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;
use parking_lot::Mutex;
use runtime::NewSession;
use session::Message;
use settings::{ChangedHead, RuleClue, RuleCondition, Settings, person_name};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use store::Store;

/// Whose words a request holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSpeaker {
    /// Empty: the home's guest.
    pub person: String,
    /// Empty: it is not known.
    pub room: String,
    /// Nothing of it is remembered.
    pub is_private: bool,
    /// As the client names them in a header.
    pub name: Option<String>,
    /// The persons of the speakers that the messages name, where rules name one.
    pub named: BTreeMap<String, String>,
    /// In which a new conversation goes on with the last one. 0: it never does.
    pub continue_minutes: u64,
    /// The name that its program gives.
    pub agent: String,
    /// As the rules say of the client.
    pub changed_head: ChangedHead,
}

impl RequestSpeaker {
    /// A session that holds their words.
    pub fn new_session<'a>(&'a self, user: &'a str, model: &'a str) -> NewSession<'a> {
        let RequestSpeaker { person, room, is_private, .. } = self;
        NewSession { user, person, room, is_private: *is_private, model, update: None }
    }
}

pub struct Persons {
    settings: Arc<Settings>,
    store: Store,
    /// Of the users that were asked for.
    known: Mutex<HashMap<String, HashSet<String>>>,
}

/// The name of the request's speaker, for clients whose protocol has no field for it.
const SPEAKER: &str = "x-reprise-speaker";
/// Different speakers of one request whose persons are looked up.
const MOST_SPEAKERS: usize = 32;
/// A client says so of a request that is not to be remembered.
const PRIVATE: &str = "x-reprise-private";

impl Persons {
    pub fn new(settings: Arc<Settings>, store: Store) -> Persons {
        Persons { settings, store, known: Mutex::default() }
    }

    pub async fn speaker(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: &BodyClues,
    ) -> Result<RequestSpeaker, ApiError> {
        let (says_private, name) = (says_private(headers)?, speaker_named(headers)?);
        let with_name = BodyClues { speaker: name.clone().or(body.speaker.clone()), ..body.clone() };
        let clues = Clues { body: &with_name, ..clues_of(caller, headers, body) };
        let recognised = recognise(&self.settings.remember.who, &clues);
        let speaker = self.admitted(&caller.identity.user, recognised, says_private).await?;
        let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default().to_owned();
        let changed_head = changed_head_of(&self.settings.prompt.clients, &clues);
        Ok(RequestSpeaker { name, agent, changed_head, ..speaker })
    }

    /// The persons of the speakers of these messages, beside that of the request.
    pub async fn name_all(
        &self,
        speaker: &mut RequestSpeaker,
        caller: &Caller,
        headers: &HeaderMap,
        body: &BodyClues,
        messages: &[Message],
    ) -> Result<(), ApiError> {
        let names: BTreeSet<&String> = messages.iter().filter_map(|message| message.name.as_ref()).collect();
        for name in names.into_iter().take(MOST_SPEAKERS) {
            if let Some(person) = self.person_of(caller, headers, body, name).await? {
                speaker.named.insert(name.clone(), person);
            }
        }
        Ok(())
    }

    /// The person of a speaker in a conversation of several. None: no rule looks at speakers, or none holds.
    pub async fn person_of(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: &BodyClues,
        name: &str,
    ) -> Result<Option<String>, ApiError> {
        let with_name = BodyClues { speaker: Some(name.to_owned()), ..body.clone() };
        let rules = &self.settings.remember.who;
        let recognised = recognise(rules, &Clues { body: &with_name, ..clues_of(caller, headers, body) });
        let rule = recognised.rule.and_then(|at| rules.get(at));
        let looks = |condition: &RuleCondition| condition.clue == RuleClue::Speaker;
        if !rule.is_some_and(|rule| rule.conditions.iter().any(looks)) {
            return Ok(None);
        }
        Ok(Some(self.admitted(&caller.identity.user, recognised, false).await?.person))
    }

    /// Where the protocol has neither keys nor headers.
    pub async fn speaker_without_key(&self, user: &str, body: &BodyClues) -> Result<RequestSpeaker, ApiError> {
        let clues = Clues { key: None, path: None, headers: &HeaderMap::new(), body };
        self.admitted(user, recognise(&self.settings.remember.who, &clues), false).await
    }

    async fn admitted(
        &self,
        user: &str,
        recognised: Recognised,
        says_private: bool,
    ) -> Result<RequestSpeaker, ApiError> {
        let Recognised { mut person, mut room, is_private, continue_minutes, is_found, .. } = recognised;
        let is_one_too_many = is_found && !(self.may_have(user, &person).await? && self.may_have(user, &room).await?);
        if is_one_too_many && runtime::first_time(format!("persons of {user}")) {
            let most = self.settings.remember.persons;
            tracing::warn!(
                user,
                most,
                "more names of persons come from clients than remember.persons: new ones are the guest"
            );
        }
        if is_one_too_many {
            person.clear();
            room.clear();
        }
        Ok(RequestSpeaker {
            person,
            room,
            is_private: is_private || says_private,
            name: None,
            named: BTreeMap::new(),
            continue_minutes: continue_minutes.unwrap_or(self.settings.conversation.continue_minutes),
            ..RequestSpeaker::default()
        })
    }

    /// Whether the user has this person or room, or may have one more.
    async fn may_have(&self, user: &str, person: &str) -> Result<bool, ApiError> {
        if person.is_empty() {
            return Ok(true);
        }
        let is_loaded = match self.known.lock().get(user) {
            Some(known) if known.contains(person) => return Ok(true),
            known => known.is_some(),
        };
        let stored = match is_loaded {
            true => Vec::new(),
            false => self.store.persons(user).await?,
        };
        let mut known = self.known.lock();
        let known = known.entry(user.to_owned()).or_default();
        known.extend(stored.into_iter().flat_map(|line| [line.name, line.room]).filter(|name| !name.is_empty()));
        let is_admitted = known.contains(person) || known.len() < self.settings.remember.persons;
        if is_admitted {
            known.insert(person.to_owned());
        }
        Ok(is_admitted)
    }

    /// The person was deleted.
    pub fn forget(&self, user: &str, person: &str) {
        if let Some(known) = self.known.lock().get_mut(user) {
            known.remove(person);
        }
    }
}

fn says_private(headers: &HeaderMap) -> Result<bool, ApiError> {
    let Some(value) = headers.get(PRIVATE) else { return Ok(false) };
    match value.as_bytes().to_ascii_lowercase().as_slice() {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(ApiError::bad("invalid_value", "the header X-Reprise-Private must be true or false").param(PRIVATE)),
    }
}

fn clues_of<'a>(caller: &'a Caller, headers: &'a HeaderMap, body: &'a BodyClues) -> Clues<'a> {
    let identity = &caller.identity;
    let key = identity.key.as_deref().zip(identity.key_name.as_deref());
    Clues { key, path: caller.path.as_deref(), headers, body }
}

fn speaker_named(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(SPEAKER) else { return Ok(None) };
    let name = std::str::from_utf8(value.as_bytes()).ok().map(percent_decoded);
    match name.filter(|name| person_name(name).is_some()) {
        Some(name) => Ok(Some(name.trim().to_owned())),
        None => Err(ApiError::bad("invalid_value", WRONG_SPEAKER).param(SPEAKER)),
    }
}

/// Of a name that is none.
pub const WRONG_SPEAKER: &str = "a speaker is named in 1 to 64 characters on one line, without \"/\"";
