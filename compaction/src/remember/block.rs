//! Facts that a model reads at the beginning of a conversation.

use crate::context::escape;
use crate::text::estimate_tokens;
use std::cmp::Reverse;

#[derive(Clone, Debug, PartialEq)]
pub struct TellableFact {
    pub text: String,
    pub asked: bool,
    pub of_home: bool, // it is the home's, not this person's
    pub uses: u64,
    pub said_at_ms: i64,
}

/// Writes the heading and the facts that fit, in the order in which they were said: a new fact comes behind those that
/// a model has read before. Requested facts have precedence, then those that were of use most often and most lately.
/// Empty: none fits.
pub fn block(facts: &[TellableFact], limit_tokens: u32, heading: &str, home: &str) -> String {
    let line = |fact: &TellableFact| {
        let said = escape(&fact.text.split_whitespace().collect::<Vec<_>>().join(" "));
        format!("- {}{said}", if fact.of_home { home } else { "" })
    };
    let mut best: Vec<usize> = (0..facts.len()).collect();
    best.sort_by_key(|index| {
        let fact = &facts[*index];
        (!fact.asked, Reverse(fact.uses), Reverse(fact.said_at_ms))
    });
    let mut left = limit_tokens.saturating_sub(estimate_tokens(heading));
    let mut told: Vec<usize> = Vec::new();
    for index in best {
        let tokens = estimate_tokens(&line(&facts[index])) + 1;
        if tokens <= left {
            left -= tokens;
            told.push(index);
        }
    }
    if told.is_empty() {
        return String::new();
    }
    told.sort_by_key(|index| (facts[*index].said_at_ms, *index));
    let lines = told.iter().map(|index| line(&facts[*index]));
    std::iter::once(heading.to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
}
