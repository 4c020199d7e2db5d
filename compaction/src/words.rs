//! Sentences, words and scripts of any language, without a dictionary.

/// A writing system, as far as a summary in the wrong one must be told from one in the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    Latin,
    Cyrillic,
    Greek,
    Arabic,
    Hebrew,
    Indic,
    Thai,
    Hangul,
    Kana,
    Han,
}

pub fn script(character: char) -> Option<Script> {
    Some(match character {
        'A'..='Z' | 'a'..='z' | 'À'..='ɏ' | 'Ḁ'..='ỿ' => Script::Latin,
        '\u{370}'..='\u{3FF}' | '\u{1F00}'..='\u{1FFF}' => Script::Greek,
        '\u{400}'..='\u{52F}' => Script::Cyrillic,
        '\u{590}'..='\u{5FF}' => Script::Hebrew,
        '\u{600}'..='\u{77F}' | '\u{8A0}'..='\u{8FF}' | '\u{FB50}'..='\u{FEFC}' => Script::Arabic,
        '\u{900}'..='\u{DFF}' => Script::Indic,
        '\u{E00}'..='\u{E7F}' => Script::Thai,
        '\u{1100}'..='\u{11FF}' | '\u{3130}'..='\u{318F}' | '\u{AC00}'..='\u{D7AF}' => Script::Hangul,
        '\u{3041}'..='\u{30FF}' | '\u{31F0}'..='\u{31FF}' | '\u{FF66}'..='\u{FF9F}' => Script::Kana,
        '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFD}' => {
            Script::Han
        }
        _ => return None,
    })
}

/// Scripts that write no spaces between words.
pub fn is_unspaced(character: char) -> bool {
    matches!(script(character), Some(Script::Han | Script::Kana | Script::Thai))
}

/// Full-width letters and digits as the ones everybody types.
pub fn narrow(character: char) -> char {
    match character {
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(u32::from(character) - 0xFEE0).unwrap_or(character),
        '\u{3000}' => ' ',
        _ => character,
    }
}

/// Lower case and narrow, so that the same word is the same text.
pub fn folded(text: &str) -> String {
    text.chars().map(narrow).flat_map(char::to_lowercase).collect()
}

pub fn is_question(sentence: &str) -> bool {
    sentence.trim_end().ends_with(['?', '？'])
}

/// The sentences of a text, each with its closing sign, without the space around it.
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

/// Words of scripts with spaces, with what stands inside of them (`don't`, `twenty-one`), in their order.
pub fn words(text: &str) -> Vec<&str> {
    let is_inner = |character: char| matches!(character, '\'' | '’' | '-');
    let is_part = |character: char| character.is_alphanumeric() || is_inner(character) || is_mark(character);
    let pieces = text.split(|character: char| !is_part(character) || is_unspaced(character));
    let pieces = pieces.map(|word| word.trim_matches(is_inner));
    pieces.filter(|word| !word.is_empty()).collect()
}

/// What a text is about, to be compared with another: beginnings of its longer words, and pairs of letters where words
/// have no spaces between them.
pub fn stems(text: &str) -> Vec<String> {
    let text = folded(text);
    let mut stems: Vec<String> = Vec::new();
    for word in words(&text) {
        let letters: Vec<char> = word.chars().filter(|character| character.is_alphabetic()).collect();
        if letters.len() >= SHORTEST_STEM_CHARS && !crate::language::is_common(word) {
            stems.push(letters.iter().take(LONGEST_STEM_CHARS).collect());
        }
    }
    let chars: Vec<char> = text.chars().collect();
    let is_han = |at: usize| chars.get(at).is_some_and(|character| script(*character) == Some(Script::Han));
    for (at, character) in chars.iter().enumerate() {
        // Between kana one ideograph is a word. Kana alone are mostly endings; words of their own have the angular form.
        let is_alone = is_han(at) && !is_han(at + 1) && !(at > 0 && is_han(at - 1));
        if is_alone && !matches!(character, '私' | '僕' | '俺' | '我' | '你' | '的' | '是') {
            stems.push(character.to_string());
        }
        let pair = &chars[at..chars.len().min(at + 2)];
        let is_thai = |character: &char| script(*character) == Some(Script::Thai);
        let is_katakana = |character: &char| matches!(character, '\u{30A1}'..='\u{30FC}');
        let goes_together = (is_han(at) && is_han(at + 1)) || pair.iter().all(is_thai) || pair.iter().all(is_katakana);
        if pair.len() == 2 && goes_together {
            stems.push(pair.iter().collect());
        }
    }
    stems.sort_unstable();
    stems.dedup();
    stems
}

/// Tokens that a text has at most with a tokenizer of the usual kind: on the high side, never exact.
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
            _ if script(character) == Some(Script::Latin) => 3,
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
    !is_ordinal && !is_initial && !goes_on && !ABBREVIATIONS.contains(&folded(word).as_str())
}

fn is_mark(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36F}' | '\u{93A}'..='\u{94F}' | '\u{64B}'..='\u{65F}')
}

const ABBREVIATIONS: &[&str] = &[
    "dr", "mr", "mrs", "ms", "st", "prof", "hr", "fr", "sr", "sra", "sig", "mme", "mlle", "nr", "no", "str", "ca",
    "bzw", "usw", "etc", "vs", "av", "dott",
];

const SHORTEST_STEM_CHARS: usize = 3;
const LONGEST_STEM_CHARS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

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
