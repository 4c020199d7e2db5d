//! Replies begun before their request: to a partial transcript, or by a client that closed its request before it got
//! anything. A request for the same reply continues it.

use engine::EngineRequest;
use session::Delta;
use std::time::Duration;
use text::ToolSchema;

pub(super) struct BegunReply {
    wanted: WantedReply,
    pub keep: Duration,
    /// Deltas as the engine made them, not cut into sentences.
    pub made: Vec<Delta>,
    pub tokens: usize,
    most_tokens: usize,
}

pub(super) struct WantedReply {
    request: EngineRequest,
    thinks: bool,
    tools: Vec<ToolSchema>,
}

impl WantedReply {
    pub fn new(request: &EngineRequest, thinks: bool, tools: &[ToolSchema]) -> WantedReply {
        WantedReply { request: request.clone(), thinks, tools: tools.to_vec() }
    }

    /// Compares two requests. Fields that only say how and when the engine computes may differ, and so may the seed of
    /// a reply that names none.
    pub fn is_same(&self, other: &WantedReply) -> bool {
        let EngineRequest {
            tokens,
            marks: _,
            fork: _,
            choice_of: _,
            given_tokens: _,
            ctx_size,
            kv,
            priority: _,
            owner,
            user,
            scope,
            speculative: _,
            one_off: _,
            unsaved: _,
            max_new_tokens,
            sampling,
            prompt_logprobs: _,
            seed: _,
            stop,
            ignore_eos,
            thinking,
            grammar,
        } = &self.request;
        let theirs = &other.request;
        *tokens == theirs.tokens
            && (*ctx_size, *kv, *max_new_tokens) == (theirs.ctx_size, theirs.kv, theirs.max_new_tokens)
            && (*owner, *user, *scope) == (theirs.owner, theirs.user, theirs.scope)
            && *sampling == theirs.sampling
            && (stop, *ignore_eos) == (&theirs.stop, theirs.ignore_eos)
            && (*thinking, grammar) == (theirs.thinking, &theirs.grammar)
            && (self.thinks, &self.tools) == (other.thinks, &other.tools)
    }
}

impl BegunReply {
    pub fn new(wanted: WantedReply, most_tokens: u32, keep: Duration) -> BegunReply {
        BegunReply { wanted, keep, made: Vec::new(), tokens: 0, most_tokens: most_tokens as usize }
    }

    pub fn wanted(&self) -> &WantedReply {
        &self.wanted
    }

    pub fn has_enough(&self) -> bool {
        self.tokens >= self.most_tokens
    }
}
