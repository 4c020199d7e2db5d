//! What the engine is asked and what it answers.

use crate::error::Error;
use crate::sampling::SamplingOptions;
use crate::state::KvFormats;

/// The whole prompt, as tokens. What the engine remembers of it decides only how fast it is answered.
#[derive(Clone, Debug)]
pub struct EngineRequest {
    pub tokens: Vec<u32>,
    /// Positions where the future may branch: the end of the system prompt, of each message, of each spoken sentence.
    pub marks: Vec<usize>,
    /// Where the last message ends; behind it the reply is opened, and may come back in another form without that anybody
    /// changed it. None: the whole prompt is what was said.
    pub given_tokens: Option<usize>,
    /// Prompt and reply together never grow beyond this.
    pub ctx_size: usize,
    pub kv: KvFormats,
    pub class: RequestClass,
    /// Whose words these are: what comes of them goes with `Engine::forget`. None: nobody's, and only age ends it.
    pub owner: Option<OwnerId>,
    /// What it computes may never be asked for: it is the first to be forgotten, and never goes to disk.
    pub speculative: bool,
    /// 0 warms the cache and answers nothing.
    pub max_new_tokens: usize,
    pub sampling: SamplingOptions,
    /// Used where `sampling` names no seed.
    pub seed: u64,
    pub stop: Vec<String>,
    /// Stop tokens cannot be chosen: the reply goes on to its limit.
    pub ignore_eos: bool,
    pub thinking: ThinkingOptions,
    pub grammar: Option<text::grammar::Grammar>,
}

impl EngineRequest {
    pub fn new(tokens: Vec<u32>, ctx_size: usize, kv: KvFormats) -> EngineRequest {
        EngineRequest {
            tokens,
            marks: Vec::new(),
            given_tokens: None,
            ctx_size,
            kv,
            class: RequestClass::Talk,
            owner: None,
            speculative: false,
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

/// A conversation that can be deleted, by a number that whoever asks has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u64);

/// Who goes first: somebody waits for a reply, somebody may soon, nobody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestClass {
    Talk,
    Speculate,
    Background,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThinkingOptions {
    /// The prompt ends inside a think block.
    pub open: bool,
    /// After so many tokens of thought its end is forced. None: as long as the model likes.
    pub budget_tokens: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

#[derive(Debug)]
pub enum EngineEvent {
    /// Work on the request begins; so much of its prompt was known.
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
    /// The last event of a request that could not be finished.
    Failed {
        id: RequestId,
        error: Error,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplyToken {
    pub id: RequestId,
    pub token: u32,
    /// What can be shown: whole characters, nothing that may still become a stop string, no control tokens but those
    /// that a reply's parser needs.
    pub text: String,
    pub logprob: Option<f32>,
    pub top: Vec<(u32, f32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model ended its turn. `rest` is text that was held back and turned out to be no stop string.
    End {
        rest: String,
    },
    StopString {
        stop: String,
    },
    /// `max_new_tokens` are there.
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

/// What a request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestReport {
    pub prompt_tokens: usize,
    pub reused_tokens: usize,
    /// Tokens of the prompt that went through the model.
    pub computed_tokens: usize,
    /// Why they had to.
    pub reason: PrefillReason,
    pub new_tokens: usize,
}

/// Why a part of a prompt was computed and not reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefillReason {
    /// Nothing of this prompt could be reused.
    #[default]
    Cold,
    /// All that is known of it was reused.
    NewText,
    /// The prompt differs from what is known from this token on.
    Edited { at: usize },
    /// So many tokens were known once, but the state to go on from them is gone.
    Evicted { known_tokens: usize },
    /// So many tokens are known to another model, whose state is of no use to this one.
    OtherModel { known_tokens: usize },
}

impl PrefillReason {
    pub fn name(self) -> &'static str {
        match self {
            PrefillReason::Cold => "cold",
            PrefillReason::NewText => "new_text",
            PrefillReason::Edited { .. } => "edited",
            PrefillReason::Evicted { .. } => "evicted",
            PrefillReason::OtherModel { .. } => "other_model",
        }
    }
}
