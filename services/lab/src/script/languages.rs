//! Sentences of people at home, in several languages: small talk with gaps, and facts with their questions. The words
//! are data, a file a language; `data/languages/en.toml` explains each key.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

const FILES: [(&str, &str); 4] = [
    ("en", include_str!("../../data/languages/en.toml")),
    ("de", include_str!("../../data/languages/de.toml")),
    ("fr", include_str!("../../data/languages/fr.toml")),
    ("es", include_str!("../../data/languages/es.toml")),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Language {
    pub talk: Vec<String>,
    pub rooms: Vec<String>,
    pub foods: Vec<String>,
    pub things: Vec<String>,
    pub facts: Vec<FactPattern>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactPattern {
    pub kind: String,
    pub told: Vec<String>,
    pub asked: Vec<String>,
    #[serde(default = "the_user")]
    pub about: Vec<String>,
    #[serde(default)]
    pub values: Values,
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
pub enum Values {
    OfAll(Vec<String>),
    OfEach(Vec<Vec<String>>), // one list for each `about`
    /// A number of four digits.
    #[default]
    Number,
}

fn the_user() -> Vec<String> {
    vec!["the user".to_owned()]
}

impl Language {
    pub fn open(code: &str) -> Result<Language> {
        let Some((_, text)) = FILES.iter().find(|(known, _)| *known == code) else {
            bail!("there is no language {code:?}: use some of {}", FILES.map(|(known, _)| known).join(", "));
        };
        toml::from_str(text).with_context(|| format!("the language {code}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_its_words_and_its_gaps() {
        for (code, _) in FILES {
            let language = Language::open(code).unwrap();
            assert!(language.talk.len() >= 10 && language.facts.len() >= 3, "{code}");
            for words in [&language.rooms, &language.foods, &language.things] {
                assert!(words.len() >= 5 && words.iter().all(|word| !word.trim().is_empty()), "{code}: {words:?}");
            }
            for fact in &language.facts {
                let kind = format!("{code} {}", fact.kind);
                assert!(!fact.told.is_empty() && !fact.asked.is_empty() && !fact.about.is_empty(), "{kind}");
                assert!(fact.told.iter().all(|text| text.contains("{value}")), "{kind}");
                assert!(fact.asked.iter().all(|text| !text.contains("{value}")), "{kind}");
                assert!(
                    match &fact.values {
                        Values::OfAll(values) => values.len() >= 5,
                        Values::OfEach(lists) =>
                            lists.len() == fact.about.len() && lists.iter().all(|list| list.len() >= 5),
                        Values::Number => true,
                    },
                    "{kind}"
                );
            }
        }
        assert!(Language::open("xx").unwrap_err().to_string().contains("en, de, fr, es"));
    }
}
