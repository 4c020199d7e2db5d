//! Requests to a model.

use crate::preparation::PreparationShare;
use session::{GenerationOptions, GenerationPurpose, Priority, Prompt, TemplateOptions, ToolChoice};
use settings::{Preset, Questions, Thinking};
use std::sync::Arc;
use telemetry::TraceParent;

#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// Prompt. `enable_thinking` in its options is the client's choice of thinking.
    pub prompt: Prompt,
    /// Prompt in place of `prompt` that no template renders; its reply is text, whatever it looks like.
    pub raw: Option<RawPrompt>,
    /// Number of most probable tokens to report with the log probability of each token of a raw prompt.
    pub prompt_logprobs: Option<usize>,
    pub preset: Arc<Preset>,
    pub priority: Priority,
    pub purpose: GenerationPurpose,
    /// Last messages, all of the user, that a warm history leaves out: the next prompt has others there.
    pub placeholders: usize,
    /// True if no later prompt continues its reply: its sequence is not worth keeping.
    pub one_off: bool,
    /// True for a private request, whose sequence stays in memory only.
    pub unsaved: bool,
    /// Session or person of the words: `Model::forget` drops their computed data.
    pub past_owner: Option<u64>,
    /// User of the words: other users reuse no more of them than the instructions. `None` for the service itself.
    pub user: Option<u64>,
    // Part of the user that may reuse what is computed, and so learn that it was there. `None`: the whole user.
    pub reused_by: Option<u64>,
    /// Key of a stopped reply for `conversation.resume_s`, in which it may resume. `None` keeps none.
    pub keep_as: Option<ReplyKey>,
    /// Limit of the reply. `None`: the preset's reply reserve, or the rest of the window if that is less. 0: a raw prompt
    /// is only reported.
    pub max_tokens: Option<u32>,
    /// Limit of the prompt, beyond which it fails as too long, because the session can shorten it. `None`: the window.
    pub prompt_limit_tokens: Option<u32>,
    pub options: GenerationOptions,
    pub tool_choice: ToolChoice,
    pub parallel_tool_calls: bool,
    /// `None`: the prompt's options, else the preset.
    pub thinking: Option<Thinking>,
    pub questions: Questions,
    pub trace_parent: Option<TraceParent>,
    /// Memory taken before its body was parsed. `None`: the model takes it.
    pub preparation: Option<Arc<PreparationShare>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawPrompt {
    Text(String),
    Tokens(Vec<u32>),
}

impl RawPrompt {
    pub fn bytes(&self) -> usize {
        match self {
            RawPrompt::Text(text) => text.len(),
            RawPrompt::Tokens(tokens) => size_of_val(tokens.as_slice()),
        }
    }

    /// Most tokens that it may have, which costs nothing to know: a text has no more than bytes.
    pub fn most_tokens(&self) -> usize {
        match self {
            RawPrompt::Text(text) => text.len(),
            RawPrompt::Tokens(tokens) => tokens.len(),
        }
    }
}

/// Key of a stopped reply. Each owner has at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyKey {
    pub past_owner: u64,
    pub generation: u64,
}

impl ModelRequest {
    pub fn new(prompt: Prompt, preset: Arc<Preset>) -> ModelRequest {
        ModelRequest {
            prompt,
            raw: None,
            prompt_logprobs: None,
            questions: preset.questions,
            preset,
            priority: Priority::Talk,
            purpose: GenerationPurpose::Reply,
            placeholders: 0,
            one_off: false,
            unsaved: false,
            past_owner: None,
            user: None,
            reused_by: None,
            keep_as: None,
            max_tokens: None,
            prompt_limit_tokens: None,
            options: GenerationOptions::default(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: true,
            thinking: None,
            trace_parent: None,
            preparation: None,
        }
    }

    /// Returns the bytes of the prompt, which its preparation takes memory for.
    pub(crate) fn prompt_bytes(&self) -> usize {
        match &self.raw {
            Some(RawPrompt::Text(text)) => text.len(),
            Some(RawPrompt::Tokens(tokens)) => size_of_val(&tokens[..]),
            None => self.prompt.text_bytes(),
        }
    }

    pub(crate) fn choice(&self, choice: usize) -> ModelRequest {
        let mut request = self.clone();
        request.options.seed = seed_of_choice(request.options.seed, choice);
        request
    }

    /// Builds a request for a summary: a conversation's prompt with an order behind it, at the lowest priority. It
    /// wants no call, but the tools stay, because the prompt would miss the cache without them. `again`: the second
    /// try.
    pub fn for_summary(prompt: Prompt, preset: Arc<Preset>, max_tokens: u32, again: bool) -> ModelRequest {
        let mut request = ModelRequest::new(prompt, preset);
        request.priority = Priority::Background;
        request.one_off = true;
        request.max_tokens = Some(max_tokens);
        request.tool_choice = ToolChoice::None;
        request.thinking = Some(Thinking::Off);
        request.questions = Questions::Any;
        // A summary repeats what was said. A second try must not end as the first one did.
        request.options.sampling.temperature = Some(if again { 0.5 } else { 0.0 });
        request.options.sampling.presence_penalty = Some(0.0);
        request.options.sampling.frequency_penalty = Some(0.0);
        request
    }

    /// Returns true if tokens of a reply are wanted, now or held for later.
    pub(crate) fn wants_reply(&self) -> bool {
        matches!(self.purpose, GenerationPurpose::Reply | GenerationPurpose::EarlyReply)
    }

    pub(crate) fn effective_thinking(&self) -> Thinking {
        self.thinking.unwrap_or_else(|| thinking_of(&self.prompt.options, &self.preset))
    }
}

/// Derives the seed of a reply; `None` gives each a fresh one.
pub(crate) fn seed_of_choice(seed: Option<u64>, choice: usize) -> Option<u64> {
    seed.map(|seed| seed.wrapping_add(choice as u64))
}

pub(crate) fn thinking_of(options: &TemplateOptions, preset: &Preset) -> Thinking {
    match (options.thinks(), preset.thinking) {
        (None, preset) => preset,
        (Some(false), _) => Thinking::Off,
        (Some(true), Thinking::Off) => Thinking::On,
        (Some(true), preset) => preset,
    }
}
