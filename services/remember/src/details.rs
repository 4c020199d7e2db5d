//! Names, numbers, dates, quoted words and denials in a sentence, told apart by their form.

mod held;
mod values;

pub use held::{HeldDetails, is_negated};
pub use values::{FoundValue, SaidValue, values};

use crate::languages::{self, all, has};
use crate::text::{folded, is_katakana, is_unspaced, stems, without_ending, words};
use strum::IntoStaticStr;
use unicode_script::{Script, UnicodeScript};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    pub kind: DetailKind,
    pub text: String,
}

/// Kind of a detail. Its word is the one in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum DetailKind {
    Name,
    Number,
    Date,
    Quote,
    Negation, // something is not so
}

pub fn details_of(sentence: &str, nouns_have_capitals: bool) -> Vec<Detail> {
    let detail = |kind: DetailKind, text: &str| Detail { kind, text: text.to_owned() };
    let mut details = Vec::new();
    for found in values(sentence) {
        let kind = if matches!(found.value, SaidValue::Number(_)) { DetailKind::Number } else { DetailKind::Date };
        details.push(detail(kind, &found.text));
    }
    details.extend(names(sentence, nouns_have_capitals).iter().map(|name| detail(DetailKind::Name, name)));
    details.extend(quotes(sentence).iter().map(|quote| detail(DetailKind::Quote, quote)));
    if is_negated(sentence) && is_first_person(sentence) {
        details.extend(denied(sentence).map(|clause| detail(DetailKind::Negation, clause)));
    }
    details
}

/// Returns true if a sentence speaks of its speaker.
pub fn is_first_person(sentence: &str) -> bool {
    let folded = folded(sentence);
    let is_first = |word: &&str| has(|language| &language.first_person, without_ending(word));
    words(&folded).iter().any(is_first)
        || all(|language| &language.first_person_inside).any(|part| folded.contains(part))
}

pub fn is_correction(sentence: &str) -> bool {
    let sentence = folded(sentence);
    words(&sentence).iter().any(|word| has(|language| &language.corrections, word))
        || all(|language| &language.corrections_inside).any(|part| sentence.contains(part))
}

/// Returns the part of a sentence that says what is not so.
fn denied(sentence: &str) -> Option<&str> {
    let says_something = |text: &&str| stems(text).len() >= 2;
    let mut clauses = sentence.split([',', ';', '，', '、', '；']);
    let clause = clauses.find(|clause| is_negated(clause)).map(str::trim).filter(says_something);
    clause.or(Some(sentence)).filter(says_something)
}

/// Lists words with a capital that do not owe it to their place, several in a row as one.
fn names(sentence: &str, nouns_have_capitals: bool) -> Vec<&str> {
    let mut names = names_without_capitals(sentence);
    if !sentence.chars().any(char::is_lowercase) {
        return names;
    }
    let (mut open, mut previous): (Option<(usize, usize)>, &str) = (None, "");
    for word in words(sentence) {
        let start = word.as_ptr().addr() - sentence.as_ptr().addr();
        let end = start + word.len();
        let begins = starts_sentence(&sentence[..start]);
        let follows = open.is_some_and(|(_, last)| matches!(sentence[last..start].trim_start_matches('.'), " " | "-"));
        let excused = nouns_have_capitals && has(|language| &language.determiners, &folded(previous));
        if is_name(word) && (follows || !(begins || excused)) {
            open = match open {
                Some((first, _)) if follows => Some((first, end)),
                _ => {
                    names.extend(open.map(|(first, last)| &sentence[first..last]));
                    Some((start, end))
                }
            };
        } else {
            names.extend(open.take().map(|(first, last)| &sentence[first..last]));
        }
        previous = word;
    }
    names.extend(open.map(|(first, last)| &sentence[first..last]));
    names
}

fn is_name(word: &str) -> bool {
    let lower = folded(word);
    let plain = lower.split('\'').next().unwrap_or(&lower);
    word.chars().count() > 1
        && word.starts_with(char::is_uppercase)
        && !has(|language| &language.common, plain)
        && !has(|language| &language.no_names, plain)
        && languages::weekday(plain).is_none()
}

fn starts_sentence(before: &str) -> bool {
    let last = before.trim_end().chars().next_back();
    last.is_none_or(|character| {
        matches!(character, '.' | '!' | '?' | ':' | '…' | '"' | '“' | '„' | '«' | '(' | '¿' | '¡' | '-' | '–' | '—')
    })
}

fn names_without_capitals(sentence: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let is_part = |character: char| character.script() == Script::Han || is_katakana(character);
    let is_japanese = || sentence.chars().any(|letter| letter.script() == Script::Hiragana || is_katakana(letter));
    for honorific in all(|language| &language.honorifics) {
        for (at, _) in sentence.match_indices(honorific) {
            let before = &sentence[..at];
            // A Chinese family name is one letter, and any text may stand before it.
            let (least, longest, shown) = if is_japanese() { (2, 6, 0) } else { (1, 1, honorific.len()) };
            let name: Vec<char> =
                before.chars().rev().take_while(|character| is_part(*character)).take(longest).collect();
            let bytes: usize = name.iter().map(|character| character.len_utf8()).sum();
            if name.len() >= least {
                names.push(&sentence[at - bytes..at + shown]);
            }
        }
    }
    for (at, called) in sentence.match_indices('叫') {
        let after = &sentence[at + called.len()..];
        let name = after.chars().take_while(|&character| is_part(character) && !"的了吧吗呢是".contains(character));
        let (count, bytes) = name.fold((0, 0), |(count, bytes), character| (count + 1, bytes + character.len_utf8()));
        if (2..=4).contains(&count) && !after.starts_with(['我', '你', '他', '她', '醒', '做']) {
            names.push(&after[..bytes]);
        }
    }
    names
}

/// Lists quotes that are short enough to be a title or a word.
fn quotes(sentence: &str) -> Vec<&str> {
    let pairs = [
        ('"', '"'),
        ('“', '”'),
        ('„', '“'),
        ('«', '»'),
        ('»', '«'),
        ('「', '」'),
        ('『', '』'),
        ('《', '》'),
        ('‹', '›'),
    ];
    let mut quotes = Vec::new();
    let mut rest = sentence;
    while let Some(open) = rest.find(|character| pairs.iter().any(|(left, _)| *left == character)) {
        let Some(left) = rest[open..].chars().next() else { break };
        let inner = &rest[open + left.len_utf8()..];
        let closes = |character| pairs.iter().any(|(opens, closes)| *opens == left && *closes == character);
        match inner.find(closes) {
            Some(close) if inner[..close].chars().count() <= LONGEST_QUOTE_CHARS => {
                quotes.extend(Some(inner[..close].trim()).filter(|quote| quote.chars().any(char::is_alphanumeric)));
                let closing = inner[close..].chars().next().map_or(0, char::len_utf8);
                rest = &inner[close + closing..];
            }
            _ => rest = inner,
        }
    }
    quotes
}

/// Cuts a long sentence around a part of it.
pub fn clip_around(sentence: &str, text: &str) -> String {
    let sentence = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let chars: Vec<char> = sentence.chars().collect();
    if chars.len() <= LONGEST_SENTENCE_CHARS {
        return sentence;
    }
    let at = sentence.find(text).map_or(0, |bytes| sentence[..bytes].chars().count());
    let first = at.saturating_sub(LONGEST_SENTENCE_CHARS / 2).min(chars.len() - LONGEST_SENTENCE_CHARS);
    let is_cut = |index: usize| chars[index].is_whitespace() || is_unspaced(chars[index]);
    let start = (first..at).find(|&index| first == 0 || is_cut(index)).unwrap_or(first);
    let last = (start + LONGEST_SENTENCE_CHARS).min(chars.len());
    let end = (start + LONGEST_SENTENCE_CHARS / 2..last).rev().find(|&index| is_cut(index)).unwrap_or(last);
    let end = if last == chars.len() { last } else { end };
    chars[start..end].iter().collect::<String>().trim().to_owned()
}

const LONGEST_QUOTE_CHARS: usize = 80;
const LONGEST_SENTENCE_CHARS: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    fn details(sentence: &str) -> Vec<(DetailKind, String)> {
        let german = crate::language_guess::language_of(sentence).is_some_and(|language| language.nouns_have_capitals);
        details_of(sentence, german).into_iter().map(|detail| (detail.kind, detail.text)).collect()
    }

    fn named(sentence: &str) -> Vec<String> {
        details(sentence).into_iter().filter(|(kind, _)| *kind == DetailKind::Name).map(|(_, text)| text).collect()
    }

    #[test]
    fn names_are_what_has_a_capital_of_its_own() {
        assert_eq!(named("My dentist is Dr. Okafor in New York, I think."), ["Dr. Okafor", "New York"]);
        assert_eq!(named("Yesterday I met Ann. On Monday I'm off."), ["Ann"]);
        assert_eq!(named("Ich bin mit der Katze nach Köln gefahren und das ist nicht mein Haus."), ["Köln"]);
        assert_eq!(named("Моя сестра Ольга живёт в Риге"), ["Ольга", "Риге"]);
        assert_eq!(named("我叫王小明，王医生来了"), ["王医生", "王小明"]);
        assert_eq!(named("明日は田中さんとスミスさんが来る"), ["田中", "スミス"]);
        assert_eq!(named("WHAT A DAY"), Vec::<String>::new());
    }

    #[test]
    fn quotes_and_what_is_not_so() {
        assert_eq!(details("i like \"the wall\" a lot"), [(DetailKind::Quote, "the wall".to_owned())]);
        assert_eq!(details("「千と千尋」を見た"), [(DetailKind::Quote, "千と千尋".to_owned())]);
        let text = "I don't eat meat.";
        assert_eq!(details(text), [(DetailKind::Negation, text.to_owned())]);
        let text = "我不吃花生";
        assert_eq!(details(text), [(DetailKind::Negation, text.to_owned())]);
        assert_eq!(details("no, thanks"), []);
    }

    #[test]
    fn a_long_sentence_is_cut_around_its_detail() {
        let sentence = format!("{} the code is 4711 and {}", "well you know ".repeat(30), "so on ".repeat(50));
        let cut = clip_around(&sentence, "4711");
        assert!(cut.contains("the code is 4711") && cut.chars().count() <= LONGEST_SENTENCE_CHARS);
        let sentence = format!("{}4711{}", "很".repeat(400), "好".repeat(400));
        let cut = clip_around(&sentence, "4711");
        assert!(cut.contains("4711") && cut.chars().count() <= LONGEST_SENTENCE_CHARS);
    }
}
