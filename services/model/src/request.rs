//! What a model is asked.

use crate::preparation::PreparationShare;
use serde_json::{Map, Value};
use session::{GenerationOptions, Priority, Prompt, ToolChoice};
use settings::{Preset, Questions, Thinking};
use std::sync::Arc;

/// Stands for what the user will say next. Its words are never computed.
pub const PLACEHOLDER: &str = "…";

#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// `enable_thinking` in its options counts as the client's word on thinking.
    pub prompt: Prompt,
    pub preset: Arc<Preset>,
    pub priority: Priority,
    pub purpose: Purpose,
    /// No prompt goes on from its reply: what is computed of it is not worth keeping.
    pub passing: bool,
    /// Whether what is computed of it must stay in memory: a private request.
    pub unsaved: bool,
    /// The session or the person whose words these are: `Model::forget` drops what is computed of them.
    pub past_owner: Option<u64>,
    /// The user whose words these are: other users reuse no more of them than the instructions. None: of the service itself.
    pub user: Option<u64>,
    /// A reply that is stopped is kept under this for `conversation.resume_s`, so that it can go on. None: it is not.
    pub keep_as: Option<ReplyKey>,
    /// None: the preset's reply reserve, or what is left of the window if that is less.
    pub max_tokens: Option<u32>,
    /// A longer prompt fails as too long, because the session can make it shorter. None: all that the window holds.
    pub prompt_limit_tokens: Option<u32>,
    pub options: GenerationOptions,
    pub tool_choice: ToolChoice,
    pub parallel_tool_calls: bool,
    /// None: what the prompt's options say, else the preset.
    pub thinking: Option<Thinking>,
    /// How it may end that asks the user something.
    pub questions: Questions,
    /// Memory that was taken for it before its body was parsed. None: the model takes it.
    pub preparation: Option<Arc<PreparationShare>>,
}

/// Under which a reply is kept that was stopped. One of each owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyKey {
    /// As in the request.
    pub past_owner: u64,
    /// The caller chooses the numbers.
    pub generation: u64,
}

/// Its word is the metrics' label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Purpose {
    Reply,
    /// The last message is what a user has said so far: begins the reply to it, up to `speculation.tokens` of the preset, and holds it
    /// for a `Reply` that wants the same. Answers `Done` only.
    EarlyReply,
    /// The last message is what a user has said so far: warms the prompt up to the end of its words, less what may still
    /// change when the user goes on. Answers `Prompt` and `Done` only.
    WarmPartial,
    /// The last `placeholders` messages (all of the user) stand for what comes next: warms the prompt up to their place, as
    /// the next prompt will have it. Answers `Prompt` and `Done` only.
    WarmHistory {
        placeholders: usize,
    },
}

impl Purpose {
    pub(crate) fn is_reply(self) -> bool {
        matches!(self, Purpose::Reply | Purpose::EarlyReply)
    }
}

impl ModelRequest {
    /// A reply that a user waits for, as the preset has it.
    pub fn new(prompt: Prompt, preset: Arc<Preset>) -> ModelRequest {
        ModelRequest {
            prompt,
            questions: preset.questions,
            preset,
            priority: Priority::Talk,
            purpose: Purpose::Reply,
            passing: false,
            unsaved: false,
            past_owner: None,
            user: None,
            keep_as: None,
            max_tokens: None,
            prompt_limit_tokens: None,
            options: GenerationOptions::default(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: true,
            thinking: None,
            preparation: None,
        }
    }

    /// The same for one of several replies.
    pub(crate) fn arm(&self, arm: usize) -> ModelRequest {
        let mut request = self.clone();
        request.options.seed = seed_of_arm(request.options.seed, arm);
        request
    }

    /// A summary: a conversation's prompt with an order behind it, computed when nothing more urgent is to be done. No call
    /// is wanted, but the tools stay, because without them the prompt would not be the one that is in the cache. `again`:
    /// the second try.
    pub fn for_summary(prompt: Prompt, preset: Arc<Preset>, max_tokens: u32, again: bool) -> ModelRequest {
        let mut request = ModelRequest::new(prompt, preset);
        request.priority = Priority::Background;
        request.passing = true;
        request.max_tokens = Some(max_tokens);
        request.tool_choice = ToolChoice::None;
        request.thinking = Some(Thinking::Off);
        request.questions = Questions::Any;
        // What was said is to be kept as it was said. A second try must not end as the first one did.
        request.options.sampling.temperature = Some(if again { 0.5 } else { 0.0 });
        request.options.sampling.presence_penalty = Some(0.0);
        request.options.sampling.frequency_penalty = Some(0.0);
        request
    }

    /// Whether and how long the model may think. `template_options` are those of the prompt.
    pub(crate) fn effective_thinking(&self, template_options: &Map<String, Value>) -> Thinking {
        self.thinking.unwrap_or_else(|| thinking_of(template_options, &self.preset))
    }
}

/// None: each has a fresh one.
pub(crate) fn seed_of_arm(seed: Option<u64>, arm: usize) -> Option<u64> {
    seed.map(|seed| seed.wrapping_add(arm as u64))
}

/// What the client says about thinking, else the preset.
pub(crate) fn thinking_of(template_options: &Map<String, Value>, preset: &Preset) -> Thinking {
    match (template_options.get("enable_thinking").and_then(Value::as_bool), preset.thinking) {
        (None, preset) => preset,
        (Some(false), _) => Thinking::Off,
        (Some(true), Thinking::Off) => Thinking::On,
        (Some(true), preset) => preset,
    }
}
