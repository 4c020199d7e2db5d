//! Retries in a durable session. A stock client that did not get its answer sends the same request again and counts
//! its attempts. What the request adds is stored once and answered once: a retry reads along with the response
//! under way, hears again what was answered, or asks again where there is no answer.

use super::listening::{Listening, Stopped};
use crate::identity::{Scope, ScopeDigest};
use session::{Event, Failure, FailureCode, ResponseStatus};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::SessionRef;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// One attempt at a request: its digest, and how often the client says that it sent it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestAttempt {
    /// Digest of the request and of its scope: the same words of another person are another request.
    digest: ScopeDigest,
    retries: u32,
}

impl RequestAttempt {
    /// Makes an attempt of a request's scope and body, and of the number of retries that its client counts.
    pub fn new(scope: &Scope, body: &[u8], retries: u32) -> RequestAttempt {
        RequestAttempt { digest: scope.digest(body), retries }
    }

    /// The client says that it sent the same before.
    pub fn is_again_of(&self, earlier: &RequestAttempt) -> bool {
        self.retries > 0 && self.digest == earlier.digest
    }
}

/// The last requests that added something to durable sessions.
pub struct RecentTurns {
    kept_for: Duration,
    most: usize,
    turns: Mutex<VecDeque<RecentTurn>>,
}

struct RecentTurn {
    user: String,
    /// As the client named it: `new` may be one.
    session: String,
    digest: ScopeDigest,
    at: Instant,
    reply: Arc<SharedReply>,
}

impl RecentTurns {
    pub fn new(kept_for: Duration, most: usize) -> RecentTurns {
        RecentTurns { kept_for, most, turns: Mutex::default() }
    }

    /// What this request has got so far: nothing, unless it is a retry of one that is remembered.
    pub fn reply(&self, scope: &Scope, session: &str, attempt: RequestAttempt) -> Arc<SharedReply> {
        let now = Instant::now();
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|turn| now - turn.at < self.kept_for);
        let is_same = |turn: &RecentTurn| turn.digest == attempt.digest && turn.session == session;
        if attempt.retries > 0
            && let Some(turn) = turns.iter().rev().find(|turn| is_same(turn))
        {
            return turn.reply.clone();
        }
        let reply = Arc::<SharedReply>::default();
        if !self.kept_for.is_zero() {
            // One user's many requests take no place from another's.
            let is_ours = |turn: &RecentTurn| turn.user == scope.user;
            while turns.iter().filter(|turn| is_ours(turn)).count() >= self.most.max(1) {
                let oldest = turns.iter().position(is_ours);
                oldest.and_then(|at| turns.remove(at));
            }
            let (user, session) = (scope.user.clone(), session.to_owned());
            turns.push_back(RecentTurn { user, session, digest: attempt.digest, at: now, reply: reply.clone() });
        }
        reply
    }

    /// Forgets all of them: something was deleted that an answer may hold.
    pub fn clear(&self) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The answer to one request, for all attempts at it.
#[derive(Default)]
pub struct SharedReply {
    progress: tokio::sync::Mutex<ReplyProgress>,
    readers: AtomicUsize,
}

#[derive(Default)]
pub struct ReplyProgress {
    /// None: no session was opened or begun for it yet.
    pub session: Option<SessionRef>,
    /// The session has what the request adds.
    pub is_taken: bool,
    /// The response under way.
    listening: Option<Listening>,
    cancelled: CancellationToken,
    events: Vec<Arc<Event>>,
    ended: Option<Ended>,
    /// What the response had become whose client hung up.
    stopped: Option<oneshot::Receiver<Stopped>>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Answered,
    Unanswered,
}

impl SharedReply {
    pub async fn progress(&self) -> tokio::sync::MutexGuard<'_, ReplyProgress> {
        self.progress.lock().await
    }

    /// Reads the answer from its begin.
    pub fn reader(self: Arc<SharedReply>) -> ReplyReader {
        self.readers.fetch_add(1, Ordering::Relaxed);
        ReplyReader { reply: self, at: 0 }
    }
}

impl ReplyProgress {
    /// Whether there is an answer, or one on its way.
    pub fn has_answer(&self) -> bool {
        self.listening.is_some() || self.ended == Some(Ended::Answered)
    }

    /// Forgets what an attempt without an answer left, and gives back the items that it began.
    pub async fn begin_again(&mut self) -> Vec<String> {
        let begun = self.events.drain(..).filter_map(|event| match &*event {
            Event::ReplyStarted { item, .. } => Some(item.id.clone()),
            _ => None,
        });
        let mut begun: Vec<String> = begun.collect();
        if let Some(stopped) = self.stopped.take()
            && let Ok(stopped) = stopped.await
        {
            self.is_taken |= stopped.is_taken;
            begun.extend(stopped.begun);
        }
        self.ended = None;
        begun
    }

    pub fn listen(&mut self, listening: Listening) {
        self.cancelled = listening.canceller();
        self.listening = Some(listening);
    }

    /// Waits until the session has taken what was said. Nothing is left of what it refused.
    pub async fn begun(&mut self) -> Result<(), Failure> {
        match self.hear().await {
            Some(Err(failure)) => {
                *self = ReplyProgress::default();
                Err(failure)
            }
            Some(Ok(_)) | None => Ok(()),
        }
    }

    async fn hear(&mut self) -> Option<Result<Arc<Event>, Failure>> {
        let heard = self.listening.as_mut()?.next().await;
        match &heard {
            Some(Ok(event)) => {
                self.is_taken = true;
                self.events.push(event.clone());
                if let Event::ResponseDone { response } = &**event {
                    let is_answer = matches!(response.status, ResponseStatus::Completed | ResponseStatus::Incomplete);
                    self.ended = Some(if is_answer { Ended::Answered } else { Ended::Unanswered });
                }
            }
            Some(Err(failure)) => {
                // What the store has not taken is said again.
                self.is_taken &= failure.code != FailureCode::StoreFailed;
                self.ended.get_or_insert(Ended::Unanswered);
            }
            None => {
                self.ended.get_or_insert(Ended::Unanswered);
                self.listening = None;
            }
        }
        if self.listening.as_ref().is_some_and(|listening| listening.is_over) {
            self.listening = None;
        }
        heard
    }
}

/// One attempt's end of it. When the last one is gone before the answer is, the client has hung up and the response stops.
pub struct ReplyReader {
    reply: Arc<SharedReply>,
    at: usize,
}

impl ReplyReader {
    /// Cancels the response; its events still come to their end.
    pub fn canceller(&self) -> CancellationToken {
        self.reply.progress.try_lock().map(|progress| progress.cancelled.clone()).unwrap_or_default()
    }

    pub async fn next(&mut self) -> Option<Result<Arc<Event>, Failure>> {
        let mut progress = self.reply.progress.lock().await;
        if let Some(event) = progress.events.get(self.at).cloned() {
            self.at += 1;
            return Some(Ok(event));
        }
        let heard = progress.hear().await;
        self.at = progress.events.len();
        heard
    }
}

impl Drop for ReplyReader {
    fn drop(&mut self) {
        if self.reply.readers.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        // Readers alone hold it while they wait, and this was the last one.
        let Ok(mut progress) = self.reply.progress.try_lock() else { return };
        if let Some(listening) = progress.listening.take() {
            let (stopped, receiver) = oneshot::channel();
            progress.stopped = Some(receiver);
            progress.ended.get_or_insert(Ended::Unanswered);
            listening.stop(stopped);
        }
    }
}
