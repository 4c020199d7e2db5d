//! Words of the past before a question: which of those that a search found the model reads, and in which form.
//!
//! The note stands before the question, behind everything that is warm. The model reads only what it does not see
//! anyway.

use remember::{asks, escape, stems, stems_of_question};
use session::Item;
use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Question, and the part of the past that its prompt shows anyway.
pub struct PastOf<'a> {
    pub question: &'a str,
    pub shown: &'a [Arc<Item>],
    pub preface: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastWords {
    pub id: String,
    pub text: String,
    pub said_at: (i64, u64),
}

pub const NOTED_PLACES: usize = 2;

/// Least weight of a statement's words: that of a word in one of thirty items.
const STRONG: f64 = 3.4;
/// Least weight of a statement with every word of the question: that of a word in one of six items.
const STRONG_IF_ALL: f64 = 2.0;
/// Share of the heaviest word's weight from which the question is about another word, too.
const ABOUT_AS_HEAVY: f64 = 0.8;
/// Characters of a name that are compared, as many as a stem has.
const NAME_CHARS: usize = 5;

/// Chooses the statement that is most about the question, for each of its heaviest words. Returns their places in
/// `found`, the oldest first.
pub fn choose(found: &[PastWords], weights: &HashMap<String, f64>, past: &PastOf) -> Vec<usize> {
    let asked: HashSet<String> =
        stems_of_question(past.question).into_iter().chain(besides_stems(past.question)).collect();
    let score = |words: &HashSet<String>| -> f64 {
        weights.iter().filter(|(stem, _)| words.contains(*stem)).map(|(_, weight)| weight).sum()
    };
    let statements = found.iter().enumerate().filter(|(_, words)| !asks(&words.text));
    let statements = statements.map(|(at, words)| (at, words_of(&words.text)));
    let has_all = |words: &HashSet<String>| asked.iter().all(|stem| words.contains(stem));
    let least_of = |words: &HashSet<String>| if has_all(words) { STRONG_IF_ALL } else { STRONG };
    let says_more = |words: &HashSet<String>| !words.is_subset(&asked) && score(words) >= least_of(words);
    let statements: Vec<(usize, HashSet<String>)> = statements.filter(|(_, words)| says_more(words)).collect();
    let mut heavy: Vec<(&String, f64)> = weights.iter().map(|(stem, weight)| (stem, *weight)).collect();
    heavy.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let least = heavy.first().map_or(0.0, |(_, weight)| weight * ABOUT_AS_HEAVY);
    let when = |at: usize| found[at].said_at;
    let mut told: Vec<usize> = Vec::new();
    let lines = LazyCell::new(|| past.preface.lines().map(words_of).collect::<Vec<_>>());
    for (stem, _) in heavy.iter().take_while(|(_, weight)| *weight >= least) {
        let about = statements.iter().filter(|(_, words)| words.contains(*stem));
        let best = about.max_by(|a, b| score(&a.1).total_cmp(&score(&b.1)).then(when(a.0).cmp(&when(b.0))));
        let Some((at, said)) = best else { continue };
        let id = &found[*at].id;
        if past.shown.iter().any(|item| item.id == *id) || is_told(said, stem, &asked, &lines) {
            // The words that the model sees answer, or correct what it does not see.
            break;
        }
        if !told.iter().any(|other| found[*other].id == *id) {
            told.push(*at);
        }
    }
    told.truncate(NOTED_PLACES);
    told.sort_by_key(|at| when(*at));
    told
}

pub fn note_of_past<'a>(introduction: &str, texts: impl Iterator<Item = &'a str>) -> String {
    texts.map(|text| format!("{introduction}{}", one_line(text))).collect::<Vec<_>>().join("\n")
}

/// Returns the result of a search that the model asked for: a line for each place, with the role of its speaker.
pub fn search_result<'a>(places: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let lines: Vec<String> = places.map(|(role, text)| format!("- {role}: {}", one_line(text))).collect();
    match lines.is_empty() {
        true => "Nothing was found. It was not said in these words.".to_owned(),
        false => lines.join("\n"),
    }
}

/// Returns the numbers of a text, such as codes, years and hours. They are no stems, and an answer may be one.
pub fn numbers(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|character: char| !character.is_alphanumeric());
    words.filter(|word| word.starts_with(|first: char| first.is_ascii_digit())).map(str::to_lowercase)
}

pub fn words_of(text: &str) -> HashSet<String> {
    stems(text).into_iter().chain(besides_stems(text)).collect()
}

/// Returns the words in one line, with nothing in it that a template could obey.
fn one_line(text: &str) -> String {
    escape(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// True if one of these lines, of the summary or of the pins, tells the same of the same thing as these words.
fn is_told(said: &HashSet<String>, stem: &str, asked: &HashSet<String>, lines: &[HashSet<String>]) -> bool {
    lines.iter().any(|line| line.contains(stem) && said.difference(asked).all(|word| line.contains(word)))
}

fn besides_stems(text: &str) -> impl Iterator<Item = String> {
    numbers(text).chain(names(text))
}

fn names(text: &str) -> impl Iterator<Item = String> {
    let words = text.split_whitespace().skip(1);
    let words = words.map(|word| word.trim_matches(|character: char| !character.is_alphanumeric()));
    let is_name = |word: &&str| word.chars().count() > 2 && word.starts_with(char::is_uppercase);
    words.filter(is_name).map(|word| word.to_lowercase().chars().take(NAME_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::Role;

    fn told(question: &str, said: &[&str], weights: &[(&str, f64)], preface: &str, shown: &[u64]) -> Vec<String> {
        let words = |(seq, text): (usize, &&str)| {
            let seq = seq as u64;
            PastWords { id: format!("item_{seq}"), text: (*text).to_owned(), said_at: (seq as i64, seq) }
        };
        let found: Vec<PastWords> = said.iter().enumerate().map(words).collect();
        let item = |seq: &u64| Arc::new(Item::message(format!("item_{seq}"), Role::User, said[*seq as usize]));
        let shown: Vec<Arc<Item>> = shown.iter().map(item).collect();
        let weights = weights.iter().map(|(stem, weight)| ((*stem).to_owned(), *weight)).collect();
        let past = PastOf { question, shown: &shown, preface };
        choose(&found, &weights, &past).into_iter().map(|at| found[at].text.clone()).collect()
    }

    #[test]
    fn the_users_words_are_told_and_neither_questions_nor_what_says_nothing_new() {
        let said = ["What is my dog called?", "My dog is called Biscuit.", "My cat is called Emma.", "My dog called."];
        let weights = [("dog", 5.0), ("calle", 2.0)];
        assert_eq!(told("What is my dog called?", &said, &weights, "", &[]), ["My dog is called Biscuit."]);
    }

    #[test]
    fn the_newest_words_of_several_are_told() {
        let said = ["My dog is called Biscuit.", "My dog is called Rex."];
        assert_eq!(told("What is my dog called?", &said, &[("dog", 5.0)], "", &[]), ["My dog is called Rex."]);
    }

    #[test]
    fn what_the_model_sees_is_not_told_again() {
        let (question, said, weights) = ("What is my dog called?", ["My dog is called Biscuit."], [("dog", 5.0)]);
        assert!(told(question, &said, &weights, "", &[0]).is_empty());
        assert!(told(question, &said, &weights, "- The dog is called Biscuit.", &[]).is_empty());
        // Of another thing.
        assert_eq!(told(question, &said, &weights, "- The cat is called Biscuit.", &[]).len(), 1);
    }

    #[test]
    fn a_name_that_is_a_word_elsewhere_is_an_answer() {
        let said = ["The name of my cat is Mia.", "The name of my cat."];
        assert_eq!(told("What is my cat's name?", &said, &[("cat", 5.0)], "", &[]), ["The name of my cat is Mia."]);
    }

    #[test]
    fn numbers_are_looked_for() {
        let said = ["The meeting of 2031 is in Oslo."];
        assert_eq!(told("Where is the meeting of 2031?", &said, &[("2031", 5.0)], "", &[]).len(), 1);
    }
}
