#![doc = include_str!("../README.md")]

mod apply;
mod attempt;
mod check;
mod instructions;
mod language;
mod pins;
mod plan;
mod types;
mod wording;
mod words;

pub use apply::{escape, memory, missing_pins};
pub use attempt::{Ask, Attempt, Job, MadeBy, Outcome, Reply, Step};
pub use check::{Fact, FactKind, Reason, SaidBy, Submission, Verdict, check, demanded, is_order_like, missing};
pub use instructions::{again, first as instructions, words};
pub use pins::{Admission, admit, detect as detect_pins, detect_before as detect_pin_before};
pub use plan::{Drop, Moment, Plan, Summarise, TooLarge, Trim, plan, prompt_tokens, tighter};
pub use types::{Entry, History, Kind, Limits, Message, Pin, Role, Sizes, fill};
pub use wording::LEFT_OUT;
pub use words::estimate_tokens;
