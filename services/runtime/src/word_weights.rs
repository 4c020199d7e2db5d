//! Words of a question, and how much each of them says.

use prompt::{numbers, words_of};
use std::collections::{HashMap, HashSet};
use store::{RememberedFact, Store};

const MOST_WORDS: usize = 16;
/// Items of which one may have a word. A word of more items says nothing about the subject.
const ONE_OF: u64 = 8;
/// Number of items that may have a word in a young conversation.
const FEW: u64 = 24;
/// Largest number of items with a word: more take too long to look through.
const MOST: u64 = 500;
/// Messages that a home with a short history is taken to have, so that a word in six of them still says something.
pub const YOUNG_HOME: u64 = 200;
/// Bytes of a question that are looked at, its last ones: a longer one is a text that was pasted.
const QUESTION_BYTES: usize = 4096; // not a window: bytes of a question

pub fn end_of(question: &str) -> &str {
    &question[question.ceil_char_boundary(question.len().saturating_sub(QUESTION_BYTES))..]
}

/// Returns the stems of a question, and its numbers, that a search of at most `most_words` takes.
pub fn question_stems(question: &str, most_words: usize) -> Vec<String> {
    let mut stems = remember::stems_of_question(question);
    stems.extend(numbers(question));
    stems.truncate(MOST_WORDS.min(most_words / 4));
    stems
}

// As beginnings they find "My aunt was born" for "my aunt's birthday".
pub fn beginnings<'a>(stems: impl IntoIterator<Item = &'a String>) -> String {
    stems.into_iter().map(|stem| format!("{stem}*")).collect::<Vec<_>>().join(" ")
}

/// Weighs the words of a question: the rarer, the heavier. Returns a search for them besides. `None`: none says anything.
pub async fn weigh(
    store: &Store,
    user: &str,
    stems: Vec<String>,
    facts: &[RememberedFact],
    least_versions: u64,
) -> Option<(HashMap<String, f64>, String)> {
    if stems.is_empty() {
        return None;
    }
    let (counts, versions) = store.count_words(user, &stems, ONE_OF, FEW, MOST).await.ok()?;
    let versions = versions.max(least_versions);
    let weight = |count: u64| (1.0 + versions as f64 / count as f64).ln();
    let told: HashSet<String> = facts.iter().flat_map(|fact| words_of(&fact.text)).collect();
    let known = stems.into_iter().zip(counts).filter_map(|(stem, count)| {
        let count = count?.max(u64::from(told.contains(&stem)));
        (count > 0).then_some((stem, count))
    });
    let weights: HashMap<String, f64> = known.map(|(stem, count)| (stem, weight(count))).collect();
    let query = beginnings(weights.keys());
    (!weights.is_empty()).then_some((weights, query))
}
