//! Search that the service makes by itself before a reply: the user's own words about the question that are no longer
//! in the prompt. They become a note before the question, behind everything that is warm.

use crate::clock::{wall_ms, with_its_day};
use crate::encode::encode;
use crate::fact_block::owners;
use crate::heavy;
use crate::near_facts::{QuestionVector, near_facts, place_of, sources_of};
use crate::prompts::RecallPlace;
use crate::recall::{FoundPlace, WORK_FOR_A_BYTE, find_past, fits, search_past};
use crate::word_weights::{YOUNG_HOME, end_of, question_stems, weigh};
use encoder::{VectorRows, rounded};
use prompt::{NOTED_PLACES, PastOf, PastWords, choose, note_of_past, words_of};
use remember::{Aspects, Heads};
use session::machine::{Machine, RecallResult};
use session::{ConversationChoice, Input, Item, ItemStatus, NamedSpeaker, NewItem};
use settings::Settings;
use store::{Hit, RememberedFact};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub text: String,
    pub item_id: Option<String>,
    pub person: Option<String>,
}

pub fn question_of(input: &Input, machine: &Machine) -> Option<Question> {
    just_said(input, machine).filter(|question| remember::asks(&question.text))
}

fn just_said(input: &Input, machine: &Machine) -> Option<Question> {
    match input {
        Input::HeardAll { text, speaker, respond: true, .. } => {
            let text = end_of(text.as_deref().unwrap_or_else(|| machine.heard())).to_owned();
            Some(Question { text, item_id: None, person: person_of(speaker.as_ref()) })
        }
        Input::Respond(request) if request.input.is_none() && request.conversation == ConversationChoice::Auto => {
            let items = machine.items();
            let (last, before) = items.split_last()?;
            let is_noted = before.last().is_some_and(|item| item.is_note_of_past());
            let is_question = last.is_said_by_user() && !is_noted;
            let person = person_of(last.speaker());
            is_question.then(|| Question {
                text: end_of(&last.text()).to_owned(),
                item_id: Some(last.id.clone()),
                person,
            })
        }
        Input::TakeTurn(turn) if turn.request.input.is_none() => {
            let said = |item: &NewItem| Item::new("", item.body.clone(), ItemStatus::Completed);
            let last = turn.items.last().map(said).filter(Item::is_said_by_user)?;
            Some(Question { text: end_of(&last.text()).to_owned(), item_id: None, person: person_of(last.speaker()) })
        }
        _ => None,
    }
}

fn person_of(speaker: Option<&NamedSpeaker>) -> Option<String> {
    speaker.and_then(|speaker| speaker.person.clone())
}

const HITS: u32 = 24;

pub async fn look_back(settings: &Settings, place: RecallPlace<'_>, past: &PastOf<'_>) -> Option<RecallResult> {
    let encoder = place.encoding.ready();
    let languages = encoder.as_ref().and_then(|encoder| Heads::of(encoder.name())).map(|heads| &heads.languages[..]);
    if place.person.is_some() && languages.is_some_and(|languages| !remember::is_foreign(past.question, languages)) {
        return look_back_by_both(settings, place, past).await;
    }
    match look_back_by_words(settings, place, past).await {
        Some(found) => Some(found),
        None => look_back_by_meaning(settings, place, past).await,
    }
}

/// Tells the places that are about the question by their words and their meaning; none where none is near enough to answer.
async fn look_back_by_both(settings: &Settings, place: RecallPlace<'_>, past: &PastOf<'_>) -> Option<RecallResult> {
    let excerpt_words = settings.conversation.recall_note_words / NOTED_PLACES as u32;
    let (mut found, question) = find_past(settings, place, past.question, JUDGED_PLACES, excerpt_words).await;
    let question = question?;
    let asked = words_of(past.question);
    let says_more = |text: &str| !remember::asks(text) && !words_of(text).is_subset(&asked);
    found
        .retain(|place| place.fit >= 0.0 && place.hit.role.as_deref() == Some("user") && says_more(&place.hit.excerpt));
    read_likeness(place, &question, &mut found).await;
    found.retain(|place| f64::from(place.likeness) + place.fit >= LEAST_NOTED);
    let (asks, mut told): (Aspects, Vec<FoundPlace>) = (Aspects::of(past.question), Vec::new());
    for place in found {
        let said = words_of(&place.hit.excerpt);
        let is_shown = past.shown.iter().any(|item| Some(item.id.as_str()) == place.item_id());
        if is_shown || past.preface.lines().any(|line| said.is_subset(&words_of(line))) {
            // The words that the model sees answer.
            break;
        }
        let before: Vec<Aspects> = told.iter().map(|place| Aspects::of(&place.hit.excerpt)).collect();
        let before: Vec<&Aspects> = before.iter().collect();
        if told.is_empty() || asks.newly_told(&Aspects::of(&place.hit.excerpt), &before) > 0 {
            told.push(place);
        }
    }
    told.truncate(NOTED_PLACES);
    told.sort_by_key(|place| (place.hit.created_at_ms, place.hit.seq));
    let used: Vec<String> = told.iter().filter_map(|place| Some(place.fact.as_ref()?.id.clone())).collect();
    if !used.is_empty() {
        place.store.use_facts(used, wall_ms());
    }
    let text = note_of(settings, told.iter().map(|place| &place.hit));
    let sources = told.iter().flat_map(FoundPlace::sources).collect();
    (!told.is_empty()).then(|| RecallResult { query: past.question.to_owned(), text, places: told.len(), sources })
}

// Reads the likeness of the first places that words alone found, such as of what was said a moment ago.
async fn read_likeness(place: RecallPlace<'_>, question: &QuestionVector, found: &mut [FoundPlace]) {
    let Some(encoder) = place.encoding.ready() else { return };
    let mut unread: Vec<&mut FoundPlace> =
        found.iter_mut().filter(|place| place.is_unread).take(READ_AT_ONCE).collect();
    let texts = unread.iter().map(|place| place.hit.excerpt.clone()).collect();
    for (place, vector) in unread.iter_mut().zip(encode(&encoder, texts).await) {
        let near = VectorRows::from_iter([rounded(&vector)]).nearest(&question.vector, 1);
        place.likeness = near.first().map_or(0.0, |(_, likeness)| *likeness);
    }
}

const JUDGED_PLACES: u32 = 12;
const READ_AT_ONCE: usize = 4;
/// Least likeness of a place that answers, with what it gains where lists know the thing: of five played households, 97 of 100 answers
/// are nearer.
const LEAST_NOTED: f64 = 0.48;
const LEAST_LIKENESS: f32 = 0.55;

async fn look_back_by_meaning(settings: &Settings, place: RecallPlace<'_>, past: &PastOf<'_>) -> Option<RecallResult> {
    let question = QuestionVector::of(past.question, place).await?;
    let (_, fact) = near_facts(settings, place, &question, 1, LEAST_LIKENESS).await.pop()?;
    let said = words_of(&fact.text);
    let is_shown = past.shown.iter().any(|item| Some(&item.id) == fact.item_id.as_ref());
    if is_shown || past.preface.lines().any(|line| said.is_subset(&words_of(line))) {
        return None;
    }
    place.store.use_facts(vec![fact.id.clone()], wall_ms());
    let words = settings.conversation.recall_note_words as usize / NOTED_PLACES;
    let hit = place_of(&fact, words);
    let sources = sources_of(&hit, std::slice::from_ref(&fact));
    let text = note_of(settings, std::iter::once(&hit));
    Some(RecallResult { query: past.question.to_owned(), text, places: 1, sources })
}

async fn look_back_by_words(settings: &Settings, place: RecallPlace<'_>, past: &PastOf<'_>) -> Option<RecallResult> {
    let conversation = &settings.conversation;
    let stems = question_stems(past.question, settings.limits.search_words);
    let facts = facts_besides(place, &stems).await;
    let least = if place.person.is_some() { YOUNG_HOME } else { 0 };
    let (weights, query) = weigh(place.store, place.user, stems, &facts, least).await?;
    let excerpt_words = conversation.recall_note_words / NOTED_PLACES as u32;
    let mut hits = search_past(settings, place, &query, HITS, excerpt_words, true).await;
    hits.extend(facts.iter().map(|fact| place_of(fact, excerpt_words as usize)));
    hits.retain(|hit| hit.current && hit.role.as_deref() == Some("user"));
    let fits = fits(past.question, &hits.iter().collect::<Vec<_>>());
    let mut fits = fits.into_iter();
    hits.retain(|_| fits.next().is_some_and(|fit| fit >= 0.0));
    let found: Vec<PastWords> = hits.iter().map(past_words).collect();
    let work = past.preface.len().saturating_mul(WORK_FOR_A_BYTE);
    let told = heavy::run(work, || choose(&found, &weights, past)).await;
    let told: Vec<&Hit> = told.into_iter().map(|at| &hits[at]).collect();
    let is_told = |fact: &&RememberedFact| told.iter().any(|hit| hit.item_id == fact.id);
    let used: Vec<String> = facts.iter().filter(is_told).map(|fact| fact.id.clone()).collect();
    if !used.is_empty() {
        place.store.use_facts(used, wall_ms());
    }
    let text = note_of(settings, told.iter().copied());
    let sources = told.iter().flat_map(|hit| sources_of(hit, &facts)).collect();
    (!told.is_empty()).then_some(RecallResult { query, text, places: told.len(), sources })
}

fn note_of<'a>(settings: &Settings, told: impl Iterator<Item = &'a Hit>) -> String {
    let form = &settings.remember.said_on;
    let texts: Vec<String> = told.map(|hit| with_its_day(&hit.excerpt, hit.created_at_ms, form)).collect();
    note_of_past(&settings.conversation.recall_note, texts.iter().map(String::as_str))
}

fn past_words(hit: &Hit) -> PastWords {
    PastWords { id: hit.item_id.clone(), text: hit.excerpt.clone(), said_at: (hit.created_at_ms, hit.seq) }
}

/// Finds the facts with one of these words that no search of what the person said finds: the home's, and what was said
/// in conversations that are gone.
async fn facts_besides(place: RecallPlace<'_>, stems: &[String]) -> Vec<RememberedFact> {
    let Some(person) = place.person else { return Vec::new() };
    let mut facts = Vec::new();
    for owner in owners(person) {
        match place.store.facts_with_words(place.user, owner, stems, owner == person, FACTS_OF_A_WORD).await {
            Ok(known) => facts.extend(known),
            Err(error) => tracing::warn!(%error, "what is remembered could not be looked up"),
        }
    }
    facts
}

/// Facts with one word of a question, the newest of them: the note tells few.
const FACTS_OF_A_WORD: u32 = 16;
