#![doc = include_str!("../README.md")]

pub mod phases;

mod attempt;
mod check;
mod context;
mod pins;
mod plan;
mod request;
mod types;
mod wording;

pub use attempt::{Attempt, AttemptOutcome, AttemptStep, SummaryJob, SummaryReply, SummaryRequest};
pub use check::{Fact, RejectionReason};
pub use context::{context_message, missing_pins};
pub use pins::{Admission, admit, detect as detect_pins, detect_before as detect_pin_before};
pub use plan::{CompactionPlan, DropPlan, PlanMoment, SummaryPlan, TooLargePlan, TrimPlan, plan, prompt_tokens};
pub use request::summary_request;
pub use types::{CompactionLimits, Passage, PassageKind, PinnedText, PlainMessage, PromptSizes, PromptView, Speaker};
pub use wording::LEFT_OUT;
