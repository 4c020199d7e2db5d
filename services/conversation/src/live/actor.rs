//! The task of one session: whatever happens becomes an input of the machine, and what the machine says is done.

mod compacting;
mod making_room;
mod recalling;

pub use compacting::Compacting;

use super::Error;
use super::keeper::{Answered, Keeper, Sent};
use super::load::Loaded;
use super::outgoing::{End, Frame, Outgoing};
use super::registry::{Hello, Shared};
use crate::backend::{Ask, Counted, Piece};
use crate::realtime::{ClientEvent, ErrorBody, ErrorCode, Received, ResponseStatus, ServerEvent};
use crate::turn::{
    CloseReason, ConnId, Generate, GenerationId, Input, Machine, Notice, OpId, Output, Purpose, StoreOp,
};
use futures_util::stream::{BoxStream, SelectAll, StreamExt};
use settings::Preset;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Span;

/// What the rest of the service may ask of a session.
pub enum Command {
    Attach {
        hello: Hello,
        answer: oneshot::Sender<Result<(), Error>>,
    },
    Client {
        conn: ConnId,
        received: Received,
    },
    Refused {
        conn: ConnId,
        error: ErrorBody,
    },
    Notice(Notice),
    /// Finish what is under way, no later than this; then close.
    Drain {
        by: Instant,
    },
    /// Leave memory if nobody needs the session.
    Leave,
    /// Its summaries or pins were changed: answers when the prompt shows it.
    Reload {
        done: oneshot::Sender<()>,
    },
    /// The session is deleted: close at once.
    Gone,
}

pub struct Actor {
    shared: Arc<Shared>,
    preset: Arc<Preset>,
    machine: Machine,
    keeper: Keeper,
    connections: HashMap<ConnId, Outgoing>,
    answers: SelectAll<BoxStream<'static, (GenerationId, Piece)>>,
    generations: HashMap<GenerationId, Generation>,
    /// Told when a connection has written something.
    written: Arc<Notify>,
    /// What was sent last, and to whom: the words that the store may have next.
    sent: Sent,
    /// Responses of the conversation: the number of the turn, for the log.
    turns: u64,
    in_conversation: HashMap<String, bool>,
    /// What the window holds.
    fill: Option<Counted>,
    past_owner: u64,
    compacting: Compacting,
    /// Of the experiment that the session is in.
    arm: Option<String>,
    draining_by: Option<Instant>,
    /// The machine was told.
    is_drained: bool,
    /// What is being sent is what a connection that came missed.
    is_greeting: bool,
    gone: bool,
    /// When the session was last used.
    used_at: Instant,
}

struct Generation {
    cancel: CancellationToken,
    span: Span,
    /// Of a reply in the conversation: it may have to be asked for with less in its prompt.
    generate: Option<Box<Generate>>,
    tries: u32,
}

/// Why the task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turned {
    On,
    Over,
}

impl Actor {
    pub fn new(shared: Arc<Shared>, loaded: Loaded, written: Arc<Notify>) -> Actor {
        Actor {
            shared,
            preset: loaded.preset,
            machine: loaded.machine,
            keeper: loaded.keeper,
            connections: HashMap::new(),
            answers: SelectAll::new(),
            generations: HashMap::new(),
            written,
            sent: Sent::new(),
            turns: 0,
            in_conversation: HashMap::new(),
            fill: loaded.fill,
            past_owner: loaded.past_owner,
            compacting: loaded.compacting,
            arm: loaded.arm,
            draining_by: None,
            is_drained: false,
            is_greeting: false,
            gone: false,
            used_at: Instant::now(),
        }
    }

    /// Runs until the session leaves memory. Commands that come too late are given back in the channel.
    pub async fn run(
        mut self,
        commands: &mut mpsc::Receiver<Command>,
        departures: &mut mpsc::UnboundedReceiver<ConnId>,
    ) {
        let idle = Duration::from_secs(self.shared.settings.limits.live_session_idle_s);
        let written = self.written.clone();
        loop {
            self.go_on_compacting();
            let tick = self.machine.next_deadline().map(|due| self.shared.started + Duration::from_millis(due));
            let unused = self.connections.is_empty() && self.machine.is_idle() && self.compacting.is_quiet();
            let leave = unused.then(|| self.used_at + idle);
            let drain = self.draining_by.filter(|_| !self.is_drained);
            let wake = [tick, drain, leave].into_iter().flatten().min();
            let turned = tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => Turned::Over,
                },
                Some(conn) = departures.recv() => {
                    self.depart(conn);
                    Turned::On
                }
                answered = self.keeper.next() => {
                    self.answered(answered);
                    Turned::On
                }
                happened = self.compacting.next() => {
                    self.compacting_happened(happened);
                    Turned::On
                }
                Some((generation, piece)) = self.answers.next() => {
                    self.piece(generation, piece);
                    Turned::On
                }
                () = written.notified() => {
                    self.keeper.advance();
                    self.forget_the_closed();
                    Turned::On
                }
                () = sleep_until(wake) => self.time_passed(leave),
            };
            self.drain_if_due();
            let drained = self.is_drained && self.connections.is_empty() && self.machine.is_idle();
            if turned == Turned::Over || self.gone || drained {
                break;
            }
        }
        for outgoing in self.connections.values() {
            outgoing.end(if self.gone { End::SessionGone } else { End::Draining });
        }
        self.keeper.settle().await;
        tracing::debug!("the session leaves memory");
    }

    fn command(&mut self, command: Command) -> Turned {
        self.used_at = Instant::now();
        match command {
            Command::Attach { answer, .. } if self.draining_by.is_some() => {
                let _ = answer.send(Err(Error::Stopping));
            }
            Command::Attach { hello, answer } => {
                self.attach(hello);
                let _ = answer.send(Ok(()));
            }
            // What is under way is finished, and nothing new is begun.
            Command::Client { conn, received } if self.draining_by.is_some() && begins_a_reply(&received.event) => {
                let error =
                    ErrorBody::new(ErrorCode::ServerError, "the service is stopping: connect again in a moment");
                self.feed(Input::Refused { conn, error: error.caused_by(received.event_id) });
            }
            Command::Client { conn, received } => self.feed(Input::Client { conn, received }),
            Command::Refused { conn, error } => self.feed(Input::Refused { conn, error }),
            Command::Notice(notice) => self.feed(Input::Notice(notice)),
            Command::Drain { by } => self.draining_by = Some(self.draining_by.map_or(by, |before| before.min(by))),
            Command::Leave if self.connections.is_empty() && self.machine.is_idle() => return Turned::Over,
            Command::Leave => {}
            Command::Reload { done } => self.compacting.begin_reload(done),
            Command::Gone => self.gone = true,
        }
        Turned::On
    }

    fn attach(&mut self, hello: Hello) {
        let Hello { conn, outgoing, extensions, replay } = hello;
        self.connections.insert(conn, outgoing);
        self.is_greeting = true;
        self.feed(Input::Attached { conn, extensions, replay });
        self.is_greeting = false;
        if extensions {
            self.tell_fill();
        }
    }

    fn depart(&mut self, conn: ConnId) {
        self.used_at = Instant::now();
        if self.connections.remove(&conn).is_some() {
            self.feed(Input::Detached { conn });
            self.keeper.advance();
        }
    }

    fn forget_the_closed(&mut self) {
        let closed: Vec<_> =
            self.connections.iter().filter(|(_, outgoing)| outgoing.is_over()).map(|(conn, _)| *conn).collect();
        for conn in closed {
            self.depart(conn);
        }
    }

    fn answered(&mut self, answered: Answered) {
        let Answered { op, result } = answered;
        match result {
            Ok(()) => self.feed(Input::StoreAcked { op }),
            Err(store::Error::NoSession { .. }) => {
                tracing::info!("the session was deleted");
                self.gone = true;
            }
            Err(error) => {
                tracing::error!(%error, "a change of the session could not be stored");
                self.feed(Input::StoreFailed { op, message: error.to_string() });
            }
        }
    }

    fn piece(&mut self, generation: GenerationId, piece: Piece) {
        let span = self.generations.get(&generation).map_or_else(Span::none, |generation| generation.span.clone());
        let entered = span.enter();
        if let Piece::Failed(failure) = &piece {
            tracing::warn!(code = failure.code.word(), message = %failure.message, "the backend could not answer");
        }
        if let Piece::Failed(failure) = &piece
            && self.makes_room(generation, failure)
        {
            return;
        }
        let is_last = piece.is_last();
        self.feed(Input::Backend { generation, piece: piece.into() });
        drop(entered);
        if is_last {
            self.generations.remove(&generation);
        }
    }

    fn time_passed(&mut self, leave: Option<Instant>) -> Turned {
        if leave.is_some_and(|leave| leave <= Instant::now()) {
            return Turned::Over;
        }
        self.feed(Input::Tick);
        Turned::On
    }

    /// As soon as no reply is under way, and in any case when the time is over.
    fn drain_if_due(&mut self) {
        if let Some(by) = self.draining_by
            && !self.is_drained
            && (!self.machine.is_replying() || by <= Instant::now())
        {
            self.is_drained = true;
            self.feed(Input::Drain);
        }
    }

    /// Gives the machine one thing that happened, and does what it says, until nothing more follows from it.
    fn feed(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        let mut outputs = Vec::new();
        while let Some(input) = inputs.pop_front() {
            let now = u64::try_from(self.shared.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.machine.handle(input, now, &mut outputs);
            for output in outputs.drain(..) {
                self.perform(output, &mut inputs);
            }
        }
    }

    fn perform(&mut self, output: Output, inputs: &mut VecDeque<Input>) {
        match output {
            Output::Send { to, event } => self.send(&to, &event, inputs),
            Output::Store { id, op } => self.store(id, op, inputs),
            Output::Generate(generate) => self.generate(generate),
            Output::Recall { generation, queries, shown } => self.search_past(generation, queries, shown),
            Output::CancelGenerate { generation } => {
                if let Some(generation) = self.generations.get(&generation) {
                    generation.cancel.cancel();
                }
                inputs.extend(self.cancel_waiting(generation));
            }
            Output::Close { conn, reason } => {
                if let Some(outgoing) = self.connections.remove(&conn) {
                    match reason {
                        CloseReason::Draining => outgoing.end(End::Draining),
                        CloseReason::StoreStalled => outgoing.end(End::StoreStalled),
                    }
                    inputs.push_back(Input::Detached { conn });
                }
            }
        }
    }

    fn send(&mut self, to: &[ConnId], event: &ServerEvent, inputs: &mut VecDeque<Input>) {
        let text = match serde_json::to_string(event) {
            Ok(text) => text,
            Err(error) => {
                tracing::error!(%error, "an event could not be written out; this is a defect of the program");
                return;
            }
        };
        let frame = Frame::from(text);
        self.sent.clear();
        for conn in to {
            let Some(outgoing) = self.connections.get(conn) else { continue };
            match outgoing.push(frame.clone(), !self.is_greeting) {
                Some(mark) => self.sent.push((outgoing.clone(), mark)),
                None => {
                    tracing::info!(conn = conn.0, "a connection is closed or reads too slowly");
                    self.connections.remove(conn);
                    inputs.push_back(Input::Detached { conn: *conn });
                }
            }
        }
    }

    fn store(&mut self, id: OpId, op: StoreOp, inputs: &mut VecDeque<Input>) {
        inputs.extend(self.compacting_sees(&op));
        match &op {
            StoreOp::ResponseStarted { response_id, in_conversation, .. } => {
                self.in_conversation.insert(response_id.clone(), *in_conversation);
            }
            StoreOp::ResponseFinished { response_id, status, usage, .. } => {
                let in_conversation = self.in_conversation.remove(response_id).unwrap_or(false);
                if in_conversation {
                    let is_known = usage.input_tokens > 0;
                    self.compacting.turn_ended(if is_known { usage.input_tokens + usage.output_tokens } else { 0 });
                }
                // A reply that was cancelled before its prompt was read tells nothing of the fill.
                if in_conversation && usage.input_tokens > 0 && *status != ResponseStatus::Failed {
                    self.fill = Some(Counted::exactly(usage.input_tokens + usage.output_tokens));
                    inputs.extend(self.fill_notice());
                }
            }
            StoreOp::ResponseReported { report, ms, .. } => tracing::info!(
                reused_tokens = report.reused_tokens,
                computed_tokens = report.computed_tokens,
                reason = report.reason.as_deref().unwrap_or("-"),
                queue_ms = ms.queue,
                prefill_ms = ms.prefill,
                first_token_ms = ms.first_token.unwrap_or(f64::NAN),
                total_ms = ms.total,
                "a reply is done"
            ),
            _ => {}
        }
        let has_words = matches!(op, StoreOp::ReplyExtended { .. } | StoreOp::ReplyFinished { .. });
        let sent = if has_words { self.sent.clone() } else { Sent::new() };
        self.keeper.set_heard(!self.connections.is_empty() && !self.is_drained);
        self.keeper.keep(id, op, sent, wall_ms());
    }

    fn generate(&mut self, generate: Box<Generate>) {
        let span = match (&generate.purpose, &generate.response_id) {
            (Purpose::Reply, Some(request)) => {
                self.turns += 1;
                tracing::info_span!("turn", turn = self.turns, request = %request, arm = self.arm)
            }
            (_, Some(request)) => tracing::info_span!("beside", request = %request),
            (_, None) => tracing::debug_span!("ahead"),
        };
        let cancel = CancellationToken::new();
        let is_reply = generate.purpose == Purpose::Reply;
        let kept = is_reply.then(|| generate.clone());
        self.generations.insert(generate.generation, Generation { cancel, span, generate: kept, tries: 0 });
        self.ask_backend(generate, is_reply.then(|| self.compacting.prompt_limit_tokens()));
    }

    /// Asks, or asks again, for a generation that is known.
    fn ask_backend(&mut self, generate: Box<Generate>, prompt_limit_tokens: Option<u32>) {
        let Some(generation) = self.generations.get_mut(&generate.generation) else { return };
        let entered = generation.span.enter();
        let mut ask = Ask::for_turn(&generate, &self.preset, &self.shared.wording);
        (ask.past_owner, ask.prompt_limit_tokens) = (Some(self.past_owner), prompt_limit_tokens);
        if self.shared.settings.logging.user_text && generate.response_id.is_some() {
            tracing::info!(asked = %ask.chat.messages.last().map(ToString::to_string).unwrap_or_default(), "a reply is asked for");
        }
        let answer = self.shared.backend.ask(ask);
        drop(entered);
        generation.cancel = answer.canceller();
        let id = generate.generation;
        self.answers.push(answer.map(move |piece| (id, piece)).boxed());
    }

    fn tell_fill(&mut self) {
        if let Some(notice) = self.fill_notice() {
            self.feed(notice);
        }
    }

    fn fill_notice(&self) -> Option<Input> {
        let (Counted { tokens, margin_tokens, .. }, ctx_size) = (self.fill?, u64::from(self.preset.ctx_size));
        let fill = tokens as f64 / ctx_size.max(1) as f64;
        Some(Input::Notice(Notice::ContextUpdated { tokens, margin_tokens, ctx_size, fill, arm: self.arm.clone() }))
    }
}

/// How a session that could not be loaded answers those who wait for it.
pub fn refuse(commands: &mut mpsc::Receiver<Command>, error: &Error) {
    commands.close();
    while let Ok(command) = commands.try_recv() {
        if let Command::Attach { answer, .. } = command {
            let _ = answer.send(Err(error.clone()));
        }
    }
}

fn begins_a_reply(event: &ClientEvent) -> bool {
    matches!(event, ClientEvent::ResponseCreate(_) | ClientEvent::InputTextBufferCommit { create_response: true, .. })
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Milliseconds since 1970, as the store wants them.
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
