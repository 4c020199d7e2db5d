//! What a backend is asked.

use crate::manner::Manner;
use crate::realtime::ToolChoice;
use engine::RequestClass as Priority;
use settings::{Preset, Thinking};
use std::sync::Arc;
use text::chat::ChatPrompt;

#[derive(Clone, Debug)]
pub struct Ask {
    /// Messages, tools and template options. `enable_thinking` in the options counts as the client's word on thinking.
    pub chat: ChatPrompt,
    pub preset: Arc<Preset>,
    pub priority: Priority,
    pub purpose: Purpose,
    /// The session whose words these are (`SessionRef::past_owner`): what is computed of them goes with `Backend::forget`.
    pub past_owner: Option<u64>,
    /// None: the preset's reply reserve, or what is left of the window if that is less.
    pub max_tokens: Option<u32>,
    /// A longer prompt fails as too long, because whoever asks can make it shorter. None: all that the window holds.
    pub prompt_limit_tokens: Option<u32>,
    pub manner: Manner,
    pub tool_choice: ToolChoice,
    pub parallel_tool_calls: bool,
    /// None: what the chat's options say, else the preset.
    pub thinking: Option<Thinking>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody reads the answer.
    Reply,
    /// The last message is what a user has said so far: warms the prompt up to the end of its words, less what may still
    /// change when they go on. Answers `Prompt` and `Done` only.
    WarmPartial,
    /// The last `placeholders` messages (all of the user) stand for what comes next: warms the prompt up to their place, as
    /// the next prompt will have it. Answers `Prompt` and `Done` only.
    WarmHistory { placeholders: usize },
}

impl Ask {
    /// A reply that somebody waits for, as the preset has it.
    pub fn new(chat: ChatPrompt, preset: Arc<Preset>) -> Ask {
        Ask {
            chat,
            preset,
            priority: Priority::Talk,
            purpose: Purpose::Reply,
            past_owner: None,
            max_tokens: None,
            prompt_limit_tokens: None,
            manner: Manner::default(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: true,
            thinking: None,
        }
    }

    /// Whether and how long the model may think.
    pub fn effective_thinking(&self) -> Thinking {
        self.thinking.unwrap_or_else(|| thinking_of(&self.chat, &self.preset))
    }
}

/// What the client says about thinking, else the preset.
pub(super) fn thinking_of(chat: &ChatPrompt, preset: &Preset) -> Thinking {
    match (chat.enable_thinking(), preset.thinking) {
        (None, preset) => preset,
        (Some(false), _) => Thinking::Off,
        (Some(true), Thinking::Off) => Thinking::On,
        (Some(true), preset) => preset,
    }
}
