//! Input of the crate: plain data without knowledge of its origin.

/// One piece of a conversation: a message, a call of a tool, or its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    pub id: String,
    pub kind: PassageKind,
    pub text: String, // the words; of a call its name and arguments
    pub tokens: u32,  // tokens in the rendered prompt, with the template's own around them
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassageKind {
    User,
    Assistant,
    /// A call of a tool. Ids may repeat: a result belongs to the nearest call before it.
    Call {
        call_id: String,
    },
    Output {
        call_id: String,
    },
    System, // a note of the system in the middle of the conversation
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptView {
    pub passages: Vec<Passage>, // passages that no summary tells yet, oldest first
    pub summary: String,        // tells all before `passages`; empty: there is none
    pub dropped_through: Option<String>,
    pub trimmed_through: Option<String>, // up to this one, results of tools are only marked
    /// Last passage when an attempt gave up: the next attempt waits until there is more to gain.
    pub gave_up_at: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptSizes {
    /// Instructions, tools, notes, and the template's text around all of it.
    pub fixed_tokens: u32,
    pub context_tokens: u32,     // the present context (pins and summary); 0: there is none
    pub pins_tokens: u32,        // a context of all pins and no summary
    pub summary_tokens: u32,     // the summary in the present context
    pub instruction_tokens: u32, // the request for a summary
    pub marker_tokens: u32,      // [`LEFT_OUT`](crate::LEFT_OUT) in the place of a tool's result
}

/// The numbers of a preset. Fills are shares of `ctx_size`, taken by the rendered prompt and the reply reserve.
///
/// Every function here is safe for any numbers. The configuration checks whether a preset can reach its target, because
/// it knows the line that is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionLimits {
    pub ctx_size: u32,
    pub soft_fill: f64,
    pub hard_fill: f64,
    pub target_fill: f64,
    pub tail_tokens: u32,
    pub summary_tokens: u32,
    pub reply_reserve_tokens: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedText {
    pub id: String,
    pub text: String,
    pub source: Option<String>, // the passage of its words; `None`: it was put there by hand
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainMessage {
    pub speaker: Speaker,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    User,
    Assistant,
    /// The context: data, neither an order nor said by a person. A prompt shows it with the role `tool`.
    Context,
}

impl CompactionLimits {
    pub fn room_tokens(&self) -> u32 {
        // most tokens of a prompt, beside the reply's reserve
        self.ctx_size.saturating_sub(self.reply_reserve_tokens)
    }

    /// Tokens from which on a prompt is compacted in the silence after a turn.
    pub fn soft_tokens(&self) -> u32 {
        self.tokens_at(self.soft_fill)
    }

    pub fn hard_tokens(&self) -> u32 {
        // larger prompts are not sent
        self.tokens_at(self.hard_fill).min(self.room_tokens())
    }

    pub fn target_tokens(&self) -> u32 {
        // a compaction must reach it
        self.tokens_at(self.target_fill)
    }

    pub fn ask_tokens(&self) -> u32 {
        self.summary_tokens - self.summary_tokens / 4
    }

    /// Words to request: many languages need two tokens for one.
    pub fn words_to_ask_for(&self) -> u32 {
        (self.ask_tokens() / 2).max(1)
    }

    pub fn pins_tokens(&self) -> u32 {
        // for all pins together: as much as a summary
        self.summary_tokens
    }

    fn tokens_at(&self, fill: f64) -> u32 {
        // A float that is too large, negative or no number saturates.
        ((fill * f64::from(self.ctx_size)) as u32).saturating_sub(self.reply_reserve_tokens)
    }
}

impl PromptView {
    pub fn dropped(&self) -> usize {
        // passages at the head that left the prompt
        self.count_through(self.dropped_through.as_deref())
    }

    pub fn trimmed(&self) -> usize {
        self.count_through(self.trimmed_through.as_deref())
    }

    pub fn count_through(&self, id: Option<&str>) -> usize {
        let position = id.and_then(|id| self.passages.iter().position(|passage| passage.id == id));
        position.map_or(0, |index| index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_of_the_prompt_without_the_reserve() {
        let limits = CompactionLimits {
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
    }

    #[test]
    fn hostile_limits_are_numbers_too() {
        let limits = CompactionLimits {
            ctx_size: 0,
            soft_fill: f64::NAN,
            hard_fill: f64::INFINITY,
            target_fill: -1.0,
            tail_tokens: u32::MAX,
            summary_tokens: u32::MAX,
            reply_reserve_tokens: u32::MAX,
        };
        assert_eq!((limits.soft_tokens(), limits.hard_tokens(), limits.target_tokens()), (0, 0, 0));
    }
}
