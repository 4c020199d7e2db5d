//! Requests to the engine, and its answers.

use crate::error::Error;
use crate::sampling::SamplingOptions;
use crate::state::KvFormats;
pub use chat::Priority;

/// A prompt as tokens, and options for the reply. The cached part of the prompt decides only how fast the engine
/// replies.
#[derive(Clone, Debug)]
pub struct EngineRequest {
    pub tokens: Vec<u32>,
    /// Positions where a later prompt may branch: the end of the system prompt, of each message, of each spoken
    /// sentence.
    pub marks: Vec<usize>,
    /// Mark before the last lines of the instructions, where those of another room may differ: its snapshot stays with
    /// the head.
    pub fork: Option<usize>,
    /// Request with the same prompt, for which this one waits: its computed prompt is shared, and both replies are
    /// computed in one batch from there.
    pub choice_of: Option<RequestId>,
    /// End of the last message. Behind it the template opens the reply, which the next prompt may render differently
    /// without an edit. `None`: the end of the prompt.
    pub given_tokens: Option<usize>,
    /// The window: most tokens of prompt and reply together.
    pub ctx_size: usize,
    pub kv: KvFormats,
    pub priority: Priority,
    /// Owner of the data: `Engine::forget` drops the computed sequence. `None`: it stays until it is evicted.
    pub owner: Option<OwnerId>,
    /// Number of the asking user. Users take turns at places. Requests without one are of one user.
    pub user: Option<u64>,
    pub scope: ReuseScope,
    /// True if the prompt and its reply may never be asked for (see `Engine::ask_for`). The computed sequence is
    /// evicted first, and never written to disk.
    pub speculative: bool,
    /// True if no later prompt continues from its reply, as from a summary: its sequence is evicted first and never
    /// written to disk, and the past with which it begins stays unchanged.
    pub one_off: bool,
    /// True if the computed sequence must stay in memory: the disk gets nothing of a private request.
    pub unsaved: bool,
    /// Most tokens of the reply; 0: the prompt is computed and cached, without a reply.
    pub max_new_tokens: usize,
    pub sampling: SamplingOptions,
    /// Number of most probable tokens to report with the log probability of each token of the prompt. All of the prompt is
    /// then computed, also what is cached. `None`: nothing is reported.
    pub prompt_logprobs: Option<usize>,
    /// Used if `sampling` has no seed.
    pub seed: u64,
    pub stop: Vec<String>,
    pub ignore_eos: bool,
    pub thinking: ThinkingOptions,
    pub grammar: Option<text::grammar::Grammar>,
}

impl EngineRequest {
    pub fn new(tokens: Vec<u32>, ctx_size: usize, kv: KvFormats) -> EngineRequest {
        EngineRequest {
            tokens,
            marks: Vec::new(),
            fork: None,
            choice_of: None,
            given_tokens: None,
            ctx_size,
            kv,
            priority: Priority::Talk,
            owner: None,
            user: None,
            scope: ReuseScope::default(),
            speculative: false,
            one_off: false,
            unsaved: false,
            max_new_tokens: 0,
            sampling: SamplingOptions::default(),
            prompt_logprobs: None,
            seed: 0,
            stop: Vec::new(),
            ignore_eos: false,
            thinking: ThinkingOptions::default(),
            grammar: None,
        }
    }
}

/// A conversation that can be forgotten. The caller chooses the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u64);

/// Requests that may reuse the computed sequence of this one, and so learn from their counts that it was there: those
/// of the same user all of it, those of other users its head, if both may share theirs and these are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReuseScope {
    /// Number that the caller chooses. Requests without one are of one user.
    pub user: Option<u64>,
    /// End of the instructions and tools. 0: it has none.
    pub head_tokens: usize,
    /// True if no user wrote any of the head, so that other users may know that it was computed.
    pub is_head_shared: bool,
}

impl ReuseScope {
    /// Returns the tokens of `past`, a sequence of this scope, that a request of the scope `asking` for `tokens` may
    /// know.
    pub(crate) fn shown<'a>(&self, past: &'a [u32], asking: &ReuseScope, tokens: &[u32]) -> &'a [u32] {
        let head = self.head_tokens;
        let may_share = self.is_head_shared && asking.is_head_shared && head == asking.head_tokens;
        let is_shared = may_share && head <= past.len() && tokens.starts_with(&past[..head]);
        match self.user == asking.user {
            true => past,
            false if is_shared => &past[..head],
            false => &[],
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThinkingOptions {
    pub open: bool,
    /// Tokens after which the engine ends the think block. `None`: the model ends it.
    pub budget_tokens: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

#[derive(Debug)]
pub enum EngineEvent {
    Started { id: RequestId, reused_tokens: usize, reason: PrefillReason },
    PromptTokens { id: RequestId, tokens: Vec<ScoredToken> },
    Token(ReplyToken),
    Done { id: RequestId, stop_reason: StopReason, report: RequestReport },
    Failed { id: RequestId, error: Error },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplyToken {
    pub id: RequestId,
    pub token: u32,
    /// Text that can be shown now: whole characters, without the beginning of a stop string, and without control tokens
    /// other than those that a reply's parser needs.
    pub text: String,
    pub logprob: Option<f32>,
    pub top: Vec<(u32, f32)>,
}

/// Token of a prompt with its log probability in the model's own distribution. `None`: nothing precedes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredToken {
    pub token: u32,
    pub logprob: Option<f32>,
    pub top: Vec<(u32, f32)>,
}

/// Reason why a reply ended. `rest` is the held text, which might have become a stop string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    End { rest: String },
    StopString { stop: String },
    Length { rest: String },
    Window { rest: String },
    Cancelled { rest: String },
    Warm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestReport {
    pub prompt_tokens: usize,
    pub reused_tokens: usize,
    /// Prompt tokens that went through the model; after `Engine::resume` also those of the reply until it was stopped.
    pub computed_tokens: usize,
    pub reason: PrefillReason,
    /// Tokens of the reply; after `Engine::resume` those since then.
    pub new_tokens: usize,
    /// Tokens that were computed in the step of the one before them, and the accepted ones among them.
    pub drafted_tokens: usize,
    pub accepted_tokens: usize,
}

/// Reason why a part of a prompt was computed and not reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefillReason {
    #[default]
    Cold,
    NewText,
    /// The prompt differs from a cached sequence from this token on.
    Edited {
        at: usize,
    },
    /// `known_tokens` were cached once, but the state to continue from was evicted.
    Evicted {
        known_tokens: usize,
    },
    /// `known_tokens` are cached on disk for another model, whose state this model cannot use.
    OtherModel {
        known_tokens: usize,
    },
    Resumed,
}

impl PrefillReason {
    pub fn name(self) -> &'static str {
        match self {
            PrefillReason::Cold => "cold",
            PrefillReason::NewText => "new_text",
            PrefillReason::Edited { .. } => "edited",
            PrefillReason::Evicted { .. } => "evicted",
            PrefillReason::OtherModel { .. } => "other_model",
            PrefillReason::Resumed => "resumed",
        }
    }
}
