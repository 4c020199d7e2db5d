//! Whether a summary may take the place of what it tells.
//!
//! Without a model and without a dictionary of the language: what must not be lost is what can be told apart by its form
//! (names, numbers, dates, quoted words, and whether something is *not* so), and what must not get in has forms too. A
//! check that is wrong costs one more request in the background, or a sentence that is kept twice.

mod demand;
mod planted;
#[cfg(test)]
mod tests;

use crate::types::{CompactionLimits, Passage, PassageKind, PinnedText, Speaker};
pub use demand::demanded;
use planted::is_instruction_like;
use remember::{DetailKind, HeldDetails, differs, said_lines};
use strum::IntoStaticStr;

/// A summary, and what it is to stand for.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// The passages it takes the place of, without those that its writer did not see.
    pub covered: &'a [Passage],
    /// The summary before it, whose place it takes too.
    pub earlier: &'a str,
    pub pins: &'a [PinnedText],
    pub text: &'a str,
    pub tokens: u32,
    /// The model ended it, not a limit.
    pub finished: bool,
}

/// Something that was said and must not be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub kind: DetailKind,
    /// The name, number or date itself.
    pub text: String,
    /// What it was said in, cut to a length that can be quoted.
    pub sentence: String,
    /// The passage it was said in; empty: it stood in the summary before.
    pub source: String,
    /// `Context`: it stood in the summary before.
    pub said_by: Speaker,
}

/// Why a summary does not count. Its word is the one in events and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum RejectionReason {
    Empty,
    TooLong,
    OffLanguage,
    InstructionLike,
    Unfinished,
    /// The summary before, once more, although there is news.
    Copies,
    /// The prompt would not be smaller.
    NoReduction,
    /// None came.
    Failed,
}

/// What the summary lacks.
pub fn check(submission: &Submission, limits: &CompactionLimits) -> Result<Vec<Fact>, RejectionReason> {
    if let Some(reason) = refused(submission, limits) {
        return Err(reason);
    }
    let demanded = demanded(submission.covered, submission.earlier, submission.pins, limits);
    let missing = missing(&demanded, submission.text);
    if !missing.is_empty() && copies(submission) { Err(RejectionReason::Copies) } else { Ok(missing) }
}

/// The facts that the summary does not hold.
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

/// Lines of the summary before, and hardly anything else.
fn copies(submission: &Submission) -> bool {
    let (earlier, lines) = (said_lines(submission.earlier), said_lines(submission.text));
    let copied = lines.iter().filter(|line| earlier.contains(line)).count();
    !earlier.is_empty() && copied * 10 >= lines.len() * 9
}
