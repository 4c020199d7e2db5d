//! The words that tell facts, wishes and orders apart: data, one file a language in `languages/`. What
//! each list means, `languages/en.toml` says. A word counts in every text, whatever language the text is in.

use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use toml::{Table, Value};

/// Word lists by language. A new language is one more file and its line here.
#[rustfmt::skip]
const FILES: &[(&str, &str)] = &[
    ("ar", include_str!("../languages/ar.toml")),
    ("da", include_str!("../languages/da.toml")),
    ("de", include_str!("../languages/de.toml")),
    ("en", include_str!("../languages/en.toml")),
    ("es", include_str!("../languages/es.toml")),
    ("fi", include_str!("../languages/fi.toml")),
    ("fr", include_str!("../languages/fr.toml")),
    ("hi", include_str!("../languages/hi.toml")),
    ("it", include_str!("../languages/it.toml")),
    ("ja", include_str!("../languages/ja.toml")),
    ("ko", include_str!("../languages/ko.toml")),
    ("nl", include_str!("../languages/nl.toml")),
    ("pl", include_str!("../languages/pl.toml")),
    ("pt", include_str!("../languages/pt.toml")),
    ("ru", include_str!("../languages/ru.toml")),
    ("sv", include_str!("../languages/sv.toml")),
    ("th", include_str!("../languages/th.toml")),
    ("tr", include_str!("../languages/tr.toml")),
    ("zh", include_str!("../languages/zh.toml")),
];

pub static LANGUAGES: LazyLock<Vec<LanguageWords>> = LazyLock::new(|| {
    let read = |(code, text): &(&'static str, &str)| LanguageWords { code, ..words(toml::from_str(text), code) };
    FILES.iter().map(read).collect()
});

/// Lists of all languages, joined: one set is searched faster than one for each language.
static JOINED: LazyLock<LanguageWords> = LazyLock::new(|| {
    let mut joined = Table::new();
    FILES.iter().for_each(|(code, text)| join(&mut joined, words(toml::from_str(text), code)));
    words(joined.try_into(), "of all languages")
});

fn words<T>(read: Result<T, toml::de::Error>, name: &str) -> T {
    read.unwrap_or_else(|error| panic!("languages/{name}.toml: {error}"))
}

fn join(joined: &mut Table, more: Table) {
    for (key, value) in more {
        match (joined.get_mut(&key), value) {
            (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
            (Some(Value::Table(table)), Value::Table(more)) => join(table, more),
            (_, value) => drop(joined.insert(key, value)),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageWords {
    #[serde(skip)]
    pub code: &'static str,
    pub common: HashSet<String>,
    pub questions: HashSet<String>,
    pub first_person: HashSet<String>,
    pub first_person_inside: Vec<String>,
    pub negations: HashSet<String>,
    pub negation_endings: Vec<String>,
    pub negations_inside: Vec<String>,
    pub corrections: HashSet<String>,
    pub corrections_inside: Vec<String>,
    pub no_names: HashSet<String>,
    pub abbreviations: HashSet<String>,
    pub nouns_have_capitals: bool,
    pub determiners: HashSet<String>,
    pub honorifics: Vec<String>,
    pub question_endings: Vec<String>,
    pub weekdays: Vec<String>,
    pub months: Vec<String>,
    pub short_months: Vec<String>,
    pub days: Vec<String>,
    pub ordinal_endings: HashSet<String>,
    pub between_day_and_month: HashSet<String>,
    pub hours: HashSet<String>,
    pub numbers: HashMap<String, u32>,
    pub joined_numbers: HashMap<String, u32>,
    pub joins_ones_to_tens: Option<String>,
    pub relatives: HashMap<String, Vec<String>>,
    pub things: HashMap<String, Vec<String>>,
    pub things_alone: HashMap<String, Vec<String>>,
    pub lasting: LastingWords,
    pub wishes: WishWords,
    pub orders: OrderWords,
    pub clauses: ClauseWords,
    pub frames: FrameWords,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LastingWords {
    pub begins: Vec<String>,
    pub possessives: HashSet<String>,
    pub copulas: HashSet<String>,
    pub verbs: HashSet<String>,
    pub articles: HashSet<String>,
    pub passing: Vec<String>,
    pub storage: Vec<String>,
    pub small: HashSet<String>,
    pub new: HashSet<String>,
    pub one_at_a_time: HashMap<String, Vec<String>>,
    pub of_home: Vec<String>,
    pub secrets: Vec<String>,
    pub forget: Vec<String>,
    pub forget_that: Vec<String>,
    pub of_wishes: HashSet<String>,
    pub forgetting: HashSet<String>,
    pub told_forgetting: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WishWords {
    pub fillers: Vec<String>,
    pub clauses: HashSet<String>,
    pub polite: Vec<String>,
    pub remember: Vec<String>,
    pub remember_that: Vec<String>,
    pub closings: Vec<String>,
    pub standing: Vec<String>,
    pub standing_for_nothing: HashSet<String>,
    pub inside: Vec<String>,
    pub call_me: Vec<String>,
    pub call_me_fillers: HashSet<String>,
    pub imperatives: HashSet<String>,
    pub always: HashSet<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OrderWords {
    pub formulas: Vec<String>,
    pub verbs: Vec<String>,
    pub verbs_inside: Vec<String>,
    pub objects: Vec<String>,
    pub objects_inside: Vec<String>,
    pub scopes: Vec<String>,
    pub above: HashSet<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrameWords {
    pub beginnings: Vec<String>,
    pub phrases: Vec<String>,
    pub works: HashSet<String>,
    pub places: HashSet<String>,
    pub inside: HashSet<String>,
    pub determiners: HashSet<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClauseWords {
    pub joins: HashSet<String>,
    pub pronouns: HashSet<String>,
    pub possessives: HashSet<String>,
    pub possessive_ending: Vec<String>,
    pub articles: HashSet<String>,
    pub owning: HashSet<String>,
    pub beside: HashSet<String>,
    pub back: HashSet<String>,
    pub verbs: HashSet<String>,
    pub verb_endings: HashSet<String>,
}

pub fn has(list: fn(&LanguageWords) -> &HashSet<String>, word: &str) -> bool {
    list(&JOINED).contains(word)
}

// Languages in which a word is common, a bit each.
static COMMON_IN: LazyLock<HashMap<&'static str, u32>> = LazyLock::new(|| {
    let mut languages: HashMap<&str, u32> = HashMap::new();
    for (at, language) in LANGUAGES.iter().enumerate() {
        language.common.iter().for_each(|word| *languages.entry(word).or_default() |= 1 << at);
    }
    languages
});

/// Words that say little in a text: those that are common in its language. "Son" says something in English and nothing in
/// French.
pub struct CommonWords(u32);

impl CommonWords {
    pub fn of(words: &[&str]) -> CommonWords {
        let mut counts = [0; u32::BITS as usize];
        for languages in words.iter().filter_map(|word| COMMON_IN.get(word)) {
            counts.iter_mut().enumerate().for_each(|(at, count)| *count += languages >> at & 1);
        }
        let most = counts.iter().copied().max().unwrap_or_default();
        // One common word tells no language.
        let language = |(at, count): (usize, &u32)| u32::from(*count == most || most < 2) << at;
        CommonWords(counts.iter().enumerate().map(language).sum())
    }

    pub fn has(&self, word: &str) -> bool {
        COMMON_IN.get(word).is_some_and(|languages| languages & self.0 != 0)
    }
}

const _: () = assert!(FILES.len() <= u32::BITS as usize);

pub fn all(list: fn(&LanguageWords) -> &Vec<String>) -> impl Iterator<Item = &'static str> {
    list(&JOINED).iter().map(String::as_str)
}

pub fn weekday(word: &str) -> Option<u32> {
    // 1 to 7, Monday first
    LANGUAGES.iter().find_map(|language| place(&language.weekdays, word))
}

pub fn month(word: &str) -> Option<u32> {
    // 1 to 12
    LANGUAGES.iter().find_map(|language| place(&language.months, word).or_else(|| place(&language.short_months, word)))
}

fn place(list: &[String], word: &str) -> Option<u32> {
    list.iter().position(|known| known == word).map(|index| index as u32 + 1)
}

pub fn number(word: &str) -> Option<u32> {
    let known = |word: &str| LANGUAGES.iter().find_map(|language| language.numbers.get(word)).copied();
    let tens = |word: &str| known(word).filter(|number| (20..100).contains(number));
    let hyphened = || {
        let (tens_word, ones_word) = word.split_once('-')?;
        Some(tens(tens_word)? + known(ones_word).filter(|number| *number < 10)?)
    };
    known(word).or_else(hyphened).or_else(|| LANGUAGES.iter().find_map(|language| joined_number(language, word)))
}

/// Reads ones before tens in one word: einundzwanzig.
fn joined_number(language: &LanguageWords, word: &str) -> Option<u32> {
    let known = |word: &str| language.joined_numbers.get(word).or_else(|| language.numbers.get(word)).copied();
    word.match_indices(language.joins_ones_to_tens.as_deref()?).find_map(|(at, joint)| {
        let ones = known(&word[..at]).filter(|number| *number < 10)?;
        Some(ones + known(&word[at + joint.len()..]).filter(|number| (20..100).contains(number))?)
    })
}

pub fn ideograph(character: char) -> Option<u32> {
    let digits = ['〇', '一', '二', '三', '四', '五', '六', '七', '八', '九'];
    let found = digits.iter().position(|digit| *digit == character).map(|value| value as u32);
    found.or(match character {
        '零' => Some(0),
        '两' | '兩' => Some(2),
        '十' => Some(10),
        '百' => Some(100),
        '千' => Some(1000),
        '万' | '萬' => Some(10_000),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read_and_whole() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/languages")).unwrap();
        let mut names: Vec<String> = folder.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, FILES.iter().map(|(code, _)| format!("{code}.toml")).collect::<Vec<_>>());
        let mut numbers = HashMap::new();
        for language in LANGUAGES.iter() {
            let code = language.code;
            assert!([0, 7].contains(&language.weekdays.len()), "{code}: weekdays");
            assert!([0, 12].contains(&language.months.len()), "{code}: months");
            assert!([0, 12].contains(&language.short_months.len()), "{code}: short_months");
            for (word, number) in &language.numbers {
                assert_eq!(
                    numbers.insert(word, number).unwrap_or(number),
                    number,
                    "{code}: {word} is another number too"
                );
            }
        }
        assert!(LANGUAGES.len() > 1 && numbers.len() > 50, "{} numbers", numbers.len());
    }

    #[test]
    fn numbers_that_are_said() {
        for (word, value) in
            [("seven", 7), ("twenty-one", 21), ("einundzwanzig", 21), ("siebzig", 70), ("quinze", 15), ("cento", 100)]
        {
            assert_eq!(number(word), Some(value), "{word}");
        }
        assert_eq!([number("hund"), number("und"), number("twenty-twelve"), number("")], [None; 4]);
        assert_eq!((weekday("sonntag"), month("août"), weekday("mai")), (Some(7), Some(8), None));
    }

    #[test]
    fn a_new_language_is_one_more_file() {
        let words: LanguageWords = toml::from_str("negations = ['nicht']\n[numbers]\nnuulla = 0").unwrap();
        assert!(words.negations.contains("nicht") && words.months.is_empty());
        let error = toml::from_str::<LanguageWords>("negation = ['nicht']").unwrap_err().to_string();
        assert!(error.contains("unknown field `negation`, expected one of"), "{error}");
    }
}
