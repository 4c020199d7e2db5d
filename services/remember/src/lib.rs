#![doc = include_str!("../README.md")]

mod about;
mod asked;
mod aspects;
mod block;
mod by_model;
mod clauses;
mod days;
mod details;
mod escape;
mod extract;
mod frames;
mod heads;
mod language_guess;
mod languages;
mod matcher;
mod meant;
mod meant_fact;
mod nouns;
mod orders;
mod same_subject;
#[cfg(test)]
mod tests;
mod text;
mod wishes;
mod word_heads;

pub use about::{about, is_secret};
pub use asked::{asked_to_keep, asked_to_keep_before};
pub use aspects::Aspects;
pub use block::{TellableFact, block, choose};
pub use by_model::{LEARN_ANSWER, LearnedChange, ShownFact, learn_request, learned};
pub use clauses::clauses;
pub use days::is_of_its_day;
pub use details::{
    Detail, DetailKind, FoundValue, HeldDetails, SaidValue, clip_around, details_of, is_correction, is_first_person,
    is_negated, values,
};
pub use escape::escape;
pub use extract::{FactChange, Statement, asks_to_forget, extract, forgets, is_meant};
pub use frames::is_only_told;
pub use heads::Heads;
pub use language_guess::{differs, is_foreign, language_of};
pub use languages::LanguageWords;
pub use matcher::{FactMatcher, MatchTokens, TextSide};
pub use meant::{Meant, meant};
pub use meant_fact::{ChoiceWeights, MeantFact, NearFact, fit_of_likeness, meant_fact, same_words};
pub use orders::{has_order, has_role_tokens, is_order_like};
pub use same_subject::{ComparedStatement, Differences, leaves_out_name};
pub use text::{as_one, asks, estimate_tokens, folded, is_question, said_lines, sentences, stems, stems_of_question};
pub use wishes::{WishScope, wish_of};
