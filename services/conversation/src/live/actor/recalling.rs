//! What the model searches for in the conversation's past, and how it is told what was found.

use super::wall_ms;
use crate::live::compaction::Shelf;
use crate::metrics;
use crate::realtime::Item;
use crate::turn::Found;
use settings::Settings;
use std::collections::HashSet;
use std::sync::Arc;
use store::{Hit, Search};

/// A match just said counts double, one of this age one and a half times.
const RECENT_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// What is in the prompt is found too and left out, so more is asked for.
const SEARCHED_PER_HIT: u32 = 4;

/// `shown` is what the model sees anyway.
pub async fn recall(settings: &Settings, shelf: &Shelf, queries: &[String], shown: &[Arc<Item>]) -> Vec<Found> {
    let shown: HashSet<&str> = shown.iter().map(|item| item.id.as_str()).collect();
    let mut found = Vec::with_capacity(queries.len());
    for query in queries {
        let hits = search(settings, shelf, query).await.unwrap_or_else(|error| {
            if !matches!(error, store::Error::EmptyQuery { .. }) {
                tracing::warn!(%error, "the past could not be searched");
            }
            Vec::new()
        });
        let hits: Vec<Hit> = hits
            .into_iter()
            .filter(|hit| hit.current && !shown.contains(hit.item_id.as_str()) && hit.role.is_some())
            .take(settings.conversation.recall_hits as usize)
            .collect();
        metrics::recalled(!hits.is_empty());
        found.push(Found { text: told(&hits), places: hits.len() });
    }
    found
}

async fn search(settings: &Settings, shelf: &Shelf, query: &str) -> Result<Vec<Hit>, store::Error> {
    let conversation = &settings.conversation;
    let search = Search {
        user: shelf.session.user(),
        session: Some(&shelf.session),
        query,
        any_word: true,
        limit: conversation.recall_hits.saturating_mul(SEARCHED_PER_HIT),
        recent_ms: Some(RECENT_MS),
        now_ms: wall_ms(),
        marks: ["", ""],
        excerpt_words: conversation.recall_excerpt_words,
    };
    shelf.store.search(&search).await
}

/// One line a place, with nothing in it that a template could obey.
fn told(hits: &[Hit]) -> String {
    if hits.is_empty() {
        return "Nothing was found. It was not said in these words.".to_owned();
    }
    let line = |hit: &Hit| {
        let who = hit.role.map_or(hit.kind.as_str(), |role| role.word());
        let words = hit.excerpt.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("- {who}: {}", compaction::escape(&words))
    };
    hits.iter().map(line).collect::<Vec<_>>().join("\n")
}
