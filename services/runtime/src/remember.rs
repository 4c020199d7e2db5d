//! Facts that outlive a conversation, extracted when it falls silent or the next one begins. `told_facts` chooses which
//! of them a conversation tells.

mod by_model;
mod change;
mod fact_search;
mod meaning;
mod news;

use crate::clock::wall_ms;
use crate::fact_block::owners;
use crate::facts::index_facts;
use crate::look_back::look_back;
use crate::prompts::RecallPlace;
use crate::recall::find_past;
use crate::shared::Shared;
use crate::word_weights::end_of;
use crate::{Runtime, heavy};
use background::start_last;
use change::{FactRoom, Remembered, SaidAt, said_by};
use news::LearnedFacts;
use prompt::PastOf;
use remember::{FactChange, extract, is_secret};
use session::Failure;
use settings::{Learn, Preset, Recall};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Error, FactChanges, FoundBy, HeardThrough, HistorySearch, RememberedFact, SaidMessage, SearchPlace, SecretsOf,
    SessionRef, UnheardSession,
};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Conversations that are looked through before a new one begins; older ones fell silent long ago.
const SESSIONS_AT_ONCE: u32 = 8;
const RECENT_MS: i64 = 24 * 60 * 60 * 1000;
const MESSAGES_AT_ONCE: u32 = 64;
const HEARD_AT_ONCE: u32 = 16;
const WORDS_AT_ONCE: usize = 128;
/// Bytes of a request that are read in the time in which one byte of a conversation is looked through.
const WORK_FOR_A_BYTE: usize = 64;
/// Bytes of a conversation that are looked through in the time in which a wish finds a fact by its meaning.
const WISH_BYTES: usize = 512; // not a window: bytes of what was said
const READ_TOKENS: u32 = 2000;
/// Tries with a failing model, before only the rules look through a conversation.
const MOST_TRIES: u32 = 3;
const MOST_PLACES: u32 = 64;
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl Runtime {
    /// Returns the note before a question in a conversation that its client keeps: what this person once said about it.
    /// `shown`: what the model reads anyway. `None`: nothing was found, or the preset has no recall.
    pub async fn note_of_past(
        &self,
        user: &str,
        person: &str,
        preset: &Preset,
        question: &str,
        shown: &str,
    ) -> Option<String> {
        let (shared, question) = (&self.shared, end_of(question));
        if preset.recall != Recall::Auto || !remember::asks(question) {
            return None;
        }
        let (store, encoding) = (&shared.store, &*shared.encoding);
        let place = RecallPlace { store, user, session: None, person: Some(person), encoding };
        let past = PastOf { question, shown: &[], preface: shown };
        let wait = Duration::from_millis(shared.settings.conversation.recall_wait_ms);
        let note = timeout(wait, look_back(&shared.settings, place, &past)).await.ok()??;
        Some(note.text)
    }

    /// Starts to learn from conversations that fell silent, on a thread that comes after all others.
    pub fn start_learning(&self, stopping: CancellationToken) -> io::Result<()> {
        let shared = Shared { store: self.shared.store.in_background(), ..(*self.shared).clone() };
        let learner = self.with(shared);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        start_last("learning", move || runtime.block_on(learner.remember(stopping)))?;
        Ok(())
    }

    /// Makes what was stated before this time findable by meaning, where the encoder is open.
    pub async fn index_messages(&self, before_ms: i64) -> Result<(), Error> {
        let (shared, encoding) = (&self.shared, &self.shared.encoding);
        let Some(encoder) = encoding.ready() else { return Ok(()) };
        encoding.messages().update(&shared.store, &encoder, before_ms, shared.settings.remember.messages).await
    }

    pub async fn told_about(&self, user: &str, person: &str, query: &str, most: u32) -> Vec<String> {
        let (store, encoding) = (&self.shared.store, &*self.shared.encoding);
        let place = RecallPlace { store, user, session: None, person: Some(person), encoding };
        let words = self.shared.settings.conversation.recall_excerpt_words;
        let (found, _) = find_past(&self.shared.settings, place, query, most, words).await;
        found.into_iter().map(|place| place.hit.excerpt).collect()
    }

    pub async fn remember(&self, stopping: CancellationToken) {
        let shared = &self.shared;
        let silence_ms = i64::try_from(shared.settings.remember.silence_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        let every = LOOK_EVERY.min(Duration::from_secs(shared.settings.remember.silence_s));
        let mut tries = 0;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = sleep(every) => {}
            }
            match shared.model.status().asleep {
                true => shared.encoding.sleep().await,
                false => drop(shared.encoding.open().await),
            }
            if let Err(error) = index_facts(&shared.store).await {
                tracing::warn!(%error, "facts could not be indexed: no question finds them yet");
            }
            loop {
                let before_ms = wall_ms().saturating_sub(silence_ms);
                let looked = async {
                    match shared.store.silent_session(before_ms).await? {
                        Some(silent) => shared.look_through(&silent, tries >= MOST_TRIES).await.map(Some),
                        None => Ok(None),
                    }
                };
                let looked = tokio::select! {
                    () = stopping.cancelled() => return,
                    looked = looked => looked,
                };
                match looked {
                    Ok(Some(Ok(()))) => tries = 0,
                    Ok(Some(Err(failure))) => {
                        tracing::warn!(%failure, "the model could not extract facts from a conversation; it is asked again later");
                        tries += 1;
                        break;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(%error, "a conversation could not be searched for facts");
                        break;
                    }
                }
            }
            let indexed = tokio::select! {
                () = stopping.cancelled() => return,
                indexed = self.index_messages(wall_ms().saturating_sub(silence_ms)) => indexed,
            };
            if let Err(error) = indexed {
                tracing::warn!(%error, "what was said could not be indexed: no question finds it by its meaning yet");
            }
        }
    }
}

struct HeardSome {
    seq: u64,
    bytes: usize,
}

impl Shared {
    pub async fn hear_session(&self, session: &SessionRef) -> Result<(), Error> {
        match self.store.unheard_session(session).await? {
            Some(unheard) => {
                let mut learned = LearnedFacts::default();
                self.hear_all(&unheard, &mut learned).await?;
                learned.tell(self, session).await
            }
            None => Ok(()),
        }
    }

    /// Looks through what a person said lately, in conversations that were not looked through since. What is more than a new
    /// conversation may wait for is looked through in the silence.
    pub async fn hear_recent(&self, user: &str, person: &str) -> Result<(), Error> {
        let since_ms = wall_ms().saturating_sub(RECENT_MS);
        let mut left = self.settings.remember.heard_bytes;
        for unheard in self.store.unheard_sessions(user, person, since_ms, SESSIONS_AT_ONCE).await? {
            let (mut seq, mut learned) = (unheard.heard_seq, LearnedFacts::default());
            while left > 0
                && let Some(heard) = self.hear_some(&unheard, seq, &mut learned).await?
            {
                (seq, left) = (heard.seq, left.saturating_sub(heard.bytes));
            }
            learned.tell(self, &unheard.session).await?;
        }
        Ok(())
    }

    async fn hear_all(&self, unheard: &UnheardSession, learned: &mut LearnedFacts) -> Result<(), Error> {
        let mut seq = unheard.heard_seq;
        while let Some(heard) = self.hear_some(unheard, seq, learned).await? {
            seq = heard.seq;
        }
        Ok(())
    }

    async fn hear_some(
        &self,
        unheard: &UnheardSession,
        seq: u64,
        learned: &mut LearnedFacts,
    ) -> Result<Option<HeardSome>, Error> {
        let session = &unheard.session;
        let mut said = self.store.said_since(session, seq, HEARD_AT_ONCE).await?;
        let person = said.first().map_or(unheard.person.as_str(), |first| said_by(unheard, first)).to_owned();
        // Another's words are heard by themselves.
        said.truncate(said.iter().take_while(|message| said_by(unheard, message) == person).count());
        if said.is_empty() {
            // Only the assistant spoke.
            let through = HeardThrough::Words(self.store.newest_seq(session).await?);
            self.store.remember(session, FactChanges::default(), through, wall_ms()).await?;
            return Ok(None);
        }
        let before = self.store.said_before(session, seq).await?;
        let before = before.filter(|before| said_by(unheard, before) == person).map(|before| before.text);
        let mut bytes = said.iter().map(|message| message.text.len()).sum::<usize>();
        let most = self.settings.remember.facts_per_message;
        let work = bytes.saturating_mul(WORK_FOR_A_BYTE);
        let changes = heavy::run(work, || changes_of(&said, before.as_deref(), most)).await;
        said.truncate(changes.len());
        let learns = self.preset_of(unheard).remember.learn != Learn::Off;
        let mut remembered = self.known(session.user(), &person, changes.iter().flatten()).await?;
        for (message, changes) in said.iter().zip(changes) {
            let source = SaidAt::of(unheard, message);
            if person.is_empty() && heavy::run(message.text.len(), || is_secret(&message.text)).await {
                remembered.keep_secret(session.id(), &message.item_id);
            }
            for change in changes {
                match change {
                    FactChange::Keep(statement) if statement.asked || learns => {
                        remembered.keep(statement, FoundBy::Words, &source)?;
                    }
                    FactChange::Keep(_) => {}
                    FactChange::Forget(what) => {
                        bytes += WISH_BYTES;
                        let is_done = remembered.forget(&what) > 0
                            || self.forget_by_meaning(&mut remembered, session.user(), &person, &what, message).await?;
                        // A wish that is not hidden is carried out by meaning in the silence. 'Forget that' points at words.
                        let is_later = !is_done && message.text.contains(&what) && self.encoding.is_there();
                        let own = (session.id().to_owned(), message.item_id.clone());
                        let mut hidden = self.places_of(session.user(), &person, &what).await;
                        match is_later {
                            true => hidden.retain(|place| *place != own),
                            false => hidden.push(own),
                        }
                        hidden.iter().for_each(|(session, item)| remembered.unsay(session, item));
                    }
                }
            }
        }
        let Some(last) = said.last() else { return Ok(None) };
        learned.add(&remembered);
        self.store.remember(session, remembered.changes, HeardThrough::Words(last.seq), wall_ms()).await?;
        index_facts(&self.store).await?;
        Ok(Some(HeardSome { seq: last.seq, bytes }))
    }

    /// Looks through a conversation that fell silent. `gives_up`: without the model, which has failed too often.
    async fn look_through(&self, silent: &UnheardSession, gives_up: bool) -> Result<Result<(), Failure>, Error> {
        let mut found = LearnedFacts::default();
        self.hear_all(silent, &mut found).await?;
        self.hear_by_meaning(silent, &mut found).await?;
        found.tell(self, &silent.session).await?;
        let preset = self.preset_of(silent);
        let mut seq = silent.learned_seq;
        let session = &silent.session;
        if preset.remember.learn == Learn::Model && !gives_up {
            loop {
                let mut said = self.store.said_since(session, seq, MESSAGES_AT_ONCE).await?;
                let person = said.first().map_or(silent.person.as_str(), |first| said_by(silent, first)).to_owned();
                said.truncate(said.iter().take_while(|message| said_by(silent, message) == person).count());
                let bytes = said.iter().map(|message| message.text.len()).sum();
                // One that is longer than that is a text that was pasted, and is not read.
                let fits = heavy::run(bytes, || {
                    let mut tokens = 0;
                    let fits = said.iter().take_while(|message| {
                        tokens += remember::estimate_tokens(&message.text);
                        tokens <= READ_TOKENS
                    });
                    fits.count()
                })
                .await;
                said.truncate(fits.max(1));
                let Some(last) = said.last() else { break };
                seq = last.seq;
                let (mut changes, mut found) = (FactChanges::default(), LearnedFacts::default());
                if fits > 0 {
                    let remembered = match self.changes_by_model(silent, &preset, &person, &said).await? {
                        Ok(remembered) => remembered,
                        Err(failure) => return Ok(Err(failure)),
                    };
                    found.add(&remembered);
                    changes = remembered.changes;
                }
                self.store.remember(session, changes, HeardThrough::Model(seq, None), wall_ms()).await?;
                index_facts(&self.store).await?;
                found.tell(self, session).await?;
            }
        }
        let through = HeardThrough::Model(self.store.newest_seq(session).await?.max(seq), Some(silent.updated_at_ms));
        self.store.remember(session, FactChanges::default(), through, wall_ms()).await?;
        Ok(Ok(()))
    }

    fn preset_of(&self, unheard: &UnheardSession) -> Arc<Preset> {
        self.presets.of_session(&unheard.preset, 0)
    }

    async fn known(
        &self,
        user: &str,
        person: &str,
        changes: impl Iterator<Item = &FactChange>,
    ) -> Result<Remembered, Error> {
        let (mut subjects, mut words) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                FactChange::Keep(statement) => {
                    subjects.push(statement.about.as_str());
                    // One whose name it leaves out has these words, too.
                    let of_state = statement.about.split_once('|').map(|(subject, _)| subject).unwrap_or_default();
                    words.extend(of_state.split_whitespace().map(str::to_owned));
                }
                FactChange::Forget(what) => words.extend(remember::stems(what)),
            }
        }
        words.sort_unstable();
        words.dedup();
        let most = self.settings.remember.facts;
        let mut room = FactRoom { user: user.to_owned(), most, ..FactRoom::default() };
        let mut facts: Vec<RememberedFact> = Vec::new();
        for owner in owners(person) {
            let mut found = self.store.facts_on(user, owner, &subjects).await?;
            found.extend(self.store.facts_with_words(user, owner, &words, false, MOST_PLACES).await?);
            for fact in found {
                if !facts.iter().any(|known| known.id == fact.id) {
                    facts.push(fact);
                }
            }
            if !subjects.is_empty() {
                room.held.insert(owner.to_owned(), self.store.count_facts(user, owner).await? as usize);
            }
        }
        if !subjects.is_empty() {
            room.of_user = self.room_of_user(user).await?;
        }
        Ok(Remembered::new(facts, person, room, wall_ms()))
    }

    async fn places_of(&self, user: &str, person: &str, what: &str) -> Vec<(String, String)> {
        let stems = remember::stems(what);
        let query: Vec<String> = stems.iter().take(MOST_WORDS).map(|stem| format!("{stem}*")).collect();
        let search = HistorySearch {
            user,
            place: SearchPlace::Person(person, SecretsOf::All),
            query: &query.join(" "),
            most_words: self.settings.limits.search_words.max(4 * MOST_WORDS),
            any_word: false,
            statements: false,
            limit: MOST_PLACES,
            recent_ms: None,
            now_ms: wall_ms(),
            marks: ["", ""],
            excerpt_words: 1,
        };
        let hits = if query.is_empty() { Ok(Vec::new()) } else { self.store.search(&search).await };
        let hits = hits.unwrap_or_else(|error| {
            tracing::warn!(%error, "the places of forgotten words could not be searched");
            Vec::new()
        });
        hits.into_iter().map(|hit| (hit.session_id, hit.item_id)).collect()
    }
}

const MOST_WORDS: usize = 8;

/// Returns the changes that each message makes, `most` at most. The list ends before the wishes to forget ask for too many words.
fn changes_of(said: &[SaidMessage], before: Option<&str>, most: usize) -> Vec<Vec<FactChange>> {
    let (mut all, mut before, mut words): (Vec<Vec<FactChange>>, _, _) = (Vec::new(), before, 0);
    for message in said {
        let mut changes = extract(&message.text, before);
        changes.truncate(most);
        let wishes = changes.iter().filter_map(|change| match change {
            FactChange::Forget(what) => Some(remember::stems(what).len()),
            FactChange::Keep(_) => None,
        });
        words += wishes.sum::<usize>();
        if words > WORDS_AT_ONCE && !all.is_empty() {
            break;
        }
        all.push(changes);
        before = Some(&message.text);
    }
    all
}
