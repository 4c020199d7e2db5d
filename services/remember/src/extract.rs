//! Sentences in which people say something lasting of themselves, their people and their home.
//!
//! Words tell them, without a model, so that the smallest home server remembers, too. Rather too few than too many: a search
//! of the past still finds a sentence that is missed here.

use crate::about::{about, has_relation, is_copula, is_of_home};
use crate::asked::{asked_to_keep, asked_to_keep_before};
use crate::details::{is_first_person, is_negated};
use crate::frames::is_only_told;
use crate::language_guess::is_foreign;
use crate::languages::{all, has};
use crate::orders::is_order_like;
use crate::text::{asks, contains_phrase, folded, sentences, stems, words};
use crate::wishes::{WishScope, after_remember, wish_of, without_fillers, without_politeness};

#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    pub text: String,
    /// Subject: a newer statement about the same takes this one's place.
    pub about: String,
    /// Wish of a person: 'remember that ...'.
    pub asked: bool,
    /// Mark of a statement for the whole home.
    pub of_home: bool,
    /// Number from 0 to 1.
    pub confidence: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FactChange {
    Keep(Statement),
    /// Words of the facts to forget, as they were said.
    Forget(String),
}

/// Returns the changes that a person's message makes. `before` is their message before it: 'Remember that.' and 'Forget that.' point there.
pub fn extract(text: &str, before: Option<&str>) -> Vec<FactChange> {
    if text.chars().count() > LONGEST_TEXT_CHARS {
        return Vec::new();
    }
    let wishes = asked_to_keep(text);
    let mut changes: Vec<FactChange> = wishes.iter().map(|wish| FactChange::Keep(asked(wish))).collect();
    let pointed = before.and_then(|before| asked_to_keep_before(text, before));
    changes.extend(pointed.map(|wish| FactChange::Keep(asked(&wish))));
    let is_only_told = is_only_told(text);
    let others = sentences(text).into_iter().filter(|sentence| !wishes.iter().any(|wish| wish.contains(sentence)));
    for sentence in others {
        match forgets(sentence) {
            Some("") => changes.extend(before.map(|before| FactChange::Forget(before.trim().to_owned()))),
            Some(what) => changes.push(FactChange::Forget(what.to_owned())),
            None if wish_of(sentence) == WishScope::Nothing && !is_only_told => {
                changes.extend(lasting(sentence).map(FactChange::Keep));
            }
            None => {}
        }
    }
    changes
}

pub fn asks_to_forget(text: &str) -> bool {
    text.chars().count() <= LONGEST_TEXT_CHARS
        && sentences(text).into_iter().any(|sentence| forgets(sentence).is_some())
}

/// Tells whether a fact is the one to forget: most of what was said of it stands in the fact.
pub fn is_meant(fact: &str, forget: &str) -> bool {
    let (there, said) = (stems(fact), stems(forget));
    let shared = said.iter().filter(|stem| there.contains(stem)).count();
    shared > 0 && shared * 3 >= said.len() * 2
}

pub(crate) fn asked(text: &str) -> Statement {
    let about = about(&without_wish(text));
    Statement { text: text.trim().to_owned(), about, asked: true, of_home: is_of_home(text), confidence: 1.0 }
}

/// Strips the wish: 'Remember that my sister is called Ann' is about what 'my sister is called Ann' is about.
fn without_wish(text: &str) -> String {
    let folded = folded(text);
    let start = without_politeness(without_fillers(&folded));
    after_remember(start).as_deref().unwrap_or(start).trim_matches([' ', ',', ':']).to_owned()
}

/// Returns what a sentence wants forgotten. Empty: the message before it.
pub fn forgets(sentence: &str) -> Option<&str> {
    let folded = folded(sentence);
    let begun = without_fillers(&folded);
    let start = without_politeness(begun);
    if asks(sentence) && start.len() == begun.len() {
        return None;
    }
    let bare = start.trim_end_matches(|character: char| !character.is_alphanumeric());
    if all(|language| &language.lasting.forget_that).any(|phrase| phrase == bare) {
        return Some("");
    }
    let rest = all(|language| &language.lasting.forget).filter_map(|phrase| start.strip_prefix(phrase));
    let rest = rest.min_by_key(|rest| rest.len())?;
    // As it was written: counted from the end, because fillers were left out before it.
    let skipped = sentence.chars().count().checked_sub(rest.chars().count())?;
    let (at, _) = sentence.char_indices().nth(skipped)?;
    Some(sentence[at..].trim()).filter(|rest| rest.chars().any(char::is_alphanumeric))
}

/// Returns what a sentence says that will still be so in a month.
fn lasting(sentence: &str) -> Option<Statement> {
    let text = folded(sentence);
    let start = without_corrections(without_fillers(&text));
    let said = words(start);
    if !(FEWEST_WORDS..=MOST_WORDS).contains(&said.len()) || asks(sentence) || is_order_like(sentence) {
        return None;
    }
    if all(|language| &language.lasting.passing).any(|phrase| contains_phrase(start, phrase)) {
        return None;
    }
    let begins = all(|language| &language.lasting.begins).any(|phrase| begins_with(start, phrase));
    let is_possessive = |word: &&str| has(|language| &language.lasting.possessives, word);
    let has_article = has(|language| &language.lasting.articles, said[0]);
    // Other languages have more verbs than the lists: 'Mein Schwager Torben repariert Orgeln'. Meaning tells what English ones say.
    let is_other_language = || said.len() >= FEWEST_WORDS_WITH_VERB && is_foreign(sentence, &["en".to_owned()]);
    let is_own = said.iter().skip(usize::from(has_article)).take(1).any(is_possessive)
        && (has_relation(start) || is_other_language());
    // 'Carla is my daughter.'
    let is_of_own = is_name(words(sentence)[0]) && is_copula(said[1]) && said.iter().skip(2).take(1).any(is_possessive);
    let is_kept = || said.iter().any(|word| is_storage(word)) && is_other_language();
    let is_lasting = begins || is_first_person(sentence) && (is_own || is_of_own) || is_kept();
    is_lasting.then(|| Statement {
        text: sentence.trim().to_owned(),
        about: about(sentence),
        asked: false,
        of_home: is_of_home(sentence),
        confidence: if is_negated(sentence) { 0.7 } else { 0.8 },
    })
}

// Compounds end with it: 'Küchenschublade'.
fn is_storage(word: &str) -> bool {
    all(|language| &language.lasting.storage).any(|place| word.ends_with(place))
}

fn is_name(word: &str) -> bool {
    word.starts_with(char::is_uppercase) && !has(|language| &language.common, folded(word).as_str())
}

/// Strips a correction: 'Actually, my sister lives in Porto' says that she does.
pub(crate) fn without_corrections(text: &str) -> &str {
    let first = words(text).first().copied().unwrap_or_default();
    match text.strip_prefix(first).filter(|_| has(|language| &language.corrections, first)) {
        Some(rest) => without_fillers(rest.trim_start_matches([' ', ','])),
        None => text,
    }
}

fn begins_with(text: &str, phrase: &str) -> bool {
    let Some(rest) = text.strip_prefix(phrase) else { return false };
    rest.chars().next().is_none_or(|next| !next.is_alphanumeric())
}

const LONGEST_TEXT_CHARS: usize = 1000; // a longer text was pasted, and is about its writer
const FEWEST_WORDS: usize = 2;
const FEWEST_WORDS_WITH_VERB: usize = 4;
const MOST_WORDS: usize = 40;
