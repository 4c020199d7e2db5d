//! Words with a full stop that ends no sentence: data, one file a language in `languages/`, explained in
//! `languages/en.toml`. A word counts in every reply, whatever its language.

use serde::Deserialize;
use std::collections::HashSet;
use std::sync::LazyLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abbreviation {
    /// No end, because text follows: a title, `e.g.`.
    Never,
    /// No end before a number: `No. 5`.
    BeforeNumber,
    /// An end if a capital (or a script without case) follows: `etc.`, `p.m.`.
    UnlessCapital,
    /// An end only before a word that opens sentences, because names continue with capitals: `St. Louis`, `U.S.
    /// Senate`.
    UnlessOpener,
}

pub fn known(word: &str) -> Option<Abbreviation> {
    let lists: [(WordList, Abbreviation); 4] = [
        (|language| &language.never, Abbreviation::Never),
        (|language| &language.before_number, Abbreviation::BeforeNumber),
        (|language| &language.unless_capital, Abbreviation::UnlessCapital),
        (|language| &language.unless_opener, Abbreviation::UnlessOpener),
    ];
    lists.iter().find(|(list, _)| has(*list, word)).map(|(_, kind)| *kind)
}

pub fn opens_sentences(word: &str) -> bool {
    has(|language| &language.openers, word)
}

pub fn precedes_ordinal(word: &str) -> bool {
    has(|language| &language.before_ordinal, word)
}

pub fn follows_ordinal(word: &str) -> bool {
    has(|language| &language.after_ordinal, word)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SentenceWords {
    never: HashSet<String>,
    before_number: HashSet<String>,
    unless_capital: HashSet<String>,
    unless_opener: HashSet<String>,
    openers: HashSet<String>,
    before_ordinal: HashSet<String>,
    after_ordinal: HashSet<String>,
}

type WordList = fn(&SentenceWords) -> &HashSet<String>;

/// Word lists. A new language is one more file and its line here.
#[rustfmt::skip]
const FILES: &[(&str, &str)] = &[
    ("cs", include_str!("../../languages/cs.toml")),
    ("da", include_str!("../../languages/da.toml")),
    ("de", include_str!("../../languages/de.toml")),
    ("en", include_str!("../../languages/en.toml")),
    ("es", include_str!("../../languages/es.toml")),
    ("fi", include_str!("../../languages/fi.toml")),
    ("fr", include_str!("../../languages/fr.toml")),
    ("hr", include_str!("../../languages/hr.toml")),
    ("hu", include_str!("../../languages/hu.toml")),
    ("it", include_str!("../../languages/it.toml")),
    ("nl", include_str!("../../languages/nl.toml")),
    ("no", include_str!("../../languages/no.toml")),
    ("pl", include_str!("../../languages/pl.toml")),
    ("pt", include_str!("../../languages/pt.toml")),
    ("ru", include_str!("../../languages/ru.toml")),
    ("sv", include_str!("../../languages/sv.toml")),
    ("tr", include_str!("../../languages/tr.toml")),
];

static LANGUAGES: LazyLock<Vec<SentenceWords>> = LazyLock::new(|| {
    // A test reads each file.
    let read = |(code, text): &(&str, &str)| {
        toml::from_str(text).unwrap_or_else(|error| panic!("languages/{code}.toml: {error}"))
    };
    FILES.iter().map(read).collect()
});

fn has(list: WordList, word: &str) -> bool {
    LANGUAGES.iter().any(|language| list(language).contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/languages")).unwrap();
        let mut names: Vec<String> = folder.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, FILES.iter().map(|(code, _)| format!("{code}.toml")).collect::<Vec<_>>());
        assert_eq!(LANGUAGES.len(), FILES.len());
    }

    #[test]
    fn a_new_language_is_one_more_file() {
        let words: SentenceWords = toml::from_str("never = ['dhr']").unwrap();
        assert!(words.never.contains("dhr") && words.openers.is_empty());
        let error = toml::from_str::<SentenceWords>("nevr = []").unwrap_err().to_string();
        assert!(error.contains("unknown field `nevr`, expected one of"), "{error}");
    }
}
