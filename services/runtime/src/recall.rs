//! Search of the past for the model, and the text that tells its results.

use crate::clock::wall_ms;
use crate::metrics;
use crate::prompts::RecallPlace;
use prompt::search_result;
use serde_json::Value;
use session::machine::RecallResult;
use session::{Item, NoteSource};
use settings::Settings;
use std::collections::HashSet;
use std::sync::Arc;
use store::{HistorySearch, Hit, SearchPlace, SecretsOf};

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
        let hits = search_past(settings, place, &query, most, conversation.recall_excerpt_words, false).await;
        let hits: Vec<Hit> = hits
            .into_iter()
            .filter(|hit| hit.current && !shown.contains(hit.item_id.as_str()) && hit.role.is_some())
            .take(conversation.recall_hits as usize)
            .collect();
        metrics::recalled(!hits.is_empty());
        let source = |hit: &Hit| NoteSource::Item { session_id: hit.session_id.clone(), item_id: hit.item_id.clone() };
        let sources = hits.iter().map(source).collect();
        let places = hits.iter().map(|hit| (hit.role.as_deref().unwrap_or(&hit.kind), hit.excerpt.as_str()));
        let text = search_result(places);
        found.push(RecallResult { query, text, places: hits.len(), sources });
    }
    found
}

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
