//! Changes of the remembered facts.

use crate::first_time;
use remember::{Statement, is_meant, is_secret};
use std::collections::HashMap;
use store::{Error, FactChanges, FoundBy, NewFact, RememberedFact, SaidMessage, UnheardSession, new_id};

pub struct SaidAt<'a> {
    person: &'a str,
    message: &'a SaidMessage,
}

impl<'a> SaidAt<'a> {
    pub fn of(unheard: &'a UnheardSession, message: &'a SaidMessage) -> SaidAt<'a> {
        SaidAt { person: said_by(unheard, message), message }
    }
}

pub fn said_by<'a>(unheard: &'a UnheardSession, message: &'a SaidMessage) -> &'a str {
    message.person.as_deref().unwrap_or(&unheard.person)
}

pub struct Remembered {
    held: Vec<HeldFact>,
    pub changes: FactChanges,
    person: String,
    room: FactRoom,
    now_ms: i64,
}

#[derive(Default)]
pub struct FactRoom {
    pub user: String,
    /// Limit for one person, besides the facts that were asked for.
    pub most: usize,
    pub held: HashMap<String, usize>,
    /// Number of facts that all persons of the user may still get.
    pub of_user: usize,
}

struct HeldFact {
    id: String,
    person: String,
    about: String,
    text: String,
    folded: String,
    asked: bool,
    item_id: Option<String>,
    said_at_ms: i64,
}

impl Remembered {
    pub fn new(facts: Vec<RememberedFact>, person: &str, room: FactRoom, now_ms: i64) -> Remembered {
        let held = facts.into_iter().filter(RememberedFact::holds).map(|fact| HeldFact {
            id: fact.id,
            person: fact.person,
            about: fact.about,
            folded: folded(&fact.text),
            text: fact.text,
            asked: fact.asked,
            item_id: fact.item_id,
            said_at_ms: fact.said_at_ms,
        });
        Remembered { held: held.collect(), changes: FactChanges::default(), person: person.to_owned(), room, now_ms }
    }

    pub fn keep(&mut self, statement: Statement, found_by: FoundBy, source: &SaidAt) -> Result<(), Error> {
        let Statement { text, about, asked, of_home, confidence } = statement;
        // What a person says by the way stays theirs, also where it is about the home.
        let person = if asked && of_home { String::new() } else { self.person.clone() };
        let folded = folded(&text);
        let is_same = |fact: &&HeldFact| fact.person == person && (fact.about == about || fact.folded == folded);
        let known = |fact: &HeldFact| fact.folded == folded && (fact.asked || !asked);
        // A model that words what was said in a message is not newer than the words themselves.
        let worded =
            |fact: &HeldFact| found_by == FoundBy::Model && fact.item_id.as_ref() == Some(&source.message.item_id);
        let older: Vec<String> = self.held.iter().filter(is_same).map(|fact| fact.id.clone()).collect();
        let is_known = self.held.iter().filter(is_same).any(|fact| known(fact) || worded(fact));
        if is_known || person.is_empty() && is_secret(&text) {
            return Ok(());
        }
        let has_most = self.room.held.get(&person).is_some_and(|held| *held >= self.room.most);
        if (self.room.of_user == 0 || !asked && has_most) && older.is_empty() {
            if asked && first_time(&self.room.user, format!("facts of {}", self.person)) {
                tracing::warn!("more is to be remembered than ten times remember.facts: it is not kept");
            }
            return Ok(());
        }
        let id = new_id("fact")?;
        let said_at_ms = source.message.created_at_ms.min(self.now_ms);
        // Conversations go on beside each other: what is heard later may have been said before. A time that is still to come was
        // written while the clock was ahead, and says nothing about the order.
        let is_newer = |fact: &&HeldFact| fact.said_at_ms > said_at_ms && fact.said_at_ms <= self.now_ms;
        let newer = self.held.iter().filter(is_same).find(is_newer).map(|fact| fact.id.clone());
        match &newer {
            Some(newer) => self.changes.replaced.push((id.clone(), newer.clone())),
            None => {
                self.changes.replaced.extend(older.iter().map(|older| (older.clone(), id.clone())));
                self.held.retain(|fact| !older.contains(&fact.id));
            }
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
            said_at_ms,
        };
        self.changes.new.push(new);
        self.room.of_user = self.room.of_user.saturating_sub(1);
        if newer.is_none() {
            let held = self.room.held.entry(person.clone()).or_default();
            *held = (*held + 1).saturating_sub(older.len());
            self.held.push(HeldFact { id, person, about, text, folded, asked, item_id, said_at_ms });
        }
        Ok(())
    }

    pub fn forget(&mut self, what: &str) {
        let meant: Vec<String> =
            self.held.iter().filter(|fact| is_meant(&fact.text, what)).map(|fact| fact.id.clone()).collect();
        self.held.retain(|fact| !meant.contains(&fact.id));
        self.changes.forgotten.extend(meant);
    }

    /// Hides this item from all searches of the past.
    pub fn unsay(&mut self, session: &str, item: &str) {
        let place = (session.to_owned(), item.to_owned());
        if !self.changes.unsaid.contains(&place) {
            self.changes.unsaid.push(place);
        }
    }
}

fn folded(text: &str) -> String {
    text.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(most: usize, of_user: usize) -> FactRoom {
        FactRoom { most, of_user, ..FactRoom::default() }
    }

    fn said(text: &str, about: &str, at_ms: i64, remembered: &mut Remembered) {
        say(text, about, at_ms, false, remembered);
    }

    fn say(text: &str, about: &str, at_ms: i64, asked: bool, remembered: &mut Remembered) {
        let message = SaidMessage {
            seq: 1,
            item_id: format!("item_{at_ms}"),
            text: text.to_owned(),
            person: None,
            created_at_ms: at_ms,
        };
        let statement =
            Statement { text: text.to_owned(), about: about.to_owned(), asked, of_home: false, confidence: 0.8 };
        let source = SaidAt { person: "ann", message: &message };
        remembered.keep(statement, FoundBy::Words, &source).unwrap();
    }

    fn texts(remembered: &Remembered) -> Vec<&str> {
        remembered.held.iter().map(|fact| fact.text.as_str()).collect()
    }

    #[test]
    fn what_was_said_last_holds_whenever_it_is_heard() {
        let mut remembered = Remembered::new(Vec::new(), "ann", room(10, 100), 100);
        said("My sister moved to Porto.", "siste|lives", 20, &mut remembered);
        said("My sister lives in Lisbon.", "siste|lives", 10, &mut remembered);
        assert_eq!(texts(&remembered), ["My sister moved to Porto."]);
        let [first, second] = &remembered.changes.new[..] else { panic!("two facts") };
        assert_eq!(remembered.changes.replaced, [(second.id.clone(), first.id.clone())]);
        said("My sister moved to Lyon.", "siste|lives", 30, &mut remembered);
        assert_eq!(texts(&remembered), ["My sister moved to Lyon."]);
        // Said again it is no news.
        said("my sister moved to lyon", "siste|lives", 40, &mut remembered);
        assert_eq!(remembered.changes.new.len(), 3);
    }

    #[test]
    fn a_fact_said_while_the_clock_was_ahead_gives_way_to_what_is_said_next() {
        let mut ahead = Remembered::new(Vec::new(), "ann", room(10, 100), 5000);
        said("My sister lives in Lisbon.", "siste|lives", 4000, &mut ahead);
        let mut remembered = Remembered { now_ms: 100, ..ahead };
        said("My sister moved to Porto.", "siste|lives", 90, &mut remembered);
        assert_eq!(texts(&remembered), ["My sister moved to Porto."]);
        // What is heard now was not said later than now.
        said("I like tea.", "=like tea", 4000, &mut remembered);
        said("I like milk.", "=like tea", 100, &mut remembered);
        assert_eq!(texts(&remembered), ["My sister moved to Porto.", "I like milk."]);
    }

    #[test]
    fn facts_have_a_limit_and_are_forgotten() {
        let mut remembered = Remembered::new(Vec::new(), "ann", room(1, 100), 100);
        said("I like tea.", "=like tea", 10, &mut remembered);
        said("I like milk.", "=like milk", 20, &mut remembered);
        assert_eq!(texts(&remembered), ["I like tea."]);
        remembered.forget("that I like tea");
        assert_eq!(texts(&remembered), Vec::<&str>::new());
        assert_eq!(remembered.changes.forgotten.len(), 1);
        remembered.unsay("sess", "item");
        remembered.unsay("sess", "item");
        assert_eq!(remembered.changes.unsaid.len(), 1);
    }
    #[test]
    fn wishes_have_a_limit_for_all_persons_of_a_user() {
        let mut remembered = Remembered::new(Vec::new(), "ann", room(1, 2), 100);
        say("I like tea.", "=like tea", 10, true, &mut remembered);
        say("I like milk.", "=like milk", 20, true, &mut remembered);
        say("I like wine.", "=like wine", 30, true, &mut remembered);
        assert_eq!(texts(&remembered), ["I like tea.", "I like milk."]);
        // A newer fact about the same takes no room that the older one did not have.
        say("I like tea a lot.", "=like tea", 40, true, &mut remembered);
        assert_eq!(texts(&remembered), ["I like milk.", "I like tea a lot."]);
    }
}
