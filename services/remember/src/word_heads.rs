//! Heads on words: what kind of saying a sentence is, by its words, their pairs and their pieces. `models/heads` has how they
//! were made.

use crate::heads::{SaidKind, Shares};
use crate::language_guess::is_foreign;
use serde::Deserialize;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WordHeads {
    languages: Vec<String>,
    kinds: Vec<SaidKind>,
    scale: f32,
    biases: Vec<f32>,
}

/// Weights of each bucket and kind, a byte each.
static WEIGHTS: &[u8] = include_bytes!("../../../models/heads/words.i8");

static HEADS: LazyLock<WordHeads> = LazyLock::new(|| {
    toml::from_str(include_str!("../../../models/heads/words.toml"))
        .unwrap_or_else(|error| panic!("models/heads/words.toml: {error}"))
});

const BUCKETS: u32 = 1 << 16; // not a window: places of weights
const FIRST_WORDS: usize = 3;
const LONGEST_COUNT: usize = 6;

impl WordHeads {
    /// Returns the heads, if they know the sentence's language.
    pub fn of(sentence: &str) -> Option<&'static WordHeads> {
        Some(&*HEADS).filter(|heads| !is_foreign(sentence, &heads.languages))
    }

    pub fn shares(&self, sentence: &str) -> Shares {
        let buckets = buckets(sentence);
        let scale = self.scale / (buckets.len() as f32).sqrt();
        let weight = |bucket: &u32, kind: usize| WEIGHTS[*bucket as usize * self.kinds.len() + kind] as i8;
        let score = |kind: usize| {
            let sum: i32 = buckets.iter().map(|bucket| i32::from(weight(bucket, kind))).sum();
            sum as f32 * scale + self.biases[kind]
        };
        Shares::of_scores(self.kinds.iter().enumerate().map(|(at, kind)| (*kind, score(at))))
    }
}

/// Returns where the features of a sentence have their weights: each once.
fn buckets(sentence: &str) -> Vec<u32> {
    let text = sentence.to_lowercase();
    let words: Vec<&str> =
        text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut buckets = vec![bucket(&["l", &(words.len() / 3).min(LONGEST_COUNT).to_string()])];
    let mut before = "^";
    for (at, word) in words.iter().enumerate() {
        buckets.extend([bucket(&["w", word]), bucket(&["b", before, " ", word])]);
        if at < FIRST_WORDS {
            buckets.push(bucket(&["f", &at.to_string(), word]));
        }
        before = word;
        let whole = format!("<{word}>");
        let ends: Vec<usize> = whole.char_indices().map(|(at, _)| at).chain([whole.len()]).collect();
        for size in piece_sizes(word) {
            buckets.extend(ends.windows(size + 1).map(|piece| bucket(&["c", &whole[piece[0]..piece[size]]])));
        }
    }
    buckets.push(bucket(&["b", before, " ", "$"]));
    buckets.sort_unstable();
    buckets.dedup();
    buckets
}

// Pieces of a script that has no spaces, or syllables for letters, are shorter.
fn piece_sizes(word: &str) -> RangeInclusive<usize> {
    let is_dense = word.starts_with(|first| ('\u{3040}'..='\u{d7a3}').contains(&first));
    if is_dense { 1..=3 } else { 3..=4 }
}

// FNV-1a, folded to the number of buckets.
fn bucket(feature: &[&str]) -> u32 {
    let mut hashed = 0x811c_9dc5_u32;
    for byte in feature.iter().flat_map(|part| part.bytes()) {
        hashed = (hashed ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    (hashed ^ hashed >> 15) % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_whole() {
        let heads = &*HEADS;
        assert_eq!((heads.kinds.len(), heads.biases.len()), (9, 9));
        assert_eq!(WEIGHTS.len(), BUCKETS as usize * heads.kinds.len());
    }

    /// Compares with what `recipe/words.py` prints for the same sentences.
    #[test]
    fn features_are_those_of_the_recipe() {
        for line in include_str!("../../../models/heads/words.golden.tsv").lines() {
            let (sentence, wanted) = line.split_once('\t').unwrap();
            let wanted: Vec<u32> = wanted.split(' ').map(|bucket| bucket.parse().unwrap()).collect();
            assert_eq!(buckets(sentence), wanted, "{sentence}");
        }
    }

    #[test]
    fn a_sentence_without_words_has_shares() {
        let shares = HEADS.shares("...");
        let all = [SaidKind::Person, SaidKind::Passing, SaidKind::Forget].map(|kind| shares.of(kind));
        assert!(all.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    }
}
