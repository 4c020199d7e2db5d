//! Recognition of speakers, by the rules of the configuration over what a request tells. Pure: asks no store and no
//! clock.
//!
//! A rule chooses among the persons of the caller's own user, whatever a request tells.

mod explain;
mod persons;
mod recent;
mod scope;

pub use explain::{Explanation, explain};
pub use persons::{Persons, WRONG_SPEAKER};
pub use recent::TakenRequests;
pub use scope::{Scope, ScopeDigest};

use http::HeaderMap;
use session::{Message, MessageRole};
use settings::{ChangedHead, ChangedHeadRule, PersonRule, RuleClue, RuleCondition, RuleName, WantedText, person_name};
use std::borrow::Cow;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BodyClues {
    pub model: String,
    pub user: Option<String>,
    pub safety_identifier: Option<String>,
    pub prompt_cache_key: Option<String>,
    pub satellite: Option<String>,
    pub device: Option<String>,
    pub instructions: Option<String>,
    pub speaker: Option<String>,
    pub is_private: bool,
}

/// Reads a flag of a client's metadata. `None`: the text is neither true nor false.
pub fn is_private(text: Option<&str>) -> Option<bool> {
    match text {
        None | Some("false") => Some(false),
        Some("true") => Some(true),
        Some(_) => None,
    }
}

impl BodyClues {
    pub fn of(model: &str, messages: &[Message]) -> BodyClues {
        let head = messages.iter().take_while(|message| message.role == MessageRole::System);
        let texts: Vec<String> = head.map(Message::text).collect();
        let instructions = (!texts.is_empty()).then(|| texts.join("\n\n"));
        let speaker = messages.last().filter(|last| last.role == MessageRole::User).and_then(|last| last.name.clone());
        BodyClues { model: model.to_owned(), instructions, speaker, ..BodyClues::default() }
    }
}

#[derive(Clone, Copy)]
pub struct Clues<'a> {
    pub key: Option<(&'a str, &'a str)>,
    /// Part of the URL before the route's path.
    pub path: Option<&'a str>,
    pub headers: &'a HeaderMap,
    pub body: &'a BodyClues,
    pub speaker: Option<&'a str>,
    /// Bytes of instructions that rules look through (`remember.rule_bytes`).
    pub most: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recognised {
    pub person: String,
    pub room: String,
    pub rule: Option<usize>,
    pub is_private: bool,
    /// Minutes that the rule sets. `None`: the configuration's.
    pub continue_minutes: Option<u64>,
    pub is_found: bool,
    pub by_speaker: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Holds(Option<String>),
    Absent,
    Other,
    Ulid,
    NoName,
}

/// Rules with all their conditions tried on a request but those on the speaker: one request may name many speakers, and
/// its instructions are looked through once.
pub struct TriedRules<'a> {
    rules: &'a [PersonRule],
    clues: Clues<'a>,
    /// Name that the tried conditions of each rule found. `None`: one of them does not hold.
    found: Vec<Option<Option<String>>>,
}

impl<'a> TriedRules<'a> {
    pub fn new(rules: &'a [PersonRule], clues: &Clues<'a>) -> TriedRules<'a> {
        let found = rules.iter().map(|rule| try_conditions(rule, false, None, clues)).collect();
        TriedRules { rules, clues: *clues, found }
    }

    pub fn recognise(&self, speaker: Option<&str>) -> Recognised {
        let clues = Clues { speaker, ..self.clues };
        let mut tried = self.rules.iter().zip(&self.found).enumerate();
        let holding = tried.find_map(|(at, (rule, found))| {
            let found = try_conditions(rule, true, found.clone()?, &clues)?;
            let name = |name: &RuleName| match name {
                RuleName::Named(name) => Some(name.clone()),
                RuleName::Found => found.clone(),
            };
            Some(Recognised {
                person: name(&rule.person)?,
                room: name(&rule.room)?,
                rule: Some(at),
                is_private: rule.is_private,
                continue_minutes: rule.continue_minutes,
                is_found: finds_name(rule),
                by_speaker: rule.conditions.iter().any(|condition| condition.clue == RuleClue::Speaker),
            })
        });
        holding.unwrap_or_default()
    }
}

/// Tries the conditions of a rule on the speaker, or all others, and returns the name that they find. `None`: one does
/// not hold.
fn try_conditions(rule: &PersonRule, on_speaker: bool, found: Option<String>, clues: &Clues) -> Option<Option<String>> {
    let mut tried = rule.conditions.iter().filter(|condition| (condition.clue == RuleClue::Speaker) == on_speaker);
    tried.try_fold(found, |found, condition| match outcome(condition, finds_name(rule), clues) {
        Outcome::Holds(name) => Some(name.or(found)),
        _ => None,
    })
}

pub fn recognise(rules: &[PersonRule], clues: &Clues) -> Recognised {
    let mut recognised = TriedRules::new(rules, clues).recognise(clues.speaker);
    recognised.is_private |= clues.body.is_private;
    recognised
}

pub fn changed_head_of(rules: &[ChangedHeadRule], clues: &Clues) -> ChangedHead {
    let holds = |condition: &RuleCondition| matches!(outcome(condition, false, clues), Outcome::Holds(_));
    let rule = rules.iter().find(|rule| rule.conditions.iter().all(holds));
    rule.map_or(ChangedHead::Exact, |rule| rule.changed_head)
}

/// Tells whether a request names its speaker: one key may serve many people whom no rule knows.
pub fn names_someone(clues: &Clues) -> bool {
    let BodyClues { user, safety_identifier, prompt_cache_key, .. } = clues.body;
    let fields = [user, safety_identifier, prompt_cache_key].map(|field| field.as_deref().unwrap_or_default());
    let speaker = clues.speaker.is_some_and(|speaker| !speaker.is_empty());
    speaker || fields.iter().any(|field| !field.is_empty() && !is_ulid(field))
}

pub fn outcomes(rule: &PersonRule, clues: &Clues) -> Vec<Outcome> {
    rule.conditions.iter().map(|condition| outcome(condition, finds_name(rule), clues)).collect()
}

fn finds_name(rule: &PersonRule) -> bool {
    rule.person == RuleName::Found || rule.room == RuleName::Found
}

fn outcome(condition: &RuleCondition, name_is_wanted: bool, clues: &Clues) -> Outcome {
    let texts = texts(&condition.clue, clues);
    let mut result = Outcome::Absent;
    for text in texts {
        let names = found(&condition.clue, &condition.wanted, &text);
        result = match names {
            None => Outcome::Other,
            Some(_) if !condition.wanted.is_open() => return Outcome::Holds(None),
            Some(name) if is_field(&condition.clue) && (is_ulid(&text) || is_ulid(name)) => Outcome::Ulid,
            Some(_) if !name_is_wanted => return Outcome::Holds(None),
            Some(name) => match person_name(name) {
                Some(name) => return Outcome::Holds(Some(name)),
                None => Outcome::NoName,
            },
        };
    }
    result
}

fn is_field(clue: &RuleClue) -> bool {
    matches!(clue, RuleClue::User | RuleClue::SafetyIdentifier | RuleClue::PromptCacheKey)
}

fn texts<'a>(clue: &RuleClue, clues: &Clues<'a>) -> Vec<Cow<'a, str>> {
    let body = clues.body;
    let one = |text: Option<&'a str>| text.filter(|text| !text.is_empty()).map(Cow::Borrowed).into_iter().collect();
    match clue {
        RuleClue::Key => {
            let names = clues.key.map(|(id, name)| [name, id]).into_iter().flatten();
            names.filter(|name| !name.is_empty()).map(Cow::Borrowed).collect()
        }
        RuleClue::Path => one(clues.path),
        RuleClue::Model => one(Some(&body.model)),
        RuleClue::Header(name) => {
            let values =
                clues.headers.get_all(name).iter().filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
            values.filter(|value| !value.is_empty()).map(percent_decoded).collect()
        }
        RuleClue::User => one(body.user.as_deref()),
        RuleClue::SafetyIdentifier => one(body.safety_identifier.as_deref()),
        RuleClue::PromptCacheKey => one(body.prompt_cache_key.as_deref()),
        RuleClue::Satellite => one(body.satellite.as_deref()),
        RuleClue::Device => one(body.device.as_deref()),
        RuleClue::Instructions => ends(body.instructions.as_deref().unwrap_or_default(), clues.most),
        RuleClue::Speaker => one(clues.speaker),
    }
}

/// Returns a text whole, or the beginning and the end of one that is longer than `most` bytes.
fn ends(text: &str, most: usize) -> Vec<Cow<'_, str>> {
    let half = most / 2;
    let parts = match text.len() <= most {
        true => [text, ""],
        false => [&text[..text.floor_char_boundary(half)], &text[text.ceil_char_boundary(text.len() - half)..]],
    };
    parts.into_iter().filter(|part| !part.is_empty()).map(Cow::Borrowed).collect()
}

/// Returns the part of a text that stands for the name, or all of it if the rule looks for no name. `None`: the text
/// does not match.
fn found<'a>(clue: &RuleClue, wanted: &WantedText, text: &'a str) -> Option<&'a str> {
    match (wanted, clue) {
        (WantedText::Any, _) => Some(text),
        (WantedText::Exactly(words), RuleClue::Instructions) => text.contains(words).then_some(text),
        (WantedText::Exactly(words), _) => (text == words).then_some(text),
        (WantedText::Around { before, after }, RuleClue::Instructions) => {
            let behind = text.match_indices(before.as_str()).map(|(at, _)| &text[at + before.len()..]);
            // A name is short: the rest of long instructions is not looked through for each place.
            behind.into_iter().find_map(|behind| {
                let end = behind.char_indices().nth(LONGEST_NAME).map_or(behind.len(), |(end, _)| end);
                let until = (end + after.len()).min(behind.len());
                let until = (until..=behind.len()).find(|at| behind.is_char_boundary(*at))?;
                let name = &behind[..behind[..until].find(after.as_str())?];
                (!name.trim().is_empty() && !name.contains('\n')).then_some(name)
            })
        }
        (WantedText::Around { before, after }, _) => {
            text.strip_prefix(before.as_str())?.strip_suffix(after.as_str()).filter(|name| !name.is_empty())
        }
    }
}

const LONGEST_NAME: usize = 128;

fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, behind @ ..] = rest {
        let digit = |at: usize| behind.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Returns true for 26 letters and digits of Crockford's alphabet, in either case: 128 bits, so the first is at most 7.
pub fn is_ulid(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte.to_ascii_uppercase(), b'0'..=b'9' | b'A'..=b'H' | b'J' | b'K' | b'M' | b'N' | b'P'..=b'T' | b'V'..=b'Z');
    text.len() == 26 && matches!(text.as_bytes()[0], b'0'..=b'7') && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests;
