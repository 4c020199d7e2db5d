//! How what was heard changes what is remembered.

use compaction::Statement;
use compaction::remember::{is_meant, is_secret};
use store::{Error, FactChanges, FoundBy, NewFact, RememberedFact, SaidMessage, UnheardSession, new_id};

/// Where and when something was said.
pub struct SaidAt<'a> {
    person: &'a str,
    message: &'a SaidMessage,
}

impl<'a> SaidAt<'a> {
    pub fn of(unheard: &'a UnheardSession, message: &'a SaidMessage) -> SaidAt<'a> {
        SaidAt { person: &unheard.person, message }
    }
}

/// What holds today, and what changes about it.
pub struct Remembered {
    held: Vec<HeldFact>,
    pub changes: FactChanges,
    /// Whose words they are. Empty: the home's guest.
    person: String,
    most: usize,
}

struct HeldFact {
    id: String,
    person: String,
    about: String,
    text: String,
    asked: bool,
    item_id: Option<String>,
}

impl Remembered {
    pub fn new(facts: Vec<RememberedFact>, person: &str, most: usize) -> Remembered {
        let held = facts.into_iter().filter(RememberedFact::holds).map(|fact| HeldFact {
            id: fact.id,
            person: fact.person,
            about: fact.about,
            text: fact.text,
            asked: fact.asked,
            item_id: fact.item_id,
        });
        Remembered { held: held.collect(), changes: FactChanges::default(), person: person.to_owned(), most }
    }

    /// A statement takes the place of what was known about the same.
    pub fn keep(&mut self, statement: Statement, found_by: FoundBy, source: &SaidAt) -> Result<(), Error> {
        let Statement { text, about, asked, of_home, confidence } = statement;
        // What a person says by the way stays theirs, also where it is about the home.
        let person = if asked && of_home { String::new() } else { self.person.clone() };
        let is_same =
            |fact: &&HeldFact| fact.person == person && (fact.about == about || folded(&fact.text) == folded(&text));
        let known = |fact: &HeldFact| folded(&fact.text) == folded(&text) && (fact.asked || !asked);
        // A model that words what was said in a message is not newer than the words themselves.
        let worded =
            |fact: &HeldFact| found_by == FoundBy::Model && fact.item_id.as_ref() == Some(&source.message.item_id);
        let older: Vec<String> = self.held.iter().filter(is_same).map(|fact| fact.id.clone()).collect();
        let is_known = self.held.iter().filter(is_same).any(|fact| known(fact) || worded(fact));
        let is_full = !asked && self.held.iter().filter(|fact| fact.person == person).count() >= self.most;
        if is_known || person.is_empty() && is_secret(&text) || is_full && older.is_empty() {
            return Ok(());
        }
        let id = new_id("fact")?;
        for older in older {
            self.changes.replaced.push((older.clone(), id.clone()));
            self.held.retain(|fact| fact.id != older);
        }
        let item_id = Some(source.message.item_id.clone());
        let new = NewFact {
            id: id.clone(),
            person: person.clone(),
            about: about.clone(),
            text: text.clone(),
            asked,
            found_by,
            confidence,
            item_id: item_id.clone(),
            words: source.message.text.clone(),
            said_by: source.person.to_owned(),
            said_at_ms: source.message.created_at_ms,
        };
        self.changes.new.push(new);
        self.held.push(HeldFact { id, person, about, text, asked, item_id });
        Ok(())
    }

    /// What is meant by these words is remembered no more.
    pub fn forget(&mut self, what: &str) {
        let meant: Vec<String> =
            self.held.iter().filter(|fact| is_meant(&fact.text, what)).map(|fact| fact.id.clone()).collect();
        self.held.retain(|fact| !meant.contains(&fact.id));
        self.changes.forgotten.extend(meant);
    }

    /// No search of the past tells this item any more.
    pub fn unsay(&mut self, session: &str, item: &str) {
        let place = (session.to_owned(), item.to_owned());
        if !self.changes.unsaid.contains(&place) {
            self.changes.unsaid.push(place);
        }
    }
}

/// The letters and digits of a text, so that the same words are the same text.
fn folded(text: &str) -> String {
    text.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
