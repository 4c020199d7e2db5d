//! What is said in a conversation that is played: the same for every door and server, so that two runs compare.

/// What voice does to a history, and what a power cut does to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The user answers.
    Turn,
    /// The user talked over the last reply: of it only the first third was heard.
    BargeIn,
    /// The oldest turns become a summary.
    Compaction,
    /// The service was killed and started again, and the conversation goes on.
    Restart,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Turn, Kind::BargeIn, Kind::Compaction, Kind::Restart];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Turn => "turn",
            Kind::BargeIn => "barge-in",
            Kind::Compaction => "compaction",
            Kind::Restart => "restart",
        }
    }

    pub fn mark(self) -> char {
        match self {
            Kind::Turn => 'o',
            Kind::BargeIn => 'b',
            Kind::Compaction => 'c',
            Kind::Restart => 'r',
        }
    }
}

/// One turn: first what happens to the past, then what the user says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub kind: Kind,
    /// Also at a compaction the last reply may have been talked over.
    pub cuts_last_reply: bool,
    /// What the assistant is told to be, where it changes.
    pub system: Option<String>,
    /// What the client tells the assistant just before the user speaks: a system message behind the history.
    pub note: Option<String>,
    /// Stands for all but the last `KEPT` messages.
    pub summary: Option<String>,
    pub says: String,
}

/// Messages that a compaction leaves as they are.
pub const KEPT: usize = 4;

/// What follows a summary, because roles take turns.
pub const NOTED: &str = "Noted.";

pub struct Script {
    random: u64,
    /// How often a reply is talked over, and how often the oldest turns become a summary. None: never.
    barge_in_every: usize,
    compact_every: Option<usize>,
}

impl Script {
    pub fn new(seed: u64) -> Script {
        Script { random: seed, barge_in_every: 6, compact_every: Some(9) }
    }

    /// Barge-ins so often, and no compactions; all that is said is of one length, so that waits can be compared.
    pub fn with_barge_ins(seed: u64, every: usize) -> Script {
        Script { random: seed, barge_in_every: every, compact_every: None }
    }

    /// About as many tokens as `words`: each word is one in the vocabularies of the family.
    pub fn system(&mut self, words: usize) -> String {
        let mut text = "You are a voice assistant.".to_owned();
        for _ in 0..words / 13 {
            text.push(' ');
            text.push_str(&self.sentence(12));
        }
        text
    }

    /// What was said before, pairs of the user's and the assistant's words, of about so many tokens.
    pub fn history(&mut self, tokens: usize) -> Vec<(String, String)> {
        let pairs = tokens / (SAID_WORDS + ANSWERED_WORDS + AROUND_TOKENS);
        (0..pairs).map(|_| (self.sentence(SAID_WORDS), self.sentence(ANSWERED_WORDS))).collect()
    }

    /// Turns count from one.
    pub fn step(&mut self, turn: usize) -> Step {
        let cuts_last_reply = turn > 4 && turn.is_multiple_of(self.barge_in_every);
        let compacts = turn > 6 && self.compact_every.is_some_and(|every| turn.is_multiple_of(every));
        let summary = compacts.then(|| {
            let facts: Vec<String> = (0..8).map(|_| self.sentence(10)).collect();
            format!("Summary so far: {}", facts.join(" "))
        });
        let kind = match (compacts, cuts_last_reply) {
            (true, _) => Kind::Compaction,
            (false, true) => Kind::BargeIn,
            (false, false) => Kind::Turn,
        };
        let words = if self.compact_every.is_some() { 8 + self.below(17) } else { SAID_WORDS };
        Step { kind, cuts_last_reply, system: None, note: None, summary, says: self.sentence(words) }
    }

    fn sentence(&mut self, words: usize) -> String {
        let mut text = String::new();
        for word in 0..words {
            let next = WORDS[self.below(WORDS.len())];
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

    /// SplitMix64: a few lines, and the same everywhere.
    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }
}

/// What of a reply is heard that is talked over, in characters.
pub fn heard_chars(reply: &str) -> usize {
    let chars = reply.chars().count();
    (chars / 3).max(8).min(chars)
}

const SAID_WORDS: usize = 16;
const ANSWERED_WORDS: usize = 40;
/// Two full stops and what a template writes around two messages.
const AROUND_TOKENS: usize = 14;

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
            let mut script = Script::new(seed);
            (script.system(60), script.history(300), (1..=20).map(|turn| script.step(turn)).collect::<Vec<_>>())
        };
        assert_eq!(play(1), play(1));
        assert_ne!(play(1), play(2));
    }

    #[test]
    fn every_sixth_turn_is_a_barge_in_and_every_ninth_a_compaction() {
        let mut script = Script::new(1);
        let steps: Vec<Step> = (1..=24).map(|turn| script.step(turn)).collect();
        let at = |kind| (1..=24).filter(|turn| steps[turn - 1].kind == kind).collect::<Vec<usize>>();
        assert_eq!(at(Kind::BargeIn), [6, 12, 24]);
        assert_eq!(at(Kind::Compaction), [9, 18]);
        assert!(steps[17].cuts_last_reply && steps[17].summary.is_some());
        assert!(steps.iter().all(|step| (8..=24).contains(&step.says.split(' ').count())));
    }

    #[test]
    fn a_history_is_about_as_long_as_asked() {
        let words: usize = Script::new(3)
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
