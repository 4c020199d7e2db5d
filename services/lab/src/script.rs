//! Conversations to play: the words of every turn, the facts in them, the questions for these, and the right answers.
//!
//! A script is JSON Lines: a head, then one object a turn. Every turn is played, whatever the replies were, so that all
//! arms hear the same.

mod generate;
mod languages;
mod score;

pub use generate::{ScriptRecipe, generate};
pub use score::ExpectedAnswer;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationScript {
    #[serde(flatten)]
    pub head: ScriptHead,
    #[serde(skip)]
    pub turns: Vec<ScriptTurn>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptHead {
    pub script: String,
    /// System prompt; `None`: the configuration's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptTurn {
    pub says: String,
    /// True if the user talked over the last reply after a third of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cuts_last_reply: bool,
    /// Fact that this turn tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plants: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<ScriptQuestion>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptQuestion {
    pub fact: String,
    pub expects: ExpectedAnswer,
}

const BUILT_IN: &[(&str, &str)] = &[
    // inside the binary
    ("household-60", include_str!("../../../config/scripts/household-60.jsonl")),
    ("household-300", include_str!("../../../config/scripts/household-300.jsonl")),
];

impl ConversationScript {
    /// Opens a file, or a built-in script by its name.
    pub fn open(name: &str) -> Result<ConversationScript> {
        let built_in = BUILT_IN.iter().find(|(known, _)| *known == name);
        let text = match built_in {
            Some((_, text)) => (*text).to_owned(),
            None => std::fs::read_to_string(Path::new(name)).with_context(|| {
                let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                format!("cannot read the script {name} (built in are {})", names.join(", "))
            })?,
        };
        ConversationScript::parse(&text).with_context(|| format!("the script {name}"))
    }

    pub fn parse(text: &str) -> Result<ConversationScript> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (_, head) = lines.next().context("it is empty")?;
        let head: ScriptHead = serde_json::from_str(head).context("line 1 must be {\"script\": NAME}")?;
        let mut turns: Vec<ScriptTurn> = Vec::new();
        for (index, line) in lines {
            let turn: ScriptTurn = serde_json::from_str(line).with_context(|| format!("line {}", index + 1))?;
            if turn.says.trim().is_empty() {
                bail!("line {}: `says` is empty; give it some words", index + 1);
            }
            if let Some(question) = &turn.asks {
                question.expects.check().with_context(|| format!("line {}", index + 1))?;
                let fact = Some(&question.fact);
                if !turns.iter().any(|turn| turn.plants.as_ref() == fact) {
                    bail!("line {}: the fact {:?} was not told before", index + 1, question.fact);
                }
            }
            if let Some(fact) = &turn.plants
                && turns.iter().any(|turn| turn.plants.as_ref() == Some(fact))
            {
                bail!("line {}: the fact {fact:?} is told a second time", index + 1);
            }
            turns.push(turn);
        }
        if turns.is_empty() {
            bail!("it has no turn");
        }
        Ok(ConversationScript { head, turns })
    }

    pub fn text(&self) -> Result<String> {
        let mut text = serde_json::to_string(&self.head)?;
        for turn in &self.turns {
            text.push('\n');
            text.push_str(&serde_json::to_string(turn)?);
        }
        text.push('\n');
        Ok(text)
    }

    pub fn planted(&self, fact: &str) -> Option<usize> {
        // counted from 0
        self.turns.iter().position(|turn| turn.plants.as_deref() == Some(fact))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, expected) in [
            ("", "it is empty"),
            ("{}", "line 1 must be"),
            ("{\"script\": \"x\"}", "it has no turn"),
            ("{\"script\": \"x\"}\n{\"says\": \" \"}", "line 2: `says` is empty"),
            ("{\"script\": \"x\"}\n\n{\"say\": \"hello\"}", "line 3"),
            (
                "{\"script\": \"x\"}\n{\"says\": \"where?\", \"asks\": {\"fact\": \"a\", \"expects\": {\"exact\": \"b\"}}}",
                "line 2: the fact \"a\" was not told before",
            ),
            (
                "{\"script\": \"x\"}\n{\"says\": \"1\", \"plants\": \"a\"}\n{\"says\": \"2\", \"plants\": \"a\"}",
                "line 3: the fact \"a\" is told a second time",
            ),
            (
                "{\"script\": \"x\"}\n{\"says\": \"1\", \"plants\": \"a\"}\n\
                 {\"says\": \"2\", \"asks\": {\"fact\": \"a\", \"expects\": {\"matches\": \"(\"}}}",
                "line 3: ",
            ),
        ] {
            let error = format!("{:#}", ConversationScript::parse(text).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        assert!(
            format!("{:#}", ConversationScript::open("no-such").unwrap_err()).contains("household-60, household-300")
        );
    }

    /// The built-in files are the generator's output: their recipe is in their head. `BLESS=1` writes them anew.
    #[test]
    fn the_built_in_scripts_are_what_their_recipe_makes() {
        for (name, _) in BUILT_IN {
            let turns: usize = name.rsplit('-').next().unwrap().parse().unwrap();
            let made = generate(&ScriptRecipe::built_in(turns)).unwrap().text().unwrap();
            let file = format!("{}/../../config/scripts/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&file, &made).unwrap();
                continue;
            }
            assert!(
                made == std::fs::read_to_string(&file).unwrap(),
                "{name} is another one: run this test with BLESS=1 and read the difference"
            );
            let script = ConversationScript::open(name).unwrap();
            assert_eq!(script.turns.len(), turns);
            assert_eq!(script.text().unwrap(), made);
            let asked = script.turns.iter().filter(|turn| turn.asks.is_some()).count();
            assert!(asked * 5 > turns, "{name} asks only {asked} times");
        }
    }
}
