//! Retries in a durable session. A stock client that did not get its answer sends the same request again and counts
//! its attempts. What the request adds is stored once and answered once: a retry reads along with the response
//! under way, hears again what was answered, or asks again where there is no answer.

use super::listening::{Listening, Stopped};
use crate::identity::{Scope, ScopeDigest};
use runtime::wall_ms;
use session::{
    Event, Failure, FailureCode, Item, ItemBody, JsonText, MaxTokens, RequestDigest, Response, ResponseStatus,
    StatusDetails,
};
use settings::LimitSettings;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{ItemVersion, SessionRef, Store, StoredRequest, StoredResponse};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Attempt at a request: its digest, and the number of times that the client says it sent the request before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestAttempt {
    /// Digest of the request and of its scope: the same words of another person are another request.
    digest: ScopeDigest,
    retries: u32,
}

impl RequestAttempt {
    pub fn new(scope: &Scope, body: &[u8], retries: u32) -> RequestAttempt {
        RequestAttempt { digest: scope.digest(body), retries }
    }

    pub fn stored_digest(&self, limits: &LimitSettings, session: &str) -> Option<RequestDigest> {
        if limits.retry_s == 0 {
            return None;
        }
        let hash = Sha256::new().chain_update(self.digest).chain_update(session).finalize();
        let mut digest = RequestDigest([0; 16]);
        digest.0.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        Some(digest)
    }

    pub async fn stored(
        &self,
        store: &Store,
        limits: &LimitSettings,
        user: &str,
        session: &str,
    ) -> Result<Option<StoredRequest>, store::Error> {
        let Some(digest) = self.stored_digest(limits, session).filter(|_| self.retries > 0) else { return Ok(None) };
        let kept_ms = i64::try_from(limits.retry_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        store.find_request(user, digest, wall_ms().saturating_sub(kept_ms), limits.retry_turns).await
    }
}

pub struct RecentTurns {
    kept_for: Duration,
    most: usize,
    turns: Mutex<VecDeque<RecentTurn>>,
}

struct RecentTurn {
    user: String,
    session: String,
    digest: ScopeDigest,
    at: Instant,
    reply: Arc<SharedReply>,
}

impl RecentTurns {
    pub fn new(kept_for: Duration, most: usize) -> RecentTurns {
        RecentTurns { kept_for, most, turns: Mutex::default() }
    }

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

    /// Forgets a user's requests: their answers may hold words that were deleted.
    pub fn forget(&self, user: &str) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).retain(|turn| turn.user != user);
    }

    pub fn clear(&self) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[derive(Default)]
pub struct SharedReply {
    progress: tokio::sync::Mutex<ReplyProgress>,
    readers: AtomicUsize,
}

#[derive(Default)]
pub struct ReplyProgress {
    pub session: Option<SessionRef>,
    pub is_taken: bool,
    listening: Option<Listening>,
    cancelled: CancellationToken,
    events: Vec<Arc<Event>>,
    ended: Option<Ended>,
    stopped: Option<oneshot::Receiver<Stopped>>,
    cut_off: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Answered,
    Unanswered,
}

impl SharedReply {
    pub async fn progress(&self) -> tokio::sync::MutexGuard<'_, ReplyProgress> {
        self.progress.lock().await
    }

    pub fn reader(self: Arc<SharedReply>) -> ReplyReader {
        self.readers.fetch_add(1, Ordering::Relaxed);
        ReplyReader { reply: self, at: 0 }
    }
}

impl ReplyProgress {
    pub fn has_answer(&self) -> bool {
        self.listening.is_some() || self.ended == Some(Ended::Answered)
    }

    pub fn restore(&mut self, stored: StoredRequest) {
        let StoredRequest { session, response } = stored;
        (self.session, self.is_taken) = (Some(session), true);
        let Some(response) = response.filter(|response| response.status != ResponseStatus::InProgress) else { return };
        let is_answer =
            response.status == ResponseStatus::Completed || response.details == Some(StatusDetails::MaxOutputTokens);
        match is_answer {
            true => self.events = events_of(response).into_iter().map(Arc::new).collect(),
            false => self.cut_off = response.output.into_iter().map(|item| item.item_id).collect(),
        }
        self.ended = Some(if is_answer { Ended::Answered } else { Ended::Unanswered });
    }

    pub async fn begin_again(&mut self) -> Vec<String> {
        let begun = self.events.drain(..).filter_map(|event| match &*event {
            Event::ReplyStarted { item, .. } => Some(item.id.clone()),
            _ => None,
        });
        let mut begun: Vec<String> = begun.chain(self.cut_off.drain(..)).collect();
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

    /// Waits until the session takes the turn. A refusal resets the progress.
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

fn events_of(stored: StoredResponse) -> Vec<Event> {
    let metadata = Some(JsonText::from(stored.metadata.to_string()));
    let begun = Response {
        id: stored.id.clone(),
        status: ResponseStatus::InProgress,
        details: None,
        output: Vec::new(),
        conversation_id: Some(stored.session.id().to_owned()),
        max_output_tokens: MaxTokens::Unlimited,
        usage: None,
        metadata,
    };
    let output: Vec<Item> = stored.output.iter().map(ItemVersion::item).collect();
    let mut events = vec![Event::ResponseStarted { response: Box::new(begun.clone()) }];
    for (output_index, item) in output.iter().cloned().enumerate() {
        let (response_id, item_id) = (stored.id.clone(), item.id.clone());
        let mut empty = item.clone();
        empty.shorten(0);
        events.push(Event::ReplyStarted { response_id: response_id.clone(), output_index, item: empty, place: None });
        if let ItemBody::Message { .. } = &item.body {
            let (text, logprobs, of) = (item.text(), Vec::new(), response_id.clone());
            let whole = text.clone();
            let said = (of.clone(), item_id.clone());
            events.push(Event::TextDelta { response_id: of, item_id, output_index, text, logprobs });
            events.push(Event::TextDone { response_id: said.0, item_id: said.1, output_index, text: whole });
        }
        events.push(Event::ReplyDone { response_id, output_index, item, place: None });
    }
    let StoredResponse { status, details, usage, .. } = stored;
    events.push(Event::ResponseDone { response: Box::new(Response { status, details, usage, output, ..begun }) });
    events
}

/// Reader of a shared reply, one for each attempt. When the last reader leaves before the answer ends, the client has
/// hung up and the response stops.
pub struct ReplyReader {
    reply: Arc<SharedReply>,
    at: usize,
}

impl ReplyReader {
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
