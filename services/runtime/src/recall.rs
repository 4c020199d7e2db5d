//! Search of the past for the model, and the text that tells its results.

use crate::clock::{wall_ms, with_its_day};
use crate::near_facts::{QuestionVector, first_words, near_facts, place_of, sources_of};
use crate::near_messages::near_messages;
use crate::prompts::RecallPlace;
use crate::word_weights::{YOUNG_HOME, beginnings, end_of, question_stems, weigh};
use crate::{heavy, metrics};
use prompt::{search_result, words_of};
use remember::Aspects;
use serde_json::Value;
use session::machine::RecallResult;
use session::{Item, NoteSource};
use settings::Settings;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use store::{HistorySearch, Hit, RememberedFact, SearchPlace, SecretsOf};
use tokio::join;

/// Age at which a match counts one and a half times; a new match counts twice.
const RECENT_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// Places to search for each one wanted, because those in the prompt are left out.
const SEARCHED_PER_HIT: u32 = 4;

pub async fn recall(
    settings: &Settings,
    place: RecallPlace<'_>,
    arguments: &[String],
    shown: &[Arc<Item>],
) -> Vec<RecallResult> {
    let conversation = &settings.conversation;
    let shown: HashSet<&str> = shown.iter().map(|item| item.id.as_str()).collect();
    let mut found = Vec::with_capacity(arguments.len());
    for query in arguments.iter().map(|arguments| query_of(arguments)) {
        let most = conversation.recall_hits.saturating_mul(SEARCHED_PER_HIT);
        let (places, _) = find_past(settings, place, &query, most, conversation.recall_excerpt_words).await;
        let is_shown = |place: &FoundPlace| place.item_id().is_some_and(|item| shown.contains(item));
        let places: Vec<FoundPlace> =
            places.into_iter().filter(|place| !is_shown(place)).take(conversation.recall_hits as usize).collect();
        metrics::recalled(!places.is_empty());
        let sources = places.iter().flat_map(FoundPlace::sources).collect();
        let form = &settings.remember.said_on;
        let told = places.iter().map(|FoundPlace { hit, .. }| {
            let said = with_its_day(&hit.excerpt, hit.created_at_ms, form);
            (hit.role.as_deref().unwrap_or(&hit.kind), said)
        });
        let told: Vec<(&str, String)> = told.collect();
        let text = search_result(told.iter().map(|(role, said)| (*role, said.as_str())));
        found.push(RecallResult { query, text, places: places.len(), sources });
    }
    found
}

/// Place of the past that a query means: a message, or a fact that was learned from one.
pub struct FoundPlace {
    pub hit: Hit,
    pub fact: Option<RememberedFact>,
    pub likeness: f32,
    pub is_unread: bool, // words alone found it: its likeness is not known
    /// Gains and losses by the persons and things that it is about. Below 0: it does not answer.
    pub fit: f64,
}

impl FoundPlace {
    pub fn item_id(&self) -> Option<&str> {
        match &self.fact {
            Some(fact) => fact.item_id.as_deref(),
            None => Some(&self.hit.item_id),
        }
    }

    pub fn sources(&self) -> Vec<NoteSource> {
        sources_of(&self.hit, self.fact.as_slice())
    }
}

/// Finds what was said by its words and, where an encoder is open, by its meaning: messages, and facts learned from them.
/// Returns the question's vector besides. Words are looked up while the encoder works and its vector is compared.
pub async fn find_past(
    settings: &Settings,
    place: RecallPlace<'_>,
    query: &str,
    limit: u32,
    excerpt_words: u32,
) -> (Vec<FoundPlace>, Option<QuestionVector>) {
    let stems = question_stems(end_of(query), settings.limits.search_words);
    let words = search_words(query, &stems);
    let (mut by_words, weights, (mut found, question)) = join!(
        search_past(settings, place, &words, limit.max(CANDIDATES), excerpt_words, false),
        weigh(place.store, place.user, stems, &[], YOUNG_HOME),
        async {
            let question = QuestionVector::of(end_of(query), place).await;
            let found = match &question {
                Some(question) => meant_places(settings, place, question, excerpt_words as usize).await,
                None => Vec::new(),
            };
            (found, question)
        },
    );
    by_words.retain(|hit| hit.current && hit.role.is_some());
    let farthest = found.iter().map(|place| place.likeness).fold(FARTHEST, f32::min);
    for hit in by_words {
        if !found.iter().any(|found| found.item_id() == Some(&hit.item_id)) {
            found.push(FoundPlace { hit, fact: None, likeness: farthest, is_unread: true, fit: 0.0 });
        }
    }
    let weights = weights.map(|(weights, _)| weights).unwrap_or_default();
    let (query, work) = (end_of(query), found.iter().map(|place| place.hit.excerpt.len()).sum::<usize>());
    let best =
        heavy::run(work.saturating_mul(WORK_FOR_A_BYTE), || best_of(query, found, weights, limit as usize)).await;
    (best, question)
}

fn search_words(query: &str, stems: &[String]) -> String {
    // A phrase between quotes is looked for as it is, and so is a text without such words.
    match stems.is_empty() || query.contains('"') {
        true => query.to_owned(),
        false => beginnings(stems),
    }
}

async fn meant_places(
    settings: &Settings,
    place: RecallPlace<'_>,
    question: &QuestionVector,
    excerpt_words: usize,
) -> Vec<FoundPlace> {
    let (facts, messages) = join!(
        near_facts(settings, place, question, CANDIDATES as usize, LEAST_LIKENESS),
        near_messages(place, &question.vector, CANDIDATES as usize),
    );
    let fact = |(likeness, fact): (f32, RememberedFact)| FoundPlace {
        hit: place_of(&fact, excerpt_words),
        fact: Some(fact),
        likeness,
        is_unread: false,
        fit: 0.0,
    };
    let mut found: Vec<FoundPlace> = facts.into_iter().map(fact).collect();
    for (likeness, message) in messages {
        // A message and the fact learned from it are one place.
        match found.iter_mut().find(|found| found.item_id() == Some(&message.hit.item_id)) {
            Some(same) => same.likeness = same.likeness.max(likeness),
            None => {
                let excerpt = first_words(&message.hit.excerpt, excerpt_words);
                let hit = Hit { excerpt, ..message.hit };
                found.push(FoundPlace { hit, fact: None, likeness, is_unread: false, fit: 0.0 });
            }
        }
    }
    found
}

/// Chooses places by likeness and by the share of the question's words that they have. A word that a place before has counts
/// less: a question about two persons wants both. Last come places of others, and those that a newer place corrects.
fn best_of(
    query: &str,
    mut found: Vec<FoundPlace>,
    mut weights: HashMap<String, f64>,
    limit: usize,
) -> Vec<FoundPlace> {
    let all: f64 = weights.values().sum::<f64>().max(f64::MIN_POSITIVE);
    let mut words: Vec<HashSet<String>> = found.iter().map(|place| words_of(&place.hit.excerpt)).collect();
    let fits = fits(query, &found.iter().map(|place| &place.hit).collect::<Vec<_>>());
    found.iter_mut().zip(fits).for_each(|(place, fit)| place.fit = fit);
    let mut best = Vec::with_capacity(limit.min(found.len()));
    while best.len() < limit && !found.is_empty() {
        for (place, words) in found.iter_mut().zip(&words) {
            let has: f64 = weights.iter().filter(|(stem, _)| words.contains(*stem)).map(|(_, weight)| weight).sum();
            place.hit.score = f64::from(place.likeness) + place.fit + SHARE * has / all;
        }
        let by_score =
            |a: &FoundPlace, b: &FoundPlace| a.hit.score.total_cmp(&b.hit.score).then(said(&a.hit).cmp(&said(&b.hit)));
        let Some(at) = (0..found.len()).max_by(|a, b| by_score(&found[*a], &found[*b])) else { break };
        let told = words.swap_remove(at);
        weights.iter_mut().filter(|(stem, _)| told.contains(*stem)).for_each(|(_, weight)| *weight *= TOLD_BEFORE);
        best.push(found.swap_remove(at));
    }
    best
}

/// Computes the gains and losses of each place by the persons and things that it is about. Below 0: it does not answer.
pub fn fits(query: &str, found: &[&Hit]) -> Vec<f64> {
    let question = Aspects::of_question(query);
    let aspects: Vec<Aspects> = found.iter().map(|hit| Aspects::of(&hit.excerpt)).collect();
    let fit = |(hit, own): (&&Hit, &Aspects)| {
        let is_newer = |other: &Hit| other.role.as_deref() == Some("user") && said(other) > said(hit);
        let mut others = found.iter().zip(&aspects);
        let is_corrected = others.any(|(other, newer)| is_newer(other) && newer.corrects(own));
        let counts = |counts: bool, weight: f64| if counts { weight } else { 0.0 };
        counts(question.is_of_the_same_thing(own), SAME_THING)
            - counts(question.is_of_another_thing(own), ANOTHER_THING)
            - counts(question.asks_of_others(own), OF_OTHERS)
            - counts(remember::is_question(&hit.excerpt), QUESTION)
            - counts(is_corrected, CORRECTED)
    };
    found.iter().zip(&aspects).map(fit).collect()
}

fn said(hit: &Hit) -> (i64, u64) {
    (hit.created_at_ms, hit.seq)
}

// Places of each kind among which the best are chosen.
const CANDIDATES: u32 = 24;
/// Bytes of a request that are read in the time in which one byte of a place, or of the prompt, is compared.
pub const WORK_FOR_A_BYTE: usize = 16;
const LEAST_LIKENESS: f32 = 0.3;
/// Likeness of what only words found, at most: nearer ones are found by meaning.
const FARTHEST: f32 = 0.3;
// Weight of the question's words beside the likeness.
const SHARE: f64 = 0.75;
const TOLD_BEFORE: f64 = 0.7;
// Gains and losses beside a likeness from 0 to 1.
const SAME_THING: f64 = 0.1;
const ANOTHER_THING: f64 = 0.2;
const OF_OTHERS: f64 = 0.5;
const QUESTION: f64 = 0.75;
const CORRECTED: f64 = 1.0;

pub async fn search_past(
    settings: &Settings,
    place: RecallPlace<'_>,
    query: &str,
    limit: u32,
    excerpt_words: u32,
    statements: bool,
) -> Vec<Hit> {
    let searched = match (place.person, place.session) {
        (Some(person), session) => SearchPlace::Person(person, session.map_or(SecretsOf::None, SecretsOf::Session)),
        (None, Some(session)) => SearchPlace::Session(session),
        (None, None) => return Vec::new(),
    };
    let search = HistorySearch {
        user: place.user,
        place: searched,
        query,
        most_words: settings.limits.search_words,
        any_word: true,
        statements,
        limit,
        recent_ms: Some(RECENT_MS),
        now_ms: wall_ms(),
        marks: ["", ""],
        excerpt_words,
    };
    place.store.search(&search).await.unwrap_or_else(|error| {
        if !matches!(error, store::Error::EmptyQuery { .. }) {
            tracing::warn!(%error, "the past could not be searched");
        }
        Vec::new()
    })
}

fn query_of(arguments: &str) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    arguments["query"].as_str().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(said: &[(&str, f32)]) -> Vec<FoundPlace> {
        let place = |(at, (text, likeness)): (usize, &(&str, f32))| {
            let hit = Hit {
                session_id: "sess".to_owned(),
                session_title: String::new(),
                item_id: format!("item_{at}"),
                seq: at as u64,
                version: 1,
                current: true,
                kind: "message".to_owned(),
                role: Some("user".to_owned()),
                excerpt: (*text).to_owned(),
                created_at_ms: 1,
                score: 0.0,
            };
            FoundPlace { hit, fact: None, likeness: *likeness, is_unread: false, fit: 0.0 }
        };
        said.iter().enumerate().map(place).collect()
    }

    fn best(query: &str, said: &[(&str, f32)]) -> Vec<String> {
        let best = best_of(query, found(said), HashMap::new(), said.len());
        best.into_iter().map(|place| place.hit.excerpt).collect()
    }

    #[test]
    fn the_own_statement_comes_before_anothers_and_before_the_question_itself() {
        let said = [
            ("Where does my niece sing?", 0.99),
            ("My nephew sings in the harbour choir.", 0.8),
            ("My niece sings in Bergen.", 0.6),
            ("My niece works at Halvard.", 0.65),
        ];
        let best = best("Where does my niece sing?", &said);
        assert_eq!(best[..2], ["My niece sings in Bergen.", "My niece works at Halvard."]);
    }

    #[test]
    fn the_newest_state_comes_first_and_the_one_that_it_corrects_last() {
        let said = [
            ("My uncle has a job at Lumen.", 0.7),
            ("My uncle plays the cello.", 0.3),
            ("My uncle works at Orion now.", 0.6),
        ];
        let best = best("Who employs my uncle?", &said);
        assert_eq!(best, ["My uncle works at Orion now.", "My uncle plays the cello.", "My uncle has a job at Lumen."]);
    }
}
