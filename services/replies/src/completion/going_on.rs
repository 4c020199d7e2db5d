//! Turns of clients that name what they go on from: a session is begun, continued, or branched off.

use super::{Completion, Completions, ReplyProgress, RequestAttempt};
use crate::{Error, Scope, bodies};
use access::Caller;
use prompt::{ItemText, push_item};
use runtime::{ModelChoice, NewSession};
use serde_json::{Map, Value};
use session::machine::is_hidden;
use session::{
    ConfigUpdate, FailureCode, Ids, Item, ItemBody, ItemStatus, Message, NewItem, NewTurn, Part, RequestDigest,
    ResponseStatus, Role,
};
use store::{ItemVersion, Page, SessionRef, Store, StoredResponse, VersionStatus, new_id};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoesOnFrom {
    Response(String),
    Conversation(String),
}

pub struct StoredTurn {
    /// `None` begins a session, unless one has the begin of `items` already.
    pub goes_on_from: Option<GoesOnFrom>,
    pub scope: Scope,
    pub model: String,
    pub items: Vec<ItemBody>,
    pub turn: NewTurn,
    pub metadata: Map<String, Value>,
}

/// Recent sessions that are compared with a log.
const RECENT: u32 = 8;

impl Completions {
    /// Finds a stored response that the caller may see: one of its user, in a session that it may open.
    pub async fn find_response(&self, caller: &Caller, id: &str) -> Result<Option<StoredResponse>, Error> {
        let Some(found) = self.store.find_response(&caller.identity.user, id).await? else { return Ok(None) };
        match self.open_session(caller, found.session.id()).await {
            Ok(_) => Ok(Some(found)),
            // A client secret does not learn of sessions that it may not open.
            Err(Error::NotOfThisSecret | Error::Store(store::Error::NoSession { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn conversation(&self, caller: &Caller, id: &str) -> Result<SessionRef, Error> {
        self.open_session(caller, id).await.map_err(|error| Error::Conversation(Box::new(error)))
    }

    pub async fn take_stored_turn(
        &self,
        caller: &Caller,
        attempt: Option<RequestAttempt>,
        mut wanted: StoredTurn,
    ) -> Result<(Completion, SessionRef), Error> {
        // OpenAI's clients store each response: only a conversation that they go on with was asked for.
        wanted.scope.is_of_household &= wanted.goes_on_from.is_some();
        let name = match &wanted.goes_on_from {
            None => "new".to_owned(),
            Some(GoesOnFrom::Conversation(id) | GoesOnFrom::Response(id)) => id.clone(),
        };
        let limits = &self.settings.limits;
        wanted.turn.request.of_request = attempt.and_then(|attempt| attempt.stored_digest(limits, &name));
        let (again, scope) = ((wanted.turn.clone(), wanted.metadata.clone()), wanted.scope.clone());
        let first = async |progress: &mut ReplyProgress| self.place(caller, wanted, progress).await;
        self.take_turn_once(&scope, &name, attempt, first, again).await
    }

    /// Begins a session with a past. `brings_own`: the client has instructions of its own, so that the configured ones are
    /// left out.
    pub async fn begin_with(
        &self,
        caller: &Caller,
        scope: &Scope,
        model: &str,
        brings_own: bool,
        past: Vec<ItemBody>,
        of_request: Option<RequestDigest>,
    ) -> Result<SessionRef, Error> {
        let update = ConfigUpdate { instructions: brings_own.then(String::new), ..ConfigUpdate::default() };
        let new = NewSession { update: Some(&update), ..scope.new_session(model) };
        let record = self.runtime.new_session(new).await?;
        let mut ids = Ids::new(runtime::random()?);
        let item = |body| Item::new(ids.next("item"), body, ItemStatus::Completed);
        let items = past.into_iter().map(item).collect();
        // No client is connected yet, so the store alone is told.
        let session = self.store.create_session_with(record, items, of_request, runtime::wall_ms()).await?;
        self.begun.began(caller, &session);
        Ok(session)
    }

    pub fn kept_items(&self, input: &[Message], scope: &Scope) -> Result<Vec<ItemBody>, Error> {
        if input.iter().flat_map(|message| &message.parts).any(|part| matches!(part, Part::Image(_))) {
            let message = "a session keeps no images: send store: false, or text only";
            return Err(Error::request("unsupported_parameter", message, Some("input")));
        }
        let bodies: Vec<ItemBody> = input.iter().flat_map(bodies).collect();
        let most = self.settings.limits.session_items;
        if bodies.len() as u64 > most {
            let message = format!("{} items are more than {most} (limits.session_items)", bodies.len());
            return Err(Error::request("invalid_value", message, Some("input")));
        }
        Ok(scope.name_persons(bodies))
    }

    /// Gives ids to items for a session that may have clients: each becomes an event and an operation of the store.
    pub fn new_items(&self, bodies: Vec<ItemBody>) -> Result<Vec<NewItem>, Error> {
        let most = self.settings.limits.waiting_steps / 4;
        if bodies.len() > most {
            let message = format!("{} new items at once are more than {most} (limits.waiting_steps)", bodies.len());
            return Err(Error::request("invalid_value", message, Some("input")));
        }
        let mut ids = Ids::new(runtime::random()?);
        Ok(bodies.into_iter().map(|body| NewItem { id: Some(ids.next("item")), body }).collect())
    }

    pub async fn past_of(&self, caller: &Caller, goes_on_from: &GoesOnFrom) -> Result<Vec<Message>, Error> {
        let (session, last_item) = match goes_on_from {
            GoesOnFrom::Conversation(id) => (self.conversation(caller, id).await?, None),
            GoesOnFrom::Response(id) => {
                let StoredResponse { session, end, .. } = self.previous(caller, id).await?;
                (session, end.ok_or_else(|| Error::NoPreviousResponse { id: id.clone() })?.last_item)
            }
        };
        let rows = u32::try_from(self.settings.limits.page_rows).unwrap_or(u32::MAX);
        let (mut messages, mut after, mut bytes) = (Vec::new(), None::<String>, 0);
        loop {
            let Page { rows: page, has_more } = self.store.items_page(&session, after.as_deref(), rows).await?;
            after = page.last().map(|item| item.item_id.clone());
            for item in &page {
                bytes += item.body.text_bytes();
                if bytes > self.settings.limits.body_bytes {
                    let message = "the conversation is too long to be read at once: leave store: false out";
                    return Err(Error::request("context_length_exceeded", message, Some("input")));
                }
                push_item(&mut messages, &item.item(), ItemText::Verbatim);
                if last_item.as_ref() == Some(&item.item_id) {
                    return Ok(messages);
                }
            }
            if !has_more {
                return Ok(messages);
            }
        }
    }

    async fn previous(&self, caller: &Caller, id: &str) -> Result<StoredResponse, Error> {
        match self.find_response(caller, id).await? {
            Some(found) if found.status == ResponseStatus::InProgress => {
                Err(Error::PreviousResponseActive { id: id.to_owned() })
            }
            Some(found) => Ok(found),
            None => Err(Error::NoPreviousResponse { id: id.to_owned() }),
        }
    }

    /// Finds or begins the session and takes the turn there. A turn that goes on from a response that is no longer the last
    /// one gets a session of its own, so that it does not see what was said since.
    async fn place(
        &self,
        caller: &Caller,
        wanted: StoredTurn,
        progress: &mut ReplyProgress,
    ) -> Result<SessionRef, Error> {
        let StoredTurn { goes_on_from, scope, model, items, turn, metadata } = wanted;
        let (session, turn) = match goes_on_from {
            None => {
                if let Some(Known { session, last_item, past }) = self.known(caller, &scope, &model, &items).await? {
                    let items = self.new_items(items[past..].to_vec())?;
                    let own = NewTurn { behind: Some(last_item), items, ..turn.clone() };
                    if self.is_taken(progress, &session, &scope, own, &metadata).await? {
                        return Ok(session);
                    }
                }
                let brings_own = matches!(items.first(), Some(ItemBody::Message { role: Role::System, .. }));
                let of_request = turn.request.of_request;
                let session = self.begin_with(caller, &scope, &model, brings_own, items, of_request).await?;
                self.store.set_is_log(&session).await?;
                (session, turn)
            }
            Some(GoesOnFrom::Conversation(id)) => {
                let turn = NewTurn { items: self.new_items(items)?, ..turn };
                (self.conversation(caller, &id).await?, turn)
            }
            Some(GoesOnFrom::Response(id)) => {
                let turn = NewTurn { items: self.new_items(items)?, ..turn };
                let StoredResponse { session, end, .. } = self.previous(caller, &id).await?;
                let end = end.ok_or(Error::NoPreviousResponse { id })?;
                if end.is_last {
                    let own = NewTurn { behind: end.last_item, ..turn.clone() };
                    if self.is_taken(progress, &session, &scope, own, &metadata).await? {
                        return Ok(session);
                    }
                }
                let (new, now_ms) = (new_id("sess")?, runtime::wall_ms());
                let forked = self.store.fork_session(&session, &end.order_key, new, now_ms).await?;
                self.begun.began(caller, &forked);
                tracing::debug!(from = session.id(), session = forked.id(), "a response branches off");
                (forked, turn)
            }
        };
        self.take_turn(progress, &session, &scope, turn, metadata).await??;
        Ok(session)
    }

    async fn is_taken(
        &self,
        progress: &mut ReplyProgress,
        session: &SessionRef,
        scope: &Scope,
        turn: NewTurn,
        metadata: &Map<String, Value>,
    ) -> Result<bool, Error> {
        match self.take_turn(progress, session, scope, turn, metadata.clone()).await? {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == FailureCode::Conflict => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Finds the session that has all of a client's log but what is new, so that the store has each conversation once: one that such a
    /// log began. Two rooms say the same, and a session that a client talks to by name takes no other client's words.
    /// Such a client keeps its log itself and sends all of it with each turn.
    async fn known(
        &self,
        caller: &Caller,
        scope: &Scope,
        model: &str,
        log: &[ItemBody],
    ) -> Result<Option<Known>, Error> {
        let choice = self.runtime.presets().choose(&caller.identity.user, model)?;
        let most = u32::try_from(log.len()).unwrap_or(u32::MAX);
        // The first turn goes on from nothing.
        if !log.iter().any(|body| !matches!(body, ItemBody::Message { role: Role::User | Role::System, .. })) {
            return Ok(None);
        }
        let remembers = self.settings.remember.conversations;
        let is_named = !scope.person.is_empty() || !scope.room.is_empty();
        let is_remembered = !scope.is_private && remembers.remembers(is_named, scope.is_of_household);
        for (id, items) in self.store.recent_logs(&caller.identity.user, most, RECENT).await? {
            let Some((past, new)) = log.split_at_checked(items as usize) else { continue };
            if past.is_empty() || new.is_empty() {
                continue;
            }
            let Ok(session) = self.open_session(caller, &id).await else { continue };
            match last_of(&self.store, &session, past, scope, is_remembered, &choice).await {
                Ok(Some(last_item)) => return Ok(Some(Known { session, last_item, past: past.len() })),
                // It may just have been deleted.
                Ok(None) | Err(store::Error::NoSession { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

struct Known {
    session: SessionRef,
    last_item: String,
    past: usize,
}

async fn last_of(
    store: &Store,
    session: &SessionRef,
    past: &[ItemBody],
    scope: &Scope,
    is_remembered: bool,
    choice: &ModelChoice,
) -> Result<Option<String>, store::Error> {
    let is_same = |item: &ItemVersion, body: &ItemBody| {
        item.body.unnamed() == body.unnamed() && item.status != VersionStatus::InProgress
    };
    let last = store.items_backwards(session, None, 1).await?.rows.pop();
    let Some(last) = last.filter(|last| past.last().is_some_and(|body| is_same(last, body))) else { return Ok(None) };
    let record = store.session(session).await?;
    let is_meant = choice.is_any_preset || record.placement.preset == choice.preset.name;
    let is_the_same_speaker = record.person == scope.person && record.room == scope.room;
    // What is public does not go on in what is private, nor the other way.
    if !is_the_same_speaker || is_remembered != record.is_remembered {
        return Ok(None);
    }
    if !is_meant || record.config.persona != choice.instructions {
        return Ok(None);
    }
    let (mut after, mut rest) = (None::<String>, past);
    loop {
        let Page { rows, has_more } = store.items_page(session, after.as_deref(), COMPARED_AT_ONCE).await?;
        after = rows.last().map(|item| item.item_id.clone());
        // Between them may stand items that the service made by itself.
        for item in rows.iter().filter(|item| !is_hidden(&item.item())) {
            match rest.split_first() {
                Some((body, left)) if is_same(item, body) => rest = left,
                _ => return Ok(None),
            }
        }
        if !has_more {
            return Ok(rest.is_empty().then_some(last.item_id));
        }
    }
}

/// Items that are read and compared at once: other tasks go on between two pages.
const COMPARED_AT_ONCE: u32 = 64;
