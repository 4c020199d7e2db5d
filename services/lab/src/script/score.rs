//! Judgement of answers.

use anyhow::{Context, Result};
use regex::RegexBuilder;
use serde::{Deserialize, Serialize};
use session::speech::words;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedAnswer {
    /// These words and no others. Case, punctuation and spaces do not count, here and below.
    Exact(String),
    Contains(Vec<String>), // all of these, as whole words
    Matches(String),       // a regular expression, without regard to case
}

impl ExpectedAnswer {
    pub fn check(&self) -> Result<()> {
        // an expectation that no answer can fulfil is an error
        match self {
            ExpectedAnswer::Exact(text) if words(text).is_empty() => anyhow::bail!("`exact` has no words"),
            ExpectedAnswer::Contains(texts) if texts.iter().all(|text| words(text).is_empty()) => {
                anyhow::bail!("`contains` has no words")
            }
            ExpectedAnswer::Matches(pattern) => regex(pattern).map(drop),
            _ => Ok(()),
        }
    }

    pub fn is_met_by(&self, answer: &str) -> bool {
        match self {
            ExpectedAnswer::Exact(text) => words(text) == words(answer),
            ExpectedAnswer::Contains(texts) => {
                let said = words(answer);
                texts.iter().map(|text| words(text)).all(|wanted| {
                    !wanted.is_empty() && said.windows(wanted.len()).any(|some| some == wanted.as_slice())
                })
            }
            ExpectedAnswer::Matches(pattern) => regex(pattern).is_ok_and(|regex| regex.is_match(answer)),
        }
    }
}

fn regex(pattern: &str) -> Result<regex::Regex> {
    let regex = RegexBuilder::new(pattern).case_insensitive(true).build();
    regex.with_context(|| format!("`matches` {pattern:?} is no regular expression"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_be_right() {
        let exact = ExpectedAnswer::Exact("In the attic.".into());
        assert!(exact.is_met_by("in the ATTIC") && !exact.is_met_by("it is in the attic"));
        let contains = ExpectedAnswer::Contains(vec!["4071".into(), "Blue Door".into()]);
        assert!(contains.is_met_by("Use the blue door; the code is 4071!"));
        assert!(!contains.is_met_by("the door is blue, 4071") && !contains.is_met_by("blue door 40711"));
        let matches = ExpectedAnswer::Matches(r"\b(3rd|third) of may\b".into());
        assert!(matches.is_met_by("On the Third of May.") && !matches.is_met_by("On the fourth of May."));
        assert!(ExpectedAnswer::Contains(vec!["Müller".into()]).is_met_by("Frau MÜLLER kommt"));
    }

    #[test]
    fn what_nobody_can_meet_is_refused() {
        for hopeless in [
            ExpectedAnswer::Exact("?".into()),
            ExpectedAnswer::Contains(vec!["!".into()]),
            ExpectedAnswer::Matches("(".into()),
        ] {
            assert!(hopeless.check().is_err());
            assert!(!hopeless.is_met_by("") || matches!(hopeless, ExpectedAnswer::Exact(_)));
        }
    }
}
