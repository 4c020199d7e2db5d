//! The persons and rooms of each user, how many of them clients may name, and the scope of each request.

use super::recent::{RecentRequests, TakenRequests};
use super::{BodyClues, Clues, Recognised, Scope, TriedRules, changed_head_of, names_someone, percent_decoded};
use crate::Error;
use access::Caller;
use http::HeaderMap;
use http::header::USER_AGENT;
use parking_lot::Mutex;
use runtime::wall_ms;
use serde_json::Value;
use session::{Input, Message};
use settings::{Settings, person_name};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use store::Store;
use telemetry::{TRACEPARENT, TraceParent};

pub struct Persons {
    settings: Arc<Settings>,
    store: Store,
    known: Mutex<HashMap<String, HashSet<String>>>,
    recent: RecentRequests,
}

const SPEAKER: &str = "x-reprise-speaker";
/// Limit of the speakers of one request whose persons are looked up.
const MOST_SPEAKERS: usize = 32;
const PRIVATE: &str = "x-reprise-private";

impl Persons {
    pub fn new(settings: Arc<Settings>, store: Store) -> Persons {
        Persons { settings, store, known: Mutex::default(), recent: RecentRequests::default() }
    }

    /// Makes the scope of a request, and gives its last message the speaker that a header names.
    pub async fn scope(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: &BodyClues,
        messages: &mut [Message],
    ) -> Result<Scope, Error> {
        let (says_private, name) = (says_private(headers)?, speaker_named(headers)?);
        let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default().to_owned();
        let known = KnownClues::of(caller, headers, body);
        let clues = known.clues(caller, self.settings.remember.rule_bytes);
        let tried = TriedRules::new(&self.settings.remember.who, &clues);
        let speaker = name.as_deref().or(known.body.speaker.as_deref()).filter(|_| caller.secret.is_none());
        let changed_head = changed_head_of(&self.settings.prompt.clients, &Clues { speaker, ..clues });
        let user = &caller.identity.user;
        let recognised = tried.recognise(speaker);
        let rule = recognised.rule;
        let mut scope = self.admitted(user, recognised, body.is_private || says_private).await?;
        // A page that got a secret talks for a visitor.
        scope.is_of_household = caller.secret.is_none() && !names_someone(&Clues { speaker, ..clues });
        (scope.key, scope.secret) = (caller.identity.key.clone(), caller.secret.clone());
        (scope.name, scope.agent, scope.changed_head) = (name, agent, changed_head);
        scope.trace_parent = headers.get(TRACEPARENT).and_then(|place| TraceParent::read(place.to_str().ok()?));
        self.note(&scope, rule);
        scope.name_last(messages);
        let names: BTreeSet<&String> = messages.iter().filter_map(|message| message.name.as_ref()).collect();
        for name in names.into_iter().take(MOST_SPEAKERS) {
            if let Some(person) = self.person_by(caller, &tried, name).await? {
                scope.named.insert(name.clone(), person);
            }
        }
        Ok(scope)
    }

    pub async fn name_speakers(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: &BodyClues,
        input: &mut Input,
    ) -> Result<(), Error> {
        for speaker in input.speakers() {
            speaker.person = self.person_of(caller, headers, body, &speaker.name).await?;
        }
        Ok(())
    }

    /// Finds the person of a speaker in a conversation of several. `None`: no rule looks at speakers, or none holds.
    async fn person_of(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: &BodyClues,
        name: &str,
    ) -> Result<Option<String>, Error> {
        let known = KnownClues::of(caller, headers, body);
        let clues = known.clues(caller, self.settings.remember.rule_bytes);
        self.person_by(caller, &TriedRules::new(&self.settings.remember.who, &clues), name).await
    }

    async fn person_by(&self, caller: &Caller, tried: &TriedRules<'_>, name: &str) -> Result<Option<String>, Error> {
        // A page with a client secret speaks for the one that the secret was made for.
        if caller.secret.is_some() {
            return Ok(None);
        }
        let recognised = tried.recognise(Some(name));
        if !recognised.by_speaker {
            return Ok(None);
        }
        Ok(Some(self.admitted(&caller.identity.user, recognised, false).await?.person))
    }

    pub async fn scope_without_key(&self, user: &str, agent: &str, body: &BodyClues) -> Result<Scope, Error> {
        let most = self.settings.remember.rule_bytes;
        let clues = Clues { key: None, path: None, headers: &HeaderMap::new(), body, speaker: None, most };
        let recognised = TriedRules::new(&self.settings.remember.who, &clues).recognise(None);
        let rule = recognised.rule;
        let scope = self.admitted(user, recognised, body.is_private).await?;
        let scope = Scope { is_of_household: !names_someone(&clues), agent: agent.to_owned(), ..scope };
        self.note(&scope, rule);
        Ok(scope)
    }

    fn note(&self, scope: &Scope, rule: Option<usize>) {
        let remember = &self.settings.remember;
        let rule = rule.and_then(|at| Some((at, remember.who.get(at)?)));
        self.recent.note(scope, rule, wall_ms(), remember.recent_requests);
    }

    pub fn recent(&self, user: &str) -> Vec<TakenRequests> {
        self.recent.of(user)
    }

    async fn admitted(&self, user: &str, recognised: Recognised, asks_private: bool) -> Result<Scope, Error> {
        let Recognised { mut person, mut room, continue_minutes, is_found, mut is_private, .. } = recognised;
        let is_one_too_many = is_found && !(self.may_have(user, &person).await? && self.may_have(user, &room).await?);
        if is_one_too_many && runtime::first_time(user, "persons".to_owned()) {
            let most = self.settings.remember.persons;
            tracing::warn!(
                user,
                most,
                "clients bring more names of persons than remember.persons: nothing is remembered of new ones"
            );
        }
        if is_one_too_many {
            person.clear();
            room.clear();
            is_private = true;
        }
        Ok(Scope {
            user: user.to_owned(),
            person,
            room,
            is_private: is_private || asks_private,
            continue_minutes: continue_minutes.unwrap_or(self.settings.conversation.continue_minutes),
            ..Scope::default()
        })
    }

    /// Returns true if the user has this person or room, or may have one more.
    async fn may_have(&self, user: &str, person: &str) -> Result<bool, Error> {
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

    pub fn forget(&self, user: &str, person: &str) {
        self.recent.forget(user, person);
        if let Some(known) = self.known.lock().get_mut(user) {
            known.remove(person);
        }
    }
}

struct KnownClues<'a> {
    headers: Cow<'a, HeaderMap>,
    body: Cow<'a, BodyClues>,
}

impl<'a> KnownClues<'a> {
    /// Takes, of a client secret, what its maker wrote into it: the page that holds it names no person.
    fn of(caller: &Caller, headers: &'a HeaderMap, body: &'a BodyClues) -> KnownClues<'a> {
        if caller.secret.is_none() {
            return KnownClues { headers: Cow::Borrowed(headers), body: Cow::Borrowed(body) };
        }
        let made_with = |path: &str| {
            let session = caller.identity.session.as_ref()?;
            session.pointer(path).and_then(Value::as_str).map(str::to_owned)
        };
        let body = BodyClues {
            model: made_with("/model").unwrap_or_default(),
            user: made_with("/metadata/user"),
            instructions: made_with("/instructions"),
            ..BodyClues::default()
        };
        KnownClues { headers: Cow::Owned(HeaderMap::new()), body: Cow::Owned(body) }
    }

    fn clues<'b>(&'b self, caller: &'b Caller, most: usize) -> Clues<'b> {
        let identity = &caller.identity;
        let key = identity.key.as_deref().zip(identity.key_name.as_deref());
        // A page chooses the path that it asks at.
        let path = caller.path.as_deref().filter(|_| caller.secret.is_none());
        Clues { key, path, headers: &self.headers, body: &self.body, speaker: None, most }
    }
}

fn says_private(headers: &HeaderMap) -> Result<bool, Error> {
    let Some(value) = headers.get(PRIVATE) else { return Ok(false) };
    match value.as_bytes().to_ascii_lowercase().as_slice() {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(Error::request("invalid_value", "the header X-Reprise-Private must be true or false", Some(PRIVATE))),
    }
}

fn speaker_named(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let Some(value) = headers.get(SPEAKER) else { return Ok(None) };
    let name = std::str::from_utf8(value.as_bytes()).ok().map(percent_decoded);
    match name.filter(|name| person_name(name).is_some()) {
        Some(name) => Ok(Some(name.trim().to_owned())),
        None => Err(Error::request("invalid_value", WRONG_SPEAKER, Some(SPEAKER))),
    }
}

pub const WRONG_SPEAKER: &str = "a speaker is named in 1 to 64 characters on one line, without \"/\"";
