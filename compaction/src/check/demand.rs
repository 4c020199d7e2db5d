//! Facts that a summary must hold: a conversation has more than a summary can keep.

use super::Fact;
use crate::types::{CompactionLimits, Passage, PassageKind, PinnedText, Speaker};
use remember::{
    Detail, DetailKind, HeldDetails, WishScope, clip_around, details_of, folded, has_order, is_correction,
    is_first_person, is_question, language_of, said_lines, sentences, stems, values, wish_of,
};

/// Lists the facts worth keeping that no pin holds, the most important first, as many as a summary of the allowed size
/// could hold.
///
/// Requests of users to remember something (without room as a pin) count most, then their statements about themselves,
/// then the summary before; questions, and common knowledge of the assistant, hardly. Results of tools do not count:
/// the assistant said what mattered of them.
pub fn demanded(covered: &[Passage], earlier: &str, pins: &[PinnedText], limits: &CompactionLimits) -> Vec<Fact> {
    let mut candidates = Vec::new();
    for line in said_lines(earlier) {
        push_facts(&mut candidates, line, "", Speaker::Context, false);
    }
    let users: Vec<&str> = covered
        .iter()
        .filter(|passage| passage.kind == PassageKind::User)
        .map(|passage| passage.text.as_str())
        .collect();
    let nouns_have_capitals = language_of(&users.join("\n")).is_some_and(|language| language.nouns_have_capitals);
    for passage in covered {
        let said_by = match passage.kind {
            PassageKind::User => Speaker::User,
            PassageKind::Assistant => Speaker::Assistant,
            PassageKind::Call { .. } | PassageKind::Output { .. } | PassageKind::System => continue,
        };
        for sentence in sentences(&passage.text) {
            push_facts(&mut candidates, sentence, &passage.id, said_by, nouns_have_capitals);
        }
    }
    let mut candidates = merged(candidates);
    candidates.retain(|candidate| candidate.weight >= LEAST_WEIGHT);
    // Of equal ones the newest comes first.
    candidates.sort_by_key(|candidate| std::cmp::Reverse((candidate.weight, candidate.order)));
    let most = (limits.summary_tokens / TOKENS_OF_A_FACT).clamp(LEAST_FACTS, MOST_FACTS) as usize;
    candidates.truncate(most * 4);
    let kept: Vec<bool> = candidates.iter().map(|candidate| !is_superseded(candidate, &candidates)).collect();
    let kept = candidates.into_iter().zip(kept).filter(|(_, kept)| *kept);
    let mut pinned = HeldDetails::default();
    pins.iter().for_each(|pin| pinned.add(&pin.text));
    kept.map(|(candidate, _)| candidate.fact).filter(|fact| !pinned.holds(fact.kind, &fact.text)).take(most).collect()
}

struct Candidate {
    fact: Fact,
    weight: i32,
    order: usize,
    key: String,        // equal for equal facts, however they are written
    about: Vec<String>, // other stems of its sentence
    corrects: bool,
}

fn push_facts(candidates: &mut Vec<Candidate>, sentence: &str, source: &str, said_by: Speaker, capitals: bool) {
    let details = details_of(sentence, capitals);
    // An order is not quoted: the model that reads it would obey it.
    if details.is_empty() || has_order(sentence) {
        return;
    }
    let by_user = said_by == Speaker::User;
    let first_person = if is_first_person(sentence) { 2 } else { 0 };
    let wished = if by_user && wish_of(sentence) != WishScope::Nothing { 5 } else { 0 };
    let asked = if by_user && is_question(sentence) { -3 } else { 0 };
    let corrects = is_correction(sentence);
    let said = stems(sentence);
    for Detail { kind, text } in details {
        let quoted = clip_around(sentence, &text);
        let fact = Fact { kind, text, sentence: quoted, source: source.to_owned(), said_by };
        let base = match said_by {
            Speaker::User => 4,
            Speaker::Context => 5,
            Speaker::Assistant => 1,
        };
        let digits = fact.text.chars().filter(char::is_ascii_digit).count() as i32;
        let form = match fact.kind {
            DetailKind::Name => i32::from(!capitals),
            DetailKind::Date => 1,
            DetailKind::Number if digits < 2 => -1,
            DetailKind::Number => (digits - 1).min(2),
            DetailKind::Quote | DetailKind::Negation => 0,
        };
        let weight = base + form + asked + wished + first_person;
        let own = stems(&fact.text);
        let about = said.iter().filter(|stem| fact.kind == DetailKind::Negation || !own.contains(stem)).cloned();
        let (key, about) = (key(&fact), about.collect());
        candidates.push(Candidate { fact, weight, order: candidates.len(), key, about, corrects });
    }
}

/// Merges equal facts: repeated ones weigh more, and count at their last place.
fn merged(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut places = std::collections::HashMap::new();
    let mut merged: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        match places.get(&(candidate.fact.kind, candidate.key.clone())) {
            None => {
                places.insert((candidate.fact.kind, candidate.key.clone()), merged.len());
                merged.push(candidate);
            }
            Some(&index) => {
                let known: &mut Candidate = &mut merged[index];
                let weight = (known.weight.max(candidate.weight) + 1).min(known.weight + 3);
                if candidate.weight >= known.weight {
                    *known = candidate;
                }
                known.weight = weight;
            }
        }
    }
    merged
}

/// Returns true for a number or date that the user later replaced by another one.
fn is_superseded(candidate: &Candidate, all: &[Candidate]) -> bool {
    if !matches!(candidate.fact.kind, DetailKind::Number | DetailKind::Date) {
        return false;
    }
    all.iter().any(|later| {
        let shared = candidate.about.iter().filter(|stem| later.about.contains(stem)).count();
        let same_matter = shared > 0 && (later.corrects || (shared > 1 && shared * 3 >= candidate.about.len() * 2));
        later.order > candidate.order
            && later.fact.said_by == Speaker::User
            && later.fact.kind == candidate.fact.kind
            && later.key != candidate.key
            && later.fact.sentence != candidate.fact.sentence
            && same_matter
    })
}

fn key(fact: &Fact) -> String {
    match fact.kind {
        DetailKind::Number | DetailKind::Date => {
            let keys = values(&fact.text).into_iter().filter_map(|found| found.value.keys().into_iter().next());
            keys.collect::<Vec<_>>().join(" ")
        }
        _ => folded(&fact.text),
    }
}

const LEAST_WEIGHT: i32 = 4;
const TOKENS_OF_A_FACT: u32 = 16;
const LEAST_FACTS: u32 = 3;
const MOST_FACTS: u32 = 96;
