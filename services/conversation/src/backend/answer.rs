//! An answer on its way: pieces from whoever makes them to whoever reads them.
//!
//! The maker never waits, for it serves others too. A reader that is slow finds text joined into fewer, longer pieces, so
//! what waits is bounded by the length of the reply.

use super::ask::{Ask, Purpose};
use crate::manner::TokenLogprob;
use crate::metrics;
use engine::RequestClass as Priority;
use futures_util::task::AtomicWaker;
use futures_util::{Stream, StreamExt};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// How long the prompt is and how much of it was in the cache: work on it begins.
    Prompt {
        input_tokens: u64,
        cached_tokens: u64,
    },
    Reasoning {
        text: String,
        tokens: u64,
    },
    Content {
        text: String,
        tokens: u64,
        /// Empty unless asked for.
        logprobs: Vec<TokenLogprob>,
    },
    /// A call begins; the one before is complete. `call_id` is None where the model gives none.
    CallStarted {
        name: String,
        call_id: Option<String>,
    },
    CallArguments {
        json: String,
        tokens: u64,
    },
    /// The last piece.
    Done {
        finish: Finish,
        usage: Usage,
        report: Report,
    },
    /// The last piece of an answer that went wrong.
    Failed(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model is done, or a stop string came.
    Stop,
    /// The model made calls and is done.
    ToolCalls,
    /// The limit of the reply or the end of the window.
    Length,
    Cancelled,
    /// The cache was warmed, as asked.
    Warm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// Of the output.
    pub reasoning_tokens: u64,
}

/// Where the tokens and the time went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub reused_tokens: u64,
    pub computed_tokens: u64,
    /// Why the rest was computed: `cold`, `new_text`, `edited`, `evicted`, `other_model`. None where only the upstream knows.
    pub reason: Option<&'static str>,
    /// From the ask to the begin of the work: template, tokens, waiting for a place.
    pub queue_ms: f64,
    /// From there to the first token, or to the end of the warming.
    pub prefill_ms: f64,
    /// From the ask to the first token.
    pub first_token_ms: Option<f64>,
    pub total_ms: f64,
    /// Bytes by kind that are held for whoever asked. Empty where only the upstream knows.
    pub memory_bytes: Vec<(&'static str, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: FailureCode,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// The prompt leaves no room in the window.
    PromptTooLong,
    /// Something else in the ask cannot be done.
    InvalidRequest,
    /// The conversation is being answered already.
    Conflict,
    /// Too many wait already.
    Busy,
    /// The model is not there (yet, or any more).
    Unavailable,
    /// The engine failed in the middle of it.
    EngineFailed,
    /// The upstream refused, broke off or spoke nonsense.
    UpstreamFailed,
    /// The upstream did not answer in time.
    UpstreamTimeout,
}

impl FailureCode {
    /// Whose fault it is, in the words that clients know.
    pub fn kind(self) -> &'static str {
        match self {
            FailureCode::PromptTooLong | FailureCode::InvalidRequest | FailureCode::Conflict => "invalid_request_error",
            FailureCode::Busy
            | FailureCode::Unavailable
            | FailureCode::EngineFailed
            | FailureCode::UpstreamFailed
            | FailureCode::UpstreamTimeout => "server_error",
        }
    }

    /// A word for programs.
    pub fn word(self) -> &'static str {
        match self {
            FailureCode::PromptTooLong => "context_length_exceeded",
            FailureCode::InvalidRequest => "invalid_request",
            FailureCode::Conflict => "conversation_already_has_active_response",
            FailureCode::Busy => "busy",
            FailureCode::Unavailable => "model_unavailable",
            FailureCode::EngineFailed => "engine_failed",
            FailureCode::UpstreamFailed => "upstream_failed",
            FailureCode::UpstreamTimeout => "upstream_timeout",
        }
    }
}

impl Failure {
    pub fn new(code: FailureCode, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }
}

impl Piece {
    pub fn is_last(&self) -> bool {
        matches!(self, Piece::Done { .. } | Piece::Failed(_))
    }
}

/// The reader's end. Dropping it cancels.
pub struct Answer {
    pipe: Arc<Pipe>,
    ended: bool,
}

impl Answer {
    /// None after the last piece.
    pub async fn next(&mut self) -> Option<Piece> {
        <Answer as StreamExt>::next(self).await
    }

    /// The answer still ends with a `Done`, which says `Cancelled` unless it was done already.
    pub fn cancel(&self) {
        self.pipe.cancelled.cancel();
    }

    /// Whoever holds it can cancel while another reads.
    pub fn canceller(&self) -> CancellationToken {
        self.pipe.cancelled.clone()
    }

    /// An answer that is nothing but this failure.
    pub fn failed(failure: Failure) -> Answer {
        let (writer, answer) = channel();
        writer.fail(failure);
        answer
    }
}

impl Stream for Answer {
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.pipe.waker.register(context.waker());
        let piece = self.pipe.lock().pieces.pop_front();
        match piece {
            Some(piece) => {
                self.ended = piece.is_last();
                Poll::Ready(Some(piece))
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

/// The maker's end. Dropped without a last piece it says that the maker failed, so that no reader waits for ever.
pub(crate) struct Writer {
    pipe: Arc<Pipe>,
    /// Answers of a backend are counted when they end.
    counted: Option<(Purpose, Priority)>,
}

struct Pipe {
    state: Mutex<Waiting>,
    waker: AtomicWaker,
    cancelled: CancellationToken,
}

#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    /// The last piece was pushed, read or not.
    ended: bool,
}

/// Pieces that wait before text is joined.
const WAITING_PIECES: usize = 32;

pub(crate) fn channel() -> (Writer, Answer) {
    open(None)
}

pub(super) fn channel_for(ask: &Ask) -> (Writer, Answer) {
    open(Some((ask.purpose, ask.priority)))
}

fn open(counted: Option<(Purpose, Priority)>) -> (Writer, Answer) {
    let pipe =
        Arc::new(Pipe { state: Mutex::default(), waker: AtomicWaker::new(), cancelled: CancellationToken::new() });
    (Writer { pipe: pipe.clone(), counted }, Answer { pipe, ended: false })
}

impl Writer {
    /// What comes after the last piece is nobody's.
    pub fn push(&self, piece: Piece) {
        let mut waiting = self.pipe.lock();
        if waiting.ended {
            return;
        }
        waiting.ended = piece.is_last();
        if let Some((purpose, priority)) = self.counted.filter(|_| piece.is_last()) {
            metrics::answered(purpose, priority, &piece);
        }
        let pieces = &mut waiting.pieces;
        let piece = if pieces.len() < WAITING_PIECES { Some(piece) } else { join(pieces.back_mut(), piece) };
        pieces.extend(piece);
        drop(waiting);
        self.pipe.waker.wake();
    }

    pub fn fail(&self, failure: Failure) {
        self.push(Piece::Failed(failure));
    }

    /// For an answer that nobody wanted any more before work on it began.
    pub fn cancelled_before_begin(&self) {
        let (usage, report) = (Usage::default(), Report::default());
        self.push(Piece::Done { finish: Finish::Cancelled, usage, report });
    }

    pub fn is_cancelled(&self) -> bool {
        self.pipe.cancelled.is_cancelled()
    }

    pub async fn cancelled(&self) {
        self.pipe.cancelled.cancelled().await;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.push(Piece::Failed(Failure::new(
            FailureCode::EngineFailed,
            "the answer broke off because what made it failed; ask again",
        )));
    }
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a piece to the one before it where both are of a kind; gives it back where not.
fn join(last: Option<&mut Piece>, piece: Piece) -> Option<Piece> {
    match (last, piece) {
        (Some(Piece::Reasoning { text, tokens }), Piece::Reasoning { text: more, tokens: count }) => {
            text.push_str(&more);
            *tokens += count;
        }
        (
            Some(Piece::Content { text, tokens, logprobs }),
            Piece::Content { text: more, tokens: count, logprobs: mut probs },
        ) => {
            text.push_str(&more);
            *tokens += count;
            logprobs.append(&mut probs);
        }
        (Some(Piece::CallArguments { json, tokens }), Piece::CallArguments { json: more, tokens: count }) => {
            json.push_str(&more);
            *tokens += count;
        }
        (_, piece) => return Some(piece),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Piece {
        Piece::Content { text: text.into(), tokens: 1, logprobs: Vec::new() }
    }

    fn done() -> Piece {
        Piece::Done { finish: Finish::Stop, usage: Usage::default(), report: Report::default() }
    }

    #[tokio::test]
    async fn a_slow_reader_loses_nothing_and_finds_longer_pieces() {
        let (writer, mut answer) = channel();
        for n in 0..1000 {
            writer.push(said(&format!("{n} ")));
        }
        writer.push(done());
        let (mut text, mut tokens, mut pieces) = (String::new(), 0, 0);
        while let Some(piece) = answer.next().await {
            pieces += 1;
            if let Piece::Content { text: more, tokens: count, .. } = piece {
                text += &more;
                tokens += count;
            }
        }
        assert_eq!(text, (0..1000).map(|n| format!("{n} ")).collect::<String>());
        assert_eq!((tokens, pieces), (1000, WAITING_PIECES + 1));
    }

    #[tokio::test]
    async fn pieces_of_two_kinds_are_not_joined() {
        let (writer, mut answer) = channel();
        let thought = Piece::Reasoning { text: "hm".into(), tokens: 1 };
        for _ in 0..WAITING_PIECES {
            writer.push(thought.clone());
            writer.push(said("a"));
        }
        writer.push(done());
        let mut pieces = Vec::new();
        while let Some(piece) = answer.next().await {
            pieces.push(piece);
        }
        assert_eq!(pieces.len(), 2 * WAITING_PIECES + 1);
        assert!(pieces.chunks_exact(2).all(|pair| pair == [thought.clone(), said("a")]));
    }

    #[tokio::test]
    async fn an_answer_ends_once_also_when_its_maker_vanishes() {
        let (writer, mut answer) = channel();
        writer.push(said("a"));
        drop(writer);
        assert_eq!(answer.next().await, Some(said("a")));
        assert!(matches!(answer.next().await, Some(Piece::Failed(_))));
        assert_eq!(answer.next().await, None);

        let (writer, mut answer) = channel();
        writer.push(done());
        writer.push(said("late"));
        drop(writer);
        assert_eq!(answer.next().await, Some(done()));
        assert_eq!(answer.next().await, None);
    }

    #[tokio::test]
    async fn an_answer_that_was_read_to_its_end_stays_ended() {
        let (writer, mut answer) = channel();
        writer.push(done());
        assert_eq!(answer.next().await, Some(done()));
        let pipe = answer.pipe.clone();
        drop(writer);
        assert!(pipe.lock().pieces.is_empty(), "its maker's end is no second end");
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
