//! A request that has not ended: the computed part of its prompt, and the choice of its reply's tokens.

use text::grammar::Matcher;
use text::{Decoder, StopMatcher, ThinkingBudget, Tokenizer};

use crate::cache::EvictionRights;
use crate::cached_sequence::{CachedSequence, SNAPSHOT_DISTANCE_TOKENS, near_distance};
use crate::draft::Draft;
use crate::error::Error;
use crate::limits::EngineLimits;
use crate::network::WantedLogits;
use crate::recurrence_log::RecurrenceLog;
use crate::request::{
    EngineEvent, EngineRequest, OwnerId, PrefillReason, Priority, ReplyToken, RequestId, RequestReport, ReuseScope,
    ScoredToken, StopReason,
};
use crate::sampling::{SampledToken, Sampler};
use crate::state::KvFormats;

/// Most forced tokens that a step computes. The tokens that end thinking are fewer.
const MOST_FORCED: usize = 8;
const MOST_SNAPSHOTS: usize = 8; // most snapshots of one step; more are not worth their memory

pub(crate) struct ActiveRequest {
    pub id: RequestId,
    pub priority: Priority,
    pub speculative: bool,
    pub one_off: bool,
    pub unsaved: bool,
    pub owner: Option<OwnerId>,
    pub user: Option<u64>,
    pub scope: ReuseScope,
    pub ctx_size: usize,
    pub kv: KvFormats,
    pub max_new_tokens: usize,
    pub tokens: Vec<u32>,
    pub prompt_tokens: usize,
    pub prompt_logprobs: Option<usize>,
    pub scored: usize, // tokens of the prompt that were reported with their log probabilities
    pub given_tokens: usize,
    pub choice_of: Option<RequestId>,
    pub marks: Vec<usize>,   // ascending positions of the prompt where a later prompt may branch
    pub fork: Option<usize>, // position where another head differs from this prompt's, or may differ
    /// Sequence with the first `position` of `tokens`. `None`: the request waits, or is suspended.
    pub sequence: Option<CachedSequence>,
    /// Value of `Engine::done` when lack of memory suspended this request. It waits until another one ends.
    pub parked_at: Option<u64>,
    /// Number of the last step that computed its tokens, or of the last one before it came.
    pub computed_at: u64,
    pub start: Option<RequestStart>, // reuse at its start; `None`: it has not begun
    pub resumed_at: Option<usize>,   // number of its tokens when it was stopped, if it has resumed since
    pub draft: Draft,                // tokens that may follow `tokens`, computed ahead in the same step
    pub drafted: usize,
    pub accepted: usize,
    pub reply: ReplyWriter,
}

#[derive(Clone, Copy)]
pub(crate) struct RequestStart {
    pub reused_tokens: usize,
    pub reason: PrefillReason,
}

impl ActiveRequest {
    pub fn is_running(&self) -> bool {
        self.sequence.is_some()
    }

    pub fn pending(&self) -> &[u32] {
        &self.tokens[self.position()..]
    }

    pub fn is_decoding(&self) -> bool {
        self.tokens.len() > self.prompt_tokens && self.pending().len() <= MOST_FORCED && self.has_prompt()
    }

    pub fn has_prompt(&self) -> bool {
        self.position() >= self.prompt_tokens
    }

    pub fn position(&self) -> usize {
        self.sequence.as_ref().map_or(0, |sequence| sequence.state.position)
    }

    pub fn is_wanted(&self) -> bool {
        (self.max_new_tokens > 0 || self.prompt_logprobs.is_some()) && !self.speculative
    }

    /// Returns true if the next step computes log probabilities of prompt tokens.
    pub fn is_scoring(&self) -> bool {
        self.prompt_logprobs.is_some() && !self.has_prompt()
    }

    /// Most tokens of a cached sequence that the request may begin with. The model has to compute a token to give the
    /// logits of the next one: the reply's first, or one that is still to be reported.
    pub fn reuse_limit(&self) -> usize {
        match self.prompt_logprobs {
            Some(_) if self.scored < self.prompt_tokens => self.scored.saturating_sub(1),
            _ => self.tokens.len() - usize::from(self.max_new_tokens > 0),
        }
    }

    pub fn wanted_logits(&self, count: usize) -> WantedLogits {
        match () {
            () if self.is_scoring() => WantedLogits::All,
            () if self.position() + count == self.tokens.len() && self.max_new_tokens > 0 => WantedLogits::Last,
            () => WantedLogits::Nothing,
        }
    }

    /// Reports the prompt tokens that follow the ones that a step computed, given a row of logits for each of these.
    pub fn score(&mut self, rows: &[&mut [f32]], events: &mut Vec<EngineEvent>) {
        let Some(count) = self.prompt_logprobs else { return };
        let first = self.tokens.first().filter(|_| self.scored == 0);
        let mut tokens: Vec<ScoredToken> =
            first.map(|token| ScoredToken { token: *token, logprob: None, top: Vec::new() }).into_iter().collect();
        let begin = self.position() - rows.len() + 1;
        let end = (begin + rows.len()).min(self.prompt_tokens);
        for at in begin.max(self.scored)..end {
            let (logprob, top) = self.reply.sampler.score(&*rows[at - begin], self.tokens[at], count);
            tokens.push(ScoredToken { token: self.tokens[at], logprob: Some(logprob), top });
        }
        self.scored += tokens.len();
        if !tokens.is_empty() {
            events.push(EngineEvent::PromptTokens { id: self.id, tokens });
        }
    }

    /// Returns true if the user's part of the prompt is computed and the rest serves a reply that may never be asked
    /// for.
    pub fn is_early_reply(&self) -> bool {
        let has_given = if self.is_running() { self.given_left() == 0 } else { self.start.is_some() };
        self.speculative && self.max_new_tokens > 0 && has_given
    }

    /// Number of pending tokens that are as urgent as the next one: the user's words are more urgent than the opening
    /// of a reply that may never be asked for.
    pub fn computed_next(&self) -> usize {
        let left = self.given_left();
        if self.speculative && left > 0 { left } else { self.pending().len() }
    }

    fn given_left(&self) -> usize {
        self.given_tokens.saturating_sub(self.position())
    }

    pub fn take_over(&self, sequence: &mut CachedSequence) {
        sequence.speculative = self.speculative || self.one_off;
        sequence.unsaved = self.unsaved;
        (sequence.owner, sequence.scope) = (self.owner, self.scope);
        (sequence.given_tokens, sequence.fork) = (self.given_tokens, self.fork);
    }

    /// Rights of eviction: everything if a user waits for its reply.
    pub fn rights(&self) -> EvictionRights {
        if self.priority == Priority::Talk { EvictionRights::All } else { EvictionRights::Unneeded }
    }

    /// Positions in a step over `count` tokens at which it takes snapshots: where other conversations branch off, where
    /// the reply begins, at marks that lie far enough apart, and at its end if the last snapshot is a spacing before
    /// it.
    pub fn stops(&self, count: usize, limits: &EngineLimits) -> Vec<usize> {
        let (position, end) = (self.position(), self.position() + count);
        let mut last =
            self.sequence.as_ref().and_then(|sequence| sequence.snapshots.last()).map_or(0, |last| last.position);
        let mut stops = Vec::new();
        let logged_from = RecurrenceLog::worth_from(self.prompt_tokens, limits.recurrence_log_tokens);
        // Other conversations branch off there.
        let is_of_head = |mark: usize| Some(mark) == self.fork || mark == self.scope.head_tokens;
        for mark in self.marks.iter().copied().filter(|mark| *mark > position && *mark <= end) {
            let distance = match () {
                () if is_of_head(mark) => 1,
                () if mark == self.given_tokens => SNAPSHOT_DISTANCE_TOKENS,
                () if mark >= logged_from => near_distance(limits),
                () => limits.recurrence_log_tokens.max(SNAPSHOT_DISTANCE_TOKENS),
            };
            if mark >= last + distance {
                stops.push(mark);
                last = mark;
            }
        }
        if end - last >= limits.snapshot_spacing_tokens {
            stops.push(end);
        }
        // A conversation goes back to one of the last.
        let mut many = stops.len().saturating_sub(MOST_SNAPSHOTS);
        stops.retain(|stop| {
            let goes = many > 0 && !is_of_head(*stop);
            many -= usize::from(goes);
            !goes
        });
        stops
    }

    pub fn done(&self, stop_reason: StopReason) -> EngineEvent {
        EngineEvent::Done { id: self.id, stop_reason, report: self.report() }
    }

    pub fn cancelled(&mut self) -> EngineEvent {
        let rest = self.reply.rest();
        self.done(StopReason::Cancelled { rest })
    }

    pub fn resume(&mut self, step: u64) {
        (self.parked_at, self.computed_at, self.resumed_at) = (None, step, Some(self.tokens.len()));
        let start = RequestStart { reused_tokens: self.position(), reason: PrefillReason::Resumed };
        self.start = self.is_running().then_some(start);
    }

    pub fn report(&self) -> RequestReport {
        let start = self.start.unwrap_or(RequestStart { reused_tokens: 0, reason: PrefillReason::Cold });
        // A stopped reply's last token was chosen, and had not gone through the model.
        let given_tokens = self.resumed_at.map_or(0, |tokens| tokens.saturating_sub(1)).max(self.prompt_tokens);
        RequestReport {
            prompt_tokens: self.prompt_tokens,
            reused_tokens: start.reused_tokens,
            computed_tokens: self.position().min(given_tokens).saturating_sub(start.reused_tokens),
            reason: start.reason,
            new_tokens: self.tokens.len() - self.resumed_at.unwrap_or(self.prompt_tokens),
            drafted_tokens: self.drafted,
            accepted_tokens: self.accepted,
        }
    }

    pub fn write_token(
        // chooses the next token of the reply. Returns true if the reply continues
        &mut self,
        logits: &mut [f32],
        stop_tokens: &[u32],
        tokenizer: &Tokenizer,
        events: &mut Vec<EngineEvent>,
    ) -> bool {
        match self.reply.choose(logits) {
            Ok(sampled) => {
                self.take(sampled, stop_tokens, tokenizer, events) && self.write_forced(stop_tokens, tokenizer, events)
            }
            Err(error) => {
                events.push(EngineEvent::Failed { id: self.id, error });
                false
            }
        }
    }

    /// Chooses a token by each row of logits while the draft is right: row 0 gives the next token, row 1 the token
    /// after the first draft. Returns the number of accepted drafts, and whether the reply continues.
    pub fn write_drafted(
        &mut self,
        rows: &mut [&mut [f32]],
        stop_tokens: &[u32],
        tokenizer: &Tokenizer,
        events: &mut Vec<EngineEvent>,
    ) -> (usize, bool) {
        let (first, mut accepted, mut is_draft, mut goes_on) = (self.tokens.len(), 0, true, true);
        for (row, logits) in rows.iter_mut().enumerate() {
            if !is_draft {
                break;
            }
            goes_on = self.write_token(logits, stop_tokens, tokenizer, events);
            // Forced tokens are not a draft's.
            let came = self.tokens.get(first + row..).unwrap_or_default();
            is_draft = goes_on && self.draft.tokens.get(row).is_some_and(|draft| came == [*draft]);
            accepted += usize::from(is_draft);
        }
        self.drafted += self.draft.tokens.len();
        self.accepted += accepted;
        (accepted, goes_on)
    }

    /// Takes the tokens that are forced now: the next step computes them together. Returns true if the reply continues.
    pub fn write_forced(&mut self, stop_tokens: &[u32], tokenizer: &Tokenizer, events: &mut Vec<EngineEvent>) -> bool {
        while let Some(token) = self.reply.forced() {
            let forced = SampledToken { token, logprob: None, top: Vec::new() };
            if !self.take(forced, stop_tokens, tokenizer, events) {
                return false;
            }
        }
        true
    }

    fn take(
        &mut self,
        sampled: SampledToken,
        stop_tokens: &[u32],
        tokenizer: &Tokenizer,
        events: &mut Vec<EngineEvent>,
    ) -> bool {
        let SampledToken { token, logprob, top } = sampled;
        let (text, stop) = match self.reply.accept(token, tokenizer) {
            Ok(accepted) => accepted,
            Err(error) => {
                events.push(EngineEvent::Failed { id: self.id, error });
                return false;
            }
        };
        self.tokens.push(token);
        events.push(EngineEvent::Token(ReplyToken { id: self.id, token, text, logprob, top }));
        let stop_reason = if let Some(stop) = stop {
            StopReason::StopString { stop }
        } else if stop_tokens.contains(&token) || self.reply.grammar_is_finished() {
            StopReason::End { rest: self.reply.rest() }
        } else if self.tokens.len() - self.prompt_tokens >= self.max_new_tokens {
            StopReason::Length { rest: self.reply.rest() }
        } else if self.tokens.len() >= self.ctx_size {
            StopReason::Window { rest: self.reply.rest() }
        } else {
            return true;
        };
        events.push(self.done(stop_reason));
        false
    }
}

pub(crate) struct ReplyWriter {
    sampler: Sampler,
    grammar: Option<Matcher>,
    thinking: ThinkingBudget,
    decoder: Decoder,
    stops: Vec<String>,
    matcher: StopMatcher,
}

impl ReplyWriter {
    pub fn new(
        request: &EngineRequest,
        stop_tokens: &[u32],
        tokenizer: &Tokenizer,
        grammar: Option<Matcher>,
    ) -> ReplyWriter {
        let mut sampling = request.sampling.clone();
        if request.ignore_eos {
            sampling.logit_bias.extend(stop_tokens.iter().map(|token| (*token, f32::NEG_INFINITY)));
        }
        let mut sampler = Sampler::new(&sampling, request.seed);
        sampler.accept_prompt(&request.tokens);
        let thinking = request.thinking;
        let thinking = ThinkingBudget::new(tokenizer, thinking.open, thinking.budget_tokens);
        ReplyWriter {
            sampler,
            grammar,
            thinking,
            decoder: Decoder::new(),
            stops: request.stop.clone(),
            matcher: StopMatcher::new(&request.stop),
        }
    }

    pub fn stop_thinking(&mut self) {
        self.thinking.stop();
    }

    fn forced(&self) -> Option<u32> {
        self.thinking.forced()
    }

    fn choose(&mut self, logits: &mut [f32]) -> Result<SampledToken, Error> {
        if let Some(token) = self.forced() {
            return Ok(SampledToken { token, logprob: None, top: Vec::new() });
        }
        let allowed = self.grammar.as_mut().map(|grammar| grammar.mask()).transpose()?.flatten();
        Ok(self.sampler.sample(logits, allowed)?)
    }

    fn accept(&mut self, token: u32, tokenizer: &Tokenizer) -> Result<(String, Option<String>), Error> {
        self.sampler.accept(token);
        if let Some(grammar) = &mut self.grammar {
            grammar.accept(token)?;
        }
        self.thinking.accept(tokenizer.token_bytes(token));
        if tokenizer.is_hidden(token) {
            return Ok((String::new(), None));
        }
        let text = self.decoder.push_token(tokenizer, token);
        let text = self.matcher.push(&text);
        let stop = self.matcher.matched().and_then(|at| self.stops.get(at)).cloned();
        Ok((text, stop))
    }

    fn grammar_is_finished(&self) -> bool {
        self.grammar.as_ref().is_some_and(|grammar| grammar.is_finished())
    }

    fn rest(&mut self) -> String {
        let mut text = self.matcher.push(&self.decoder.finish());
        text += &self.matcher.finish();
        text
    }
}
