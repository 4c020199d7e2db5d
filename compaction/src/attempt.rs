//! One attempt to put a summary in the place of old turns, from the plan to the swap.
//!
//! Whoever drives it carries out each step and says what came of it; it knows no clock and no model. It ends: it asks at
//! most twice for each range, and each further range covers more. Where no model gives a summary that holds, what was
//! said is quoted instead.

mod quoted;

use crate::check::{self, Fact, Reason, Submission, Verdict, check};
use crate::instructions;
use crate::plan::{Summarise, prompt_tokens, tighter};
use crate::types::{Entry, History, Limits, Message, Pin, Sizes};

/// What the summary of an attempt is made of. It must not change under way: where something before `through` was edited,
/// the attempt is dropped and a new plan is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub history: History,
    pub sizes: Sizes,
    pub limits: Limits,
    pub pins: Vec<Pin>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the model, then `Attempt::replied`, or `Attempt::failed`.
    Ask(Ask),
    /// Render and count the prompt with this memory in the place of what it covers, then `Attempt::measured`.
    Measure(Outcome),
    /// It may stand from the next turn on. The attempt is over.
    Swap(Outcome),
    /// Everything stays as it is, and `History::gave_up_at` becomes the last entry. The attempt is over.
    GiveUp(Reason),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The prompt is the conversation with its present memory and its entries up to this one, also those that were
    /// dropped ...
    pub through: String,
    /// ... but for these, in the place of which it shows [`LEFT_OUT`](crate::LEFT_OUT) ...
    pub left_out: Vec<String>,
    /// ... and these behind it.
    pub messages: Vec<Message>,
    pub max_tokens: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Without reasoning.
    pub text: String,
    pub tokens: u32,
    /// The model ended it, not a limit.
    pub finished: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The last entry that the memory covers.
    pub through: String,
    pub summary: String,
    pub made_by: MadeBy,
    /// Facts that the model's summary lacked and that stand behind it now.
    pub appended: Vec<Fact>,
    /// Facts for which there was no room. They are in the history.
    pub lost: Vec<Fact>,
    /// What came before and did not count.
    pub rejected: Vec<Reason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeBy {
    Model,
    /// Put together from what was said, without a model.
    Fallback,
}

impl MadeBy {
    pub fn name(self) -> &'static str {
        match self {
            MadeBy::Model => "model",
            MadeBy::Fallback => "fallback",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub job: Job,
    pub plan: Summarise,
    /// Requests for this range.
    asked: u32,
    /// Ranges before this one that did not reach the target.
    tightened: u32,
    rejected: Vec<Reason>,
    /// A summary that lacks something, and what.
    best: Option<(Reply, Vec<Fact>)>,
    outcome: Option<Outcome>,
}

impl Attempt {
    pub fn begin(job: Job, plan: Summarise) -> (Attempt, Step) {
        let mut attempt =
            Attempt { job, plan, asked: 0, tightened: 0, rejected: Vec::new(), best: None, outcome: None };
        let step = attempt.start();
        (attempt, step)
    }

    /// The model's reply to the last `Step::Ask`.
    pub fn replied(&mut self, reply: Reply) -> Step {
        let covered = self.covered();
        let submission = Submission {
            covered: &covered,
            earlier: &self.job.history.summary,
            pins: &self.job.pins,
            text: &reply.text,
            tokens: reply.tokens,
            finished: reply.finished,
            may_ask_again: self.asked < MOST_ASKS,
        };
        match check(&submission, &self.job.limits) {
            Verdict::Accept => self.measure(quoted::with_facts(&reply, &[], &self.job.limits)),
            Verdict::AskAgain { missing } => {
                let messages = instructions::again(instructions::words(&self.job.limits), &reply.text, &missing);
                self.best = Some((reply, missing));
                self.ask(messages)
            }
            Verdict::AppendFacts { missing } => {
                // The second one may have lost other things than the first.
                let first = self.best.take().filter(|(_, lacking)| lacking.len() <= missing.len());
                self.best = first.or(Some((reply, missing)));
                self.settle()
            }
            Verdict::Reject { reason } => {
                self.rejected.push(reason);
                match self.asked < MOST_ASKS {
                    true => self.ask(instructions::first(self.fewer_words(reason))),
                    false => self.settle(),
                }
            }
        }
    }

    /// No reply came, and trying the same again is no use.
    pub fn failed(&mut self) -> Step {
        self.rejected.push(Reason::Failed);
        self.settle()
    }

    /// Tokens of the whole prompt with the outcome of the last `Step::Measure`.
    pub fn measured(&mut self, tokens: u32) -> Step {
        let Some(outcome) = self.outcome.take() else { return Step::GiveUp(Reason::Failed) };
        let Job { history, sizes, limits, .. } = &self.job;
        let owed = history.dropped() > 0;
        let before = prompt_tokens(history, sizes);
        // What was dropped takes no room now, so telling it can only make the prompt longer.
        let holds = if owed { tokens <= limits.room_tokens() } else { tokens < before };
        let excess = tokens.saturating_sub(limits.target_tokens());
        if holds && excess == 0 {
            return Step::Swap(outcome);
        }
        if self.tightened < MOST_TIGHTENINGS
            && let Some(plan) = tighter(history, sizes, limits, &self.plan.through, excess)
        {
            self.tightened += 1;
            self.plan = plan;
            (self.asked, self.best) = (0, None);
            return self.start();
        }
        if holds { Step::Swap(outcome) } else { Step::GiveUp(Reason::NoReduction) }
    }

    fn start(&mut self) -> Step {
        if self.plan.request_tokens > self.job.limits.ctx_size {
            return self.failed();
        }
        self.ask(instructions::first(instructions::words(&self.job.limits)))
    }

    fn ask(&mut self, messages: Vec<Message>) -> Step {
        self.asked += 1;
        let Summarise { through, left_out, .. } = self.plan.clone();
        Step::Ask(Ask { through, left_out, messages, max_tokens: self.job.limits.ask_tokens() })
    }

    /// With what is there: a summary that lacks something, or what was said.
    fn settle(&mut self) -> Step {
        let limits = self.job.limits;
        match self.best.take() {
            Some((reply, missing)) => self.measure(quoted::with_facts(&reply, &missing, &limits)),
            None => {
                let Job { history, pins, .. } = &self.job;
                let demanded = check::demanded(&self.covered(), &history.summary, pins, &limits);
                let missing = check::missing(&demanded, "");
                self.measure(quoted::without_model(&history.summary, &missing, &limits))
            }
        }
    }

    fn measure(&mut self, made: quoted::Made) -> Step {
        let outcome = Outcome {
            through: self.plan.through.clone(),
            summary: made.summary,
            made_by: made.made_by,
            appended: made.appended,
            lost: made.lost,
            rejected: self.rejected.clone(),
        };
        self.outcome = Some(outcome.clone());
        Step::Measure(outcome)
    }

    /// What the model was shown.
    fn covered(&self) -> Vec<Entry> {
        let count = self.job.history.count_through(Some(&self.plan.through));
        let shown = |entry: &&Entry| !self.plan.left_out.contains(&entry.id);
        self.job.history.entries.iter().take(count).filter(shown).cloned().collect()
    }

    fn fewer_words(&self, reason: Reason) -> u32 {
        let words = instructions::words(&self.job.limits);
        match reason {
            Reason::TooLong | Reason::Unfinished => (words / 2).max(1),
            _ => words,
        }
    }
}

const MOST_ASKS: u32 = 2;
const MOST_TIGHTENINGS: u32 = 2;
