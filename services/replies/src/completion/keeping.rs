//! Conversations of clients that send all of it with each request. When a reply is over, a session of the client's
//! person and room keeps the reply and what is new in the log; the service recognises the next request by it. No reply
//! waits for this work or fails by it.
//!
//! The session keeps a client's log as it is: the log may hold errors, and what the home answered itself.

use super::log::{RecognisedBy, marks, utterances, wanted};
use super::{CompletionRequest, RequestAttempt, bodies};
use crate::Error;
use crate::identity::Scope;
use parking_lot::Mutex;
use prompt::{ItemText, push_item};
use runtime::{ModelChoice, Runtime, heavy, wall_ms};
use session::machine::is_hidden;
use session::{
    ConfigUpdate, Ids, Item, ItemBody, ItemStatus, Message, MessageRole, Part, Priority, Response, ResponseStatus,
    Role, text_bytes,
};
use settings::Settings;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::{KeptLog, LogAddition, LogMark, LogOwner, Page, SessionRecord, SessionRef, Store, new_id};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

#[derive(Clone)]
pub struct ConversationKeeping {
    shared: Arc<Shared>,
    turns: mpsc::Sender<EndedTurn>,
}

struct Shared {
    settings: Arc<Settings>,
    store: Store,
    runtime: Runtime,
    waiting: Mutex<HashMap<LogOwner, usize>>,
    kept: Notify,
}

pub struct KeptTurn {
    keeping: ConversationKeeping,
    owner: LogOwner,
    scope: Scope,
    model: String,
    log: Vec<Message>,
    attempt: Option<RequestAttempt>,
    told_facts: Vec<String>,
    goes_on_with: Option<(SessionRef, String)>,
}

struct EndedTurn {
    turn: KeptTurn,
    output: Vec<Item>,
}

#[derive(Default)]
pub struct Before {
    pub remembered: String,
    pub carried: Vec<Message>,
}

/// Time that a request waits for the turn before it to be kept.
const PATIENCE: Duration = Duration::from_millis(250);
/// Limit of the tokens of a request that only looks whether there is an answer at all.
const PROBE_TOKENS: u32 = 3;
/// Limits of the items that are read: of an older conversation, and behind the item that a log continues.
const MOST_CARRIED: u32 = 512;
const MOST_BEHIND: u32 = 64;

impl ConversationKeeping {
    pub fn new(settings: Arc<Settings>, store: Store, runtime: Runtime) -> ConversationKeeping {
        let (turns, mut waiting) = mpsc::channel::<EndedTurn>(settings.remember.waiting);
        let (waiting_of, kept) = (Mutex::default(), Notify::new());
        let shared = Arc::new(Shared { settings, store, runtime, waiting: waiting_of, kept });
        let worker = shared.clone();
        tokio::spawn(async move {
            while let Some(ended) = waiting.recv().await {
                if let Err(error) = worker.keep(&ended).await {
                    tracing::warn!(%error, "a turn of a conversation that its client holds is not kept");
                }
                worker.is_kept(&ended.turn.owner);
            }
        });
        ConversationKeeping { shared, turns }
    }

    /// Returns what the service knows of a request's conversation, or `None` if it does not keep the conversation.
    pub async fn begin(&self, choice: &ModelChoice, request: &CompletionRequest) -> Option<(KeptTurn, Before)> {
        if !self.is_to_be_kept(request) {
            return None;
        }
        let shared = &self.shared;
        let owner = request.scope.log_owner();
        shared.settled(&owner).await;
        let log = request.prompt.messages.clone();
        let mut turn = KeptTurn {
            keeping: self.clone(),
            scope: request.scope.clone(),
            model: request.model.clone(),
            attempt: request.attempt,
            told_facts: Vec::new(),
            goes_on_with: None,
            owner,
            log,
        };
        match shared.before(&mut turn, choice).await {
            Ok(before) => Some((turn, before)),
            Err(error) => {
                tracing::warn!(%error, "a conversation goes on without what is known of it");
                Some((turn, Before::default()))
            }
        }
    }

    fn is_to_be_kept(&self, request: &CompletionRequest) -> bool {
        let scope = &request.scope;
        let is_named = !scope.person.is_empty() || !scope.room.is_empty();
        let is_known = self.shared.settings.remember.conversations.keeps(is_named);
        let log = &request.prompt.messages;
        let ends_with_a_question =
            log.last().is_some_and(|last| matches!(last.role, MessageRole::User | MessageRole::Tool));
        let has_replies = log.iter().any(|message| message.role == MessageRole::Assistant);
        let is_probe = !has_replies && request.max_tokens.is_some_and(|most| most <= PROBE_TOKENS);
        let is_short = text_bytes(log) <= self.shared.settings.limits.session_bytes;
        is_known
            && !scope.is_private
            && request.priority == Priority::Talk
            && ends_with_a_question
            && !is_probe
            && is_short
    }

    pub async fn finish(&self) {
        loop {
            let kept = self.shared.kept.notified();
            if self.shared.waiting.lock().is_empty() {
                return;
            }
            kept.await;
        }
    }
}

impl KeptTurn {
    pub fn owner(&self) -> &LogOwner {
        &self.owner
    }

    pub fn ended(self, response: &Response) {
        let is_said = matches!(response.status, ResponseStatus::Completed | ResponseStatus::Incomplete);
        // What a client hung up on comes back with its next log, as far as it was heard.
        if !is_said || response.output.is_empty() {
            return;
        }
        let keeping = self.keeping.clone();
        let (owner, output) = (self.owner.clone(), response.output.clone());
        *keeping.shared.waiting.lock().entry(owner.clone()).or_default() += 1;
        if keeping.turns.try_send(EndedTurn { turn: self, output }).is_err() {
            tracing::warn!("more turns than remember.waiting wait to be kept: this one is not");
            keeping.shared.is_kept(&owner);
        }
    }
}

impl Shared {
    fn is_kept(&self, owner: &LogOwner) {
        let mut waiting = self.waiting.lock();
        if let Some(count) = waiting.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(owner);
            }
        }
        drop(waiting);
        self.kept.notify_waiters();
    }

    async fn settled(&self, owner: &LogOwner) {
        let settled = async {
            loop {
                let kept = self.kept.notified();
                if !self.waiting.lock().contains_key(owner) {
                    return;
                }
                kept.await;
            }
        };
        let _ = timeout(PATIENCE, settled).await;
    }

    async fn before(&self, turn: &mut KeptTurn, choice: &ModelChoice) -> Result<Before, Error> {
        let (carried_of, told) = match self.known(turn).await? {
            Some((known, _)) => {
                let record = self.store.session(&known.session).await?;
                let told = self.runtime.facts_of(&known.session, &record, &choice.preset).await;
                (known.begins_behind.map(|last| (known.session, last)), told)
            }
            None => {
                let (minutes, is_new) = (turn.scope.continue_minutes, !has_replies(&turn.log));
                if minutes > 0 && is_new {
                    turn.goes_on_with = self.store.newest_log(&turn.owner, minutes_ago(minutes)).await?;
                }
                let told = match &turn.goes_on_with {
                    Some((session, _)) => {
                        let record = self.store.session(session).await?;
                        self.runtime.facts_of(session, &record, &choice.preset).await
                    }
                    None => self.runtime.first_facts(&turn.owner.user, &turn.owner.person, &choice.preset).await,
                };
                (turn.goes_on_with.clone(), told)
            }
        };
        turn.told_facts = told.ids;
        let carried = match carried_of {
            Some((session, last)) => messages_of(self.store.told_through(&session, &last, MOST_CARRIED).await?),
            None => Vec::new(),
        };
        Ok(Before { remembered: told.text, carried })
    }

    async fn known(&self, turn: &KeptTurn) -> Result<Option<(KeptLog, usize)>, Error> {
        let wanted = heavy::run(text_bytes(&turn.log), || wanted(&turn.log)).await;
        if wanted.is_empty() {
            return Ok(None);
        }
        let (hashes, messages): (Vec<String>, Vec<usize>) = wanted.into_iter().unzip();
        let since_ms = minutes_ago(self.settings.remember.cut_log_minutes);
        let found = self.store.find_log(&turn.owner, &hashes, since_ms).await?;
        Ok(found.and_then(|known| {
            let messages = *messages.get(known.at)?;
            Some((known, messages))
        }))
    }

    async fn keep(&self, ended: &EndedTurn) -> Result<(), Error> {
        let EndedTurn { turn, output } = ended;
        let limits = &self.settings.limits;
        let of_request = turn.attempt.and_then(|attempt| attempt.stored_digest(limits, ""));
        if let Some(attempt) = turn.attempt
            && attempt.stored(&self.store, limits, &turn.owner.user, "").await?.is_some()
        {
            return Ok(()); // a stock client sends a request again that it got no answer to
        }
        let mut log_with_reply = turn.log.clone();
        push_all(&mut log_with_reply, output.iter());
        let marks = heavy::run(text_bytes(&log_with_reply), || marks(&log_with_reply, turn.log.len())).await;
        let addition = |start: usize, behind: Option<String>, begins_behind: Option<String>| {
            let mut ids = Ids::new(runtime::random()?);
            let new = turn.log.get(start..).unwrap_or_default().iter().flat_map(kept_bodies);
            let new = turn.scope.name_persons(new.collect()).into_iter();
            let new = new.map(|body| Item::new(ids.next("item"), body, ItemStatus::Completed));
            let items: Vec<Item> = new.chain(output.iter().cloned()).collect();
            if items.iter().any(|item| item.body.text_bytes() > limits.item_bytes) {
                return Err(Error::request("value_too_large", "an item is larger than limits.item_bytes", None));
            }
            let question = items.len() - output.len();
            let at = |mark: &RecognisedBy| LogMark {
                hash: mark.hash.clone(),
                of_last_few: mark.of_last_few,
                items: if mark.of_question { question } else { items.len() },
            };
            let marks = marks.iter().map(at).collect();
            Ok(LogAddition { behind, items, marks, begins_behind, of_request })
        };
        if let Some((known, start)) = self.known(turn).await? {
            let (last, from) = match known.is_last {
                true => (Some(known.last_item.clone()), start),
                false => {
                    self.rejoined(&known, &turn.log, start).await?.map_or((None, start), |(last, at)| (Some(last), at))
                }
            };
            if let Some(last) = last.filter(|_| !self.runtime.is_in_memory(&known.session)) {
                let addition = addition(from, Some(last), known.begins_behind.clone())?;
                if self.store.keep_log(&turn.owner, &known.session, addition, wall_ms()).await? {
                    return Ok(());
                }
            }
            // The client went back, or another one talks in that session: what follows is a conversation of its own.
            let forked = self.store.fork_session(&known.session, &known.order_key, new_id("sess")?, wall_ms()).await?;
            let addition = addition(start, Some(known.last_item), known.begins_behind)?;
            self.store.keep_log(&turn.owner, &forked, addition, wall_ms()).await?;
            return Ok(());
        }
        if let Some((session, last)) =
            turn.goes_on_with.as_ref().filter(|(session, _)| !self.runtime.is_in_memory(session))
        {
            let addition = addition(leading_notes(&turn.log), Some(last.clone()), Some(last.clone()))?;
            match self.store.keep_log(&turn.owner, session, addition, wall_ms()).await {
                Ok(true) => return Ok(()),
                // Something else was said there, or it was just deleted.
                Ok(false) | Err(store::Error::NoSession { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let addition = addition(leading_notes(&turn.log), None, None)?;
        self.store.begin_log(&turn.owner, self.new_session(turn).await?, addition, wall_ms()).await?;
        Ok(())
    }

    async fn new_session(&self, turn: &KeptTurn) -> Result<SessionRecord, Error> {
        let head = &turn.log[..leading_notes(&turn.log)];
        let instructions = head.iter().map(Message::text).collect::<Vec<_>>().join("\n\n");
        let fits = instructions.len() <= self.settings.limits.item_bytes;
        let instructions = Some(instructions).filter(|text| fits && !text.is_empty());
        let update = ConfigUpdate { instructions, ..ConfigUpdate::default() };
        let new = turn.scope.new_session(&turn.model);
        let mut record = self.runtime.new_session(runtime::NewSession { update: Some(&update), ..new }).await?;
        // The prompt goes on telling what it told.
        record.told_facts = Some(turn.told_facts.clone());
        Ok(record)
    }

    /// Rejoins a log with a session whose last reply the log has in other words: cut to what the user heard, or without
    /// what the client does not show. Returns the session's last item, and the number of messages of the log up to it.
    async fn rejoined(&self, known: &KeptLog, log: &[Message], start: usize) -> Result<Option<(String, usize)>, Error> {
        let Page { rows: behind, has_more } =
            self.store.items_page(&known.session, Some(&known.last_item), MOST_BEHIND).await?;
        let Some(last) = behind.last().filter(|_| !has_more) else { return Ok(None) };
        let ours = utterances(&messages_of(behind.clone()));
        let log_behind = log.get(start..).unwrap_or_default();
        let bytes = log_behind.iter().map(Message::text_bytes).sum();
        let theirs = heavy::run(bytes, || utterances(log_behind)).await;
        let Some(((our_reply, before), (their_reply, _))) =
            ours.split_last().zip(theirs.get(..ours.len()).and_then(<[_]>::split_last))
        else {
            return Ok(None);
        };
        let is_reply = |role| role == MessageRole::Assistant;
        let is_same =
            before.iter().zip(&theirs).all(|(ours, theirs)| ours.role == theirs.role && ours.said == theirs.said);
        if !is_same || !is_reply(our_reply.role) || !is_reply(their_reply.role) {
            return Ok(None);
        }
        if let ItemBody::Message { role: Role::Assistant, parts, .. } = &last.body
            && let [text] = parts.as_slice()
            && let Some(chars) = heard_chars(text, &their_reply.said)
        {
            self.store.truncate(&known.session, &last.item_id, 0, chars, wall_ms()).await?;
        }
        Ok(Some((last.item_id.clone(), start + their_reply.messages)))
    }
}

/// Counts the characters of a reply that a client heard. `None`: the client has the whole reply, or other words.
fn heard_chars(ours: &str, theirs: &str) -> Option<u64> {
    // A client may show that there was more.
    let cut = theirs.strip_suffix('…').or(theirs.strip_suffix("..."));
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<Vec<char>>();
    let (ours_letters, theirs) = (letters(ours), letters(cut.unwrap_or(theirs)));
    if theirs.is_empty() || theirs.len() >= ours_letters.len() || !ours_letters.starts_with(&theirs) {
        return None;
    }
    let mut left = theirs.len();
    let end = ours.chars().take_while(|c| {
        let is_heard = left > 0;
        left -= usize::from(is_heard && !c.is_whitespace());
        is_heard
    });
    Some(end.count() as u64)
}

fn messages_of(items: Vec<store::ItemVersion>) -> Vec<Message> {
    let mut messages = Vec::new();
    let items: Vec<Item> = items.into_iter().map(|item| item.item()).collect();
    let is_said = |item: &&Item| item.role() != Some(Role::System) && !is_hidden(item);
    push_all(&mut messages, items.iter().filter(is_said));
    messages
}

fn push_all<'a>(messages: &mut Vec<Message>, items: impl Iterator<Item = &'a Item>) {
    for item in items {
        push_item(messages, item, ItemText::Verbatim);
    }
}

fn has_replies(log: &[Message]) -> bool {
    log.iter().any(|message| message.role == MessageRole::Assistant)
}

fn leading_notes(log: &[Message]) -> usize {
    log.iter().take_while(|message| message.role == MessageRole::System).count()
}

/// Makes items of a message, with `[image]` for each image: a session keeps no images.
fn kept_bodies(message: &Message) -> Vec<ItemBody> {
    let images = message.parts.iter().filter(|part| matches!(part, Part::Image(_))).count();
    if images == 0 {
        return bodies(message);
    }
    let text = [&message.text(), &"[image] ".repeat(images)].map(|text| text.trim()).join(" ");
    let parts = vec![Part::Text(text.trim().to_owned())];
    bodies(&Message { parts, ..message.clone() })
}

fn minutes_ago(minutes: u64) -> i64 {
    wall_ms().saturating_sub(i64::try_from(minutes.saturating_mul(60_000)).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::heard_chars;

    #[test]
    fn what_was_heard_is_the_begin_of_what_was_said() {
        let said = "It rains. Take a coat with you.";
        for (heard, chars) in [
            ("It rains.", Some(9)),
            ("It  rains. Take", Some(14)),
            ("It rains. Take a…", Some(16)),
            ("It rains. Take a coat with you.", None),
            ("It snows.", None),
            ("", None),
            ("It rains. Take a coat with you. And more", None),
        ] {
            assert_eq!(heard_chars(said, heard), chars, "{heard}");
        }
    }
}
