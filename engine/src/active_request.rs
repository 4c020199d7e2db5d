//! One request on its way: how far its prompt is computed, and how its reply is chosen token by token.

use text::grammar::Matcher;
use text::{Decoder, StopMatcher, ThinkingBudget, Tokenizer};

use crate::cache::{CachedSequence, EvictionRights};
use crate::error::Error;
use crate::request::{
    EngineEvent, EngineRequest, OwnerId, PrefillReason, ReplyToken, RequestClass, RequestId, RequestReport, StopReason,
};
use crate::sampling::{SampledToken, Sampler};
use crate::state::KvFormats;

/// A few tokens are sooner computed again than a state is kept.
const MARKS_APART: usize = 8;
/// More of them in one step are not worth their memory.
const MOST_STOPS: usize = 8;

pub(crate) struct ActiveRequest {
    pub id: RequestId,
    pub class: RequestClass,
    pub speculative: bool,
    pub owner: Option<OwnerId>,
    pub ctx_size: usize,
    pub kv: KvFormats,
    pub max_new_tokens: usize,
    /// The prompt and what was chosen since.
    pub tokens: Vec<u32>,
    pub prompt_tokens: usize,
    pub given_tokens: usize,
    /// Ascending positions of the prompt where the future may branch.
    pub marks: Vec<usize>,
    /// Holds the first `position` of `tokens`. None: the request waits, or had to make place.
    pub sequence: Option<CachedSequence>,
    /// It had to make place for lack of memory when so many others had ended: there is no more of it before another one
    /// ends.
    pub parked_at: Option<u64>,
    /// What was known when the request began. None: it has not begun.
    pub start: Option<RequestStart>,
    pub reply: ReplyWriter,
}

#[derive(Clone, Copy)]
pub(crate) struct RequestStart {
    pub reused_tokens: usize,
    pub reason: PrefillReason,
}

impl ActiveRequest {
    /// Tokens that the state does not hold yet.
    pub fn pending(&self) -> &[u32] {
        &self.tokens[self.position()..]
    }

    pub fn is_decoding(&self) -> bool {
        self.tokens.len() > self.prompt_tokens && self.pending().len() == 1
    }

    pub fn position(&self) -> usize {
        self.sequence.as_ref().map_or(0, |sequence| sequence.state.position)
    }

    /// What it may drop of others: who waits for a reply comes first.
    pub fn rights(&self) -> EvictionRights {
        if self.class == RequestClass::Talk { EvictionRights::All } else { EvictionRights::NothingNeeded }
    }

    /// Where on the way over `count` tokens the state is to be remembered: at marks, and at the end where the last such
    /// place is `spacing` tokens behind.
    pub fn stops(&self, count: usize, spacing: usize) -> Vec<usize> {
        let (position, end) = (self.position(), self.position() + count);
        let mut last =
            self.sequence.as_ref().and_then(|sequence| sequence.snapshots.last()).map_or(0, |last| last.position);
        let mut stops = Vec::new();
        for mark in self.marks.iter().copied().filter(|mark| *mark > position && *mark <= end) {
            if mark >= last + MARKS_APART {
                stops.push(mark);
                last = mark;
            }
        }
        if end - last >= spacing {
            stops.push(end);
        }
        // The first may be the end of what many conversations share; who goes back goes back a little.
        if stops.len() > MOST_STOPS {
            stops.drain(1..=stops.len() - MOST_STOPS);
        }
        stops
    }

    pub fn report(&self) -> RequestReport {
        let start = self.start.unwrap_or(RequestStart { reused_tokens: 0, reason: PrefillReason::Cold });
        RequestReport {
            prompt_tokens: self.prompt_tokens,
            reused_tokens: start.reused_tokens,
            computed_tokens: self.position().min(self.prompt_tokens).saturating_sub(start.reused_tokens),
            reason: start.reason,
            new_tokens: self.tokens.len() - self.prompt_tokens,
        }
    }

    /// Chooses the next token and tells of it. Returns whether the request goes on.
    pub fn go_on(
        &mut self,
        logits: &mut [f32],
        stop_tokens: &[u32],
        tokenizer: &Tokenizer,
        events: &mut Vec<EngineEvent>,
    ) -> bool {
        let choice = match self.reply.choose(logits) {
            Ok(choice) => choice,
            Err(error) => {
                events.push(EngineEvent::Failed { id: self.id, error });
                return false;
            }
        };
        let token = choice.token;
        self.tokens.push(token);
        let (text, stop) = match self.reply.accept(token, tokenizer) {
            Ok(accepted) => accepted,
            Err(error) => {
                events.push(EngineEvent::Failed { id: self.id, error });
                return false;
            }
        };
        let SampledToken { logprob, top, .. } = choice;
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
        events.push(EngineEvent::Done { id: self.id, stop_reason, report: self.report() });
        false
    }
}

/// Chooses tokens and turns them into text.
pub(crate) struct ReplyWriter {
    sampler: Sampler,
    grammar: Option<Matcher>,
    thinking: Option<ThinkingBudget>,
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
        let budget = thinking.budget_tokens.map(|budget| ThinkingBudget::new(tokenizer, thinking.open, Some(budget)));
        ReplyWriter {
            sampler,
            grammar,
            thinking: budget,
            decoder: Decoder::new(),
            stops: request.stop.clone(),
            matcher: StopMatcher::new(&request.stop),
        }
    }

    fn choose(&mut self, logits: &mut [f32]) -> Result<SampledToken, Error> {
        if let Some(token) = self.thinking.as_ref().and_then(ThinkingBudget::forced) {
            return Ok(SampledToken { token, logprob: None, top: Vec::new() });
        }
        let allowed = self.grammar.as_mut().map(|grammar| grammar.mask()).transpose()?.flatten();
        Ok(self.sampler.sample(logits, allowed)?)
    }

    /// The text that can be shown now, and the stop string that ended it.
    fn accept(&mut self, token: u32, tokenizer: &Tokenizer) -> Result<(String, Option<String>), Error> {
        self.sampler.accept(token);
        if let Some(grammar) = &mut self.grammar {
            grammar.accept(token)?;
        }
        if let Some(thinking) = &mut self.thinking {
            thinking.accept(tokenizer.token_bytes(token));
        }
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

    /// What was held back and can be shown now that nothing follows.
    pub fn rest(&mut self) -> String {
        let mut text = self.matcher.push(&self.decoder.finish());
        text += &self.matcher.finish();
        text
    }
}
