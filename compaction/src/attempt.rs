//! One attempt to put a summary in the place of old turns, from the plan to the swap.
//!
//! The caller carries out each step and reports its result; the attempt knows no clock and no model. It ends: it asks
//! at most twice for each range, and each further range covers more. If no model gives a summary that holds, the
//! attempt quotes the conversation instead.

mod quoted;

use crate::check::{self, Fact, RejectionReason, Submission, check};
use crate::plan::{SummaryPlan, prompt_tokens, tighter};
use crate::request;
use crate::types::{CompactionLimits, Passage, PinnedText, PlainMessage, PromptSizes, PromptView};

/// Sources of an attempt's summary. They must not change meanwhile: if a passage before `through` is edited, the caller
/// drops the attempt and makes a new plan.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryJob {
    pub view: PromptView,
    pub sizes: PromptSizes,
    pub limits: CompactionLimits,
    pub pins: Vec<PinnedText>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptStep {
    /// Ask the model, then call `Attempt::replied` or `Attempt::failed`.
    Ask(SummaryRequest),
    /// Render and count the prompt with this summary in the place of the passages that it covers, then call
    /// `Attempt::measured`.
    Measure(AttemptOutcome),
    /// Use the summary from the next turn on. The attempt is over.
    Swap(AttemptOutcome),
    /// Leave everything unchanged, and set `PromptView::gave_up_at` to the last passage. The attempt is over.
    GiveUp(RejectionReason),
}

/// A request for a summary. The prompt is the conversation with its present context and its passages up to `through`,
/// also the dropped ones, and `messages` behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRequest {
    pub through: String,
    pub left_out: Vec<String>,
    pub messages: Vec<PlainMessage>,
    pub max_tokens: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryReply {
    pub text: String, // without reasoning
    pub tokens: u32,
    pub finished: bool, // true if the model ended it, not a limit
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptOutcome {
    pub through: String, // the last passage that the summary covers
    pub summary: String,
    pub fell_back: bool,
    pub appended: Vec<Fact>,
    pub lost: Vec<Fact>, // facts without room; the history has them
    pub rejected: Vec<RejectionReason>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub job: SummaryJob,
    pub plan: SummaryPlan,
    asked: u32,     // requests for this range
    tightened: u32, // ranges before this one that did not reach the target
    rejected: Vec<RejectionReason>,
    /// Best summary so far, and the facts that it lacks.
    best: Option<(SummaryReply, Vec<Fact>)>,
    outcome: Option<AttemptOutcome>,
}

impl Attempt {
    pub fn begin(job: SummaryJob, plan: SummaryPlan) -> (Attempt, AttemptStep) {
        let mut attempt =
            Attempt { job, plan, asked: 0, tightened: 0, rejected: Vec::new(), best: None, outcome: None };
        let step = attempt.start();
        (attempt, step)
    }

    pub fn replied(&mut self, reply: SummaryReply) -> AttemptStep {
        let covered = self.covered();
        let submission = Submission {
            covered: &covered,
            earlier: &self.job.view.summary,
            pins: &self.job.pins,
            text: &reply.text,
            tokens: reply.tokens,
            finished: reply.finished,
        };
        let may_ask_again = self.asked < MOST_ASKS;
        match check(&submission, &self.job.limits) {
            Ok(missing) if missing.is_empty() => self.measure(quoted::with_facts(&reply, &[], &self.job.limits)),
            Ok(missing) if may_ask_again => {
                let messages = request::again(self.job.limits.words_to_ask_for(), &reply.text, &missing);
                self.best = Some((reply, missing));
                self.ask(messages)
            }
            Ok(missing) => {
                // The second one may have lost other facts than the first.
                let first = self.best.take().filter(|(_, lacking)| lacking.len() <= missing.len());
                self.best = first.or(Some((reply, missing)));
                self.settle()
            }
            Err(reason) => {
                self.rejected.push(reason);
                match may_ask_again {
                    true => self.ask(vec![request::first(self.fewer_words(reason))]),
                    false => self.settle(),
                }
            }
        }
    }

    pub fn failed(&mut self) -> AttemptStep {
        self.rejected.push(RejectionReason::Failed);
        self.settle()
    }

    /// Takes the tokens of the whole prompt with the outcome of the last `AttemptStep::Measure`.
    pub fn measured(&mut self, tokens: u32) -> AttemptStep {
        let Some(outcome) = self.outcome.take() else { return AttemptStep::GiveUp(RejectionReason::Failed) };
        let SummaryJob { view, sizes, limits, .. } = &self.job;
        let owed = view.dropped() > 0;
        let before = prompt_tokens(view, sizes);
        // Dropped passages take no room now, so telling them can only make the prompt longer.
        let holds = if owed { tokens <= limits.room_tokens() } else { tokens < before };
        let excess = tokens.saturating_sub(limits.target_tokens());
        if holds && excess == 0 {
            return AttemptStep::Swap(outcome);
        }
        if self.tightened < MOST_TIGHTENINGS
            && let Some(plan) = tighter(view, sizes, limits, &self.plan.through, excess)
        {
            self.tightened += 1;
            self.plan = plan;
            (self.asked, self.best) = (0, None);
            return self.start();
        }
        if holds { AttemptStep::Swap(outcome) } else { AttemptStep::GiveUp(RejectionReason::NoReduction) }
    }

    fn start(&mut self) -> AttemptStep {
        if self.plan.request_tokens > self.job.limits.ctx_size {
            return self.failed();
        }
        self.ask(vec![request::first(self.job.limits.words_to_ask_for())])
    }

    fn ask(&mut self, messages: Vec<PlainMessage>) -> AttemptStep {
        self.asked += 1;
        let SummaryPlan { through, left_out, .. } = self.plan.clone();
        AttemptStep::Ask(SummaryRequest { through, left_out, messages, max_tokens: self.job.limits.ask_tokens() })
    }

    fn settle(&mut self) -> AttemptStep {
        let SummaryJob { view, pins, limits, .. } = &self.job;
        let made = match self.best.take() {
            Some((reply, missing)) => quoted::with_facts(&reply, &missing, limits),
            None => {
                let demanded = check::demanded(&self.covered(), &view.summary, pins, limits);
                quoted::without_model(&view.summary, &check::missing(&demanded, ""), limits)
            }
        };
        self.measure(made)
    }

    fn measure(&mut self, made: AttemptOutcome) -> AttemptStep {
        let outcome = AttemptOutcome { through: self.plan.through.clone(), rejected: self.rejected.clone(), ..made };
        self.outcome = Some(outcome.clone());
        AttemptStep::Measure(outcome)
    }

    fn covered(&self) -> Vec<Passage> {
        let count = self.job.view.count_through(Some(&self.plan.through));
        let shown = |passage: &&Passage| !self.plan.left_out.contains(&passage.id);
        self.job.view.passages.iter().take(count).filter(shown).cloned().collect()
    }

    fn fewer_words(&self, reason: RejectionReason) -> u32 {
        let words = self.job.limits.words_to_ask_for();
        match reason {
            RejectionReason::TooLong | RejectionReason::Unfinished => (words / 2).max(1),
            _ => words,
        }
    }
}

const MOST_ASKS: u32 = 2;
const MOST_TIGHTENINGS: u32 = 2;
