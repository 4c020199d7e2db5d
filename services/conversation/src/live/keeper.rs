//! Carries the operations of one session to the store, in order, without waiting for one before giving the next.
//!
//! Every operation is put into the store's queue the moment it is given, so that operations of one turn share a commit.
//! Two things make one wait, and with it all that come after it: a reply that is not begun cannot be finished, and words
//! are not stored before they were written to a socket.
//!
//! What a full disk refused did not happen, and the machine says so. The end of a reply did happen: it is owed to the
//! store, and tried again before whatever comes next, so that nothing is being said for ever.

use super::outgoing::Outgoing;
use super::records::{body_of, finished_response, settings_of, status_of};
use crate::backend::Gpu;
use crate::metrics;
use crate::realtime::{ResponseStatus, TurnMs, Usage};
use crate::turn::{OpId, Report, StoreOp};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Map, Value, json};
use settings::Preset;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use store::{
    Body, Conversation, FinishedReply, FinishedResponse, Measurement, NewItem, Position, Reply, ReplyPiece,
    SessionChange, SessionRef, Store,
};
use tokio::task::unconstrained;

/// What became of an operation.
#[derive(Debug)]
pub struct Answered {
    pub op: OpId,
    pub result: Result<(), store::Error>,
}

/// Frames of which one must have been written by somebody.
pub type Sent = Vec<(Outgoing, u64)>;

pub struct Keeper {
    store: Store,
    session: SessionRef,
    preset: Arc<Preset>,
    /// What stands at the head of the conversation in memory stands behind this item in the store.
    head: Option<String>,
    waiting: VecDeque<Waiting>,
    running: FuturesUnordered<BoxFuture<'static, Kept>>,
    /// Answers that were there at once.
    ready: VecDeque<Kept>,
    /// Replies that are begun and not finished, each with its body as it was begun.
    replies: HashMap<String, (Reply, Body)>,
    /// Ends that the store could not take.
    owed: Vec<Owed>,
    /// Replies whose begin is under way.
    beginning: HashSet<String>,
    /// Responses of the conversation that are not reported.
    responses: VecDeque<Spent>,
    responses_kept: usize,
    turns: u64,
    /// Since the last turn that was measured: swaps of a summary, and turns that left without one.
    compactions: u64,
    drops: u64,
    /// In which arm the session is, with the name of the experiment.
    arm: Option<(String, String)>,
    /// Behind which item the last reply was asked for.
    answered: Option<Option<String>>,
    /// Somebody listens: who is gone does not talk over a reply.
    is_heard: bool,
    gpu: Option<Arc<Gpu>>,
}

struct Waiting {
    id: OpId,
    op: StoreOp,
    at_ms: i64,
    sent: Sent,
}

struct Spent {
    response_id: String,
    items: Vec<String>,
    /// What it answers was answered before.
    regenerated: bool,
    barged_in: bool,
    ended: Option<(ResponseStatus, Usage)>,
}

/// How a write ended.
enum Kept {
    Done(OpId, Result<(), store::Error>),
    Begun(OpId, String, Box<Result<(Reply, Body), store::Error>>),
    /// What ended comes back when it could not be stored. No operation: it was tried again.
    Ended(Option<OpId>, Box<Owed>, Result<(), store::Error>),
}

/// Something that is over, whether the store can take it or not.
enum Owed {
    Reply { reply: Reply, finished: FinishedReply, withdrawn: bool },
    Response(FinishedResponse),
}

/// What the keeper starts from.
pub struct KeeperStart {
    pub store: Store,
    pub session: SessionRef,
    pub preset: Arc<Preset>,
    pub head: Option<String>,
    /// Turns that were measured so far.
    pub turns: u64,
    /// Responses that may be open at once.
    pub responses: usize,
    pub arm: Option<(String, String)>,
    pub gpu: Option<Arc<Gpu>>,
}

impl Keeper {
    pub fn new(start: KeeperStart) -> Keeper {
        Keeper {
            store: start.store,
            session: start.session,
            preset: start.preset,
            head: start.head,
            waiting: VecDeque::new(),
            running: FuturesUnordered::new(),
            ready: VecDeque::new(),
            replies: HashMap::new(),
            owed: Vec::new(),
            beginning: HashSet::new(),
            responses: VecDeque::new(),
            responses_kept: start.responses,
            turns: start.turns,
            compactions: 0,
            drops: 0,
            arm: start.arm,
            answered: None,
            is_heard: false,
            gpu: start.gpu,
        }
    }

    /// What stood before all that was in memory is in memory now, behind this item of the store.
    pub fn stand_behind(&mut self, head: Option<String>) {
        self.head = head;
    }

    /// Whether somebody listens to what is kept next.
    pub fn set_heard(&mut self, is_heard: bool) {
        self.is_heard = is_heard;
    }

    pub fn count_compaction(&mut self) {
        self.compactions += 1;
    }

    pub fn count_drop(&mut self) {
        self.drops += 1;
    }

    /// Takes an operation. `sent` is what was sent last, where the operation keeps words of a reply.
    pub fn keep(&mut self, id: OpId, op: StoreOp, sent: Sent, at_ms: i64) {
        self.waiting.push_back(Waiting { id, op, at_ms, sent });
        self.advance();
    }

    /// Starts what may start: to be called when frames were written.
    pub fn advance(&mut self) {
        while self.waiting.front().is_some_and(|next| self.may_start(next)) {
            if let Some(next) = self.waiting.pop_front() {
                self.start(next);
            }
        }
    }

    /// The next answer; never, while nothing is under way.
    pub async fn next(&mut self) -> Answered {
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

    /// What is owed is tried a last time, before the session leaves memory. What cannot be stored now is closed at the
    /// next start, as after a crash.
    pub async fn settle(&mut self) {
        if self.owed.is_empty() {
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

    fn answer(&mut self, kept: Kept) -> Option<Answered> {
        match kept {
            Kept::Done(op, result) => Some(Answered { op, result }),
            Kept::Begun(op, item_id, reply) => {
                self.beginning.remove(&item_id);
                let result = (*reply).map(|reply| {
                    self.replies.insert(item_id, reply);
                });
                self.advance();
                Some(Answered { op, result })
            }
            Kept::Ended(op, ended, result) => {
                if result.as_ref().is_err_and(store::Error::may_pass) {
                    self.owed.push(ended.told());
                }
                op.map(|op| Answered { op, result })
            }
        }
    }

    fn try_again(&mut self) {
        for owed in std::mem::take(&mut self.owed) {
            self.end(None, owed);
        }
    }

    fn end(&mut self, op: Option<OpId>, owed: Owed) {
        let (store, session) = (self.store.clone(), self.session.clone());
        self.run(async move {
            let result = match &owed {
                Owed::Reply { reply, finished, withdrawn: false } => {
                    store.finish_reply(reply, finished.clone()).await.map(drop)
                }
                Owed::Reply { reply, finished, withdrawn: true } => {
                    // Both at once, so that nothing else comes between them.
                    let finish = store.finish_reply(reply, finished.clone());
                    let delete = store.delete_item(&session, reply.item_id(), finished.finished_at_ms);
                    let (finished, deleted) = futures_util::join!(finish, delete);
                    finished.map(drop).and(deleted.map(drop))
                }
                Owed::Response(response) => {
                    store.finish_turn(&session, Vec::new(), response.clone(), None).await.map(drop)
                }
            };
            Kept::Ended(op, Box::new(owed), result)
        });
    }

    fn may_start(&self, next: &Waiting) -> bool {
        let needs_reply = match &next.op {
            StoreOp::ReplyExtended { item_id, .. } | StoreOp::ReplyWithdrawn { item_id } => Some(item_id),
            StoreOp::ReplyFinished { item } => Some(&item.id),
            _ => None,
        };
        if needs_reply.is_some_and(|item_id| self.beginning.contains(item_id)) {
            return false;
        }
        let written = next.sent.iter().any(|(outgoing, mark)| outgoing.is_written(*mark));
        written || next.sent.iter().all(|(outgoing, _)| outgoing.is_over())
    }

    fn start(&mut self, next: Waiting) {
        self.try_again();
        let Waiting { id, op, at_ms, .. } = next;
        let (store, session) = (self.store.clone(), self.session.clone());
        match op {
            StoreOp::ConfigChanged { config } => self.run(async move {
                let change = SessionChange {
                    instructions: Some(config.instructions.clone()),
                    tools: Some(json!(config.tools)),
                    settings: Some(settings_of(&config)),
                    ..SessionChange::default()
                };
                Kept::Done(id, store.change_session(&session, change, at_ms).await)
            }),
            StoreOp::ItemAdded { item, after } => {
                let new = NewItem {
                    item_id: Some(item.id.clone()),
                    position: self.position(after),
                    body: body_of(&item),
                    response: None,
                    created_at_ms: at_ms,
                };
                self.run(async move { Kept::Done(id, store.append(&session, new).await.map(drop)) });
            }
            StoreOp::ItemTruncated { item, content_index, text_end } => {
                let unmeasured = self.responses.iter_mut().filter(|spent| spent.items.contains(&item.id));
                unmeasured.for_each(|spent| spent.barged_in = true);
                self.run(async move {
                    let heard = text_end as u64;
                    let truncate = store.truncate(&session, &item.id, content_index, heard, at_ms);
                    let barge_in = store.set_barged_in(&session, &item.id);
                    let (truncated, marked) = futures_util::join!(truncate, barge_in);
                    Kept::Done(id, truncated.map(drop).and(marked))
                });
            }
            StoreOp::ItemDeleted { item_id } => {
                self.run(async move { Kept::Done(id, store.delete_item(&session, &item_id, at_ms).await.map(drop)) })
            }
            StoreOp::ResponseStarted { response_id, in_conversation, metadata } => {
                if in_conversation {
                    self.responses.push_back(Spent {
                        response_id: response_id.clone(),
                        items: Vec::new(),
                        regenerated: false,
                        barged_in: false,
                        ended: None,
                    });
                    // A backend that failed reports nothing.
                    while self.responses.len() > self.responses_kept {
                        self.responses.pop_front();
                    }
                }
                let conversation = if in_conversation { Conversation::Auto } else { Conversation::None };
                let metadata = metadata.map_or(Value::Null, Value::Object);
                self.run(async move {
                    Kept::Done(id, store.begin_response(&session, &response_id, conversation, metadata, at_ms).await)
                });
            }
            StoreOp::ReplyBegun { response_id, item, after } => {
                if let Some(spent) = self.responses.iter_mut().find(|spent| spent.response_id == response_id) {
                    if spent.items.is_empty() {
                        spent.regenerated = self.answered.replace(after.clone()).as_ref() == Some(&after);
                    }
                    spent.items.push(item.id.clone());
                }
                let body = body_of(&item);
                let new = NewItem {
                    item_id: Some(item.id.clone()),
                    position: self.position(after),
                    body: body.clone(),
                    response: Some(response_id),
                    created_at_ms: at_ms,
                };
                self.beginning.insert(item.id.clone());
                self.run(async move {
                    let begun = store.begin_reply(&session, new).await;
                    Kept::Begun(id, item.id, Box::new(begun.map(|(reply, _)| (reply, body))))
                });
            }
            StoreOp::ReplyExtended { item_id, piece } => {
                let piece = ReplyPiece { text: piece, sent_at_ms: at_ms };
                match self.replies.get_mut(&item_id).map(|(reply, _)| self.store.extend_reply(reply, piece)) {
                    Some(Ok(answer)) => {
                        self.run(async move { Kept::Done(id, answer.await.unwrap_or(Err(store::Error::Closed))) })
                    }
                    Some(Err(error)) => self.ready.push_back(Kept::Done(id, Err(error))),
                    None => self.not_begun(id, item_id),
                }
            }
            StoreOp::ReplyFinished { item } => match self.replies.remove(&item.id) {
                Some((reply, _)) => {
                    let finished =
                        FinishedReply { status: status_of(item.status), body: body_of(&item), finished_at_ms: at_ms };
                    self.end(Some(id), Owed::Reply { reply, finished, withdrawn: false });
                }
                None => self.not_begun(id, item.id),
            },
            StoreOp::ReplyWithdrawn { item_id } => match self.replies.remove(&item_id) {
                Some((reply, body)) => {
                    let status = store::Status::Cancelled;
                    let finished = FinishedReply { status, body, finished_at_ms: at_ms };
                    self.end(Some(id), Owed::Reply { reply, finished, withdrawn: true });
                }
                None => self.not_begun(id, item_id),
            },
            StoreOp::ResponseFinished { response_id, status, details, usage } => {
                if let Some(spent) = self.responses.iter_mut().find(|spent| spent.response_id == response_id) {
                    spent.barged_in |= status == ResponseStatus::Cancelled && self.is_heard;
                    spent.ended = Some((status, usage));
                }
                let response = finished_response(response_id, status, details.as_ref(), &usage, at_ms);
                self.end(Some(id), Owed::Response(response));
            }
            StoreOp::ResponseReported { response_id, report, ms } => match self.measure(response_id, report, ms, at_ms)
            {
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

    fn position(&self, after: Option<String>) -> Position {
        after.or_else(|| self.head.clone()).map_or(Position::Start, Position::After)
    }

    fn measure(&mut self, response_id: String, report: Report, ms: TurnMs, at_ms: i64) -> Option<Measurement> {
        let index = self.responses.iter().position(|spent| spent.response_id == response_id)?;
        let Spent { regenerated, barged_in, ended, .. } = self.responses.remove(index)?;
        let (_, usage) = ended?;
        let mut memory: Map<String, Value> =
            report.memory_bytes.iter().map(|(kind, bytes)| ((*kind).to_owned(), json!(bytes))).collect();
        if let Some(gpu) = &self.gpu {
            memory.extend(gpu.memory_bytes().into_iter().map(|(kind, bytes)| (kind.to_owned(), json!(bytes))));
        }
        let turn = self.turns;
        self.turns += 1;
        let (experiment, arm) = self.arm.clone().unzip();
        let measurement = Measurement {
            turn,
            response: Some(response_id),
            experiment,
            arm,
            preset: self.preset.name.clone(),
            ctx_size: u64::from(self.preset.ctx_size),
            tokens_in: usage.input_tokens,
            tokens_out: usage.output_tokens,
            fill_tokens: usage.input_tokens + usage.output_tokens,
            reused_tokens: report.reused_tokens,
            computed_tokens: report.computed_tokens,
            computed_reason: report.reason,
            queue_ms: ms.queue,
            prefill_ms: ms.prefill,
            first_token_ms: ms.first_token,
            first_sentence_ms: ms.first_sentence,
            total_ms: ms.total,
            decode_ms: report.decode_ms,
            compactions: std::mem::take(&mut self.compactions),
            drops: std::mem::take(&mut self.drops),
            barged_in,
            regenerated,
            feedback: None,
            memory: Value::Object(memory),
            created_at_ms: at_ms,
        };
        metrics::measured(&measurement);
        Some(measurement)
    }
}

impl Owed {
    /// As it was told when it could not be stored.
    fn told(self) -> Owed {
        match self {
            Owed::Response(response) => {
                Owed::Response(FinishedResponse { status: store::ResponseStatus::Failed, ..response })
            }
            reply @ Owed::Reply { .. } => reply,
        }
    }
}
