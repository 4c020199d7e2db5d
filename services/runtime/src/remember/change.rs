//! Changes of the remembered facts.

use super::fact_search::FactSearch;
use crate::first_time;
use encoder::VectorRows;
use remember::{
    MatchTokens, MeantFact, NearFact, Statement, is_meant, is_secret, leaves_out_name, meant_fact, same_words,
};
use std::collections::HashMap;
use store::{Error, FactChanges, FactVector, FoundBy, NewFact, RememberedFact, SaidMessage, UnheardSession, new_id};

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

/// Two facts, either of which a sentence may mean. Both stay.
#[derive(Clone)]
pub struct Unsure {
    /// Fact of a correction, beside them. `None`: the sentence is a wish to forget.
    pub kept: Option<String>,
    pub near: [String; 2],
}

pub struct Remembered {
    held: Vec<HeldFact>,
    pub changes: FactChanges,
    pub unsure: Vec<Unsure>,
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
    vector: Option<Vec<i8>>,
    tokens: Option<MatchTokens>,
}

impl HeldFact {
    fn new(fact: RememberedFact, vector: Option<Vec<i8>>) -> HeldFact {
        HeldFact {
            id: fact.id,
            person: fact.person,
            about: fact.about,
            folded: folded(&fact.text),
            text: fact.text,
            asked: fact.asked,
            item_id: fact.item_id,
            said_at_ms: fact.said_at_ms,
            vector,
            tokens: None,
        }
    }
}

impl Remembered {
    pub fn new(facts: Vec<RememberedFact>, person: &str, room: FactRoom, now_ms: i64) -> Remembered {
        let held = facts.into_iter().filter(RememberedFact::holds).map(|fact| HeldFact::new(fact, None));
        let (held, person) = (held.collect(), person.to_owned());
        Remembered { held, changes: FactChanges::default(), unsure: Vec::new(), person, room, now_ms }
    }

    pub fn keep(&mut self, statement: Statement, found_by: FoundBy, source: &SaidAt) -> Result<(), Error> {
        self.keep_instead(statement, found_by, source, None)
    }

    /// Keeps a statement, in the place of `meant` and of those about the same.
    pub fn keep_instead(
        &mut self,
        statement: Statement,
        found_by: FoundBy,
        source: &SaidAt,
        meant: Option<&str>,
    ) -> Result<(), Error> {
        let Statement { text, about, asked, of_home, confidence } = statement;
        // What a person says by the way stays theirs, also where it is about the home.
        let person = if asked && of_home { String::new() } else { self.person.clone() };
        let folded = folded(&text);
        let named = self.named(&about);
        let is_meant = |fact: &HeldFact| [meant, named.as_deref()].contains(&Some(fact.id.as_str()));
        let is_same = |fact: &&HeldFact| {
            fact.person == person && (fact.about == about || fact.folded == folded || is_meant(fact))
        };
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
            self.held.push(HeldFact {
                id,
                person,
                about,
                text,
                folded,
                asked,
                item_id,
                said_at_ms,
                vector: None,
                tokens: None,
            });
        }
        Ok(())
    }

    // Finds the one fact that says the same of one whose name a statement leaves out.
    fn named(&self, about: &str) -> Option<String> {
        let is_it = |fact: &&HeldFact| fact.person == self.person && leaves_out_name(about, &fact.about, &fact.text);
        let mut named = self.held.iter().filter(is_it);
        let first = named.next()?;
        named.next().is_none().then(|| first.id.clone())
    }

    /// Forgets the facts that a wish means by its words. Returns how many there were.
    pub fn forget(&mut self, what: &str) -> usize {
        let meant = self.ids_of(|fact| is_meant(&fact.text, what));
        self.forget_all(&meant);
        meant.len()
    }

    pub fn forget_one(&mut self, id: &str) {
        self.forget_all(&[id.to_owned()]);
    }

    pub fn add(&mut self, facts: &[RememberedFact]) {
        let is_new = |fact: &&RememberedFact| !self.held.iter().any(|held| held.id == fact.id);
        let new: Vec<HeldFact> = facts.iter().filter(is_new).map(|fact| HeldFact::new(fact.clone(), None)).collect();
        self.held.extend(new);
    }

    pub fn forget_said_in(&mut self, item_id: &str) {
        let meant = self.ids_of(|fact| fact.item_id.as_deref() == Some(item_id));
        self.forget_all(&meant);
    }

    pub fn has_vectors(&self) -> bool {
        self.held.iter().any(|fact| fact.vector.is_some())
    }

    pub fn add_vectors(&mut self, mut facts: Vec<FactVector>) {
        facts.retain(|found| !self.has_gone(&found.fact.id));
        for FactVector { fact, vector } in facts {
            let vector = Some(bytemuck::cast_vec(vector));
            match self.held.iter_mut().find(|held| held.id == fact.id) {
                Some(held) => held.vector = vector,
                None => self.held.push(HeldFact::new(fact, vector)),
            }
        }
    }

    pub fn known_as(&self, text: &str) -> Option<&str> {
        let own = folded(text);
        let known = self.held.iter().find(|fact| fact.person == self.person && fact.folded == own);
        known.map(|fact| fact.id.as_str())
    }

    /// Lists ids and texts of the nearest facts that a sentence may mean and that have no tokens yet.
    pub fn unread(&self, search: &FactSearch, source: &SaidMessage, most: usize) -> Vec<(String, String)> {
        let near = self.near(search, source, most).into_iter().map(|(at, _)| &self.held[at]);
        near.filter(|fact| fact.tokens.is_none()).map(|fact| (fact.id.clone(), fact.text.clone())).collect()
    }

    pub fn add_tokens(&mut self, read: Vec<(String, MatchTokens)>) {
        for (id, tokens) in read {
            if let Some(fact) = self.held.iter_mut().find(|fact| fact.id == id) {
                fact.tokens = Some(tokens);
            }
        }
    }

    /// Keeps a statement, in the place of the fact that it corrects. Returns true if two facts are near: both stay, and the newer stands
    /// beside them.
    pub fn correct(&mut self, statement: Statement, search: &FactSearch, source: &SaidAt) -> Result<bool, Error> {
        let id_of = |at: usize| self.held[at].id.clone();
        let (meant, near) = match self.meant(search, source.message) {
            MeantFact::One(at) => (Some(id_of(at)), None),
            MeantFact::None => (None, None),
            MeantFact::Unsure(first, second) => (None, Some([id_of(first), id_of(second)])),
        };
        // Words may have kept it before, beside what it corrects.
        let text = statement.text.clone();
        match (self.known_as(&text).map(str::to_owned), meant) {
            (Some(known), Some(older)) => {
                self.held.retain(|fact| fact.id != older);
                self.changes.replaced.push((older, known));
            }
            (_, meant) => self.keep_instead(statement, FoundBy::Words, source, meant.as_deref())?,
        }
        let is_unsure = near.is_some();
        if let (Some(near), Some(kept)) = (near, self.known_as(&text)) {
            self.unsure.push(Unsure { kept: Some(kept.to_owned()), near });
        }
        Ok(is_unsure)
    }

    /// Forgets the fact that a wish means by its meaning, among those that were told before it. Where two are near, both stay.
    pub fn forget_meant(&mut self, search: &FactSearch, source: &SaidMessage) {
        match self.meant(search, source) {
            MeantFact::One(at) => {
                let meant = &self.held[at];
                let ids = self.ids_of(|fact| fact.id == meant.id || are_of_one_sentence(fact, meant));
                self.forget_all(&ids);
            }
            MeantFact::None => {}
            MeantFact::Unsure(first, second) => {
                crate::metrics::unsure_wish();
                let near = [first, second].map(|at| self.held[at].id.clone());
                self.unsure.push(Unsure { kept: None, near });
            }
        }
    }

    /// Lists the places of the facts that a sentence may mean, and how near each is, nearest first.
    fn near(&self, search: &FactSearch, source: &SaidMessage, most: usize) -> Vec<(usize, f32)> {
        let own = folded(search.sentence);
        let is_wish = search.correction.is_none();
        let may_be = |fact: &HeldFact| {
            fact.said_at_ms <= source.created_at_ms
                && fact.item_id.as_ref() != Some(&source.item_id)
                && (is_wish || fact.person == self.person && fact.folded != own)
        };
        let facts = self.held.iter().enumerate().filter(|(_, fact)| may_be(fact));
        let width = search.vector.len();
        let facts = facts.filter_map(|(at, fact)| Some((at, fact.vector.as_ref().filter(|own| own.len() == width)?)));
        let (places, rows): (Vec<usize>, Vec<&Vec<i8>>) = facts.unzip();
        let near = rows.into_iter().collect::<VectorRows>().nearest(search.vector, most);
        near.into_iter().map(|(at, likeness)| (places[at], likeness)).collect()
    }

    fn meant(&self, search: &FactSearch, source: &SaidMessage) -> MeantFact {
        let near = self.near(search, source, MOST_NEAR).into_iter().filter_map(|(at, likeness)| {
            let HeldFact { text, about, tokens, .. } = &self.held[at];
            let fit = search.fit(tokens.as_ref(), likeness, same_words(search.sentence, text))?;
            Some((at, NearFact { text, likeness, fit, differs: search.differences(text, about) }))
        });
        let (places, facts): (Vec<usize>, Vec<NearFact>) = near.unzip();
        match meant_fact(search.sentence, &facts, &search.weights()) {
            MeantFact::None => MeantFact::None,
            MeantFact::One(at) => MeantFact::One(places[at]),
            MeantFact::Unsure(first, second) => MeantFact::Unsure(places[first], places[second]),
        }
    }

    fn ids_of(&self, is_meant: impl Fn(&HeldFact) -> bool) -> Vec<String> {
        self.held.iter().filter(|fact| is_meant(fact)).map(|fact| fact.id.clone()).collect()
    }

    fn forget_all(&mut self, ids: &[String]) {
        self.held.retain(|fact| !ids.contains(&fact.id));
        self.changes.forgotten.extend_from_slice(ids);
    }

    /// Drops facts that say nothing by themselves.
    pub fn drop_all(&mut self, ids: Vec<String>) {
        self.held.retain(|fact| !ids.contains(&fact.id));
        let is_new = |id: &String| !self.changes.dropped.contains(id);
        let new: Vec<String> = ids.into_iter().filter(is_new).collect();
        self.changes.dropped.extend(new);
    }

    fn has_gone(&self, id: &str) -> bool {
        let mut gone = self.changes.forgotten.iter().chain(self.changes.replaced.iter().map(|(older, _)| older));
        gone.any(|older| older == id)
    }

    pub fn unsay(&mut self, session: &str, item: &str) {
        let place = (session.to_owned(), item.to_owned());
        if !self.changes.unsaid.contains(&place) {
            self.changes.unsaid.push(place);
        }
    }

    /// Hides this item from searches of other conversations.
    pub fn keep_secret(&mut self, session: &str, item: &str) {
        self.changes.secrets.push((session.to_owned(), item.to_owned()));
    }
}

// Facts that are compared with a sentence, token by token.
pub const MOST_NEAR: usize = 16;

// True for clauses of one sentence, which have its subject: a wish to forget in other words means all that it said.
fn are_of_one_sentence(one: &HeldFact, other: &HeldFact) -> bool {
    let subject = |fact: &HeldFact| fact.text.split_whitespace().take(2).map(folded).collect::<Vec<_>>();
    one.item_id.is_some() && one.item_id == other.item_id && subject(one) == subject(other)
}

fn folded(text: &str) -> String {
    text.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remember::fact_search::Correction;

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
    fn a_statement_without_a_name_takes_the_place_of_the_one_fact_with_it() {
        let [anna, lena] = ["My sister Anna lives in Lisbon.", "My sister Lena lives in Rome."];
        let keep = |all: &[&str]| {
            let mut remembered = Remembered::new(Vec::new(), "ann", room(10, 100), 100);
            for (text, at_ms) in all.iter().zip(10..) {
                said(text, &remember::about(text), at_ms, &mut remembered);
            }
            texts(&remembered).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(keep(&[anna, "My sister moved to Porto."]), ["My sister moved to Porto."]);
        assert_eq!(keep(&[anna, lena, "Anna moved to Porto."]), [lena, "Anna moved to Porto."]);
        // Either may be meant.
        assert_eq!(keep(&[anna, lena, "My sister moved to Porto."]).len(), 3);
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

    fn near_facts() -> Remembered {
        let mut remembered = Remembered::new(Vec::new(), "ann", room(10, 100), 100);
        for (at, text) in ["Our dog is called Rex.", "Our cat is called Tom.", "I like tea."].into_iter().enumerate() {
            said(text, text, 10, &mut remembered);
            let mut vector = vec![0; 3];
            vector[at] = 100;
            remembered.held[at].vector = Some(vector);
        }
        remembered
    }

    fn correct(text: &str, vector: [i8; 3], at_ms: i64, remembered: &mut Remembered) -> bool {
        let item_id = format!("item_{at_ms}");
        let message = SaidMessage { seq: 1, item_id, text: text.to_owned(), person: None, created_at_ms: at_ms };
        let statement =
            Statement { text: text.to_owned(), about: text.to_owned(), asked: false, of_home: false, confidence: 0.8 };
        let correction = Some(Correction::new(&statement, 0.9));
        let search = FactSearch { sentence: text, correction, vector: &vector, matched: None };
        remembered.correct(statement, &search, &SaidAt { person: "ann", message: &message }).unwrap()
    }

    #[test]
    fn a_correction_takes_the_place_of_the_fact_that_it_means() {
        let mut remembered = near_facts();
        assert!(!correct("No, he is called Odin", [90, 20, 10], 20, &mut remembered));
        assert_eq!(texts(&remembered), ["Our cat is called Tom.", "I like tea.", "No, he is called Odin"]);
        // Two are near: the newer stands beside them.
        let mut remembered = near_facts();
        assert!(correct("That name is wrong", [70, 70, 0], 20, &mut remembered));
        assert_eq!(texts(&remembered).len(), 4);
        let [Unsure { kept, near }] = &remembered.unsure[..] else { panic!("one is unsure") };
        assert_eq!(kept.as_ref(), Some(&remembered.held[3].id));
        assert!(near.iter().all(|id| remembered.held[..3].iter().any(|fact| fact.id == *id)));
        // None is near, and what was said before the facts corrects none of them.
        for (vector, at_ms) in [([-90, -20, -10], 20), ([90, 20, 10], 5)] {
            let mut remembered = near_facts();
            assert!(!correct("We moved house", vector, at_ms, &mut remembered));
            assert_eq!(texts(&remembered).len(), 4);
        }
    }

    #[test]
    fn a_correction_leaves_facts_of_another_thing() {
        let mut remembered = near_facts();
        assert!(!correct("No, we drink coffee here", [90, 20, 10], 20, &mut remembered));
        assert_eq!(texts(&remembered).len(), 4);
    }

    #[test]
    fn a_wish_forgets_the_fact_that_it_means_and_no_other() {
        let mut remembered = near_facts();
        let at = |at_ms: i64| SaidMessage {
            seq: 1,
            item_id: format!("wish_{at_ms}"),
            text: String::new(),
            person: None,
            created_at_ms: at_ms,
        };
        let forget = |vector: &[i8], at_ms: i64, remembered: &mut Remembered| {
            let sentence = "Erase the thing with the pet";
            remembered.forget_meant(&FactSearch { sentence, correction: None, vector, matched: None }, &at(at_ms));
        };
        forget(&[90, 20, 10], 20, &mut remembered);
        assert_eq!(texts(&remembered), ["Our cat is called Tom.", "I like tea."]);
        forget(&[-90, -20, -10], 20, &mut remembered);
        forget(&[0, 90, 0], 5, &mut remembered);
        // Vectors of another encoder have another width.
        forget(&[0, 90], 20, &mut remembered);
        assert_eq!(texts(&remembered), ["Our cat is called Tom.", "I like tea."]);
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
