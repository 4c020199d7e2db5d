//! Decides whether a summary may replace the turns that it tells.
//!
//! It needs no model and no dictionary of the language: facts that must not be lost can be told by their form (names,
//! numbers, dates, quoted words, and whether something is *not* so), and planted orders have forms too. A wrong verdict
//! costs one more request in the background, or a sentence that is kept twice.

mod demand;
mod planted;
#[cfg(test)]
mod tests;

use crate::types::{CompactionLimits, Passage, PassageKind, PinnedText, Speaker};
pub use demand::demanded;
use planted::is_instruction_like;
use remember::{DetailKind, HeldDetails, differs, said_lines};
use strum::IntoStaticStr;

#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    pub covered: &'a [Passage], // passages that it replaces, without those that its writer did not see
    pub earlier: &'a str,       // summary before it, which it replaces too
    pub pins: &'a [PinnedText],
    pub text: &'a str,
    pub tokens: u32,
    pub finished: bool, // true if the model ended it, not a limit
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub kind: DetailKind,
    pub text: String,     // the name, number or date itself
    pub sentence: String, // its sentence, cut to a length that can be quoted
    pub source: String,   // passage of its sentence; empty if that is in the summary before
    pub said_by: Speaker, // `Context`: it is in the summary before
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum RejectionReason {
    Empty,
    TooLong,
    OffLanguage,
    InstructionLike,
    Unfinished,
    Copies,      // the summary before, once more, although there is news
    NoReduction, // the prompt would not be smaller
    Failed,      // none came
}

pub fn check(submission: &Submission, limits: &CompactionLimits) -> Result<Vec<Fact>, RejectionReason> {
    if let Some(reason) = refused(submission, limits) {
        return Err(reason);
    }
    let demanded = demanded(submission.covered, submission.earlier, submission.pins, limits);
    let missing = missing(&demanded, submission.text);
    if !missing.is_empty() && copies(submission) { Err(RejectionReason::Copies) } else { Ok(missing) }
}

pub fn missing(demanded: &[Fact], summary: &str) -> Vec<Fact> {
    let mut held = HeldDetails::default();
    held.add(summary);
    demanded.iter().filter(|fact| !held.holds(fact.kind, &fact.text)).cloned().collect()
}

fn refused(submission: &Submission, limits: &CompactionLimits) -> Option<RejectionReason> {
    let Submission { covered, earlier, text, tokens, finished, .. } = *submission;
    let lines = said_lines(text);
    if lines.is_empty() {
        return Some(RejectionReason::Empty);
    }
    if !finished {
        return Some(RejectionReason::Unfinished);
    }
    if tokens > limits.summary_tokens {
        return Some(RejectionReason::TooLong);
    }
    if is_instruction_like(text, covered, earlier) {
        return Some(RejectionReason::InstructionLike);
    }
    let is_said = |passage: &&Passage| matches!(passage.kind, PassageKind::User | PassageKind::Assistant);
    let said: Vec<&str> = covered.iter().filter(is_said).map(|passage| passage.text.as_str()).collect();
    differs(&said.join("\n"), &lines.join("\n")).then_some(RejectionReason::OffLanguage)
}

/// Returns true for a copy of the summary before, with hardly any other line.
fn copies(submission: &Submission) -> bool {
    let (earlier, lines) = (said_lines(submission.earlier), said_lines(submission.text));
    let copied = lines.iter().filter(|line| earlier.contains(line)).count();
    !earlier.is_empty() && copied * 10 >= lines.len() * 9
}
