//! What the service looks up by itself before a reply: the user's own words of what the question is about, where they are
//! not in the prompt any more. They become a note before the question, behind everything that is warm.

use crate::clock::wall_ms;
use crate::prompts::RecallPlace;
use crate::recall::{one_line, search_past};
use session::machine::{Machine, NoteOfPast};
use session::{ConversationChoice, Input, Item, ItemStatus, NamedSpeaker, NewItem, NoteSource};
use settings::Settings;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use store::{Hit, RememberedFact, Store};

/// What comes, and what the model sees of the past anyway.
pub struct PastOf<'a> {
    pub question: &'a str,
    pub shown: &'a [Arc<Item>],
    /// Summary, pins and facts.
    pub preface: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub text: String,
    /// None: it is no item yet.
    pub item_id: Option<String>,
    /// Whose it is. None: the session's person's.
    pub person: Option<String>,
}

/// What a response is asked for about. None: the user has asked nothing.
pub fn question_of(input: &Input, machine: &Machine) -> Option<Question> {
    just_said(input, machine).filter(|question| remember::asks(&question.text))
}

fn just_said(input: &Input, machine: &Machine) -> Option<Question> {
    match input {
        Input::HeardAll { text, speaker, respond: true, .. } => {
            let text = text.clone().unwrap_or_else(|| machine.heard().to_owned());
            Some(Question { text, item_id: None, person: person_of(speaker.as_ref()) })
        }
        Input::Respond(request) if request.input.is_none() && request.conversation == ConversationChoice::Auto => {
            let items = machine.items();
            let (last, before) = items.split_last()?;
            let is_noted = before.last().is_some_and(|item| item.is_note_of_past());
            let is_question = last.is_said_by_user() && !is_noted;
            let person = person_of(last.speaker());
            is_question.then(|| Question { text: last.text(), item_id: Some(last.id.clone()), person })
        }
        Input::TakeTurn(turn) if turn.request.input.is_none() => {
            let said = |item: &NewItem| Item::new("", item.body.clone(), ItemStatus::Completed);
            let last = turn.items.last().map(said).filter(Item::is_said_by_user)?;
            Some(Question { text: last.text(), item_id: None, person: person_of(last.speaker()) })
        }
        _ => None,
    }
}

fn person_of(speaker: Option<&NamedSpeaker>) -> Option<String> {
    speaker.and_then(|speaker| speaker.person.clone())
}

/// Words of a question that are looked for.
const MOST_WORDS: usize = 16;
/// A word in more than one of so many items is about nothing in particular,
const ONE_OF: u64 = 8;
/// but for few, in a young conversation,
const FEW: u64 = 24;
/// and one in more than these takes too long to look through.
const MOST: u64 = 500;
/// What the words of a statement say together at least: as much as one that stands in one of thirty items.
const STRONG: f64 = 3.4;
/// A home in which little was said is taken for one with so many messages: a word that stands in six of them says something.
const YOUNG_HOME: u64 = 200;
/// Where a statement has all that the question is about: as much as one in six.
const STRONG_IF_ALL: f64 = 2.0;
/// What was found is looked at, and little of it is told.
const HITS: u32 = 24;
const PLACES: usize = 2;
/// As many as a stem has.
const NAME_CHARS: usize = 5;
/// Words that say so much of what the one says that says most are what a question is about, too.
const ABOUT_AS_HEAVY: f64 = 0.8;

/// The note for a question. None: nothing that was said is about it, or the model sees it already.
pub async fn look_back(settings: &Settings, place: RecallPlace<'_>, past: &PastOf<'_>) -> Option<NoteOfPast> {
    let conversation = &settings.conversation;
    let mut stems = remember::stems_of_question(past.question);
    stems.extend(numbers(past.question));
    stems.truncate(MOST_WORDS.min(settings.limits.search_words / 4));
    let facts = facts_besides(place, &stems).await;
    let least = if place.person.is_some() { YOUNG_HOME } else { 0 };
    let (weights, query) = weigh(place.store, stems, &facts, least).await?;
    let excerpt_words = conversation.recall_note_words / PLACES as u32;
    let mut hits = search_past(settings, place, &query, HITS, excerpt_words, true).await;
    hits.extend(facts.iter().map(|fact| place_of(fact, excerpt_words as usize)));
    let told = choose(&hits, &weights, past);
    let is_told = |fact: &&RememberedFact| told.iter().any(|hit| hit.item_id == fact.id);
    let used: Vec<String> = facts.iter().filter(is_told).map(|fact| fact.id.clone()).collect();
    if !used.is_empty() {
        place.store.use_facts(used, wall_ms());
    }
    let lines = told.iter().map(|hit| format!("{}{}", conversation.recall_note, one_line(hit)));
    let text = lines.collect::<Vec<_>>().join("\n");
    let sources = told.iter().flat_map(|hit| sources_of(hit, &facts)).collect();
    (!told.is_empty()).then_some(NoteOfPast { query, text, places: told.len(), sources })
}

/// Facts with one of these words that no search of what the person said finds: the home's, and what was said in conversations
/// that are gone.
async fn facts_besides(place: RecallPlace<'_>, stems: &[String]) -> Vec<RememberedFact> {
    let Some(person) = place.person else { return Vec::new() };
    let mut facts = Vec::new();
    for owner in [person, ""] {
        match place.store.facts(place.user, Some(owner)).await {
            Ok(known) => facts.extend(known),
            Err(error) => tracing::warn!(%error, "what is remembered could not be looked up"),
        }
        if person.is_empty() {
            break;
        }
    }
    let is_besides = |fact: &RememberedFact| fact.session_id.is_none() || fact.person != person;
    let has_word = |fact: &RememberedFact| words_of(&fact.text).iter().any(|word| stems.contains(word));
    facts.retain(|fact| fact.holds() && is_besides(fact) && has_word(fact));
    facts
}

/// Returns what a place copies: an item, or a fact with the item that it is from.
fn sources_of(hit: &Hit, facts: &[RememberedFact]) -> Vec<NoteSource> {
    let fact = facts.iter().find(|fact| fact.id == hit.item_id);
    let item_id = fact.map_or(Some(&hit.item_id), |fact| fact.item_id.as_ref());
    let item = item_id.filter(|_| !hit.session_id.is_empty());
    let item = item.map(|item_id| NoteSource::Item { session_id: hit.session_id.clone(), item_id: item_id.clone() });
    fact.map(|fact| NoteSource::Fact(fact.id.clone())).into_iter().chain(item).collect()
}

/// A fact as a place where something was said.
fn place_of(fact: &RememberedFact, most_words: usize) -> Hit {
    Hit {
        session_id: fact.session_id.clone().unwrap_or_default(),
        session_title: String::new(),
        item_id: fact.id.clone(),
        seq: 0,
        version: 1,
        current: true,
        kind: "message".to_owned(),
        role: Some("user".to_owned()),
        excerpt: fact.text.split_whitespace().take(most_words).collect::<Vec<_>>().join(" "),
        created_at_ms: fact.said_at_ms,
        score: 0.0,
    }
}

/// How much each rare word of the question says, and the search for them. None: there is none.
async fn weigh(
    store: &Store,
    stems: Vec<String>,
    facts: &[RememberedFact],
    least_versions: u64,
) -> Option<(HashMap<String, f64>, String)> {
    if stems.is_empty() {
        return None;
    }
    let (counts, versions) = store.count_words(&stems, ONE_OF, FEW, MOST).await.ok()?;
    let versions = versions.max(least_versions);
    let weight = |count: u64| (1.0 + versions as f64 / count as f64).ln();
    let told: HashSet<String> = facts.iter().flat_map(|fact| words_of(&fact.text)).collect();
    let known = stems.into_iter().zip(counts).filter_map(|(stem, count)| {
        let count = count?.max(u64::from(told.contains(&stem)));
        (count > 0).then_some((stem, count))
    });
    let weights: HashMap<String, f64> = known.map(|(stem, count)| (stem, weight(count))).collect();
    let query = weights.keys().map(|stem| format!("{stem}*")).collect::<Vec<_>>().join(" ");
    (!weights.is_empty()).then_some((weights, query))
}

/// For each of the words that say most, the statement that is most about the question; oldest first.
fn choose<'a>(hits: &'a [Hit], weights: &HashMap<String, f64>, past: &PastOf) -> Vec<&'a Hit> {
    let asked: HashSet<String> =
        remember::stems_of_question(past.question).into_iter().chain(besides_stems(past.question)).collect();
    let is_statement = |hit: &&Hit| hit.current && hit.role.as_deref() == Some("user") && !remember::asks(&hit.excerpt);
    let score = |words: &HashSet<String>| -> f64 {
        weights.iter().filter(|(stem, _)| words.contains(*stem)).map(|(_, weight)| weight).sum()
    };
    let statements = hits.iter().filter(is_statement).map(|hit| (hit, words_of(&hit.excerpt)));
    let has_all = |words: &HashSet<String>| asked.iter().all(|stem| words.contains(stem));
    let least_of = |words: &HashSet<String>| if has_all(words) { STRONG_IF_ALL } else { STRONG };
    let says_more = |words: &HashSet<String>| !words.is_subset(&asked) && score(words) >= least_of(words);
    let statements: Vec<(&Hit, HashSet<String>)> = statements.filter(|(_, words)| says_more(words)).collect();
    let mut heavy: Vec<(&String, f64)> = weights.iter().map(|(stem, weight)| (stem, *weight)).collect();
    heavy.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let least = heavy.first().map_or(0.0, |(_, weight)| weight * ABOUT_AS_HEAVY);
    let mut told: Vec<&Hit> = Vec::new();
    for (stem, _) in heavy.iter().take_while(|(_, weight)| *weight >= least) {
        let about = statements.iter().filter(|(_, words)| words.contains(*stem));
        let best = about.max_by(|a, b| score(&a.1).total_cmp(&score(&b.1)).then(when(a.0).cmp(&when(b.0))));
        let Some((hit, said)) = best else { continue };
        if past.shown.iter().any(|item| item.id == hit.item_id) || is_told(said, stem, &asked, past) {
            // What the model sees of it answers, or corrects what it does not see.
            break;
        }
        if !told.iter().any(|other| other.item_id == hit.item_id) {
            told.push(hit);
        }
    }
    told.truncate(PLACES);
    told.sort_by_key(|hit| when(hit));
    told
}

/// In one conversation the order of its items, between conversations the time.
fn when(hit: &Hit) -> (i64, u64) {
    (hit.created_at_ms, hit.seq)
}

/// A line of the summary or of the pins tells what the words say beyond the question, of the same thing.
fn is_told(said: &HashSet<String>, stem: &str, asked: &HashSet<String>, past: &PastOf) -> bool {
    let mut lines = past.preface.lines().map(words_of);
    lines.any(|line| line.contains(stem) && said.difference(asked).all(|word| line.contains(word)))
}

fn words_of(text: &str) -> HashSet<String> {
    remember::stems(text).into_iter().chain(besides_stems(text)).collect()
}

/// What stems leave out and an answer may be.
fn besides_stems(text: &str) -> impl Iterator<Item = String> {
    numbers(text).chain(names(text))
}

/// Names that are words of another language, such as Mia.
fn names(text: &str) -> impl Iterator<Item = String> {
    let words = text.split_whitespace().skip(1);
    let words = words.map(|word| word.trim_matches(|character: char| !character.is_alphanumeric()));
    let is_name = |word: &&str| word.chars().count() > 2 && word.starts_with(char::is_uppercase);
    words.filter(is_name).map(|word| word.to_lowercase().chars().take(NAME_CHARS).collect())
}

/// Codes, years, hours: what stems leave out.
fn numbers(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|character: char| !character.is_alphanumeric());
    words.filter(|word| word.starts_with(|first: char| first.is_ascii_digit())).map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::Role;

    fn hit(seq: u64, text: &str) -> Hit {
        Hit {
            session_id: "s".into(),
            session_title: String::new(),
            item_id: format!("item_{seq}"),
            seq,
            version: 0,
            current: true,
            kind: "message".into(),
            role: Some("user".into()),
            excerpt: text.into(),
            created_at_ms: seq as i64,
            score: 1.0,
        }
    }

    fn told(question: &str, said: &[&str], weights: &[(&str, f64)], preface: &str, shown: &[u64]) -> Vec<String> {
        let hits: Vec<Hit> = said.iter().enumerate().map(|(seq, text)| hit(seq as u64, text)).collect();
        let item = |seq: &u64| Arc::new(Item::message(format!("item_{seq}"), Role::User, said[*seq as usize]));
        let shown: Vec<Arc<Item>> = shown.iter().map(item).collect();
        let weights = weights.iter().map(|(stem, weight)| ((*stem).to_owned(), *weight)).collect();
        let past = PastOf { question, shown: &shown, preface };
        choose(&hits, &weights, &past).into_iter().map(|hit| hit.excerpt.clone()).collect()
    }

    #[test]
    fn the_users_words_are_told_and_neither_questions_nor_what_says_nothing_new() {
        let said = ["What is my dog called?", "My dog is called Biscuit.", "My cat is called Emma.", "My dog called."];
        let weights = [("dog", 5.0), ("calle", 2.0)];
        assert_eq!(told("What is my dog called?", &said, &weights, "", &[]), ["My dog is called Biscuit."]);
    }

    #[test]
    fn the_newest_words_of_several_are_told() {
        let said = ["My dog is called Biscuit.", "My dog is called Rex."];
        assert_eq!(told("What is my dog called?", &said, &[("dog", 5.0)], "", &[]), ["My dog is called Rex."]);
    }

    #[test]
    fn what_the_model_sees_is_not_told_again() {
        let (question, said, weights) = ("What is my dog called?", ["My dog is called Biscuit."], [("dog", 5.0)]);
        assert!(told(question, &said, &weights, "", &[0]).is_empty());
        assert!(told(question, &said, &weights, "- The dog is called Biscuit.", &[]).is_empty());
        // Of another thing.
        assert_eq!(told(question, &said, &weights, "- The cat is called Biscuit.", &[]).len(), 1);
    }

    #[test]
    fn a_name_that_is_a_word_elsewhere_is_an_answer() {
        let said = ["The name of my cat is Mia.", "The name of my cat."];
        assert_eq!(told("What is my cat's name?", &said, &[("cat", 5.0)], "", &[]), ["The name of my cat is Mia."]);
    }

    #[test]
    fn numbers_are_looked_for() {
        let said = ["The meeting of 2031 is in Oslo."];
        assert_eq!(told("Where is the meeting of 2031?", &said, &[("2031", 5.0)], "", &[]).len(), 1);
    }
}
