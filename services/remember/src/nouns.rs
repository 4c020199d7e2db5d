//! Nouns that name the same person or thing.

use crate::languages::LANGUAGES;
use crate::text::stems;
use std::collections::HashMap;
use std::sync::LazyLock;

// True if two nouns differ in their ending alone, or name the same relative: 'sister' and 'sisters', 'mum' and 'mother', and not
// 'grandfather' and 'grandmother'.
pub(crate) fn is_same_noun(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let is_ending = |ending: &str| ending.chars().count() <= LONGEST_NOUN_ENDING;
    long.strip_prefix(short).is_some_and(is_ending) || relative(one).is_some_and(|kind| relative(other) == Some(kind))
}

// True if two stems of subjects are one, or of words for the same relative. Stored facts have the stems of the words that were said.
pub(crate) fn is_same_stem(one: &str, other: &str) -> bool {
    let relative = |stem: &str| RELATIVES_BY_STEM.get(stem).copied().flatten();
    one == other || relative(one).is_some_and(|kind| relative(other) == Some(kind))
}

// Names the relative that a word means: 'mother' for 'mum'.
fn relative(word: &str) -> Option<&'static str> {
    RELATIVES.get(word).copied()
}

static RELATIVES: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let lists = LANGUAGES.iter().flat_map(|language| &language.relatives);
    lists.flat_map(|(relative, words)| words.iter().map(|word| (word.as_str(), relative.as_str()))).collect()
});

// `None`: a stem of several, as 'grand'.
static RELATIVES_BY_STEM: LazyLock<HashMap<String, Option<&'static str>>> = LazyLock::new(|| {
    let mut known = HashMap::new();
    for (word, relative) in RELATIVES.iter() {
        for stem in stems(word) {
            let kept = known.entry(stem).or_insert(Some(*relative));
            *kept = kept.filter(|kept| kept == relative);
        }
    }
    known
});

const LONGEST_NOUN_ENDING: usize = 2;
