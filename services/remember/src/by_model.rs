//! Statements that a model finds in a person's messages. A statement counts where those messages hold its details.

use crate::about::{about, is_of_home};
use crate::details::{DetailKind, HeldDetails, details_of, is_negated};
use crate::escape::escape;
use crate::extract::Statement;
use crate::text::{asks, stems};

pub fn learn_request(said: &[&str]) -> String {
    let line = |(index, text): (usize, &&str)| {
        format!("[{}] {}", index + 1, escape(&text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    let lines: Vec<String> = said.iter().enumerate().map(line).collect();
    format!("{REQUEST}\n\n{}", lines.join("\n"))
}

const REQUEST: &str = "These are the things that a person said to the voice assistant of their home, each with its number. \
Write down what will still be true and of use in a month: about the person, their family and friends, their home, health, \
habits, likes and wishes. One fact a line, as a short sentence in the person's language that stands on its own, with its \
names and numbers as they were said, behind the number of what it was said in:\n\
[2] Their sister lives in Lisbon.\n\
Write only what was said. Leave out questions, orders to the assistant and what is only of this moment. If nothing is left, \
write: nothing";

/// Returns the statements of a model's answer that hold, each with the message that it was found in.
pub fn learned(answer: &str, said: &[&str]) -> Vec<(usize, Statement)> {
    let mut found: Vec<(usize, Statement)> = Vec::new();
    for line in answer.lines().take(MOST_LINES) {
        let numbered = line.trim().trim_start_matches(['-', '*', ' ']).strip_prefix('[');
        let Some((number, text)) = numbered.and_then(|rest| rest.split_once(']')) else { continue };
        let index = number.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let Some((index, source)) = index.and_then(|index| Some((index, *said.get(index)?))) else { continue };
        let text = text.trim();
        let Some(confidence) = holds(text, source) else { continue };
        if !found.iter().any(|(_, other)| other.text == text) {
            let about = about_both(text, source);
            let of_home = is_of_home(source);
            found.push((index, Statement { text: text.to_owned(), about, asked: false, of_home, confidence }));
        }
    }
    found
}

/// Returns the subject by the person's words where they say something of which one holds at a time, else by the model's.
fn about_both(text: &str, source: &str) -> String {
    let own = about(source);
    if own.starts_with('=') { about(text) } else { own }
}

fn holds(text: &str, source: &str) -> Option<f64> {
    if asks(text) || text.chars().count() > LONGEST_CHARS || is_negated(text) != is_negated(source) {
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
