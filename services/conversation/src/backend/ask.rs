//! What a backend is asked.

use crate::realtime::ToolChoice;
use engine::Priority;
use serde_json::Value;
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
    pub sampling: SamplingOverrides,
    pub seed: Option<u64>,
    pub stop: Vec<String>,
    pub tool_choice: ToolChoice,
    pub parallel_tool_calls: bool,
    pub response_format: ResponseFormat,
    /// None: what the chat's options say, else the preset.
    pub thinking: Option<Thinking>,
    /// Log probabilities of the chosen tokens and of this many likeliest ones.
    pub logprobs: Option<usize>,
    pub ignore_eos: bool,
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

/// What a request says about sampling; the rest is the preset's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingOverrides {
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<u32>,
    pub min_p: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub repetition_penalty: Option<f32>,
    /// Token and what is added to its logit.
    pub logit_bias: Vec<(u32, f32)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON of this schema.
    JsonSchema { name: String, schema: Value },
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
            sampling: SamplingOverrides::default(),
            seed: None,
            stop: Vec::new(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: true,
            response_format: ResponseFormat::Text,
            thinking: None,
            logprobs: None,
            ignore_eos: false,
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
