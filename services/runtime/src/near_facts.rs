//! Facts that are near a text by their meaning, as places of the past.

use crate::encode::encode;
use crate::fact_block::owners;
use crate::prompts::RecallPlace;
use encoder::{Encoder, VectorRows, rounded};
use futures_util::future::join_all;
use session::NoteSource;
use settings::Settings;
use std::sync::Arc;
use store::{Hit, RememberedFact};

/// Vector of a question, with the encoder that made it.
pub struct QuestionVector {
    encoder: Arc<Encoder>,
    pub vector: Vec<i8>,
}

impl QuestionVector {
    pub async fn of(text: &str, place: RecallPlace<'_>) -> Option<QuestionVector> {
        let encoder = place.encoding.ready()?;
        let vector = rounded(encode(&encoder, vec![text.to_owned()]).await.first()?);
        Some(QuestionVector { encoder, vector })
    }
}

pub async fn near_facts(
    settings: &Settings,
    place: RecallPlace<'_>,
    question: &QuestionVector,
    most: usize,
    least: f32,
) -> Vec<(f32, RememberedFact)> {
    let Some(person) = place.person else { return Vec::new() };
    let (encoder, text) = (&question.encoder, &question.vector);
    let limit = settings.remember.facts;
    let vectors = owners(person).map(|owner| place.store.vectors_of(place.user, owner, encoder.name(), limit));
    let mut found: Vec<(f32, String)> = Vec::new();
    for facts in join_all(vectors).await {
        let mut facts = facts.unwrap_or_else(|error| {
            tracing::warn!(%error, "what is remembered could not be looked up by meaning");
            Vec::new()
        });
        facts.retain(|(_, vector)| vector.len() == text.len());
        let rows: VectorRows = facts.iter().map(|(_, vector)| bytemuck::cast_slice::<u8, i8>(vector)).collect();
        let near = rows.nearest(text, most).into_iter().filter(|(_, likeness)| *likeness >= least);
        found.extend(near.map(|(at, likeness)| (likeness, std::mem::take(&mut facts[at].0))));
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(most);
    let ids: Vec<String> = found.iter().map(|(_, id)| id.clone()).collect();
    // One may have been forgotten meanwhile.
    let mut facts = place.store.holding_facts(place.user, &ids).await.unwrap_or_default();
    let fact = |(likeness, id): (f32, String)| {
        let at = facts.iter().position(|fact| fact.id == id)?;
        Some((likeness, facts.swap_remove(at)))
    };
    found.into_iter().filter_map(fact).collect()
}

pub fn sources_of(hit: &Hit, facts: &[RememberedFact]) -> Vec<NoteSource> {
    let fact = facts.iter().find(|fact| fact.id == hit.item_id);
    let item_id = fact.map_or(Some(&hit.item_id), |fact| fact.item_id.as_ref());
    let item = item_id.filter(|_| !hit.session_id.is_empty());
    let item = item.map(|item_id| NoteSource::Item { session_id: hit.session_id.clone(), item_id: item_id.clone() });
    fact.map(|fact| NoteSource::Fact(fact.id.clone())).into_iter().chain(item).collect()
}

pub fn place_of(fact: &RememberedFact, most_words: usize) -> Hit {
    Hit {
        session_id: fact.session_id.clone().unwrap_or_default(),
        session_title: String::new(),
        item_id: fact.id.clone(),
        seq: 0,
        version: 1,
        current: true,
        kind: "message".to_owned(),
        role: Some("user".to_owned()),
        excerpt: first_words(&fact.text, most_words),
        created_at_ms: fact.said_at_ms,
        score: 0.0,
    }
}

pub fn first_words(text: &str, most: usize) -> String {
    text.split_whitespace().take(most).collect::<Vec<_>>().join(" ")
}
