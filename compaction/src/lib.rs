#![doc = include_str!("../README.md")]

pub mod phases;
pub mod remember;

mod attempt;
mod check;
mod context;
mod language_guess;
mod languages;
mod orders;
mod pins;
mod plan;
mod request;
mod text;
mod types;
mod wishes;
mod wording;

pub use attempt::{Attempt, AttemptOutcome, AttemptStep, SummaryJob, SummaryReply, SummaryRequest};
pub use check::{Fact, FactKind, RejectionReason};
pub use context::{context_message, escape, missing_pins};
pub use pins::{Admission, admit, detect as detect_pins, detect_before as detect_pin_before};
pub use plan::{CompactionPlan, DropPlan, PlanMoment, SummaryPlan, TooLargePlan, TrimPlan, plan, prompt_tokens};
pub use request::summary_request;
pub use text::{asks, estimate_tokens, stems, stems_of_question};
pub use types::{
    CompactionLimits, Passage, PassageKind, PinnedText, PlainMessage, PromptSizes, PromptView, Speaker, Statement,
};
pub use wording::LEFT_OUT;
