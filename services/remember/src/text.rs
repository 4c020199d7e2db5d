//! Sentences, words and stems of any language.

use crate::languages::{self, CommonWords};
use unicode_script::{Script, UnicodeScript};
use unicode_segmentation::UnicodeSegmentation;

pub fn is_unspaced(character: char) -> bool {
    if character.is_ascii() {
        return false;
    }
    let script = character.script();
    is_syllabic(script) || matches!(script, Script::Han | Script::Hiragana | Script::Katakana) || character == 'ー'
}

fn is_syllabic(script: Script) -> bool {
    // scripts without spaces in which a word has several letters, as in Thai
    matches!(script, Script::Thai | Script::Lao | Script::Khmer | Script::Myanmar)
}

/// Maps full-width letters and digits, and curly apostrophes, to those of a keyboard.
pub fn narrow(character: char) -> char {
    match character {
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(u32::from(character) - 0xFEE0).unwrap_or(character),
        '\u{3000}' => ' ',
        '’' => '\'',
        _ => character,
    }
}

/// Folds to lower case and narrow characters, so that the same word is the same text.
pub fn folded(text: &str) -> String {
    text.chars().map(narrow).flat_map(char::to_lowercase).collect()
}

pub fn is_question(sentence: &str) -> bool {
    sentence.trim_end().ends_with(['?', '？'])
}

pub fn ends_as_question(text: &str) -> bool {
    is_question(text) || languages::all(|language| &language.question_endings).any(|end| text.trim_end().ends_with(end))
}

/// Returns true if a text asks something. Recognised speech has no signs, so the first word may tell.
pub fn asks(text: &str) -> bool {
    let text = folded(text);
    let first = words(&text).first().copied().unwrap_or_default();
    // 'What's' is 'what is'.
    let first = without_ending(first);
    languages::has(|language| &language.questions, first)
        || ends_as_question(&text)
        || sentences(&text).into_iter().any(is_question)
}

/// Splits a text into sentences, each with its closing sign, without the space around it.
pub fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let (mut start, mut chars) = (0, text.char_indices().peekable());
    while let Some((at, character)) = chars.next() {
        let mut end = at + character.len_utf8();
        let is_end = match character {
            '\n' | '。' | '！' | '？' | '!' | '?' | '।' | '؟' => true,
            '.' | '…' => ends_sentence(&text[start..at], &text[end..]),
            _ => false,
        };
        if !is_end {
            continue;
        }
        while let Some(&(at, closer)) = chars.peek() {
            if !matches!(closer, '"' | '”' | '“' | '»' | '」' | '』' | ')' | '）' | '!' | '?' | '！' | '？' | '.')
            {
                break;
            }
            end = at + closer.len_utf8();
            chars.next();
        }
        sentences.push(text[start..end].trim());
        start = end;
    }
    sentences.push(text[start..].trim());
    sentences.retain(|sentence| sentence.chars().any(char::is_alphanumeric));
    sentences
}

/// Returns a short text of several sentences as one, which says one thing in fragments: 'Wasps. Deadly allergic.'
pub fn as_one(text: &str) -> Option<&str> {
    let parts = sentences(text);
    let is_short = (2..=MOST_FRAGMENTS).contains(&parts.len()) && words(text).len() <= MOST_WORDS_OF_FRAGMENTS;
    (is_short && !parts.into_iter().any(is_question)).then(|| text.trim())
}

const MOST_FRAGMENTS: usize = 3;
const MOST_WORDS_OF_FRAGMENTS: usize = 12;

pub fn words(text: &str) -> Vec<&str> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for (start, word) in text.unicode_word_indices().filter(|(_, word)| !word.starts_with(is_unspaced)) {
        let end = start + word.len();
        match spans.last_mut() {
            Some((_, last)) if &text[*last..start] == "-" => *last = end,
            _ => spans.push((start, end)),
        }
    }
    spans.into_iter().map(|(start, end)| &text[start..end]).collect()
}

/// Lists the lines of a summary without headings, and without bullets.
pub fn said_lines(summary: &str) -> Vec<&str> {
    let lines = summary.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let lines = lines.map(|line| line.trim_start_matches(['-', '*', '•', ' ']).trim());
    lines.filter(|line| line.chars().any(char::is_alphanumeric)).collect()
}

/// Stems of a question, without 'where', 'when' and their like.
pub fn stems_of_question(text: &str) -> Vec<String> {
    let text = folded(text);
    let asks = |word: &&str| languages::has(|language| &language.questions, word);
    let words = words(&text);
    let common = CommonWords::of(&words);
    let said: Vec<&str> = words.into_iter().filter(|word| !asks(word)).collect();
    // Scripts without spaces have no words.
    if text.contains(is_unspaced) { stems_besides(&common, &text) } else { stems_besides(&common, &said.join(" ")) }
}

// Cuts a word at its apostrophe: 'sister's' is the sister.
pub(crate) fn without_ending(word: &str) -> &str {
    word.split('\'').next().unwrap_or(word)
}

// Words of the same clause before one of a text's words.
pub(crate) fn clause_before<'a>(text: &str, words: &'a [&'a str], at: usize) -> &'a [&'a str] {
    let place = |word: &str| word.as_ptr().addr() - text.as_ptr().addr();
    let clause = text[..place(words[at])].rfind([',', ';', ':']).unwrap_or_default();
    let first = words[..at].iter().position(|word| place(word) >= clause).unwrap_or(at);
    &words[first..at]
}

pub fn contains_phrase(text: &str, phrase: &str) -> bool {
    let spaced = |character: char| character.is_alphanumeric() && !is_unspaced(character);
    let is_edge =
        |outside: Option<char>, inside: Option<char>| !(outside.is_some_and(spaced) && inside.is_some_and(spaced));
    text.match_indices(phrase).any(|(at, found)| {
        is_edge(text[..at].chars().next_back(), phrase.chars().next())
            && is_edge(text[at + found.len()..].chars().next(), phrase.chars().next_back())
    })
}

/// Stems of a text, to be compared with another: beginnings of its longer words, and pairs of letters in scripts
/// without spaces.
pub fn stems(text: &str) -> Vec<String> {
    let text = folded(text);
    stems_besides(&CommonWords::of(&words(&text)), &text)
}

// The whole tells the language: 'son' alone may be French.
pub fn stems_within(whole: &str, part: &str) -> Vec<String> {
    stems_besides(&CommonWords::of(&words(whole)), part)
}

fn stems_besides(common: &CommonWords, text: &str) -> Vec<String> {
    let mut stems: Vec<String> = Vec::new();
    for word in words(text) {
        let core = core_of(word);
        let letters: Vec<char> = core.chars().filter(|character| character.is_alphabetic()).collect();
        if letters.len() >= SHORTEST_STEM_CHARS && !common.has(word) && !common.has(core) {
            stems.push(letters.iter().take(LONGEST_STEM_CHARS).collect());
        }
    }
    let chars: Vec<char> = text.chars().collect();
    let is_han = |at: usize| chars.get(at).is_some_and(|character| character.script() == Script::Han);
    for (at, character) in chars.iter().enumerate().filter(|(_, character)| !character.is_ascii()) {
        // Between kana one ideograph is a word. Kana alone are mostly endings; words of their own have the angular form.
        let is_alone = is_han(at) && !is_han(at + 1) && !(at > 0 && is_han(at - 1));
        if is_alone && !languages::has(|language| &language.common, &character.to_string()) {
            stems.push(character.to_string());
        }
        let pair = &chars[at..chars.len().min(at + 2)];
        let all = |belongs: fn(char) -> bool| pair.iter().all(|character| belongs(*character));
        let goes_together =
            (is_han(at) && is_han(at + 1)) || all(|character| is_syllabic(character.script())) || all(is_katakana);
        if pair.len() == 2 && goes_together {
            stems.push(pair.iter().collect());
        }
    }
    stems.sort_unstable();
    stems.dedup();
    stems
}

/// Strips the letters that an apostrophe ties to a word: `dog's`, `l'hôtel`.
fn core_of(word: &str) -> &str {
    let Some((before, after)) = word.split_once('\'') else { return word };
    match (before.chars().count(), after.chars().count()) {
        (_, ..=2) => before,
        (..=2, _) => after,
        _ => word,
    }
}

pub fn is_katakana(character: char) -> bool {
    character.script() == Script::Katakana || character == 'ー'
}

/// Estimates the most tokens of a text with a tokenizer of the usual kind: on the high side, never exact.
pub fn estimate_tokens(text: &str) -> u32 {
    let (mut thirds, mut run) = (0u64, 0u64);
    for character in text.chars() {
        if character.is_ascii_lowercase() {
            run += 1;
            continue;
        }
        // A word of Latin letters is a token for each four of them.
        thirds += run.div_ceil(4) * 3;
        run = 0;
        thirds += match character {
            ' ' => 0,
            'A'..='Z' => 2,
            _ if character.is_ascii() => 4,
            _ if character.script() == Script::Latin => 3,
            _ if character.len_utf8() > 3 => 9,
            _ => 4,
        };
    }
    thirds += run.div_ceil(4) * 3;
    u32::try_from(thirds.div_ceil(3)).unwrap_or(u32::MAX)
}

fn ends_sentence(before: &str, after: &str) -> bool {
    let Some(next) = after.chars().next() else { return true };
    if !(next.is_whitespace() || matches!(next, '"' | '”' | '»' | ')')) {
        return is_unspaced(next);
    }
    let word = before.rsplit(|character: char| character.is_whitespace() || character == '.').next().unwrap_or("");
    let chars = word.chars().count();
    let is_ordinal = chars <= 2 && !word.is_empty() && word.chars().all(|character| character.is_ascii_digit());
    let is_initial = chars == 1 && word.chars().all(char::is_alphabetic) && word != "I";
    let goes_on = after.trim_start().starts_with(char::is_lowercase);
    !is_ordinal && !is_initial && !goes_on && !languages::has(|language| &language.abbreviations, &folded(word))
}

const SHORTEST_STEM_CHARS: usize = 3;
const LONGEST_STEM_CHARS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_common_in_its_own_language() {
        assert_eq!(stems_of_question("Where does my son live?"), ["live", "son"]);
        assert_eq!(stems("My son is in Oslo."), ["oslo", "son"]);
        assert_eq!(stems("Il est avec son frère dans la maison."), ["frère", "maiso"]);
        assert_eq!(stems("son"), [""; 0]);
    }

    #[test]
    fn sentences_in_many_languages() {
        let cases: [(&str, &[&str]); 6] = [
            ("Hi there. Dr. Okafor called! Ok?", &["Hi there.", "Dr. Okafor called!", "Ok?"]),
            ("Am 3. Mai um 7.30 Uhr. Gut.", &["Am 3. Mai um 7.30 Uhr.", "Gut."]),
            ("覚えておいて。明日は休み！", &["覚えておいて。", "明日は休み！"]),
            ("He said \"Stop.\" Then left", &["He said \"Stop.\"", "Then left"]),
            ("one\n\n two ", &["one", "two"]),
            (" ... ", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(sentences(text), expected, "{text}");
        }
    }

    #[test]
    fn words_and_what_they_are_about() {
        assert_eq!(words("I don't eat twenty-one 'eggs', 好 ok"), ["I", "don't", "eat", "twenty-one", "eggs", "ok"]);
        assert_eq!(stems("The dentists' dentist"), ["denti"]);
        assert_eq!(stems("我不吃花生"), ["不吃", "吃花", "我不", "花生"]);
    }

    #[test]
    fn an_estimate_is_on_the_high_side() {
        let cases = [("My dentist is Dr. Okafor, Tuesday", 8), ("我叫王小明，我对花生过敏", 12), ("15:40", 5), ("", 0)];
        for (text, least) in cases {
            let estimate = estimate_tokens(text);
            assert!((least..=2 * least + 2).contains(&estimate), "{text}: {estimate}");
        }
    }
}
