//! Replies on their way out of the engine: its events become pieces, with the time that each stage took.

use super::thread::failure_of;
use crate::backend::answer::{Failure, FailureCode, Finish, Piece, Report, Usage, Writer};
use crate::manner::TokenLogprob;
use crate::sentences::{SentenceLimits, Sentences};
use engine::{EngineEvent, OwnerId, ReplyToken, RequestClass as Priority, RequestId};
use serde_json::Value;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use text::{ReplyParser, Tokenizer};

pub(super) struct Replies {
    open: HashMap<RequestId, Open>,
    sentences: SentenceLimits,
}

struct Open {
    /// Whose past it is.
    owner: Option<OwnerId>,
    priority: Priority,
    writer: Writer,
    parser: ReplyParser,
    usage: Usage,
    /// Tokens of which no text was told yet.
    untold_tokens: u64,
    untold_logprobs: Vec<TokenLogprob>,
    content_begun: bool,
    calls: usize,
    asked: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    sentences: Sentences,
    /// A sentence is complete: the voice may be interrupted behind it.
    is_at_mark: bool,
    memory_bytes: Vec<(&'static str, u64)>,
}

impl Replies {
    pub fn new(sentences: SentenceLimits) -> Replies {
        Replies { open: HashMap::new(), sentences }
    }

    /// Those that have completed a sentence since this was asked last.
    pub fn marks(&mut self) -> Vec<RequestId> {
        let marked = |(id, open): (&RequestId, &mut Open)| std::mem::take(&mut open.is_at_mark).then_some(*id);
        self.open.iter_mut().filter_map(marked).collect()
    }

    /// `thinks`: the reply begins inside a think block. `tools` give the arguments of calls their types.
    pub fn open(
        &mut self,
        id: RequestId,
        owner: Option<OwnerId>,
        priority: Priority,
        writer: Writer,
        asked: Instant,
        input_tokens: u64,
        thinks: bool,
        tools: &[Value],
    ) {
        let open = Open {
            owner,
            priority,
            writer,
            parser: ReplyParser::new(thinks, tools),
            usage: Usage { input_tokens, ..Usage::default() },
            untold_tokens: 0,
            untold_logprobs: Vec::new(),
            content_begun: false,
            calls: 0,
            asked,
            started: None,
            first_token: None,
            sentences: Sentences::new(self.sentences),
            is_at_mark: false,
            memory_bytes: Vec::new(),
        };
        self.open.insert(id, open);
    }

    /// For whom a request computes.
    pub fn owner(&self, id: RequestId) -> Option<OwnerId> {
        self.open.get(&id)?.owner
    }

    /// What is held for the owner of this one, which is done.
    pub fn set_memory(&mut self, id: RequestId, memory_bytes: Vec<(&'static str, u64)>) {
        if let Some(open) = self.open.get_mut(&id) {
            open.memory_bytes = memory_bytes;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn count(&self, priority: Priority) -> usize {
        self.open.values().filter(|open| open.priority == priority).count()
    }

    /// Those that nobody wants any more.
    pub fn cancelled(&self) -> Vec<RequestId> {
        self.open.iter().filter(|(_, open)| open.writer.is_cancelled()).map(|(id, _)| *id).collect()
    }

    /// `began` and `now` are the begin and the end of the step that made the event.
    pub fn event(&mut self, event: EngineEvent, tokenizer: &Tokenizer, began: Instant, now: Instant) {
        match event {
            EngineEvent::Started { id, reused_tokens, .. } => {
                let Some(open) = self.open.get_mut(&id) else { return };
                open.started = Some(began);
                open.usage.cached_tokens = reused_tokens as u64;
                let Usage { input_tokens, cached_tokens, .. } = open.usage;
                open.writer.push(Piece::Prompt { input_tokens, cached_tokens });
            }
            EngineEvent::Token(token) => {
                if let Some(open) = self.open.get_mut(&token.id) {
                    open.token(token, tokenizer, now);
                }
            }
            EngineEvent::Done { id, stop_reason, report } => {
                if let Some(open) = self.open.remove(&id) {
                    open.done(stop_reason, report, now);
                }
            }
            EngineEvent::Failed { id, error } => {
                if let Some(open) = self.open.remove(&id) {
                    open.writer.fail(failure_of(&error));
                }
            }
        }
    }

    pub fn fail_all(&mut self, failure: Failure) {
        for (_, open) in self.open.drain() {
            open.writer.fail(failure.clone());
        }
    }

    /// The engine does not know them any more.
    pub fn give_up(&mut self) {
        self.fail_all(Failure::new(FailureCode::EngineFailed, "the engine lost the request; ask again"));
    }
}

impl Open {
    fn token(&mut self, token: ReplyToken, tokenizer: &Tokenizer, now: Instant) {
        self.first_token.get_or_insert(now);
        self.untold_tokens += 1;
        // The marks around thought and calls are no content.
        if let Some(logprob) = token.logprob.filter(|_| !tokenizer.is_control(token.token)) {
            let bytes = |token| tokenizer.token_bytes(token).to_vec();
            let top = token.top.iter().map(|(token, logprob)| (bytes(*token), *logprob)).collect();
            self.untold_logprobs.push(TokenLogprob { bytes: bytes(token.token), logprob, top });
        }
        let mut pieces = Vec::new();
        self.parser.push(&token.text, &mut pieces);
        self.tell(pieces);
    }

    fn done(mut self, finish: engine::StopReason, report: engine::RequestReport, now: Instant) {
        let (rest, finish) = match finish {
            engine::StopReason::End { rest } => (rest, Finish::Stop),
            engine::StopReason::StopString { .. } => (String::new(), Finish::Stop),
            engine::StopReason::Length { rest } | engine::StopReason::Window { rest } => (rest, Finish::Length),
            engine::StopReason::Cancelled { .. } => (String::new(), Finish::Cancelled),
            engine::StopReason::Warm => (String::new(), Finish::Warm),
        };
        if finish != Finish::Cancelled {
            let mut pieces = Vec::new();
            self.parser.push(&rest, &mut pieces);
            self.tell(pieces);
            let mut last = Vec::new();
            self.parser.finish(&mut last);
            if finish == Finish::Length {
                // Half a call is nothing that anybody said.
                last.retain(|piece| !matches!(piece, text::ReplyPart::Content(text) if text.trim_start().starts_with("<tool_call>")));
            }
            self.tell(last);
        }
        let finish = if finish == Finish::Stop && self.calls > 0 { Finish::ToolCalls } else { finish };
        self.usage.output_tokens = report.new_tokens as u64;
        let usage = self.usage;
        let report = self.report(&report, now);
        self.writer.push(Piece::Done { finish, usage, report });
    }

    fn tell(&mut self, pieces: Vec<text::ReplyPart>) {
        for piece in pieces {
            let tokens = match piece {
                text::ReplyPart::Call { .. } => 0,
                _ => std::mem::take(&mut self.untold_tokens),
            };
            let mut logprobs = std::mem::take(&mut self.untold_logprobs);
            self.writer.push(match piece {
                text::ReplyPart::Reasoning(text) => {
                    self.usage.reasoning_tokens += tokens;
                    Piece::Reasoning { text, tokens }
                }
                text::ReplyPart::Content(text) => {
                    let mut complete = Vec::new();
                    self.sentences.push(&text, &mut complete);
                    self.is_at_mark |= !complete.is_empty();
                    if !std::mem::replace(&mut self.content_begun, true) {
                        // White space before the first word is the template's.
                        let space = logprobs.iter().take_while(|token| token.bytes.trim_ascii().is_empty()).count();
                        logprobs.drain(..space);
                    }
                    Piece::Content { text, tokens, logprobs }
                }
                text::ReplyPart::Call { name, .. } => {
                    self.calls += 1;
                    Piece::CallStarted { name, call_id: None }
                }
                text::ReplyPart::Arguments { json, .. } => Piece::CallArguments { json, tokens },
            });
        }
    }

    fn report(&self, report: &engine::RequestReport, now: Instant) -> Report {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let started = self.started.unwrap_or(now);
        Report {
            reused_tokens: report.reused_tokens as u64,
            computed_tokens: report.computed_tokens as u64,
            reason: Some(report.reason.name()),
            queue_ms: ms(started.duration_since(self.asked)),
            prefill_ms: ms(self.first_token.unwrap_or(now).duration_since(started)),
            first_token_ms: self.first_token.map(|first| ms(first.duration_since(self.asked))),
            total_ms: ms(now.duration_since(self.asked)),
            memory_bytes: self.memory_bytes.clone(),
        }
    }
}
