//! Answers on their way: deltas from the model to the session that reads them.
//!
//! The model never waits for a reader, for it serves others too. A slow reader finds text joined into fewer, longer
//! deltas, so the waiting deltas are bounded by the length of the reply.

use crate::metrics;
use crate::request::ModelRequest;
use futures_util::task::AtomicWaker;
use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use session::sentences::{Cutter, EndRule, SentenceLimits};
use session::{Delta, Failure, FailureCode, Finish, GenerationPurpose, Priority, ResponseFormat, TurnReport, Usage};
use settings::Questions;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use telemetry::{AnswerFacts, AnswerTrace, TraceParent};
use tokio_util::sync::CancellationToken;

/// Reader's end of an answer. Dropping it cancels.
pub struct Answer {
    pipe: Arc<Pipe>,
    ended: bool,
}

impl Answer {
    pub async fn next(&mut self) -> Option<Delta> {
        <Answer as StreamExt>::next(self).await
    }

    /// Returns a token that cancels the answer, also while another task reads it. It still ends with a `Done`, which
    /// says `Cancelled` unless it was done already.
    pub fn canceller(&self) -> CancellationToken {
        self.pipe.cancelled.clone()
    }

    /// Returns a token that ends the thinking, also while another task reads the answer: its words follow. Without
    /// effect if the model does not think.
    pub fn thinking_stopper(&self) -> CancellationToken {
        self.pipe.thinking_stopped.clone()
    }

    pub fn failed(failure: Failure) -> Answer {
        let (writer, answer) = channel();
        writer.fail(failure);
        answer
    }
}

impl Stream for Answer {
    type Item = Delta;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Delta>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.pipe.waker.register(context.waker());
        let delta = {
            let mut waiting = self.pipe.state.lock();
            let delta = waiting.deltas.pop_front();
            waiting.is_heard |=
                delta.as_ref().is_some_and(|delta| !delta.is_last() && !matches!(delta, Delta::Prompt { .. }));
            delta
        };
        match delta {
            Some(delta) => {
                self.ended = delta.is_last();
                Poll::Ready(Some(delta))
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.pipe.cancelled.cancel();
    }
}

/// Model's end of an answer. Dropped without a last delta it reports a failure of the model, so that no reader waits
/// for ever.
pub struct Writer {
    pipe: Arc<Pipe>,
    counted: Option<(GenerationPurpose, Priority)>,
    trace: Mutex<Option<AnswerTrace>>,
}

struct Pipe {
    state: Mutex<Waiting>,
    waker: AtomicWaker,
    cancelled: CancellationToken,
    thinking_stopped: CancellationToken,
}

#[derive(Default)]
struct Waiting {
    deltas: VecDeque<Delta>,
    ended: bool,
    is_heard: bool,
    cutter: Option<Cutter>,
}

/// Deltas that wait before text is joined.
const WAITING_DELTAS: usize = 32;

/// Opens an answer that passes deltas on unchanged, without sentences and outside the counts.
pub fn channel() -> (Writer, Answer) {
    open(None, None)
}

pub fn channel_for(request: &ModelRequest, limits: SentenceLimits) -> (Writer, Answer) {
    // Text of a required form is not speech, and with log probabilities each token counts.
    let is_plain = request.options.response_format == ResponseFormat::Text && request.options.logprobs.is_none();
    let rule = rule_of(request.questions).filter(|_| is_plain);
    let is_speech = request.purpose == GenerationPurpose::Reply && request.raw.is_none();
    let cutter = is_speech.then(|| Cutter::with_rule(limits, rule));
    let (mut writer, answer) = open(cutter, Some((request.purpose, request.priority)));
    if request.purpose == GenerationPurpose::Reply {
        let (model, most_tokens) = (request.preset.name.clone(), request.max_tokens);
        let facts = AnswerFacts { model, priority: request.priority, most_tokens };
        writer.trace = Mutex::new(AnswerTrace::begin(request.trace_parent, facts));
    }
    (writer, answer)
}

/// Opens the answer of a resumed reply. `in_message`: it resumes in the middle of a message.
pub fn channel_going_on(limits: SentenceLimits, questions: Questions, in_message: bool) -> (Writer, Answer) {
    let cutter = Cutter::with_rule(limits, rule_of(questions));
    let cutter = if in_message { cutter.in_message() } else { cutter };
    open(Some(cutter), Some((GenerationPurpose::Reply, Priority::Talk)))
}

fn rule_of(questions: Questions) -> Option<EndRule> {
    match questions {
        Questions::Marked => Some(EndRule::Marked),
        Questions::None => Some(EndRule::WithoutQuestion),
        Questions::Any => None,
    }
}

fn open(cutter: Option<Cutter>, counted: Option<(GenerationPurpose, Priority)>) -> (Writer, Answer) {
    let state = Mutex::new(Waiting { cutter, ..Waiting::default() });
    let (cancelled, thinking_stopped) = (CancellationToken::new(), CancellationToken::new());
    let pipe = Arc::new(Pipe { state, waker: AtomicWaker::new(), cancelled, thinking_stopped });
    (Writer { pipe: pipe.clone(), counted, trace: Mutex::default() }, Answer { pipe, ended: false })
}

impl Writer {
    /// Adds a delta; any after the last one is dropped. True if this text completed a sentence.
    pub fn push(&self, delta: Delta) -> bool {
        let mut waiting = self.pipe.state.lock();
        if waiting.ended {
            return false;
        }
        waiting.ended = delta.is_last();
        if let Some((purpose, priority)) = self.counted.filter(|_| delta.is_last()) {
            metrics::answered(purpose, priority, &delta);
        }
        if let Some(trace) = delta.is_last().then(|| self.trace.lock().take()).flatten() {
            trace.end(&delta);
        }
        let is_text = matches!(delta, Delta::Text { .. });
        let mut cut = Vec::with_capacity(1);
        match &mut waiting.cutter {
            Some(cutter) => cutter.cut(delta, &mut cut),
            None => cut.push(delta),
        }
        let has_sentence = |delta: &Delta| matches!(delta, Delta::Text { sentences, .. } if !sentences.is_empty());
        let completed = is_text && cut.iter().any(has_sentence);
        let deltas = &mut waiting.deltas;
        for delta in cut {
            let delta = if deltas.len() < WAITING_DELTAS { Some(delta) } else { join(deltas.back_mut(), delta) };
            deltas.extend(delta);
        }
        drop(waiting);
        self.pipe.waker.wake();
        completed
    }

    pub fn fail(&self, failure: Failure) {
        self.push(Delta::Failed(failure));
    }

    pub fn done(&self, finish: Finish, usage: Usage, report: TurnReport) {
        self.push(Delta::Done { finish, usage: Some(usage), report: Some(report) });
    }

    pub fn cancelled_before_begin(&self) {
        self.done(Finish::Cancelled, Usage::default(), TurnReport::default());
    }

    pub fn place_in_trace(&self) -> Option<TraceParent> {
        self.trace.lock().as_ref().map(AnswerTrace::place)
    }

    pub fn is_cancelled(&self) -> bool {
        self.pipe.cancelled.is_cancelled()
    }

    pub fn is_heard(&self) -> bool {
        self.pipe.state.lock().is_heard
    }

    pub fn is_thinking_stopped(&self) -> bool {
        self.pipe.thinking_stopped.is_cancelled()
    }

    pub async fn thinking_stopped(&self) {
        self.pipe.thinking_stopped.cancelled().await;
    }

    pub async fn cancelled(&self) {
        self.pipe.cancelled.cancelled().await;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.fail(Failure::new(
            FailureCode::EngineFailed,
            "the answer broke off because what made it failed; ask again",
        ));
    }
}

fn join(last: Option<&mut Delta>, delta: Delta) -> Option<Delta> {
    match (last, delta) {
        (Some(Delta::PromptTokens(tokens)), Delta::PromptTokens(mut more)) => tokens.append(&mut more),
        (Some(Delta::Reasoning { text, tokens }), Delta::Reasoning { text: more, tokens: count }) => {
            text.push_str(&more);
            *tokens += count;
        }
        (
            Some(Delta::Text { text, tokens, sentences, logprobs }),
            Delta::Text { text: more, tokens: count, sentences: mut complete, logprobs: mut probs },
        ) => {
            text.push_str(&more);
            *tokens += count;
            sentences.append(&mut complete);
            logprobs.append(&mut probs);
        }
        (Some(Delta::CallArguments { json, tokens }), Delta::CallArguments { json: more, tokens: count }) => {
            json.push_str(&more);
            *tokens += count;
        }
        (_, delta) => return Some(delta),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Delta {
        Delta::text(text, 1)
    }

    fn done() -> Delta {
        Delta::Done { finish: Finish::Stop, usage: None, report: None }
    }

    async fn all(mut answer: Answer) -> Vec<Delta> {
        let mut deltas = Vec::new();
        while let Some(delta) = answer.next().await {
            deltas.push(delta);
        }
        deltas
    }

    #[tokio::test]
    async fn a_slow_reader_loses_nothing_and_finds_longer_deltas() {
        let limits = SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 };
        let (writer, answer) = open(Some(Cutter::new(limits)), None);
        let mut completed = 0;
        for n in 0..1000 {
            completed += usize::from(writer.push(said(&format!("It is number {n}. "))));
        }
        writer.push(done());
        let deltas = all(answer).await;
        let (mut text, mut tokens, mut sentences) = (String::new(), 0, Vec::new());
        for delta in &deltas {
            if let Delta::Text { text: more, tokens: count, sentences: complete, .. } = delta {
                text += more;
                tokens += count;
                sentences.extend(complete.iter().map(|sentence| sentence.text.as_str()));
            }
        }
        assert_eq!(text, (0..1000).map(|n| format!("It is number {n}. ")).collect::<String>());
        assert_eq!((tokens, deltas.len()), (1000, WAITING_DELTAS + 1));
        assert_eq!(sentences.concat(), text);
        assert!(completed > 900 && completed < sentences.len(), "the last comes with the end, not with text");
    }

    #[tokio::test]
    async fn deltas_of_two_kinds_are_not_joined() {
        let (writer, answer) = channel();
        let thought = Delta::Reasoning { text: "hm".into(), tokens: 1 };
        for _ in 0..WAITING_DELTAS {
            writer.push(thought.clone());
            writer.push(said("a"));
        }
        writer.push(done());
        let deltas = all(answer).await;
        assert_eq!(deltas.len(), 2 * WAITING_DELTAS + 1);
        assert!(deltas.chunks_exact(2).all(|pair| pair == [thought.clone(), said("a")]));
    }

    #[tokio::test]
    async fn an_answer_ends_once_also_when_its_writer_is_dropped() {
        let (writer, mut answer) = channel();
        writer.push(said("a"));
        drop(writer);
        assert_eq!(answer.next().await, Some(said("a")));
        assert!(matches!(answer.next().await, Some(Delta::Failed(_))));
        assert_eq!(answer.next().await, None);

        let (writer, answer) = channel();
        writer.push(done());
        writer.push(said("late"));
        drop(writer);
        assert_eq!(all(answer).await, [done()]);
    }

    #[tokio::test]
    async fn an_answer_that_was_read_to_its_end_stays_ended() {
        let (writer, mut answer) = channel();
        writer.push(done());
        assert_eq!(answer.next().await, Some(done()));
        let pipe = answer.pipe.clone();
        drop(writer);
        assert!(pipe.state.lock().deltas.is_empty(), "the drop of its writer is no second end");
    }

    #[tokio::test]
    async fn dropping_the_answer_is_heard() {
        let (writer, answer) = channel();
        assert!(!writer.is_cancelled());
        let waiting = tokio::spawn(async move { writer.cancelled().await });
        drop(answer);
        waiting.await.unwrap();
    }
}
