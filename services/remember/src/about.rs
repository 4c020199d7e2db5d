//! The subject of a sentence, so that a newer one about the same can take its place; and secrets.

use crate::languages::{LANGUAGES, all, has};
use crate::text::{clause_before, contains_phrase, folded, stems, stems_within, without_ending, words};

/// Returns a key that is equal for sentences of which only one is true at a time: 'my sister lives in Lisbon' and 'my
/// sister moved to Porto'. A sentence of another kind is about all of its words, whether it says yes or no.
pub fn about(sentence: &str) -> String {
    let text = folded(sentence);
    let said = words(&text);
    let relation = match (0..said.len()).any(|at| is_of_a_name(&said, at)) {
        true => relation(&words_but_names(&said).join(" ")),
        false => relation(&text),
    };
    let is_new = |word: &str| has(|language| &language.lasting.new, word);
    let possessive = said.iter().position(|word| has(|language| &language.lasting.possessives, word));
    // 'I have a new dentist' is about the dentist.
    let own = possessive.or_else(|| said.iter().position(|word| is_new(word)).filter(|at| at + 1 < said.len()));
    let first = said.first().map(|word| without_ending(word)).unwrap_or_default();
    let is_self = own.is_none() && has(|language| &language.first_person, first);
    let from = own.map_or(0, |at| at + 1);
    // 'My favourite colour is': a word of the relation may stand before its value. A noun comes behind 'my', also where it is a
    // verb in another language: 'my son'.
    let is_noun = |at: usize| at == 0 && own.is_some();
    let ends = |(at, word): (usize, &&str)| {
        let is_of_relation = is_relation_word(word) && !is_of_a_name(&said, from + at);
        (is_copula(word) || is_verb(word)) && !is_noun(at) || at > 0 && is_of_relation
    };
    let end = said[from..].iter().enumerate().position(ends).map(|at| from + at);
    let end = end.or((possessive.is_none() && own.is_some()).then_some(from + 1));
    let ending = end.and_then(|end| said.get(end));
    let subject = match end {
        Some(end) if !is_self => {
            // 'my sister's name': the word with the ending belongs to the subject.
            let end = end + usize::from(said.get(end).is_some_and(|word| word.contains('\'')));
            let parts = said_before(&text, &said, possessive).iter().chain(&said[from..end]).chain(owned(&said, end));
            let plain = parts.map(|word| without_ending(word));
            let words: Vec<&str> = plain.filter(|word| !is_relation_word(word) && !is_new(word)).collect();
            stems_within(&text, &words.join(" "))
        }
        _ => Vec::new(),
    };
    match (relation, subject.is_empty()) {
        (Some(relation), is_empty) if is_self || own.is_some() || !is_empty => {
            format!("{}|{relation}", subject.join(" "))
        }
        // A sister has a dog and a garden, but is called one name.
        (None, false) if own.is_some() && !ending.is_some_and(|word| is_verb(word)) => subject.join(" "),
        _ => {
            let kept: Vec<&str> = said.iter().filter(|word| !says_little(word)).copied().collect();
            // Scripts without spaces have no words.
            let kept = if kept.is_empty() { text.clone() } else { kept.join(" ") };
            format!("={}", stems(&kept).join(" "))
        }
    }
}

// True for the word of 'bus number 12', which is a name. A number that is dialled is longer.
fn is_of_a_name(said: &[&str], at: usize) -> bool {
    let is_short = |word: &&str| word.len() <= 3 && word.bytes().all(|byte| byte.is_ascii_digit());
    let lists = || LANGUAGES.iter().filter_map(|language| language.lasting.one_at_a_time.get("number"));
    said.get(at + 1).is_some_and(is_short) && lists().flatten().any(|word| word == said[at])
}

fn words_but_names<'a>(said: &[&'a str]) -> Vec<&'a str> {
    (0..said.len()).filter(|at| !is_of_a_name(said, *at)).map(|at| said[at]).collect()
}

// Words that a clause has before the speaker's own: the dog of 'the dog of my sister' is not the sister. A clause
// that begins with the speaker is about the own.
fn said_before<'a>(text: &str, said: &'a [&'a str], possessive: Option<usize>) -> &'a [&'a str] {
    let Some(own) = possessive else { return &[] };
    let clause = clause_before(text, said, own);
    let first = clause.iter().position(|word| !says_little(word) && !is_filler(word));
    let before = &clause[first.unwrap_or(clause.len())..];
    let is_of_speaker = before.first().is_some_and(|word| has(|language| &language.first_person, without_ending(word)));
    if is_of_speaker { &[] } else { before }
}

// Words between 'has' and a word of the relation: 'my sister has a dog called Rex' is about the dog.
fn owned<'a>(said: &'a [&'a str], end: usize) -> &'a [&'a str] {
    let behind = said.get(end + 1..).filter(|_| is_verb(said[end])).unwrap_or_default();
    let count = behind.iter().position(|word| is_relation_word(word));
    &behind[..count.unwrap_or_default()]
}

pub(crate) fn is_filler(word: &str) -> bool {
    all(|language| &language.wishes.fillers).any(|filler| filler == word)
}

fn says_little(word: &str) -> bool {
    has(|language| &language.negations, word)
        || all(|language| &language.negation_endings).any(|end| word.ends_with(end))
        || has(|language| &language.lasting.small, word)
        || has(|language| &language.corrections, word)
}

pub fn has_relation(text: &str) -> bool {
    relation(text).is_some() || words(text).iter().any(|word| is_copula(word) || is_verb(word))
}

pub fn is_of_home(sentence: &str) -> bool {
    let text = folded(sentence);
    all(|language| &language.lasting.of_home).any(|phrase| contains_phrase(&text, phrase))
}

pub(crate) fn is_verb(word: &str) -> bool {
    has(|language| &language.lasting.verbs, word)
}

pub fn is_copula(word: &str) -> bool {
    let is = |word: &str| has(|language| &language.lasting.copulas, word);
    is(word) || word.split_once('\'').is_some_and(|(_, end)| is(end))
}

fn relation(text: &str) -> Option<&'static str> {
    let of = |(name, phrases): (&'static String, &'static Vec<String>)| {
        phrases.iter().any(|phrase| contains_phrase(text, phrase)).then_some(name.as_str())
    };
    LANGUAGES.iter().flat_map(|language| &language.lasting.one_at_a_time).filter_map(of).min()
}

fn is_relation_word(word: &str) -> bool {
    let lists = LANGUAGES.iter().flat_map(|language| language.lasting.one_at_a_time.values());
    lists.flatten().any(|phrase| phrase == word)
}

/// Returns true for door codes, passwords, card numbers: nothing that all of a home should be told.
pub fn is_secret(text: &str) -> bool {
    let folded = folded(text);
    let spaced: String = folded.chars().filter(|character| !matches!(character, ' ' | '-')).collect();
    let longest = spaced.split(|character: char| !character.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    let is_token = |run: &str| {
        let digits = run.chars().filter(char::is_ascii_digit).count();
        run.len() >= SHORTEST_TOKEN && digits >= 2 && run.chars().any(char::is_alphabetic)
    };
    let has_token = folded.split(|character: char| !character.is_alphanumeric()).any(is_token);
    longest >= SHORTEST_NUMBER
        || has_token
        || all(|language| &language.lasting.secrets).any(|word| contains_phrase(&folded, word))
}

const SHORTEST_NUMBER: usize = 12; // numbers of cards and accounts are as long or longer
const SHORTEST_TOKEN: usize = 10; // mixed letters and digits of this length are a key
