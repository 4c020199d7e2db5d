//! Queue of the operations of one session to the store: in order, without waiting for one before giving the next.
//!
//! Every operation enters the store's queue at once, so that the operations of one turn share a commit. Two kinds wait,
//! with all behind them: the end of a reply until its begin is stored, and a piece of a reply until it was written to a
//! socket. The journal has each word before it is sent.
//!
//! A write that a full disk refuses did not happen, and the machine says so. The end of a reply did happen: the queue owes it
//! to the store and tries it again before the next operation, so that no reply stays in progress forever.

use crate::connections::SentLast;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use session::machine::{OpId, StoreOp};
use session::{ItemBody, ItemPlace, ResponseStatus, is_hidden_id};
use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};
use store::{FinishedResponse, Measurement, NewResponse, OpenReply, SessionRef, Store, VersionStatus};
use tokio::task::unconstrained;

pub struct StoreQueue {
    store: Store,
    session: SessionRef,
    waiting: VecDeque<Waiting>,
    running: FuturesUnordered<BoxFuture<'static, Kept>>,
    ready: VecDeque<Kept>,
    /// Unfinished replies, each with the body of its begin. `None`: the begin is in progress.
    replies: HashMap<String, Option<(OpenReply, ItemBody)>>,
    pending: Vec<PendingWrite>,
}

struct Waiting {
    id: OpId,
    op: StoreOp,
    measured: Option<Measurement>,
    at_ms: i64,
    sent: SentLast,
}

enum Kept {
    Done(OpId, Result<(), store::Error>),
    Begun(OpId, String, Box<Result<(OpenReply, ItemBody), store::Error>>),
    /// Result of an end, which comes back if it could not be stored. No operation: it was tried again.
    Ended(Option<OpId>, Box<PendingWrite>, Result<(), store::Error>),
}

enum PendingWrite {
    Reply { reply: OpenReply, status: VersionStatus, body: ItemBody, at_ms: i64, withdrawn: bool },
    Response(FinishedResponse),
}

impl StoreQueue {
    pub fn new(store: Store, session: SessionRef) -> StoreQueue {
        StoreQueue {
            store,
            session,
            waiting: VecDeque::new(),
            running: FuturesUnordered::new(),
            ready: VecDeque::new(),
            replies: HashMap::new(),
            pending: Vec::new(),
        }
    }

    /// Takes an operation. `sent`: the last events sent, if the operation keeps words of a reply. `measured`: the cost
    /// that it reports.
    pub fn keep(&mut self, id: OpId, op: StoreOp, measured: Option<Measurement>, sent: SentLast, at_ms: i64) {
        if let StoreOp::ReplyBegun { response_id, item, after } = &op {
            self.store.begin_words(&self.session, &item.id, response_id, after.as_deref(), "");
        }
        if let StoreOp::ReplyResumed { response_id, item } = &op {
            self.store.begin_words(&self.session, &item.id, response_id, None, &item.text());
        }
        self.waiting.push_back(Waiting { id, op, measured, at_ms, sent });
        self.advance();
    }

    /// Writes words into the journal before they are sent. After an error they must not be sent.
    pub fn write_words(&self, item_id: &str, words: &str) -> Result<(), store::Error> {
        self.store.write_words(&self.session, item_id, words)
    }

    /// Starts the operations that may start; the caller calls it after frames were written.
    pub fn advance(&mut self) {
        while self.waiting.front().is_some_and(|next| self.may_start(next)) {
            if let Some(next) = self.waiting.pop_front() {
                self.start(next);
            }
        }
    }

    pub async fn next(&mut self) -> (OpId, Result<(), store::Error>) {
        loop {
            let kept = match self.ready.pop_front() {
                Some(kept) => kept,
                None => match self.running.next().await {
                    Some(kept) => kept,
                    None => std::future::pending().await,
                },
            };
            if let Some(answered) = self.answer(kept) {
                return answered;
            }
        }
    }

    /// Tries the pending ends a last time, before the session leaves memory. The next start closes those that fail, as
    /// after a crash.
    pub async fn settle(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.try_again();
        while let Some(kept) = self.ready.pop_front() {
            self.answer(kept);
        }
        while let Some(kept) = self.running.next().await {
            self.answer(kept);
        }
    }

    fn answer(&mut self, kept: Kept) -> Option<(OpId, Result<(), store::Error>)> {
        match kept {
            Kept::Done(op, result) => Some((op, result)),
            Kept::Begun(op, item_id, reply) => {
                self.replies.remove(&item_id);
                let result = (*reply).map(|reply| {
                    self.replies.insert(item_id, Some(reply));
                });
                self.advance();
                Some((op, result))
            }
            Kept::Ended(op, ended, result) => {
                if result.as_ref().is_err_and(store::Error::may_pass) {
                    self.pending.push(ended.told());
                }
                op.map(|op| (op, result))
            }
        }
    }

    fn try_again(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            self.end(None, pending);
        }
    }

    fn end(&mut self, op: Option<OpId>, pending: PendingWrite) {
        let (store, session) = (self.store.clone(), self.session.clone());
        self.run(async move {
            let result = match &pending {
                PendingWrite::Reply { reply, status, body, at_ms, withdrawn } => {
                    let finish = store.finish_reply(reply, *status, body.clone(), *at_ms);
                    if *withdrawn {
                        // Both at once, so that nothing else comes between them.
                        let delete = store.delete_item(&session, reply.item_id(), *at_ms);
                        let (finished, deleted) = futures_util::join!(finish, delete);
                        finished.and(deleted).map(drop)
                    } else {
                        finish.await.map(drop)
                    }
                }
                PendingWrite::Response(response) => store.finish_response(&session, response.clone()).await,
            };
            Kept::Ended(op, Box::new(pending), result)
        });
    }

    fn may_start(&self, next: &Waiting) -> bool {
        if next.op.reply_item().is_some_and(|item_id| matches!(self.replies.get(item_id), Some(None))) {
            return false;
        }
        let written = next.sent.iter().any(|(outgoing, mark)| outgoing.is_written(*mark));
        written || next.sent.iter().all(|(outgoing, _)| outgoing.is_over())
    }

    fn start(&mut self, next: Waiting) {
        self.try_again();
        let Waiting { id, op, measured, at_ms, .. } = next;
        let (store, session) = (self.store.clone(), self.session.clone());
        match op {
            StoreOp::ConfigChanged { config } => {
                self.run(async move { Kept::Done(id, store.set_config(&session, &config, at_ms).await) })
            }
            StoreOp::ItemAdded { item, after, sources, .. } if is_hidden_id(&item.id) => {
                let place = place(after);
                self.run(async move { Kept::Done(id, store.append_note(&session, item, place, sources, at_ms).await) });
            }
            StoreOp::ItemAdded { item, after, of_request, .. } => {
                let place = place(after);
                self.run(async move {
                    let added = store.append_of_request(&session, item, place, of_request, at_ms).await;
                    Kept::Done(id, added.map(drop))
                });
            }
            StoreOp::ItemTruncated { item, part, heard_chars } => {
                self.run(async move {
                    let heard = heard_chars as u64;
                    let truncate = store.truncate(&session, &item.id, part, heard, at_ms);
                    let barge_in = store.set_barged_in(&session, &item.id);
                    let (truncated, marked) = futures_util::join!(truncate, barge_in);
                    Kept::Done(id, truncated.map(drop).and(marked))
                });
            }
            StoreOp::ItemDeleted { item_id } => {
                self.run(async move { Kept::Done(id, store.delete_item(&session, &item_id, at_ms).await.map(drop)) })
            }
            StoreOp::ResponseStarted { response_id, in_conversation, metadata, of_request } => {
                self.run(async move {
                    let new = NewResponse { id: response_id, in_conversation, metadata, of_request };
                    Kept::Done(id, store.begin_response(&session, new, at_ms).await)
                });
            }
            StoreOp::ReplyBegun { response_id, item, after } => {
                let (place, item_id, body) = (place(after), item.id.clone(), item.body.clone());
                self.replies.insert(item_id.clone(), None);
                self.run(async move {
                    let begun = store.begin_reply(&session, item, place, &response_id, at_ms).await;
                    Kept::Begun(id, item_id, Box::new(begun.map(|reply| (reply, body))))
                });
            }
            StoreOp::ReplyResumed { response_id, item } => {
                let (item_id, body) = (item.id.clone(), item.body.clone());
                self.replies.insert(item_id.clone(), None);
                self.run(async move {
                    let resumed = store.resume_reply(&session, item, &response_id, at_ms).await;
                    Kept::Begun(id, item_id, Box::new(resumed.map(|reply| (reply, body))))
                });
            }
            StoreOp::ReplyExtended { item_id, text } => {
                let reply = self.replies.get(&item_id).and_then(Option::as_ref);
                match reply.map(|(reply, _)| self.store.extend_reply(reply, text, at_ms)) {
                    Some(Ok(answer)) => self.run(async move { Kept::Done(id, answer.await) }),
                    Some(Err(error)) => self.ready.push_back(Kept::Done(id, Err(error))),
                    None => self.not_begun(id, item_id),
                }
            }
            StoreOp::ReplyFinished { item } => match self.replies.remove(&item.id).flatten() {
                Some((reply, _)) => {
                    let (status, body) = (item.status.into(), item.body);
                    self.end(Some(id), PendingWrite::Reply { reply, status, body, at_ms, withdrawn: false });
                }
                None => self.not_begun(id, item.id),
            },
            StoreOp::ReplyWithdrawn { item_id } => match self.replies.remove(&item_id).flatten() {
                Some((reply, body)) => {
                    let status = VersionStatus::Cancelled;
                    self.end(Some(id), PendingWrite::Reply { reply, status, body, at_ms, withdrawn: true });
                }
                None => self.not_begun(id, item_id),
            },
            StoreOp::ResponseFinished { response_id, status, details, usage } => {
                let response = FinishedResponse { id: response_id, status, details, usage, finished_at_ms: at_ms };
                self.end(Some(id), PendingWrite::Response(response));
            }
            StoreOp::ResponseReported { .. } => match measured {
                Some(measurement) => {
                    self.run(async move { Kept::Done(id, store.add_measurement(&session, measurement).await) })
                }
                // Beside the conversation is no turn.
                None => self.ready.push_back(Kept::Done(id, Ok(()))),
            },
        }
    }

    /// Polls the write once, which puts it into the store's queue: so the order there is the order of the calls.
    fn run(&mut self, write: impl Future<Output = Kept> + Send + 'static) {
        let mut write: BoxFuture<'static, Kept> = Box::pin(write);
        let mut context = Context::from_waker(Waker::noop());
        // Without the runtime's budget, which could keep the first poll from getting there.
        let mut first = std::pin::pin!(unconstrained(&mut write));
        match first.as_mut().poll(&mut context) {
            Poll::Ready(kept) => self.ready.push_back(kept),
            Poll::Pending => self.running.push(write),
        }
    }

    fn not_begun(&mut self, id: OpId, item: String) {
        self.ready.push_back(Kept::Done(id, Err(store::Error::NotInProgress { item })));
    }
}

impl PendingWrite {
    fn told(self) -> PendingWrite {
        match self {
            PendingWrite::Response(response) => {
                PendingWrite::Response(FinishedResponse { status: ResponseStatus::Failed, ..response })
            }
            reply @ PendingWrite::Reply { .. } => reply,
        }
    }
}

fn place(after: Option<String>) -> ItemPlace {
    after.map_or(ItemPlace::Head, ItemPlace::After)
}
