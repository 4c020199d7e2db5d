//! Statements that a model finds in a person's messages. A statement counts where those messages hold its details.

use crate::about::{about, is_of_home};
use crate::details::{DetailKind, HeldDetails, details_of, is_negated};
use crate::escape::escape;
use crate::extract::{Statement, without_corrections};
use crate::languages::has;
use crate::same_subject::may_replace;
use crate::text::{asks, folded, stems};

/// Change that a model makes of what a person said. Facts are numbered by their place in the list that the model was shown.
#[derive(Clone, Debug, PartialEq)]
pub enum LearnedChange {
    Keep(Statement),
    Replace(usize, Statement),
    Forget(usize),
}

#[derive(Clone, Copy, Debug)]
pub struct ShownFact<'a> {
    pub text: &'a str,
    pub about: &'a str,
}

/// Regular expression of the answer to `learn_request`.
pub const LEARN_ANSWER: &str = "nothing|\\[[1-9][0-9]?\\] (- [1-9][0-9]?|= [1-9][0-9]? [^\\n]+|[^-= \\n][^\\n]*)\
    (\\n\\[[1-9][0-9]?\\] (- [1-9][0-9]?|= [1-9][0-9]? [^\\n]+|[^-= \\n][^\\n]*))*";

pub fn learn_request(said: &[&str], known: &[ShownFact]) -> String {
    let line = |(index, text): (usize, &str)| {
        format!("[{}] {}", index + 1, escape(&text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    let lines: Vec<String> = said.iter().copied().enumerate().map(line).collect();
    let facts: Vec<String> = known.iter().map(|fact| fact.text).enumerate().map(line).collect();
    let facts = if facts.is_empty() { String::new() } else { format!("\n\n{KNOWN}\n\n{}", facts.join("\n")) };
    format!("{REQUEST}{facts}\n\n{SAID}\n\n{}", lines.join("\n"))
}

const REQUEST: &str = "Below are the things that a person said to the voice assistant of their home, each with its number. \
Write down what will still be true and of use in a month: about the person, their family and friends, their home, health, \
habits, likes and wishes. One fact a line, as a short sentence in the person's language that stands on its own, with its \
names and numbers as they were said, behind the number of what it was said in:\n\
[2] Their sister lives in Lisbon.\n\
Write only what was said. Leave out questions, orders to the assistant and what is only of this moment. If nothing is left, \
write: nothing";
const KNOWN: &str = "These facts are known by now, each with its number. Do not repeat them. Where what was said changes fact 3, write:\n\
[2] = 3 Their sister lives in Porto.\n\
Where the person wants fact 3 forgotten, write:\n\
[2] - 3";
const SAID: &str = "This was said:";

/// Returns the changes of a model's answer that hold, each with the message that it rests on.
pub fn learned(answer: &str, said: &[&str], known: &[ShownFact]) -> Vec<(usize, LearnedChange)> {
    let mut found: Vec<(usize, LearnedChange)> = Vec::new();
    for line in answer.lines().take(MOST_LINES) {
        let numbered = line.trim().trim_start_matches(['-', '*', ' ']).strip_prefix('[');
        let Some((number, rest)) = numbered.and_then(|rest| rest.split_once(']')) else { continue };
        let Some((index, source)) = place(number, said.len()).map(|index| (index, said[index])) else { continue };
        if let Some(change) = change(rest.trim(), source, known) {
            let is_again = |(other_index, other): &(usize, LearnedChange)| match (other, &change) {
                // A message has one wish, and a fact one successor.
                (LearnedChange::Forget(_), LearnedChange::Forget(_)) => *other_index == index,
                (LearnedChange::Replace(other, _), LearnedChange::Replace(fact, _)) if other == fact => true,
                (other, change) => text_of(other).is_some() && text_of(other) == text_of(change),
            };
            if !found.iter().any(is_again) {
                found.push((index, change));
            }
        }
    }
    found
}

fn change(line: &str, source: &str, known: &[ShownFact]) -> Option<LearnedChange> {
    if let Some(number) = line.strip_prefix("- ") {
        let fact = place(number, known.len())?;
        return is_meant_by_wish(known[fact].text, source).then_some(LearnedChange::Forget(fact));
    }
    let (fact, text) = match line.strip_prefix("= ").map(|rest| rest.split_once(' ')) {
        Some(numbered) => {
            let (number, text) = numbered?;
            (place(number, known.len()), text.trim())
        }
        None => (None, line),
    };
    let confidence = holds(text, source)?;
    let about = about_both(text, source);
    let replaces = fact.filter(|fact| is_another_state(text, &about, &known[*fact]));
    let statement = Statement { text: text.to_owned(), about, asked: false, of_home: is_of_home(source), confidence };
    Some(match replaces {
        Some(fact) => LearnedChange::Replace(fact, statement),
        None => LearnedChange::Keep(statement),
    })
}

fn text_of(change: &LearnedChange) -> Option<&str> {
    match change {
        LearnedChange::Keep(statement) | LearnedChange::Replace(_, statement) => Some(&statement.text),
        LearnedChange::Forget(_) => None,
    }
}

/// Returns the place of a number that counts from 1.
fn place(number: &str, of: usize) -> Option<usize> {
    number.trim().parse::<usize>().ok()?.checked_sub(1).filter(|place| *place < of)
}

/// Tells whether a message wants something forgotten, and has a word of this fact.
fn is_meant_by_wish(fact: &str, source: &str) -> bool {
    let (there, said) = (stems(fact), stems(source));
    let wishes = said.iter().any(|stem| has(|language| &language.lasting.forgetting, stem));
    let of_fact = |stem: &&String| !has(|language| &language.lasting.of_wishes, stem) && there.contains(stem);
    wishes && said.iter().any(|stem| of_fact(&stem))
}

/// Tells whether a new fact may take the place of a known one: it says another state of something that both name.
fn is_another_state(text: &str, about: &str, known: &ShownFact) -> bool {
    let (told, there) = (stems(text), stems(known.text));
    may_replace(about, known.about) && told.iter().any(|stem| there.contains(stem)) && told != there
}

/// Returns the subject by the person's words where they say something of which one holds at a time, else by the model's.
fn about_both(text: &str, source: &str) -> String {
    let own = about(source);
    if own.starts_with('=') { about(text) } else { own }
}

fn holds(text: &str, source: &str) -> Option<f64> {
    // 'No, the dog is called Odin' denies nothing of the dog.
    let folded = folded(source);
    let is_denied = is_negated(without_corrections(&folded));
    if asks(text) || text.chars().count() > LONGEST_CHARS || is_negated(text) != is_denied {
        return None;
    }
    let mut held = HeldDetails::default();
    held.add(source);
    // 'Their sister' is no name, and a denial is compared as a whole.
    let details = details_of(text, false);
    let mut compared = details.iter().filter(|detail| detail.kind != DetailKind::Negation);
    if !compared.all(|detail| held.holds(detail.kind, &detail.text)) {
        return None;
    }
    let (told, there) = (stems(text), stems(source));
    let shared = told.iter().filter(|stem| there.contains(stem)).count();
    let share = shared as f64 / told.len().max(1) as f64;
    (share >= LEAST_SHARE).then_some(0.5 + share * 0.4)
}

const MOST_LINES: usize = 64;
const LONGEST_CHARS: usize = 300;
/// Least share of a fact's words that its source must have: the others are 'their', 'the person', and endings.
const LEAST_SHARE: f64 = 0.5;
