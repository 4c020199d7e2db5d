//! Wishes of users: to keep something word for word, and to do something from now on.

use crate::languages::{LanguageWords, all, has};
use crate::text::{ends_as_question, folded, is_unspaced, words};
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WishScope {
    Nothing,
    ThisSentence,
    NextSentence,
    SentenceBefore,
}

pub fn wish_of(sentence: &str) -> WishScope {
    let text = folded(sentence);
    let text = text.trim_matches(|character: char| character.is_whitespace() || "\"'“”«»„-–*".contains(character));
    let is_question = ends_as_question(text);
    let start = without_fillers(text);
    let (begun, start) = (start, without_politeness(start));
    if is_question && start.len() == begun.len() {
        return WishScope::Nothing;
    }
    let asked = without_closings(start);
    if all(|language| &language.wishes.remember_that).any(|that| that == asked) {
        return WishScope::SentenceBefore;
    }
    if let Some(rest) = after_remember(start) {
        return match rest.chars().filter(|character| character.is_alphabetic()).count() {
            0..=2 => WishScope::NextSentence,
            _ => WishScope::ThisSentence,
        };
    }
    let standing = all(|language| &language.wishes.standing)
        .any(|phrase| after(start, phrase).is_some_and(says_something))
        || all(|language| &language.wishes.inside).any(|phrase| text.contains(phrase))
        || is_always(start)
        || is_name_wish(sentence, start);
    if standing { WishScope::ThisSentence } else { WishScope::Nothing }
}

/// Returns what follows the words that ask to remember. They may say for whom in their middle: 'remember for all of us that'.
pub fn after_remember(text: &str) -> Option<Cow<'_, str>> {
    fn remember(text: &str) -> Option<&str> {
        after_longest(|language| &language.wishes.remember, text)
    }
    let for_all = || {
        all(|language| &language.lasting.of_home).find_map(|phrase| {
            let (before, rest) = text.split_once(phrase)?;
            let joined = format!("{} {}", before.strip_suffix(' ')?, rest.trim_start_matches([' ', ',']));
            let asked = remember(&joined)?;
            let is_inside = joined.len() - asked.len() > before.len();
            is_inside.then(|| Cow::Owned(asked.to_owned()))
        })
    };
    remember(text).map(Cow::Borrowed).or_else(for_all)
}

/// 'Remember that for me, please.'
fn without_closings(text: &str) -> &str {
    let mut text = text.trim_end_matches(|character: char| !character.is_alphanumeric());
    while let Some(rest) = all(|language| &language.wishes.closings).find_map(|end| text.strip_suffix(end)) {
        text = rest.trim_end_matches(|character: char| !character.is_alphanumeric());
    }
    text
}

/// Matches 'Sprich immer langsam', in languages that put the word behind the verb.
fn is_always(text: &str) -> bool {
    let words = words(text);
    let [verb, rest @ ..] = words.as_slice() else { return false };
    let lasts = rest.iter().take(4).any(|word| has(|language| &language.wishes.always, word));
    lasts && has(|language| &language.wishes.imperatives, verb)
}

fn is_name_wish(sentence: &str, start: &str) -> bool {
    let Some(rest) = after_longest(|language| &language.wishes.call_me, start) else { return false };
    let mut spoken = words(rest).into_iter();
    let Some(name) = spoken.find(|word| !has(|language| &language.wishes.call_me_fillers, word)) else { return false };
    let written = words(sentence).into_iter().rev().find(|word| folded(word) == name);
    written.is_some_and(|word| word.starts_with(char::is_uppercase) && !has(|language| &language.common, name))
}

/// Strips the beginning of 'Can you please remember that ...'.
pub fn without_politeness(text: &str) -> &str {
    after_longest(|language| &language.wishes.polite, text).map_or(text, without_fillers)
}

pub fn without_fillers(text: &str) -> &str {
    let mut text = text.trim_start();
    loop {
        let rests = all(|language| &language.wishes.fillers).filter_map(|filler| {
            let rest = text.strip_prefix(filler)?;
            let is_whole = rest.starts_with([' ', ',', '!', '，', '、', ':']) || !filler.is_ascii();
            is_whole.then(|| rest.trim_start_matches([' ', ',', '!', '.', '，', '、', ':']))
        });
        match rests.min_by_key(|rest| rest.len()) {
            Some(rest) if !rest.is_empty() => text = rest,
            _ => return text,
        }
    }
}

fn after_longest(phrases: fn(&LanguageWords) -> &Vec<String>, text: &str) -> Option<&str> {
    all(phrases).filter_map(|phrase| after(text, phrase)).min_by_key(|rest| rest.len())
}

fn after<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(phrase)?;
    let spaced = phrase.chars().next_back().is_some_and(|last| last.is_alphanumeric() && !is_unspaced(last));
    let ends = !spaced || rest.chars().next().is_none_or(|next| !next.is_alphanumeric());
    ends.then_some(rest)
}

/// Returns false for 'Never mind.' and its like, which say nothing that lasts.
fn says_something(rest: &str) -> bool {
    let rest = rest.trim_matches(|character: char| !character.is_alphanumeric());
    rest.chars().count() > 1 && !has(|language| &language.wishes.standing_for_nothing, rest)
}
