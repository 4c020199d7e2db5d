//! What the caller brings: plain data, nothing that knows where it came from.

/// One piece of a conversation: what was said, a call of a tool, or its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    pub id: String,
    pub kind: PassageKind,
    /// The words; of a call its name and arguments.
    pub text: String,
    /// What it takes in the rendered prompt, with what the template writes around it.
    pub tokens: u32,
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
    /// A note of the system in the middle of the conversation.
    System,
}

/// A conversation as its prompt shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptView {
    /// What no summary tells yet, oldest first.
    pub passages: Vec<Passage>,
    /// The summary that stands for all before `passages`; empty: there is none.
    pub summary: String,
    /// Passages up to this one left the prompt, and no summary tells them yet.
    pub dropped_through: Option<String>,
    /// Up to this one, results of tools are only marked.
    pub trimmed_through: Option<String>,
    /// The last passage when an attempt gave up: the next attempt waits until there is more to gain.
    pub gave_up_at: Option<String>,
}

/// Tokens of what stands in the prompt besides the passages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptSizes {
    /// Instructions, tools, notes, and what the template writes around all of it.
    pub fixed_tokens: u32,
    /// The context (pins and summary) as it stands in the prompt now; 0: there is none.
    pub context_tokens: u32,
    /// A context of all pins and no summary.
    pub pins_tokens: u32,
    /// The summary that stands in the context now.
    pub summary_tokens: u32,
    /// The request for a summary.
    pub instruction_tokens: u32,
    /// [`LEFT_OUT`](crate::LEFT_OUT) in the place of a tool's result.
    pub marker_tokens: u32,
}

/// The numbers of a preset. Fills are shares of `ctx_size`, taken by the rendered prompt and the reply reserve.
///
/// Every function here is safe for any numbers. Whether a preset can ever reach its target is for the configuration to
/// check, which knows the line that is wrong.
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

/// What the user wants kept word for word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedText {
    pub id: String,
    pub text: String,
    /// The passage it was said in; none: it was put there by hand.
    pub source: Option<String>,
}

/// A message that compaction puts into a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainMessage {
    pub speaker: Speaker,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    User,
    Assistant,
    /// The context: data, neither an order nor said by anyone. A prompt shows it with the role `tool`.
    Context,
}

impl CompactionLimits {
    /// The most a prompt may take: the reply has its reserve.
    pub fn room_tokens(&self) -> u32 {
        self.ctx_size.saturating_sub(self.reply_reserve_tokens)
    }

    /// Prompts of so many tokens or more are compacted in the silence after a turn.
    pub fn soft_tokens(&self) -> u32 {
        self.tokens_at(self.soft_fill)
    }

    /// Larger prompts are not sent.
    pub fn hard_tokens(&self) -> u32 {
        self.tokens_at(self.hard_fill).min(self.room_tokens())
    }

    /// What a compaction must reach.
    pub fn target_tokens(&self) -> u32 {
        self.tokens_at(self.target_fill)
    }

    /// The reply that is asked for as a summary. A part of `summary_tokens` stays free, for facts that it lacks.
    pub fn ask_tokens(&self) -> u32 {
        self.summary_tokens - self.summary_tokens / 4
    }

    /// Words to ask for: many languages need two tokens for one.
    pub fn words_to_ask_for(&self) -> u32 {
        (self.ask_tokens() / 2).max(1)
    }

    /// What all pins together may take: as much as a summary.
    pub fn pins_tokens(&self) -> u32 {
        self.summary_tokens
    }

    fn tokens_at(&self, fill: f64) -> u32 {
        // A float that is too large, negative or no number saturates.
        ((fill * f64::from(self.ctx_size)) as u32).saturating_sub(self.reply_reserve_tokens)
    }
}

impl PromptView {
    /// Passages at the head that left the prompt.
    pub fn dropped(&self) -> usize {
        self.count_through(self.dropped_through.as_deref())
    }

    /// Passages at the head of which results of tools are only marked.
    pub fn trimmed(&self) -> usize {
        self.count_through(self.trimmed_through.as_deref())
    }

    /// Passages up to and with this one; an unknown id is none of them.
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
