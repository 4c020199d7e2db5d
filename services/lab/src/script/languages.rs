//! What people say at home, in several languages: small talk with gaps, and facts with their questions.

mod english;
mod french;
mod german;
mod spanish;

pub struct Language {
    pub code: &'static str,
    /// Small talk. `{room}`, `{food}`, `{thing}` and `{number}` are gaps.
    pub talk: &'static [&'static str],
    pub rooms: &'static [&'static str],
    pub foods: &'static [&'static str],
    pub things: &'static [&'static str],
    pub facts: &'static [Fact],
}

/// `{about}` and `{value}` are gaps; each `about` is used once, so that a question has one answer.
pub struct Fact {
    pub kind: &'static str,
    pub told: &'static [&'static str],
    pub asked: &'static [&'static str],
    pub about: &'static [&'static str],
    pub values: Values,
}

pub enum Values {
    Words(&'static [&'static str]),
    /// Of four digits.
    Number,
}

pub const LANGUAGES: &[&Language] = &[&english::ENGLISH, &german::GERMAN, &french::FRENCH, &spanish::SPANISH];
