//! Search of the past for the model, and the text that tells its results.

use crate::clock::wall_ms;
use crate::metrics;
use crate::near_facts::{near_facts, place_of, sources_of};
use crate::prompts::RecallPlace;
use prompt::search_result;
use serde_json::Value;
use session::machine::RecallResult;
use session::{Item, NoteSource};
use settings::Settings;
use std::collections::HashSet;
use std::sync::Arc;
use store::{HistorySearch, Hit, RememberedFact, SearchPlace, SecretsOf};

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
        let places = find_past(settings, place, &query, most, conversation.recall_excerpt_words).await;
        let is_shown = |place: &FoundPlace| place.item_id().is_some_and(|item| shown.contains(item));
        let places: Vec<FoundPlace> =
            places.into_iter().filter(|place| !is_shown(place)).take(conversation.recall_hits as usize).collect();
        metrics::recalled(!places.is_empty());
        let sources = places.iter().flat_map(FoundPlace::sources).collect();
        let hits: Vec<&Hit> = places.iter().map(|place| &place.hit).collect();
        let places = hits.iter().map(|hit| (hit.role.as_deref().unwrap_or(&hit.kind), hit.excerpt.as_str()));
        let text = search_result(places);
        found.push(RecallResult { query, text, places: hits.len(), sources });
    }
    found
}

/// Place of the past that a query means: a message, or a fact that was learned from one.
pub struct FoundPlace {
    pub hit: Hit,
    fact: Option<RememberedFact>,
}

impl FoundPlace {
    fn item_id(&self) -> Option<&str> {
        match &self.fact {
            Some(fact) => fact.item_id.as_deref(),
            None => Some(&self.hit.item_id),
        }
    }

    fn sources(&self) -> Vec<NoteSource> {
        sources_of(&self.hit, self.fact.as_slice())
    }
}

/// Finds messages by their words and facts by their meaning, and merges both lists by ranks: what one of them has first comes
/// before what both have late.
pub async fn find_past(
    settings: &Settings,
    place: RecallPlace<'_>,
    query: &str,
    limit: u32,
    excerpt_words: u32,
) -> Vec<FoundPlace> {
    let mut by_words = search_past(settings, place, query, limit, excerpt_words, false).await;
    by_words.retain(|hit| hit.current && hit.role.is_some());
    let facts = near_facts(settings, place, query, limit as usize, LEAST_LIKENESS).await;
    let rank = |at: usize| 1.0 / (RANK_OFFSET + at as f64);
    let mut found: Vec<FoundPlace> = Vec::with_capacity(by_words.len() + facts.len());
    for (at, (_, fact)) in facts.into_iter().enumerate() {
        let hit = Hit { score: rank(at), ..place_of(&fact, excerpt_words as usize) };
        found.push(FoundPlace { hit, fact: Some(fact) });
    }
    for (at, hit) in by_words.into_iter().enumerate() {
        // A message and the fact learned from it are one place.
        match found.iter_mut().find(|found| found.item_id() == Some(&hit.item_id)) {
            Some(same) => same.hit.score += rank(at),
            None => found.push(FoundPlace { hit: Hit { score: rank(at), ..hit }, fact: None }),
        }
    }
    found.sort_by(|a, b| b.hit.score.total_cmp(&a.hit.score));
    found.truncate(limit as usize);
    found
}

/// Reciprocal ranks: the larger, the less the first places count beside those behind them.
const RANK_OFFSET: f64 = 20.0;
const LEAST_LIKENESS: f32 = 0.3;

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
