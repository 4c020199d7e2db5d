//! Generator of scripts of any length: small talk, facts between it, and questions for each fact at set distances.

use super::languages::{FactPattern, Language, Values};
use super::{ConversationScript, ExpectedAnswer, ScriptHead, ScriptQuestion, ScriptTurn};
use anyhow::{Result, bail};
use experiment::SeededRandom;
use std::collections::HashSet;
use terminal::output::capitalised;

#[derive(Clone, Debug, PartialEq)]
pub struct ScriptRecipe {
    pub name: String,
    pub turns: usize,
    pub seed: u64,
    /// Codes of languages; several change every few turns.
    pub languages: Vec<String>,
    /// Smallest compared window, in tokens, which `fills` are shares of.
    pub window_tokens: usize,
    pub fills: Vec<f64>,     // distances between a fact and its questions
    pub reply_tokens: usize, // tokens, about, of a reply
}

impl ScriptRecipe {
    pub fn built_in(turns: usize) -> ScriptRecipe {
        ScriptRecipe {
            name: format!("household-{turns}"),
            turns,
            seed: 1,
            languages: vec!["en".to_owned()],
            window_tokens: if turns < 100 { 1000 } else { 2000 },
            fills: vec![0.1, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0],
            reply_tokens: 40,
        }
    }
}

struct PendingQuestion {
    fact: String,
    question: String,
    expects: ExpectedAnswer,
    due_tokens: usize, // position of the question, in tokens
}

pub fn generate(asked: &ScriptRecipe) -> Result<ConversationScript> {
    let languages = asked.languages.iter().map(|code| Language::open(code)).collect::<Result<Vec<_>>>()?;
    if languages.is_empty() {
        bail!("a script needs a language");
    }
    if asked.turns == 0 || asked.fills.is_empty() || asked.fills.iter().any(|fill| !(fill.is_finite() && *fill > 0.0)) {
        bail!("a script needs a turn or more, and fills that are numbers above 0");
    }
    let mut random = SeededRandom::new(asked.seed);
    let mut used: HashSet<(usize, &str, &str)> = HashSet::new();
    let mut waiting: Vec<PendingQuestion> = Vec::new();
    let (mut turns, mut said_tokens, mut planted) = (Vec::new(), 0, 0);
    // Every fill comes as often as another.
    let mut fills: Vec<f64> = Vec::new();
    while turns.len() < asked.turns {
        let left_tokens = (asked.turns - turns.len()) * (asked.reply_tokens + TURN_TOKENS);
        let index = turns.len() / TURNS_OF_A_LANGUAGE % languages.len();
        let due = waiting.iter().position(|told| told.due_tokens <= said_tokens);
        let mut turn = ScriptTurn::default();
        if let Some(due) = due {
            let told = waiting.remove(due);
            turn.says = told.question;
            turn.asks = Some(ScriptQuestion { fact: told.fact, expects: told.expects });
        } else if let Some((fact, about)) =
            (random.share() < FACTS).then(|| unused(&mut random, &languages[index], index, &mut used)).flatten()
        {
            let value = value(&mut random, fact, about);
            planted += 1;
            let name = format!("{}-{}-{planted}", asked.languages[index], fact.kind);
            let fill_in = |text: &str| text.replace("{about}", &fact.about[about]).replace("{value}", &value);
            turn.says = capitalised(&fill_in(random.pick(&fact.told).map_or("{about}: {value}.", String::as_str)));
            turn.plants = Some(name.clone());
            let expects = ExpectedAnswer::Contains(vec![heart_of(&value)]);
            // People come back to facts, sooner and later.
            for _ in 0..QUESTIONS {
                if fills.is_empty() {
                    fills = asked.fills.clone();
                    random.shuffle(&mut fills);
                }
                let after = (fills.pop().unwrap_or(1.0) * asked.window_tokens as f64) as usize;
                let question = capitalised(&fill_in(random.pick(&fact.asked).map_or("{about}?", String::as_str)));
                // A fact without room for a question is told nevertheless.
                if after < left_tokens {
                    let due_tokens = said_tokens + after;
                    waiting.push(PendingQuestion {
                        fact: name.clone(),
                        question,
                        expects: expects.clone(),
                        due_tokens,
                    });
                }
            }
        } else {
            turn.says = talk(&mut random, &languages[index]);
            turn.cuts_last_reply = turns.len() > 2 && random.share() < CUTS;
        }
        said_tokens += tokens(&turn.says) + asked.reply_tokens;
        turns.push(turn);
    }
    let recipe = format!(
        "reprise ab replay --generate FILE --name {} --turns {} --seed {} --language {} --window {} --fills {} --reply {}",
        asked.name,
        asked.turns,
        asked.seed,
        asked.languages.join(","),
        asked.window_tokens,
        asked.fills.iter().map(f64::to_string).collect::<Vec<_>>().join(","),
        asked.reply_tokens,
    );
    let head = ScriptHead { script: asked.name.clone(), instructions: None, recipe: Some(recipe) };
    Ok(ConversationScript { head, turns })
}

/// Share of turns without a question in which a fact is told.
const FACTS: f64 = 0.3;
const QUESTIONS: usize = 2; // questions for each fact
/// Share of small talk with which the user talks over the last reply.
const CUTS: f64 = 0.15;
const TURNS_OF_A_LANGUAGE: usize = 10;
/// Tokens of a turn beside the reply: a sentence, and the template's own around two messages.
const TURN_TOKENS: usize = 24;

/// Draws a fact about a new subject, and the index of that.
fn unused<'a>(
    random: &mut SeededRandom,
    language: &'a Language,
    index: usize,
    used: &mut HashSet<(usize, &'a str, &'a str)>,
) -> Option<(&'a FactPattern, usize)> {
    let all = language.facts.iter().flat_map(|fact| (0..fact.about.len()).map(move |at| (fact, at)));
    let name = |(fact, at): (&'a FactPattern, usize)| (index, fact.kind.as_str(), fact.about[at].as_str());
    let free: Vec<(&FactPattern, usize)> = all.filter(|found| !used.contains(&name(*found))).collect();
    let found = *random.pick(&free)?;
    used.insert(name(found));
    Some(found)
}

fn value(random: &mut SeededRandom, fact: &FactPattern, about: usize) -> String {
    let values = match &fact.values {
        Values::OfAll(values) => values,
        Values::OfEach(lists) => &lists[about],
        Values::Number => return format!("{}", 1000 + random.below(9000)),
    };
    random.pick(values).cloned().unwrap_or_default()
}

/// Returns the part of a value that an answer must have: of a place its name, because people put the little words as
/// they like.
fn heart_of(value: &str) -> String {
    value.rsplit([' ', '\'']).next().unwrap_or(value).to_owned()
}

fn talk(random: &mut SeededRandom, language: &Language) -> String {
    let mut text = random.pick(&language.talk).cloned().unwrap_or_default();
    for (gap, words) in [("{room}", &language.rooms), ("{food}", &language.foods), ("{thing}", &language.things)] {
        while text.contains(gap) {
            text = text.replacen(gap, random.pick(words).map_or("", String::as_str), 1);
        }
    }
    let number = 2 + random.below(10);
    text.replace("{number}", &number.to_string())
}

/// Estimates three letters and a half for a token, in these languages.
fn tokens(text: &str) -> usize {
    text.chars().count() * 2 / 7 + TURN_TOKENS / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(turns: usize, seed: u64, languages: &[&str]) -> ConversationScript {
        let languages = languages.iter().map(|code| (*code).to_owned()).collect();
        generate(&ScriptRecipe { seed, languages, ..ScriptRecipe::built_in(turns) }).unwrap()
    }

    #[test]
    fn any_length_and_language_makes_a_script_that_reads_back() {
        for (turns, languages) in
            [(1, &["en"][..]), (60, &["de"]), (60, &["fr"]), (60, &["es"]), (1000, &["en", "de", "fr", "es"])]
        {
            let script = some(turns, 3, languages);
            assert_eq!(script.turns.len(), turns);
            assert_eq!(ConversationScript::parse(&script.text().unwrap()).unwrap(), script);
            assert!(script.turns.iter().all(|turn| !turn.says.contains(['{', '}'])));
            for code in languages.iter().filter(|_| turns > 100) {
                let told = script.turns.iter().filter_map(|turn| turn.plants.as_deref());
                assert!(told.filter(|name| name.starts_with(code)).count() > 10, "{code}");
            }
        }
        assert_eq!(some(60, 1, &["en"]), some(60, 1, &["en"]));
        assert_ne!(some(60, 1, &["en"]).turns, some(60, 2, &["en"]).turns);
    }

    #[test]
    fn a_question_comes_when_enough_was_said() {
        let script = some(300, 1, &["en"]);
        let mut distances = Vec::new();
        for (at, turn) in script.turns.iter().enumerate() {
            let Some(question) = &turn.asks else { continue };
            let planted = script.planted(&question.fact).unwrap();
            let fact = &script.turns[planted];
            assert!(question.expects.is_met_by(&fact.says), "{} is not in {:?}", question.fact, fact.says);
            assert!(!question.expects.is_met_by(&turn.says), "{:?} tells its answer", turn.says);
            distances.push(at - planted);
        }
        distances.sort_unstable();
        assert!(distances[0] < 6 && distances[distances.len() - 1] > 60, "{distances:?}");
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let right = ScriptRecipe::built_in(60);
        for wrong in [
            ScriptRecipe { turns: 0, ..right.clone() },
            ScriptRecipe { fills: vec![0.0], ..right.clone() },
            ScriptRecipe { languages: vec!["xx".into()], ..right.clone() },
            ScriptRecipe { languages: Vec::new(), ..right.clone() },
        ] {
            assert!(generate(&wrong).is_err(), "{wrong:?}");
        }
    }
}
