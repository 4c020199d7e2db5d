//! Facts that people read, write and find by hand.

use crate::clock::wall_ms;
use crate::{Error, Runtime};
use remember::about;
use store::{FoundBy, NewFact, RememberedFact, Store, new_id};

impl Runtime {
    /// Stores a fact that a user wrote; it replaces the facts about the same subject.
    pub async fn write_fact(&self, user: &str, person: &str, text: &str) -> Result<RememberedFact, Error> {
        write_fact(self.store(), user, person, text).await
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
    let known = store.facts(user, Some(person)).await?;
    let older = known.into_iter().filter(|fact| fact.holds() && fact.about == about).map(|fact| fact.id);
    store.put_fact(user, new, older.collect(), now_ms).await?;
    let written = store.facts(user, Some(person)).await?.into_iter().find(|fact| fact.id == id);
    written.ok_or_else(|| store::Error::NoFact { fact: id }.into())
}

/// Lists the facts that have one of these words, in their own text or in the sentence that they came from.
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
