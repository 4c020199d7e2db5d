//! What the engine is asked and what it answers.

use crate::error::Error;
use crate::sampling::SamplingOptions;
use crate::state::KvFormats;

/// A prompt as tokens, and how to reply to it. What the engine has cached of the prompt decides only how fast it replies.
#[derive(Clone, Debug)]
pub struct EngineRequest {
    pub tokens: Vec<u32>,
    /// Positions where a later prompt may branch: the end of the system prompt, of each message, of each spoken sentence.
    pub marks: Vec<usize>,
    /// The mark before the last lines of the instructions, where those of another room may differ: its snapshot stays with the head.
    pub fork: Option<usize>,
    /// A request with the same prompt, which this one waits for: what that one computes of it is not computed again, and both
    /// replies are computed in one batch from there.
    pub arm_of: Option<RequestId>,
    /// Where the last message ends. After it the template opens the reply, which the next prompt may render differently
    /// without an edit. None: at the end of the prompt.
    pub given_tokens: Option<usize>,
    /// The window: the most tokens of prompt and reply together.
    pub ctx_size: usize,
    pub kv: KvFormats,
    pub class: RequestClass,
    /// Whose data this is: `Engine::forget` drops what was computed for it. None: it stays until it is evicted.
    pub owner: Option<OwnerId>,
    pub scope: ReuseScope,
    /// The prompt may never be asked for, nor the reply to it, where one is wanted (see `Engine::ask_for`). What is computed for
    /// it is evicted first, and is never written to disk.
    pub speculative: bool,
    /// No later prompt goes on from its reply, as from a summary: what is computed for it is evicted first and never written to
    /// disk, and the past with which it begins stays what it is.
    pub passing: bool,
    /// Whether what is computed for it must stay in memory: the disk gets nothing of it.
    pub unsaved: bool,
    /// 0: the prompt is computed and cached, without a reply.
    pub max_new_tokens: usize,
    pub sampling: SamplingOptions,
    /// Used if `sampling` has no seed.
    pub seed: u64,
    pub stop: Vec<String>,
    /// Stop tokens cannot be chosen, so that the reply continues to its limit.
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
            arm_of: None,
            given_tokens: None,
            ctx_size,
            kv,
            class: RequestClass::Talk,
            owner: None,
            scope: ReuseScope::default(),
            speculative: false,
            passing: false,
            unsaved: false,
            max_new_tokens: 0,
            sampling: SamplingOptions::default(),
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

/// Which requests may reuse what is computed for this one, and see by their counts that it was there: those of the same
/// user all of it, those of other users the first tokens, if these are the first ones of both and are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReuseScope {
    /// The caller chooses the numbers. Requests without one are of one user.
    pub user: Option<u64>,
    /// Where the instructions end. 0: other users share nothing.
    pub shared_tokens: usize,
}

impl ReuseScope {
    /// What a request of the scope `asking` for `tokens` may know of the sequence `past` of this scope.
    pub(crate) fn shown<'a>(&self, past: &'a [u32], asking: &ReuseScope, tokens: &[u32]) -> &'a [u32] {
        let shared = self.shared_tokens;
        let is_shared = shared == asking.shared_tokens && shared <= past.len() && tokens.starts_with(&past[..shared]);
        match self.user == asking.user {
            true => past,
            false if is_shared => &past[..shared],
            false => &[],
        }
    }
}

/// How urgent a request is. A more urgent one is computed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestClass {
    /// A user waits for the reply.
    Talk,
    /// A user may soon wait for it.
    Speculate,
    /// No user waits for it.
    Background,
}

/// How much the model may think before it replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThinkingOptions {
    /// The prompt ends inside a think block.
    pub open: bool,
    /// The engine ends the think block after so many tokens. None: the model ends it.
    pub budget_tokens: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a step tells of a request.
#[derive(Debug)]
pub enum EngineEvent {
    /// The request begins. `reused_tokens` of its prompt were cached.
    Started {
        id: RequestId,
        reused_tokens: usize,
        reason: PrefillReason,
    },
    Token(ReplyToken),
    /// The last event of a request.
    Done {
        id: RequestId,
        stop_reason: StopReason,
        report: RequestReport,
    },
    /// The last event of a request that failed.
    Failed {
        id: RequestId,
        error: Error,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplyToken {
    pub id: RequestId,
    pub token: u32,
    /// Text that can be shown now: whole characters, without the beginning of a stop string, and without control tokens other
    /// than those that a reply's parser needs.
    pub text: String,
    pub logprob: Option<f32>,
    pub top: Vec<(u32, f32)>,
}

/// Why a reply ended. `rest` is text that was held back because it might have become a stop string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model ended its turn.
    End {
        rest: String,
    },
    StopString {
        stop: String,
    },
    /// The reply has `max_new_tokens`.
    Length {
        rest: String,
    },
    /// The window is full.
    Window {
        rest: String,
    },
    Cancelled {
        rest: String,
    },
    /// The request asked for no token.
    Warm,
}

/// How much of a request was reused and how much was computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestReport {
    pub prompt_tokens: usize,
    pub reused_tokens: usize,
    /// Tokens of the prompt that went through the model; after `Engine::resume` also those of the reply until it was stopped.
    pub computed_tokens: usize,
    /// Why they had to be computed.
    pub reason: PrefillReason,
    /// Of the reply; after `Engine::resume` those since then.
    pub new_tokens: usize,
    /// Tokens that were computed in the step of the one before them, in case they come; and those of them that came.
    pub drafted_tokens: usize,
    pub accepted_tokens: usize,
}

/// Why a part of a prompt was computed and not reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefillReason {
    /// Nothing of this prompt could be reused.
    #[default]
    Cold,
    /// Everything that was cached of it was reused.
    NewText,
    /// The prompt differs from a cached sequence from this token on.
    Edited { at: usize },
    /// So many tokens were cached once, but the state to continue from was evicted.
    Evicted { known_tokens: usize },
    /// So many tokens are cached on disk for another model, whose state this model cannot use.
    OtherModel { known_tokens: usize },
    /// Nothing of it: the request went on where it was stopped.
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
