//! Replies on their way out of the engine: events become deltas, with the time of each stage.

use super::early::{BegunReply, WantedReply};
use crate::answer::Writer;
use crate::request::ReplyKey;
use crate::resume::ResumedReply;
use engine::{Engine, EngineEvent, OwnerId, ReplyToken, RequestId, RequestReport, ScoredToken};
use session::{Delta, Failure, FailureCode, Finish, Priority, PromptToken, TokenLogprob, TurnReport, Usage};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use text::{ReplyParser, ReplyPart, Tokenizer};

#[derive(Default)]
pub(super) struct Replies {
    open: HashMap<RequestId, Open>,
    kept: Vec<Kept>,
}

struct Kept {
    id: RequestId,
    key: Option<ReplyKey>,
    until: Instant,
    open: Open,
    ended: Option<(Finish, RequestReport)>,
}

pub(super) struct AskedAgain {
    pub id: RequestId,
    open: Open,
    ended: Option<(Finish, RequestReport)>,
}

pub(super) struct Open {
    owner: Option<OwnerId>,
    priority: Priority,
    writer: Writer,
    /// `None`: the reply to a raw prompt, which is text as it comes.
    parser: Option<ReplyParser>,
    keep_as: Option<ReplyKey>,
    /// Early state from which another request may continue it, while its reader has read nothing.
    begun: Option<BegunReply>,
    /// True before its request: its reader only gets its end.
    is_early: bool,
    begun_early: Option<u64>,
    usage: Usage,
    made_tokens: Option<u64>,
    untold_tokens: u64,
    untold_logprobs: Vec<TokenLogprob>,
    calls: usize,
    asked: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    /// Duration of the step that made the last token. Zero: that step read the prompt.
    step: Duration,
    first_word_by: Option<Instant>,
    /// True after the engine was told, or if there is nothing to end.
    thinking_ended: bool,
    /// True after a complete sentence, behind which the user may interrupt the voice.
    is_at_mark: bool,
    first_words: FirstWords,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstWords {
    ToCome,
    Given,
    Past,
}

impl Replies {
    pub fn marks(&mut self) -> Vec<RequestId> {
        let marked = |(id, open): (&RequestId, &mut Open)| std::mem::take(&mut open.is_at_mark).then_some(*id);
        self.open.iter_mut().filter_map(marked).collect()
    }

    /// Reports whether readers got the first words of a reply since the last call.
    pub fn begin_to_speak(&mut self) -> bool {
        let told = self.open.values_mut().filter(|open| open.first_words == FirstWords::Given);
        told.map(|open| open.first_words = FirstWords::Past).count() > 0
    }

    /// Lists replies whose thinking ends before the next step: their readers want it, or another step of thought would
    /// delay the first word too long.
    pub fn thinking_to_end(&mut self, now: Instant) -> Vec<RequestId> {
        let ends = |(id, open): (&RequestId, &mut Open)| {
            let is_late = open.first_word_by.is_some_and(|by| is_last_moment(now, by, open.step));
            let ends = !open.thinking_ended && (is_late || open.writer.is_thinking_stopped());
            open.thinking_ended |= ends;
            ends.then_some(*id)
        };
        self.open.iter_mut().filter_map(ends).collect()
    }

    /// Opens a reply. Without a parser it is text as it comes.
    pub fn open(
        &mut self,
        id: RequestId,
        owner: Option<OwnerId>,
        priority: Priority,
        writer: Writer,
        asked: Instant,
        input_tokens: u64,
        first_word_ms: Option<u64>,
        parser: Option<ReplyParser>,
    ) {
        let open = Open {
            owner,
            priority,
            writer,
            parser,
            keep_as: None,
            begun: None,
            is_early: false,
            begun_early: None,
            usage: Usage { input_tokens, ..Usage::default() },
            made_tokens: None,
            untold_tokens: 0,
            untold_logprobs: Vec::new(),
            calls: 0,
            asked,
            started: None,
            first_token: None,
            step: Duration::ZERO,
            first_word_by: first_word_ms.map(|ms| asked + Duration::from_millis(ms)),
            thinking_ended: false,
            is_at_mark: false,
            first_words: FirstWords::ToCome,
        };
        self.open.insert(id, open);
    }

    pub fn keep_as(&mut self, id: RequestId, key: Option<ReplyKey>, begun: Option<BegunReply>, is_early: bool) {
        if let Some(open) = self.open.get_mut(&id) {
            (open.keep_as, open.begun, open.is_early) = (key, begun, is_early);
            open.first_word_by.take_if(|_| is_early);
        }
    }

    /// Returns the time for which the reply is kept if it stops now; `None` drops it. `resume`: the time for a reply
    /// that may resume.
    pub fn keeps(&mut self, id: RequestId, resume: Duration) -> Option<Duration> {
        let open = self.open.get_mut(&id)?;
        open.begun.take_if(|_| !open.is_early && open.writer.is_heard());
        let resume = open.keep_as.map(|_| resume).filter(|resume| !resume.is_zero());
        resume.max(open.begun.as_ref().map(|begun| begun.keep))
    }

    /// Returns the owner whose kept replies this one replaces. `None` for an early one without a request: a stopped
    /// reply may still resume.
    pub fn replaced_by(&self, id: RequestId) -> Option<OwnerId> {
        self.open.get(&id).filter(|open| !open.is_early)?.owner
    }

    pub fn early_enough(&self) -> Vec<RequestId> {
        let is_enough = |open: &Open| open.is_early && open.begun.as_ref().is_some_and(BegunReply::has_enough);
        self.open.iter().filter(|(_, open)| is_enough(open)).map(|(id, _)| *id).collect()
    }

    pub fn hold(&mut self, id: RequestId, report: &RequestReport, engine: &Engine, keep: Duration) {
        let Some(mut open) = self.open.remove(&id) else { return };
        let finish = if open.keep_as.is_some() { Finish::Held } else { Finish::Cancelled };
        match open.is_early {
            true => open.tell_early(),
            false => open.finish(finish, report, engine, Instant::now()),
        }
        let (key, until) = (open.keep_as, Instant::now() + keep);
        self.kept.push(Kept { id, key, until, open, ended: None });
    }

    pub fn release(&mut self, is_meant: impl Fn(Option<OwnerId>, &Instant) -> bool) -> Vec<RequestId> {
        self.kept.extract_if(.., |kept| is_meant(kept.open.owner, &kept.until)).map(|kept| kept.id).collect()
    }

    pub fn release_beyond(&mut self, most: usize) -> Vec<RequestId> {
        let mut many = self.kept.iter().filter(|kept| kept.key.is_none()).count().saturating_sub(most);
        let is_beyond = |kept: &mut Kept| {
            let goes = kept.key.is_none() && many > 0;
            many -= usize::from(goes);
            goes
        };
        self.kept.extract_if(.., is_beyond).map(|kept| kept.id).collect()
    }

    pub fn release_early(&mut self, owner: OwnerId) -> Vec<RequestId> {
        let is_meant = |open: &Open| open.is_early && open.owner == Some(owner);
        let running = self.open.extract_if(|_, open| is_meant(open)).map(|(id, open)| {
            open.tell_early();
            id
        });
        let running: Vec<RequestId> = running.collect();
        let kept = self.kept.extract_if(.., |kept| is_meant(&kept.open)).map(|kept| kept.id);
        running.into_iter().chain(kept).collect()
    }

    pub fn take_begun(&mut self, wanted: &WantedReply) -> Option<AskedAgain> {
        let is_same = |open: &Open| open.begun.as_ref().is_some_and(|begun| begun.wanted().is_same(wanted));
        if let Some(at) = self.kept.iter().position(|kept| is_same(&kept.open)) {
            let Kept { id, open, ended, .. } = self.kept.remove(at);
            return Some(AskedAgain { id, open, ended });
        }
        let id = *self.open.iter().find(|(_, open)| open.is_early && is_same(open))?.0;
        self.open.remove(&id).map(|open| AskedAgain { id, open, ended: None })
    }

    pub fn go_on(
        &mut self,
        AskedAgain { id, open: begun, ended }: AskedAgain,
        writer: Writer,
        (asked, first_word_ms): (Instant, Option<u64>),
        keep_as: Option<ReplyKey>,
        engine: &Engine,
    ) {
        let now = Instant::now();
        begun.tell_early();
        let made = begun.begun.as_ref().map_or(&[][..], |begun| &begun.made);
        for delta in made {
            writer.push(delta.clone());
        }
        let has_words = made.iter().any(|delta| matches!(delta, Delta::Text { .. }));
        let mut open = Open {
            priority: Priority::Talk,
            writer,
            keep_as,
            is_early: false,
            begun_early: begun.begun.as_ref().map(|begun| begun.tokens as u64),
            asked,
            started: begun.started.map(|_| now),
            first_token: begun.first_token.map(|_| now),
            first_word_by: first_word_ms.map(|ms| asked + Duration::from_millis(ms)),
            first_words: if has_words { FirstWords::Given } else { FirstWords::ToCome },
            ..begun
        };
        match ended {
            Some((finish, report)) => open.finish(finish, &report, engine, now),
            None => drop(self.open.insert(id, open)),
        }
    }

    pub fn kept_until(&self) -> Option<Instant> {
        self.kept.iter().map(|kept| kept.until).min()
    }

    pub fn take_kept(&mut self, key: ReplyKey) -> Option<(RequestId, Open)> {
        let at = self.kept.iter().position(|kept| kept.key == Some(key))?;
        let Kept { id, open, .. } = self.kept.remove(at);
        Some((id, open))
    }

    pub fn resume(&mut self, (id, kept): (RequestId, Open), resumed: &ResumedReply, writer: Writer, asked: Instant) {
        let (made, thought) = resumed.made_tokens();
        let usage = Usage { reasoning_tokens: thought, ..Usage::default() };
        let (keep_as, started) = (Some(resumed.keep_as), Some(Instant::now()));
        let made_tokens = Some(made);
        let (begun, begun_early) = (None, None);
        let open =
            Open { writer, keep_as, begun, begun_early, usage, made_tokens, asked, started, first_token: None, ..kept };
        self.open.insert(id, open);
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn count(&self, priority: Priority) -> usize {
        self.open.values().filter(|open| open.priority == priority).count()
    }

    pub fn cancelled(&self) -> Vec<RequestId> {
        self.open.iter().filter(|(_, open)| open.writer.is_cancelled()).map(|(id, _)| *id).collect()
    }

    /// Handles an event. `began` and `now` are the begin and the end of the step of `engine` that made it.
    pub fn event(&mut self, event: EngineEvent, engine: &Engine, began: Instant, now: Instant) {
        match event {
            EngineEvent::Started { id, reused_tokens, .. } => {
                let Some(open) = self.open.get_mut(&id) else { return };
                open.started = Some(began);
                if open.made_tokens.is_some() {
                    return; // its prompt was read before
                }
                open.usage.cached_tokens = reused_tokens as u64;
                let Usage { input_tokens, cached_tokens, .. } = open.usage;
                open.push(Delta::Prompt { input_tokens, cached_tokens });
            }
            EngineEvent::PromptTokens { id, tokens } => {
                let Some(open) = self.open.get_mut(&id) else { return };
                let bytes = |token| engine.tokenizer().token_bytes(token).to_vec();
                let likely = |(token, logprob)| (bytes(token), logprob);
                let told = |ScoredToken { token, logprob, top }| PromptToken {
                    bytes: bytes(token),
                    logprob,
                    top: top.into_iter().map(likely).collect(),
                };
                open.push(Delta::PromptTokens(tokens.into_iter().map(told).collect()));
            }
            EngineEvent::Token(token) => {
                if let Some(open) = self.open.get_mut(&token.id) {
                    open.token(token, engine.tokenizer(), began, now);
                }
            }
            EngineEvent::Done { id, stop_reason, report } => {
                let Some(mut open) = self.open.remove(&id) else { return };
                let finish = open.done(stop_reason);
                let keep = open.begun.as_ref().filter(|_| open.is_early && finish != Finish::Cancelled);
                let Some(keep) = keep.map(|begun| begun.keep) else { return open.finish(finish, &report, engine, now) };
                open.tell_early();
                self.kept.push(Kept { id, key: None, until: now + keep, open, ended: Some((finish, report)) });
            }
            EngineEvent::Failed { id, error } => match self.open.remove(&id) {
                Some(open) if open.is_early => open.tell_early(),
                Some(open) => open.writer.fail(failure_of(&error)),
                None => {}
            },
        }
    }

    pub fn fail_all(&mut self, failure: Failure) {
        for (_, open) in self.open.drain() {
            open.writer.fail(failure.clone());
        }
    }

    pub fn give_up(&mut self) {
        self.fail_all(Failure::new(FailureCode::EngineFailed, "the engine lost the request; ask again"));
    }
}

impl AskedAgain {
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }
}

impl Open {
    fn token(&mut self, token: ReplyToken, tokenizer: &Tokenizer, began: Instant, now: Instant) {
        if self.first_token.is_some_and(|first| first < now) {
            self.step = now.duration_since(began);
        }
        self.first_token.get_or_insert(now);
        self.untold_tokens += 1;
        if let Some(begun) = &mut self.begun {
            begun.tokens += 1;
        }
        let is_early = self.is_early;
        self.begun.take_if(|begun| !is_early && begun.has_enough());
        // The marks around thought and calls are not content.
        let is_told = self.parser.is_none() || !tokenizer.is_control(token.token);
        if let Some(logprob) = token.logprob.filter(|_| is_told) {
            let bytes = |token| tokenizer.token_bytes(token).to_vec();
            let top = token.top.iter().map(|(token, logprob)| (bytes(*token), *logprob)).collect();
            self.untold_logprobs.push(TokenLogprob { bytes: bytes(token.token), logprob, top });
        }
        let pieces = self.parse(&token.text);
        self.tell(pieces);
    }

    fn parse(&mut self, text: &str) -> Vec<ReplyPart> {
        let Some(parser) = &mut self.parser else { return vec![ReplyPart::Content(text.to_owned())] };
        let mut pieces = Vec::new();
        parser.push(text, &mut pieces);
        pieces
    }

    fn done(&mut self, stop_reason: engine::StopReason) -> Finish {
        let (rest, finish) = match stop_reason {
            engine::StopReason::End { rest } => (rest, Finish::Stop),
            engine::StopReason::StopString { .. } => (String::new(), Finish::Stop),
            engine::StopReason::Length { rest } | engine::StopReason::Window { rest } => (rest, Finish::Length),
            engine::StopReason::Cancelled { .. } => (String::new(), Finish::Cancelled),
            engine::StopReason::Warm if self.parser.is_none() => (String::new(), Finish::Length),
            engine::StopReason::Warm => (String::new(), Finish::Warm),
        };
        if finish != Finish::Cancelled {
            let pieces = self.parse(&rest);
            self.tell(pieces);
            let mut last = Vec::new();
            self.parser.iter_mut().for_each(|parser| parser.finish(&mut last));
            if finish == Finish::Length {
                // Half a call is not text.
                last.retain(
                    |piece| !matches!(piece, ReplyPart::Content(text) if text.trim_start().starts_with("<tool_call>")),
                );
            }
            self.tell(last);
        }
        if finish == Finish::Stop && self.calls > 0 { Finish::ToolCalls } else { finish }
    }

    /// Ends the answer of an early reply. Its cost is reported with its request.
    fn tell_early(&self) {
        self.writer.done(Finish::Warm, Usage::default(), TurnReport::default());
    }

    fn finish(&mut self, finish: Finish, report: &RequestReport, engine: &Engine, now: Instant) {
        self.usage.output_tokens = report.new_tokens as u64 + self.made_tokens.unwrap_or(0);
        let report = self.report(report, engine, now);
        self.writer.done(finish, self.usage, report);
    }

    fn tell(&mut self, pieces: Vec<ReplyPart>) {
        for piece in pieces {
            let tokens = match piece {
                ReplyPart::Call { .. } => 0,
                _ => std::mem::take(&mut self.untold_tokens),
            };
            let logprobs = std::mem::take(&mut self.untold_logprobs);
            // The thought has ended by itself.
            self.thinking_ended |= !matches!(piece, ReplyPart::Reasoning(_));
            let delta = match piece {
                ReplyPart::Reasoning(text) => {
                    self.usage.reasoning_tokens += tokens;
                    Delta::Reasoning { text, tokens }
                }
                ReplyPart::Content(text) => Delta::Text { text, tokens, sentences: Vec::new(), logprobs },
                ReplyPart::Call { name, .. } => {
                    self.calls += 1;
                    Delta::CallStarted { name, call_id: None }
                }
                ReplyPart::Arguments { json, .. } => Delta::CallArguments { json, tokens },
            };
            self.push(delta);
        }
    }

    fn push(&mut self, delta: Delta) {
        if let Some(begun) = &mut self.begun {
            begun.made.push(delta.clone());
        }
        if !self.is_early {
            if self.first_words == FirstWords::ToCome && matches!(delta, Delta::Text { .. }) {
                self.first_words = FirstWords::Given;
            }
            self.is_at_mark |= self.writer.push(delta);
        }
    }

    fn report(&self, report: &RequestReport, engine: &Engine, now: Instant) -> TurnReport {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let started = self.started.unwrap_or(now);
        let since_asked = |at: Instant| ms(at.duration_since(self.asked));
        let held = self.owner.map(|owner| engine.owner_bytes(owner));
        TurnReport {
            reused_tokens: report.reused_tokens as u64,
            computed_tokens: report.computed_tokens as u64,
            reason: Some(report.reason.name()),
            begun_early: self.begun_early,
            drafted_tokens: report.drafted_tokens as u64,
            accepted_tokens: report.accepted_tokens as u64,
            queue_ms: since_asked(started),
            prefill_ms: ms(self.first_token.unwrap_or(now).duration_since(started)),
            decode_ms: self.first_token.map_or(0.0, |first| ms(now.duration_since(first))),
            first_token_ms: self.first_token.map(since_asked),
            first_sentence_ms: None,
            total_ms: since_asked(now),
            expects_answer: false,
            memory_bytes: held
                .map(|held| held.map(|(kind, bytes)| (kind.name(), bytes as u64)).to_vec())
                .unwrap_or_default(),
            ..TurnReport::default()
        }
    }
}

/// True if another step of thought would make the first word late: that step, and one that closes the thought and makes
/// the word. The last one also computes the closing tokens, and may take as long as two.
fn is_last_moment(now: Instant, by: Instant, step: Duration) -> bool {
    now + 3 * step > by
}

pub(super) fn failure_of(error: &engine::Error) -> Failure {
    let code = match error {
        engine::Error::Window { .. } => FailureCode::PromptTooLong,
        engine::Error::Busy { .. } | engine::Error::NoRoom { .. } => FailureCode::Busy,
        engine::Error::Lost { .. } | engine::Error::Weights(_) => FailureCode::Unavailable,
        engine::Error::Empty
        | engine::Error::Token { .. }
        | engine::Error::KvFormat { .. }
        | engine::Error::KvRotation { .. }
        | engine::Error::LogitBias { .. }
        | engine::Error::Grammar(_)
        | engine::Error::Sampling(_)
        | engine::Error::Text(_) => FailureCode::InvalidRequest,
        _ => FailureCode::EngineFailed,
    };
    Failure::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a model that thinks for ever, on a clock that the test drives: returns the delay of its first word,
    /// and the steps of thought.
    fn first_word(queue_ms: u64, step_ms: impl Fn(u64) -> u64, first_word_ms: u64) -> (u64, u64) {
        let asked = Instant::now();
        let by = asked + Duration::from_millis(first_word_ms);
        // The engine reads the prompt in a step of its own.
        let mut now = asked + Duration::from_millis(queue_ms + step_ms(0));
        let (mut step, mut thoughts) = (Duration::ZERO, 0);
        while !is_last_moment(now, by, step) {
            thoughts += 1;
            step = Duration::from_millis(step_ms(thoughts));
            now += step;
        }
        let ended = now + 2 * Duration::from_millis(step_ms(thoughts + 1));
        (ended.duration_since(asked).as_millis() as u64, thoughts)
    }

    #[test]
    fn the_first_word_comes_in_time_whatever_the_queue_and_the_prompt_took() {
        for queue_ms in [0, 40, 300, 500] {
            for step_ms in [1, 10, 25, 60] {
                let (late_ms, thoughts) = first_word(queue_ms, |_| step_ms, 800);
                assert!(late_ms <= 800 && late_ms + step_ms > 800, "{queue_ms}, {step_ms}: {late_ms}");
                assert_eq!(thoughts, (800 - queue_ms - step_ms) / step_ms - 2);
            }
        }
        // After a long prompt all the remaining time is for thought.
        let (late_ms, thoughts) = first_word(0, |step| if step == 0 { 500 } else { 10 }, 800);
        assert_eq!((late_ms, thoughts), (800, 28));
        // After the deadline there is no thought.
        for queue_ms in [800, 5000] {
            assert_eq!(first_word(queue_ms, |_| 10, 800), (queue_ms + 30, 0));
        }
    }
}
