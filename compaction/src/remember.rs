//! Facts that outlive a conversation: sentences in which people say something lasting of themselves, their people and
//! their home.
//!
//! Word lists find them, without a model, so that the smallest home server remembers, too; further findings of a model
//! are checked against their source. Rather too few than too many: a missed fact is still found when it is asked for.

mod about;
mod block;
mod by_model;
#[cfg(test)]
mod tests;

pub use about::{about, is_secret};
pub use block::{TellableFact, block, choose};
pub use by_model::{learn_request, learned};

use crate::check::{is_first_person, is_negated};
use crate::languages::{all, has};
use crate::orders::is_order_like;
use crate::pins::{detect, detect_before};
use crate::text::{asks, contains_phrase, folded, sentences, stems, words};
use crate::types::{Passage, PassageKind, Statement};
use crate::wishes::{WishScope, wish_of, without_fillers, without_politeness};
use about::{has_relation, is_of_home};

#[derive(Clone, Debug, PartialEq)]
pub enum Lesson {
    Keep(Statement),
    Forget(String), // words for what is to be forgotten, as they were said
}

/// Extracts the changes of facts from a person's message. `before` is their message before it: 'Remember that.' and
/// 'Forget that.' point there.
pub fn hear(text: &str, before: Option<&str>) -> Vec<Lesson> {
    if text.chars().count() > LONGEST_TEXT_CHARS {
        return Vec::new();
    }
    let passage = |text: &str| Passage { id: String::new(), kind: PassageKind::User, text: text.to_owned(), tokens: 0 };
    let wishes = detect(&passage(text));
    let mut heard: Vec<Lesson> = wishes.iter().map(|wish| Lesson::Keep(asked(wish))).collect();
    let pointed = before.and_then(|before| detect_before(&passage(text), &passage(before)));
    heard.extend(pointed.map(|wish| Lesson::Keep(asked(&wish))));
    let others = sentences(text).into_iter().filter(|sentence| !wishes.iter().any(|wish| wish.contains(sentence)));
    for sentence in others {
        match forgets(sentence) {
            Some("") => heard.extend(before.map(|before| Lesson::Forget(before.trim().to_owned()))),
            Some(what) => heard.push(Lesson::Forget(what.to_owned())),
            None if wish_of(sentence) == WishScope::Nothing => heard.extend(lasting(sentence).map(Lesson::Keep)),
            None => {}
        }
    }
    heard
}

/// Returns true if a message asks to forget something. The service reads such a message at once.
pub fn asks_to_forget(text: &str) -> bool {
    text.chars().count() <= LONGEST_TEXT_CHARS
        && sentences(text).into_iter().any(|sentence| forgets(sentence).is_some())
}

/// Returns true if a fact is the one to forget: most of the words of the order are in the fact.
pub fn is_meant(fact: &str, forget: &str) -> bool {
    let (there, said) = (stems(fact), stems(forget));
    let shared = said.iter().filter(|stem| there.contains(stem)).count();
    shared > 0 && shared * 3 >= said.len() * 2
}

fn asked(text: &str) -> Statement {
    let about = about(&without_wish(text));
    Statement { text: text.trim().to_owned(), about, asked: true, of_home: is_of_home(text), confidence: 1.0 }
}

/// Strips the wish: 'Remember that my sister is called Ann' is about what 'my sister is called Ann' is about.
fn without_wish(text: &str) -> String {
    let folded = folded(text);
    let start = without_politeness(without_fillers(&folded));
    let rest = all(|language| &language.wishes.remember).filter_map(|phrase| start.strip_prefix(phrase.trim_end()));
    rest.min_by_key(|rest| rest.len()).unwrap_or(start).trim_matches([' ', ',', ':']).to_owned()
}

/// Returns the words for what a sentence wants forgotten. Empty: the message before it.
fn forgets(sentence: &str) -> Option<&str> {
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

/// Extracts a statement that will still be true in a month.
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
    let is_own = has(|language| &language.lasting.possessives, said[0]) && has_relation(start);
    let says = is_first_person(sentence) && (begins || is_own);
    says.then(|| Statement {
        text: sentence.trim().to_owned(),
        about: about(sentence),
        asked: false,
        of_home: is_of_home(sentence),
        confidence: if is_negated(sentence) { 0.7 } else { 0.8 },
    })
}

/// Strips a correction: 'Actually, my sister lives in Porto' says that she does.
fn without_corrections(text: &str) -> &str {
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
const MOST_WORDS: usize = 40;
