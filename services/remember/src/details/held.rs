//! The details that some text holds.

use super::DetailKind;
use super::values::values;
use crate::languages::{all, has};
use crate::text::{folded, said_lines, stems, words};
use std::collections::HashSet;

#[derive(Clone, Debug, Default)]
pub struct HeldDetails {
    text: String,          // all of it, folded
    keys: HashSet<String>, // keys of numbers and dates
    stems: HashSet<String>,
    lines: Vec<HeldLine>,
}

#[derive(Clone, Debug)]
struct HeldLine {
    stems: Vec<String>,
    negated: bool,
}

impl HeldDetails {
    pub fn add(&mut self, text: &str) {
        for line in said_lines(text) {
            self.text.push_str(&folded(line));
            self.text.push('\n');
            for found in values(line) {
                self.keys.extend(found.value.keys());
                self.keys.extend(found.value.parts());
            }
            let stems = stems(line);
            self.stems.extend(stems.iter().cloned());
            self.lines.push(HeldLine { stems, negated: is_negated(line) });
        }
    }

    pub fn holds(&self, kind: DetailKind, text: &str) -> bool {
        match kind {
            DetailKind::Number | DetailKind::Date => {
                values(text).iter().all(|found| found.value.keys().iter().any(|key| self.keys.contains(key)))
            }
            DetailKind::Name => self.has_words(text),
            DetailKind::Quote => self.text.contains(&folded(text)) || self.has_words(text),
            DetailKind::Negation => self.denies(text),
        }
    }

    /// Returns true if all words of `text` are held, also with another ending.
    fn has_words(&self, text: &str) -> bool {
        let text = folded(text);
        let spaced = words(&text);
        if spaced.is_empty() {
            return self.text.contains(text.trim());
        }
        let has = |word: &&str| {
            let beginning: String = word.chars().take(5).collect();
            self.text.contains(*word) || (word.chars().count() > 5 && self.stems.contains(&beginning))
        };
        spaced.iter().filter(|word| word.chars().count() > 1).all(has)
    }

    fn denies(&self, clause: &str) -> bool {
        let about = stems(clause);
        let is_same = |line: &HeldLine| {
            let shared = about.iter().filter(|stem| line.stems.contains(stem)).count();
            shared > 0 && shared * 2 >= about.len().min(4)
        };
        self.lines.iter().any(|line| line.negated && is_same(line))
    }
}

pub fn is_negated(text: &str) -> bool {
    let text = folded(text);
    let says_no = |word: &&str| {
        has(|language| &language.negations, word)
            || all(|language| &language.negation_endings).any(|end| word.ends_with(end))
    };
    words(&text).iter().any(says_no) || all(|language| &language.negations_inside).any(|part| text.contains(part))
}
