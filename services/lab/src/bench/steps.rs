//! Words of a played conversation: the same for every door and server, so that two runs compare.

use crate::charts::{Chart, Series};
use experiment::SeededRandom;
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnKind {
    #[default]
    Turn,
    BargeIn,    // the user talked over the last reply after its first third
    Compaction, // the oldest turns become a summary
    /// The service was killed and started again, and the conversation continues.
    Restart,
}

impl TurnKind {
    pub const ALL: [TurnKind; 4] = [TurnKind::Turn, TurnKind::BargeIn, TurnKind::Compaction, TurnKind::Restart];

    /// Draws the time to the first token, in series by kind.
    pub fn chart<'a>(turns: impl Iterator<Item = &'a TurnCost> + Clone, x: &'static str) -> Chart {
        let at =
            |turn: &TurnCost| if x == TURNS { Some(turn.turn as f64) } else { turn.prompt_tokens.map(|n| n as f64) };
        let series = [("turn", 'o'), ("barge-in", 'b'), ("compaction", 'c'), ("restart", 'r')];
        let series = TurnKind::ALL.into_iter().zip(series).map(|(kind, (name, mark))| {
            let turns = turns.clone().filter(|turn| turn.kind == kind);
            Series::dots(name, mark, turns.filter_map(|turn| Some((at(turn)?, turn.first_token_ms?))).collect())
        });
        Chart { title: "Time to the first token".to_owned(), x, y: "ms", series: series.collect() }
    }
}

/// Axis of a chart of turns: the length of the prompt, or the number of the turn if a service does not count.
pub const PROMPT_TOKENS: &str = "tokens of the prompt";
pub const TURNS: &str = "turns";

/// One turn: first a change of the past, then the user's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserStep {
    pub kind: TurnKind,
    /// True if the user talked over the last reply, also at a compaction.
    pub cuts_last_reply: bool,
    pub system: Option<String>, // new instructions, if they change
    /// System message behind the history, just before the user speaks.
    pub note: Option<String>,
    pub summary: Option<String>, // replaces all but the last `KEPT` messages
    pub says: String,
}

pub struct Opening {
    pub system: String,
    pub history: Vec<(String, String)>, // pairs of the user's and the assistant's words
    pub reply_tokens: usize,
    pub patience: Duration,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct TurnCost {
    pub turn: usize,
    pub kind: TurnKind,
    pub prompt_tokens: Option<u64>,
    pub cached_tokens: Option<u64>,
    pub computed_tokens: Option<u64>,
    pub reply_tokens: Option<u64>,
    pub queue_ms: Option<f64>,       // wait for the model's earlier work
    pub first_token_ms: Option<f64>, // `None`: the reply had no words
    pub total_ms: f64,
    pub reason: Option<String>, // why tokens had to be computed
    /// Tokens of the reply that were ready when the client asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun_early: Option<u64>,
    /// Tokens that a note would have saved instead of changed instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_save_tokens: Option<u64>,
}

impl TurnCost {
    pub fn new(turn: usize, kind: TurnKind) -> TurnCost {
        TurnCost { turn, kind, ..TurnCost::default() }
    }
}

pub const KEPT: usize = 4; // messages that a compaction leaves as they are

pub const NOTED: &str = "Noted."; // follows a summary, because roles take turns

pub struct Filler {
    random: SeededRandom,
    /// Turns between two barge-ins, and between two compactions. `None`: never.
    barge_in_every: usize,
    compact_every: Option<usize>,
}

impl Filler {
    pub fn new(seed: u64) -> Filler {
        Filler { random: SeededRandom::new(seed), barge_in_every: 6, compact_every: Some(9) }
    }

    /// Sets the distance of barge-ins, without compactions; all turns have one length, so that waits can be compared.
    pub fn with_barge_ins(seed: u64, every: usize) -> Filler {
        Filler { random: SeededRandom::new(seed), barge_in_every: every, compact_every: None }
    }

    /// Writes about as many tokens as `words`: each word is one in the vocabularies of the family.
    pub fn system(&mut self, words: usize) -> String {
        let mut text = "You are a voice assistant.".to_owned();
        for _ in 0..words / 13 {
            text.push(' ');
            text.push_str(&self.sentence(12));
        }
        text
    }

    /// Writes pairs of the user's and the assistant's words, of about `tokens` tokens.
    pub fn history(&mut self, tokens: usize) -> Vec<(String, String)> {
        let pairs = tokens / (SAID_WORDS + ANSWERED_WORDS + AROUND_TOKENS);
        (0..pairs).map(|_| (self.sentence(SAID_WORDS), self.sentence(ANSWERED_WORDS))).collect()
    }

    pub fn step(&mut self, turn: usize) -> UserStep {
        // turns count from one
        let cuts_last_reply = turn > 4 && turn.is_multiple_of(self.barge_in_every);
        let compacts = turn > 6 && self.compact_every.is_some_and(|every| turn.is_multiple_of(every));
        let summary = compacts.then(|| {
            let facts: Vec<String> = (0..8).map(|_| self.sentence(10)).collect();
            format!("Summary so far: {}", facts.join(" "))
        });
        let kind = match (compacts, cuts_last_reply) {
            (true, _) => TurnKind::Compaction,
            (false, true) => TurnKind::BargeIn,
            (false, false) => TurnKind::Turn,
        };
        let words = if self.compact_every.is_some() { 8 + self.random.below(17) } else { SAID_WORDS };
        UserStep { kind, cuts_last_reply, system: None, note: None, summary, says: self.sentence(words) }
    }

    fn sentence(&mut self, words: usize) -> String {
        let mut text = String::new();
        for word in 0..words {
            let next = WORDS[self.random.below(WORDS.len())];
            if word > 0 {
                text.push(' ');
                text.push_str(next);
            } else {
                text.extend(next.chars().enumerate().map(|(i, c)| if i == 0 { c.to_ascii_uppercase() } else { c }));
            }
        }
        text.push('.');
        text
    }
}

pub fn heard_chars(reply: &str) -> usize {
    let chars = reply.chars().count();
    (chars / 3).max(8).min(chars)
}

const SAID_WORDS: usize = 16;
const ANSWERED_WORDS: usize = 40;
const AROUND_TOKENS: usize = 14; // two full stops and the template's own around two messages

const WORDS: [&str; 32] = [
    "kitchen", "lamp", "morning", "bread", "river", "paper", "clock", "garden", "music", "window", "summer", "table",
    "friend", "train", "yellow", "number", "water", "street", "school", "phone", "letter", "animal", "station",
    "doctor", "weather", "finger", "market", "winter", "guitar", "village", "coffee", "mountain",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_says_the_same() {
        let play = |seed| {
            let mut script = Filler::new(seed);
            (script.system(60), script.history(300), (1..=20).map(|turn| script.step(turn)).collect::<Vec<_>>())
        };
        assert_eq!(play(1), play(1));
        assert_ne!(play(1), play(2));
    }

    #[test]
    fn every_sixth_turn_is_a_barge_in_and_every_ninth_a_compaction() {
        let mut script = Filler::new(1);
        let steps: Vec<UserStep> = (1..=24).map(|turn| script.step(turn)).collect();
        let at = |kind| (1..=24).filter(|turn| steps[turn - 1].kind == kind).collect::<Vec<usize>>();
        assert_eq!(at(TurnKind::BargeIn), [6, 12, 24]);
        assert_eq!(at(TurnKind::Compaction), [9, 18]);
        assert!(steps[17].cuts_last_reply && steps[17].summary.is_some());
        assert!(steps.iter().all(|step| (8..=24).contains(&step.says.split(' ').count())));
    }

    #[test]
    fn a_history_is_about_as_long_as_asked() {
        let words: usize = Filler::new(3)
            .history(7_000)
            .iter()
            .map(|(said, answer)| said.split(' ').count() + answer.split(' ').count())
            .sum();
        assert_eq!(words, 100 * (SAID_WORDS + ANSWERED_WORDS));
    }

    #[test]
    fn a_third_is_heard_and_never_more_than_was_said() {
        assert_eq!(heard_chars(&"é".repeat(90)), 30);
        assert_eq!(heard_chars(&"x".repeat(12)), 8);
        assert_eq!(heard_chars("hello"), 5);
    }
}
