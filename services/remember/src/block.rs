//! The block of facts at the begin of a conversation.

use crate::escape::escape;
use crate::text::estimate_tokens;
use std::cmp::Reverse;

#[derive(Clone, Debug, PartialEq)]
pub struct TellableFact {
    pub text: String,
    pub asked: bool,
    pub of_home: bool, // it is the home's, not this person's
    pub uses: u64,
    pub said_at_ms: i64,
    /// The day on which it was said, as prompts write it, where its words need that.
    pub said_on: Option<String>,
}

/// Chooses the facts that fit below the heading, and returns their places in the order in which they were said: a new fact stands
/// behind those that a model has read before. First come those that a person asked for, then those that were of use most often and
/// most lately.
pub fn choose(facts: &[TellableFact], limit_tokens: u32, heading: &str, home: &str) -> Vec<usize> {
    let mut best: Vec<usize> = (0..facts.len()).collect();
    best.sort_by_key(|index| {
        let fact = &facts[*index];
        (!fact.asked, Reverse(fact.uses), Reverse(fact.said_at_ms))
    });
    let mut left = limit_tokens.saturating_sub(estimate_tokens(heading));
    let mut told: Vec<usize> = Vec::new();
    for index in best {
        let tokens = estimate_tokens(&line(&facts[index], home)) + 1;
        if tokens <= left {
            left -= tokens;
            told.push(index);
        }
    }
    told.sort_by_key(|index| (facts[*index].said_at_ms, *index));
    told
}

pub fn block<'a>(facts: impl Iterator<Item = &'a TellableFact>, heading: &str, home: &str) -> String {
    let mut lines = facts.map(|fact| line(fact, home)).peekable();
    if lines.peek().is_none() {
        return String::new();
    }
    std::iter::once(heading.to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
}

fn line(fact: &TellableFact, home: &str) -> String {
    let said = escape(&fact.text.split_whitespace().collect::<Vec<_>>().join(" "));
    let said_on = fact.said_on.as_deref().unwrap_or_default();
    format!("- {}{said}{said_on}", if fact.of_home { home } else { "" })
}
