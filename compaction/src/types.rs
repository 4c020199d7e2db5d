//! What the caller brings: plain data, nothing that knows where it came from.

/// One entry of a history: what was said, a call of a tool, or its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: String,
    pub kind: Kind,
    /// The words; of a call its name and arguments.
    pub text: String,
    /// What it takes in the rendered prompt, with what the template writes around it and without its reasoning.
    pub tokens: u32,
    /// What its reasoning takes in the rendered prompt; 0 where the template leaves earlier reasoning out.
    pub reasoning_tokens: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    User,
    Assistant,
    /// A call of a tool. Ids may repeat: a result belongs to the nearest call before it.
    Call {
        call_id: String,
    },
    Output {
        call_id: String,
    },
    /// A note of the system in the middle of the conversation.
    System,
}

/// A conversation as its prompt shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// What no summary tells yet, oldest first.
    pub entries: Vec<Entry>,
    /// The summary that stands for all before `entries`; empty: there is none.
    pub summary: String,
    /// Entries up to this one left the prompt, and no summary tells them yet.
    pub dropped_through: Option<String>,
    /// Up to this one, reasoning is left out and results of tools are only marked.
    pub trimmed_through: Option<String>,
    /// The last entry when an attempt gave up: the next one waits until there is more to gain.
    pub gave_up_at: Option<String>,
}

/// Tokens of what stands in the prompt besides the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Instructions, tools, notes, and what the template writes around all of it.
    pub fixed_tokens: u32,
    /// The memory (pins and summary) as it stands in the prompt now; 0: there is none.
    pub memory_tokens: u32,
    /// A memory of all pins and no summary.
    pub pins_tokens: u32,
    /// The summary that stands in the memory now.
    pub summary_tokens: u32,
    /// The request for a summary.
    pub instruction_tokens: u32,
    /// [`LEFT_OUT`](crate::LEFT_OUT) in the place of a tool's result.
    pub marker_tokens: u32,
}

/// The numbers of a preset. Fills are shares of `ctx_size`, taken by the rendered prompt and the reply reserve.
///
/// Every function here is safe for any numbers; whether a preset can ever reach its target is for the configuration to
/// check, where it can be said which line is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub ctx_size: u32,
    pub soft_fill: f64,
    pub hard_fill: f64,
    pub target_fill: f64,
    pub tail_tokens: u32,
    pub summary_tokens: u32,
    pub reply_reserve_tokens: u32,
}

/// What the user wants kept word for word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub id: String,
    pub text: String,
    /// The entry it was said in; none: it was put there by hand.
    pub source: Option<String>,
}

/// A message of a request or of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub role: Role,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    /// Data: what is neither an order nor said by anybody.
    Tool,
}

impl Limits {
    /// The most a prompt may take: the reply has its reserve.
    pub fn room_tokens(&self) -> u32 {
        self.ctx_size.saturating_sub(self.reply_reserve_tokens)
    }

    /// Prompts of so many tokens or more are compacted in the silence after a turn.
    pub fn soft_tokens(&self) -> u32 {
        self.mark(self.soft_fill)
    }

    /// Larger prompts are not sent.
    pub fn hard_tokens(&self) -> u32 {
        self.mark(self.hard_fill).min(self.room_tokens())
    }

    /// What a compaction must reach.
    pub fn target_tokens(&self) -> u32 {
        self.mark(self.target_fill)
    }

    /// The reply that is asked for as a summary. A part of `summary_tokens` stays free, for facts that it lacks.
    pub fn ask_tokens(&self) -> u32 {
        self.summary_tokens - self.summary_tokens / 4
    }

    fn mark(&self, fill: f64) -> u32 {
        // A float that is too large, negative or no number saturates.
        ((fill * f64::from(self.ctx_size)) as u32).saturating_sub(self.reply_reserve_tokens)
    }
}

/// The share of the window that a prompt of so many tokens and the reply reserve take.
pub fn fill(prompt_tokens: u32, limits: &Limits) -> f64 {
    let taken = f64::from(prompt_tokens) + f64::from(limits.reply_reserve_tokens);
    taken / f64::from(limits.ctx_size.max(1))
}

impl History {
    /// Entries at the head that left the prompt.
    pub fn dropped(&self) -> usize {
        self.count_through(self.dropped_through.as_deref())
    }

    /// Entries at the head of which only the words are shown.
    pub fn trimmed(&self) -> usize {
        self.count_through(self.trimmed_through.as_deref())
    }

    /// Entries up to and with this one; an unknown id is none of them.
    pub fn count_through(&self, id: Option<&str>) -> usize {
        let position = id.and_then(|id| self.entries.iter().position(|entry| entry.id == id));
        position.map_or(0, |index| index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_of_the_prompt_without_the_reserve() {
        let limits = Limits {
            ctx_size: 1000,
            soft_fill: 0.75,
            hard_fill: 0.95,
            target_fill: 0.5,
            tail_tokens: 200,
            summary_tokens: 62,
            reply_reserve_tokens: 80,
        };
        assert_eq!((limits.soft_tokens(), limits.hard_tokens(), limits.target_tokens()), (670, 870, 420));
        assert_eq!((limits.room_tokens(), limits.ask_tokens()), (920, 47));
        assert!((fill(670, &limits) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn hostile_limits_are_numbers_too() {
        let limits = Limits {
            ctx_size: 0,
            soft_fill: f64::NAN,
            hard_fill: f64::INFINITY,
            target_fill: -1.0,
            tail_tokens: u32::MAX,
            summary_tokens: u32::MAX,
            reply_reserve_tokens: u32::MAX,
        };
        assert_eq!((limits.soft_tokens(), limits.hard_tokens(), limits.target_tokens()), (0, 0, 0));
        assert!(fill(u32::MAX, &limits).is_finite());
    }
}
