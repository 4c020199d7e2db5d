//! Reasons why the rules of the configuration take a request for one of a person.

use super::{Clues, Outcome, Recognised, changed_head_of, names_someone, outcomes, recognise};
use serde::Serialize;
use settings::{KeptConversations, RuleClue, RuleCondition, Settings};

#[derive(Debug, Serialize)]
pub struct Explanation {
    pub rules: Vec<RuleTrial>,
    /// First rule that holds, counted from 1. `None`: no rule holds.
    pub rule: Option<usize>,
    pub person: String,
    pub room: String,
    pub kept: &'static str,
    pub is_remembered: bool,
    pub continue_minutes: u64,
    pub changed_head: &'static str,
}

#[derive(Debug, Serialize)]
pub struct RuleTrial {
    pub rule: usize,
    pub holds: bool,
    pub conditions: Vec<ConditionTrial>,
}

#[derive(Debug, Serialize)]
pub struct ConditionTrial {
    pub condition: String,
    pub holds: bool,
    pub name: Option<String>,
    pub why: Option<&'static str>,
}

/// Tries all rules on a request. `is_durable`: it is kept in a session; `is_asked_for`: in one that the client asks for, and not
/// as OpenAI's clients store responses.
pub fn explain(clues: &Clues, is_durable: bool, is_asked_for: bool, settings: &Settings) -> Explanation {
    let rules = &settings.remember.who;
    let Recognised { person, room, rule, is_private, continue_minutes, .. } = recognise(rules, clues);
    let trials = rules.iter().enumerate().map(|(at, rule)| {
        let trials = rule.conditions.iter().zip(outcomes(rule, clues));
        let conditions: Vec<ConditionTrial> = trials.map(|(condition, outcome)| trial(condition, outcome)).collect();
        RuleTrial { rule: at + 1, holds: conditions.iter().all(|condition| condition.holds), conditions }
    });
    let is_named = !person.is_empty() || !room.is_empty();
    let conversations = settings.remember.conversations;
    let is_to_be_kept = conversations.keeps(is_named);
    let kept = match (is_durable, is_private, is_to_be_kept) {
        (true, _, _) => "in a durable session, which the client asks for",
        (false, true, _) => "no: it is private",
        (false, false, true) => "beside the reply, in a session that the next request is recognised by",
        (false, false, false) if conversations == KeptConversations::None => "no: remember.conversations is \"none\"",
        (false, false, false) => "no: no rule names a person or a room, and remember.conversations is \"named\"",
    };
    Explanation {
        rules: trials.collect(),
        rule: rule.map(|at| at + 1),
        person,
        room,
        kept,
        is_remembered: conversations.remembers(is_named, is_asked_for && !names_someone(clues)) && !is_private,
        continue_minutes: continue_minutes.unwrap_or(settings.conversation.continue_minutes),
        changed_head: changed_head_of(&settings.prompt.clients, clues).into(),
    }
}

/// Writes a condition as the configuration has it.
pub(super) fn written(condition: &RuleCondition) -> String {
    let wanted = condition.wanted.to_string();
    match &condition.clue {
        RuleClue::Header(name) => format!("header {name} = {wanted:?}"),
        clue => format!("{} = {wanted:?}", clue.key()),
    }
}

fn trial(condition: &RuleCondition, outcome: Outcome) -> ConditionTrial {
    let why = match &outcome {
        Outcome::Holds(_) => None,
        Outcome::Absent => Some("the request has none"),
        Outcome::Other => Some("the request has another"),
        Outcome::Ulid => Some("a ULID names a conversation and no person"),
        Outcome::NoName => Some("what stands there is no name"),
    };
    let name = if let Outcome::Holds(name) = outcome { name } else { None };
    ConditionTrial { condition: written(condition), holds: why.is_none(), name, why }
}
