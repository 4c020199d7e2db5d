//! Facts that people read, write and find by hand.

use crate::clock::wall_ms;
use crate::encode::encode_to_bytes;
use crate::shared::Shared;
use crate::{Error, Runtime, heavy};
use encoder::Encoder;
use remember::about;
use std::sync::Arc;
use store::{FoundBy, NewFact, RememberedFact, Store, UnindexedFact, new_id};

const MOST_OF_USER: usize = 10;
const KEPT_TENTHS: usize = 9;
const MOST_WORDS: usize = 256;

impl Runtime {
    /// Stores a fact that a user wrote; it replaces the facts about the same subject.
    pub async fn write_fact(&self, user: &str, person: &str, text: &str) -> Result<RememberedFact, Error> {
        if self.shared.room_of_user(user).await? == 0 {
            return Err(Error::MemoriesFull { limit: self.shared.most_facts_of_user() });
        }
        write_fact(self.store(), user, person, text).await
    }
}

impl Shared {
    fn most_facts_of_user(&self) -> usize {
        self.settings.remember.facts.saturating_mul(MOST_OF_USER)
    }

    /// Returns how many facts the persons of a user may have besides. The oldest of those that were replaced make room.
    pub async fn room_of_user(&self, user: &str) -> Result<usize, store::Error> {
        let most = self.most_facts_of_user();
        let room = |count: u64| most.saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
        let left = room(self.store.count_all_facts(user).await?);
        if left > 0 {
            return Ok(left);
        }
        self.store.forget_oldest_replaced(user, (most / MOST_OF_USER * KEPT_TENTHS) as u64).await?;
        Ok(room(self.store.count_all_facts(user).await?))
    }
}

pub async fn write_fact(store: &Store, user: &str, person: &str, text: &str) -> Result<RememberedFact, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::EmptyText);
    }
    let (id, now_ms, about) = (new_id("fact")?, wall_ms(), about(text));
    let new = NewFact {
        id: id.clone(),
        person: person.to_owned(),
        about: about.clone(),
        text: text.to_owned(),
        asked: true,
        found_by: FoundBy::User,
        confidence: 1.0,
        item_id: None,
        words: String::new(),
        said_by: person.to_owned(),
        said_at_ms: now_ms,
    };
    let older = store.facts_on(user, person, &[&about]).await?.into_iter().map(|fact| fact.id);
    store.put_fact(user, new, older.collect(), now_ms).await?;
    index_facts(store).await?;
    store.fact(user, &id).await?.ok_or_else(|| store::Error::NoFact { fact: id }.into())
}

pub async fn index_facts(store: &Store) -> Result<(), store::Error> {
    loop {
        let facts = store.unindexed_facts().await?;
        if facts.is_empty() {
            return Ok(());
        }
        let bytes = facts.iter().map(|fact| fact.text.len()).sum();
        let words = |UnindexedFact { key, text }: UnindexedFact| {
            let mut words: Vec<String> = prompt::words_of(&text).into_iter().collect();
            words.sort_unstable();
            words.truncate(MOST_WORDS);
            (key, words)
        };
        let words = heavy::run(bytes, || facts.into_iter().map(words).collect()).await;
        store.index_facts(words).await?;
    }
}

pub async fn index_vectors(store: &Store, encoder: Option<&Arc<Encoder>>) -> Result<(), store::Error> {
    let Some(encoder) = encoder else { return Ok(()) };
    while put_vectors(store, encoder, store.facts_without_vector(encoder.name()).await?).await? {}
    Ok(())
}

pub async fn put_vectors(
    store: &Store,
    encoder: &Arc<Encoder>,
    facts: Vec<UnindexedFact>,
) -> Result<bool, store::Error> {
    if facts.is_empty() {
        return Ok(false);
    }
    let (keys, texts): (Vec<i64>, Vec<String>) = facts.into_iter().map(|fact| (fact.key, fact.text)).unzip();
    let vectors = encode_to_bytes(encoder, texts).await;
    if vectors.len() != keys.len() {
        return Ok(false);
    }
    store.put_fact_vectors(encoder.name(), keys.into_iter().zip(vectors).collect()).await?;
    Ok(true)
}

pub fn facts_about(facts: Vec<RememberedFact>, words: &str) -> Vec<RememberedFact> {
    let wanted = remember::stems(words);
    let has_one = |fact: &RememberedFact| {
        let there = remember::stems(&format!("{} {}", fact.text, fact.words));
        wanted.iter().any(|stem| there.contains(stem))
    };
    facts.into_iter().filter(has_one).collect()
}

pub fn fact_lines(facts: &[RememberedFact]) -> String {
    let kept = facts.iter().filter(|fact| fact.forgotten_at_ms.is_none());
    kept.filter_map(|fact| Some(serde_json::to_string(fact).ok()? + "\n")).collect()
}
