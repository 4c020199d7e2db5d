//! Task of one session: gives whatever happens to the machine, and carries out its outputs.

use crate::Error;
use crate::beside::beside;
use crate::command::Command;
use crate::compactor::{Compactor, FromCompactor, ShownPast, ToCompactor};
use crate::connections::Connections;
use crate::fact_block::BlockFacts;
use crate::generations::Generations;
use crate::held::HeldShare;
use crate::look_back::{Question, look_back, question_of};
use crate::looking::{Looking, next_note};
use crate::memories::{MemoryNews, SessionMemories};
use crate::metrics;
use crate::outgoing::End;
use crate::prompts::SessionTools;
use crate::recall::recall;
use crate::shared::Shared;
use crate::store_queue::StoreQueue;
use crate::turn_log::TurnLog;
use crate::turn_traces::TurnTraces;
use crate::wall_ms;
use compaction::phases::Activity;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use model::Counted;
use prompt::{PastOf, asker, facts_for};
use session::machine::{
    CloseReason, ConnId, GenerationId, Machine, MachineInput, OpId, Output, RecallResult, StoreOp, is_hidden,
};
use session::{Delta, Event, FailureCode, Finish, Input, Item, Message, Refusal, ResponseStatus};
use settings::Recall;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use telemetry::ToolTrace;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

pub struct SessionTask {
    pub shared: Arc<Shared>,
    pub machine: Machine,
    pub queue: StoreQueue,
    pub connections: Connections,
    pub generations: Generations,
    pub turns: TurnLog,
    pub traces: TurnTraces,
    pub window: SessionWindow,
    pub compactor: Compactor,
    pub to_compactor: Vec<ToCompactor>,
    pub recalls: FuturesUnordered<BoxFuture<'static, MachineInput>>,
    pub looking: Option<Looking>,
    pub memories: SessionMemories,
    pub held: HeldShare,
    pub life: Life,
}

pub struct SessionWindow {
    pub tools: Arc<SessionTools>,
    pub shown_past: Arc<ShownPast>,
    pub fill: Option<Counted>,
    pub arm: Option<String>,
    pub epoch: u64,
    pub told: Option<Activity>,
    /// View for which the compactor wants a prompt, while its facts are chosen anew.
    pub wanted: Option<Arc<ShownPast>>,
}

pub struct Life {
    draining_by: Option<Instant>,
    is_drained: bool,
    deleted: bool,
    leaves: bool,
    used_at: Instant,
}

impl Life {
    pub fn begin() -> Life {
        Life { draining_by: None, is_drained: false, deleted: false, leaves: false, used_at: Instant::now() }
    }
}

/// Tries of a reply with a shorter prompt each. An upstream may count tokens otherwise than the service.
const MOST_TRIES: u32 = 4;

impl SessionTask {
    /// Runs until the session leaves memory, and returns whether it was large. Commands that come too late stay in the
    /// channel.
    pub async fn run(
        mut self: Box<Self>,
        commands: &mut mpsc::Receiver<Box<Command>>,
        departures: &mut mpsc::UnboundedReceiver<ConnId>,
    ) -> bool {
        let idle = Duration::from_secs(self.shared.settings.limits.live_session_idle_s);
        let written = self.connections.written();
        loop {
            self.tell_compactor().await;
            let tick = self.machine.next_deadline().map(|due| self.shared.started + Duration::from_millis(due));
            let is_idle = self.machine.is_idle() && self.looking.is_none();
            let unused = self.connections.is_empty() && is_idle && self.compactor.is_quiet();
            let is_large = self.machine.is_large() || self.held.is_uneven();
            let idle = if is_large { Duration::ZERO } else { idle };
            let leave = unused.then(|| self.life.used_at + idle);
            let drain = self.life.draining_by.filter(|_| !self.life.is_drained);
            let silent = !self.machine.is_replying();
            let refresh = self.memories.refresh_at(self.life.used_at).filter(|_| silent);
            let wake = [tick, drain, leave, refresh].into_iter().flatten().min();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(mut command) => {
                        self.assign(&mut command);
                        self.receive(*command);
                    }
                    None => {
                        self.stop_looking();
                        self.life.leaves = true;
                    }
                },
                Some(conn) = departures.recv() => self.depart(conn),
                (op, result) = self.queue.next() => self.answered(op, result),
                message = self.compactor.next() => self.compactor_says(message),
                Some((generation, delta)) = self.generations.next() => self.delta(generation, delta),
                Some(found) = self.recalls.next() => self.feed(found),
                note = next_note(&mut self.looking) => self.looked(note),
                news = self.memories.next() => self.remembers(news),
                () = written.notified() => {
                    self.queue.advance();
                    for conn in self.connections.closed() {
                        self.depart(conn);
                    }
                }
                () = sleep_until(wake) => {
                    let now = Instant::now();
                    self.life.leaves = leave.is_some_and(|leave| leave <= now);
                    if refresh.is_some_and(|refresh| refresh <= now) {
                        self.memories.refresh(&self.window.tools);
                    }
                    self.feed(MachineInput::Tick);
                }
            }
            self.drain_if_due();
            let drained = self.life.is_drained && self.connections.is_empty() && self.machine.is_idle();
            if self.life.leaves || self.life.deleted || drained {
                break;
            }
        }
        self.connections.end_all(if self.life.deleted { End::SessionGone } else { End::Draining });
        self.queue.settle().await;
        tracing::debug!("the session leaves memory");
        self.machine.is_large()
    }

    /// Handles a command, or holds it: a question about the past waits for a search, and other commands wait behind it.
    fn receive(&mut self, command: Command) {
        if self.looking.as_ref().is_some_and(|looking| looking.ends_with(&command)) {
            self.stop_looking();
        }
        if let Some(looking) = &mut self.looking {
            return match looking.holds_back(&command) {
                true => looking.behind.push_back(command),
                false => self.command(command),
            };
        }
        match command {
            Command::Said { conn, input_id, input } => match self.question(&input) {
                Some(question) => {
                    let search = self.look_back(&question);
                    self.looking = Some(Looking::new(conn, input_id, input, question, search));
                }
                None => self.command(Command::Said { conn, input_id, input }),
            },
            command => self.command(command),
        }
    }

    fn looked(&mut self, note: Option<RecallResult>) {
        let Some(Looking { question, request, behind, .. }) = self.looking.take() else { return };
        // Another connection may have changed the conversation meanwhile.
        let is_asked =
            matches!(&request, Command::Said { input, .. } if self.question(input).as_ref() == Some(&question));
        if let Some(note) = note.filter(|_| is_asked) {
            self.feed(MachineInput::Noted { before: question.item_id, note });
        }
        self.command(request);
        behind.into_iter().for_each(|command| self.receive(command));
    }

    fn stop_looking(&mut self) {
        if let Some(Looking { request, behind, .. }) = self.looking.take() {
            self.command(request);
            behind.into_iter().for_each(|command| self.command(command));
        }
    }

    fn command(&mut self, command: Command) {
        self.life.used_at = Instant::now();
        match command {
            Command::Attach { answer, .. } if self.life.draining_by.is_some() => {
                let _ = answer.send(Err(Error::Stopping));
            }
            Command::Attach { conn, connection, replay, answer } => {
                self.connections.add(conn, connection);
                self.feed(MachineInput::Attached { conn, replay });
                self.connections.greeted();
                self.tell_fill();
                let _ = answer.send(Ok(()));
            }
            // What is under way is finished, and nothing new is begun.
            Command::Said { conn, input_id, input } if self.life.draining_by.is_some() && input.wants_response() => {
                let event = Event::Refused { input_id, refusal: Refusal::Stopping };
                self.feed(MachineInput::TellOne { conn, event });
            }
            Command::Said { conn, input_id, input } => {
                let bytes = input.text_bytes();
                if bytes > 0 && !self.held.has_room(bytes) {
                    let event = Event::Refused { input_id, refusal: Refusal::NoRoom };
                    return self.feed(MachineInput::TellOne { conn, event });
                }
                self.traces.asked_from(self.connections.take_trace(conn, &input));
                self.feed(MachineInput::Said { conn, input_id, input });
                self.traces.asked_from(None);
                self.held.set(self.machine.text_bytes() as u64);
            }
            Command::Trace { conn, trace_parent } => self.connections.trace_next(conn, trace_parent),
            Command::Mark { conn, mark, bytes } => {
                self.feed(MachineInput::TellOne { conn, event: Event::Reached { mark, bytes } });
            }
            Command::Drain { by } => {
                self.life.draining_by = Some(self.life.draining_by.map_or(by, |before| before.min(by)));
            }
            Command::Leave => self.life.leaves = self.connections.is_empty() && self.machine.is_idle(),
            Command::Reload { done } => self.to_compactor.push(ToCompactor::Reload { done }),
            Command::Deleted => self.life.deleted = true,
        }
    }

    /// Names the connection's person in an input, if it is not the session's. A private session knows no persons.
    fn assign(&self, command: &mut Command) {
        if let Command::Said { conn, input, .. } = command
            && let (Some(own), Some(person)) = (&self.window.tools.person, self.connections.person(*conn))
            && own != person
        {
            input.assign(person);
        }
    }

    fn depart(&mut self, conn: ConnId) {
        if self.looking.as_ref().is_some_and(|looking| looking.is_of(conn)) {
            self.stop_looking();
        }
        self.life.used_at = Instant::now();
        if self.connections.remove(conn) {
            self.feed(MachineInput::Detached { conn });
            self.queue.advance();
        }
    }

    fn answered(&mut self, op: OpId, result: Result<(), store::Error>) {
        if result.is_ok() && self.memories.stored(op) {
            self.generations.hold();
            self.memories.follow(&self.window.tools);
        }
        self.traces.stored(op, result.is_ok());
        match result {
            Ok(()) => self.feed(MachineInput::StoreAcked { op }),
            Err(store::Error::NoSession { .. }) => {
                tracing::info!("the session was deleted");
                self.life.deleted = true;
            }
            Err(error) => {
                // Where a user has no room left, the store works.
                match error.is_of_quota() {
                    true => tracing::info!(%error, "a change of the session was refused"),
                    false => metrics::change_not_stored(&error),
                }
                self.feed(MachineInput::StoreFailed { op, message: error.to_client() });
            }
        }
    }

    fn delta(&mut self, generation: GenerationId, delta: Delta) {
        let span = self.generations.span(generation);
        let entered = span.enter();
        if let Delta::Failed(failure) = &delta {
            // A reply whose prompt is too long is asked for again with less in it.
            if failure.code == FailureCode::PromptTooLong
                && let Some((generate, tries)) = self.generations.wait_for_room(generation, MOST_TRIES)
            {
                tracing::debug!(message = %failure.message, "the prompt is too long: older turns are to leave it");
                self.to_compactor.push(ToCompactor::MakeRoom { generate, tries });
                return;
            }
            tracing::warn!(code = failure.code.word(), message = %failure.message, "the model could not answer");
        }
        if let Delta::Done { report: Some(report), .. } = &delta
            && self.generations.warms(generation)
        {
            self.turns.warmed(report.computed_tokens);
        }
        let is_last = delta.is_last();
        self.feed(MachineInput::Delta { generation, delta });
        drop(entered);
        if is_last {
            self.generations.remove(generation);
        }
    }

    fn compactor_says(&mut self, message: FromCompactor) {
        match message {
            FromCompactor::Tell(event) => {
                self.turns.see(&event);
                self.feed(MachineInput::Tell(event));
            }
            FromCompactor::Shows(shown_past) => {
                self.window.shown_past = shown_past;
                let items = self.machine.items_behind(self.window.shown_past.covered_through.as_deref());
                let context = self.window.tools.context(&self.window.shown_past, &items);
                if context != *self.machine.context() {
                    self.feed(MachineInput::Context(context));
                }
            }
            FromCompactor::Recovered { items, behind } => self.feed(MachineInput::Recovered { items, behind }),
            FromCompactor::Fill(fill) => {
                self.window.fill = Some(fill);
                self.tell_fill();
            }
            // All behind the instructions is computed anyway: now other facts may be told.
            FromCompactor::WantsPrompt(shown_past) => match self.memories.refresh(&self.window.tools) {
                true => self.window.wanted = Some(shown_past),
                false => self.prompt_for(&shown_past),
            },
            FromCompactor::AskAgain { generate, limit_tokens } => self.generations.ask(&generate, limit_tokens),
            FromCompactor::Failed { generation, failure } => {
                if self.generations.remove(generation) {
                    self.feed(MachineInput::Delta { generation, delta: Delta::Failed(failure) });
                }
            }
            FromCompactor::Quiet { .. } => {}
        }
    }

    fn prompt_for(&mut self, shown_past: &ShownPast) {
        let items = self.machine.items_behind(shown_past.covered_through.as_deref());
        let context = self.window.tools.context(shown_past, &items);
        let generate = Box::new(self.machine.ahead(items, context));
        self.to_compactor.push(ToCompactor::Prompt(generate));
    }

    fn remembers(&mut self, news: MemoryNews) {
        let tools = self.window.tools.clone();
        let (told, gone_items) = match news {
            MemoryNews::Found { told, gone_items } => (told, gone_items),
            MemoryNews::Event(event) => return self.feed(MachineInput::Tell(event)),
            MemoryNews::Changed => {
                self.generations.hold();
                return self.memories.follow(&tools);
            }
        };
        match told {
            Ok(told) if told == *tools.facts.now() => {}
            Ok(told) => {
                self.shared.store.set_told_facts(&tools.session, told.ids.clone());
                self.tell_facts(told);
            }
            Err(error) => {
                tracing::warn!(%error, "facts could not be read; the conversation continues without them");
                self.tell_facts(BlockFacts::default());
            }
        }
        let is_here = |id: &String| self.machine.entries().iter().any(|entry| entry.item.id == *id);
        let item_ids: Vec<String> = gone_items.into_iter().filter(is_here).collect();
        if !item_ids.is_empty() {
            self.window.epoch += 1;
            self.feed(MachineInput::ItemsGone { item_ids });
        }
        if let Some(shown_past) = self.window.wanted.take() {
            self.prompt_for(&shown_past);
        }
        if self.memories.is_behind() {
            self.memories.follow(&tools);
        } else {
            let here: HashSet<String> = self.machine.entries().iter().map(|entry| entry.item.id.clone()).collect();
            self.generations.release(|item| !is_hidden(item) || here.contains(&item.id));
        }
    }

    fn tell_facts(&mut self, told: BlockFacts) {
        self.window.tools.facts.set(told);
        let items = self.machine.items_behind(self.window.shown_past.covered_through.as_deref());
        self.feed(MachineInput::Context(self.window.tools.context(&self.window.shown_past, &items)));
    }

    async fn tell_compactor(&mut self) {
        let now = Activity {
            replying: self.machine.is_replying() || self.looking.is_some(),
            settled: self.machine.is_settled(),
            ending: self.life.draining_by.is_some() || self.life.deleted,
            epoch: self.window.epoch,
        };
        // First what is so: a step must not begin before the change that it is about is stored.
        // While a reply is under way no step begins, and so the compactor is not woken for each of its words.
        let is_news = self
            .window
            .told
            .is_none_or(|told| told != now && !(told.replying && now.replying && told.ending == now.ending));
        if is_news {
            self.window.told = Some(now);
            self.compactor.tell(ToCompactor::Now(now)).await;
        }
        for message in std::mem::take(&mut self.to_compactor) {
            self.compactor.tell(message).await;
        }
    }

    /// Drains as soon as no reply is in progress, at the latest when the time is over.
    fn drain_if_due(&mut self) {
        if let Some(by) = self.life.draining_by
            && !self.life.is_drained
            && (!self.machine.is_replying() || by <= Instant::now())
        {
            self.life.is_drained = true;
            self.feed(MachineInput::Drain);
        }
    }

    fn feed(&mut self, input: MachineInput) {
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

    fn perform(&mut self, output: Output, inputs: &mut VecDeque<MachineInput>) {
        match output {
            Output::Send { to, event } => {
                let left = self.connections.send(&to, event);
                inputs.extend(left.into_iter().map(|conn| MachineInput::Detached { conn }));
            }
            Output::Words { item_id, text } => inputs.push_front(match self.queue.write_words(&item_id, &text) {
                Ok(()) => MachineInput::WordsWritten,
                Err(error) => {
                    tracing::error!(%error, "the journal could not store the next words of a reply, so the reply ends");
                    metrics::store_failed();
                    MachineInput::WordsNotWritten { message: error.to_client() }
                }
            }),
            Output::Store { id, op } => self.store(id, op, inputs),
            Output::Generate(generate) => {
                let (generation, response_id) = (generate.generation, generate.response_id.clone());
                if self.memories.is_behind() {
                    self.generations.hold();
                    self.memories.follow(&self.window.tools);
                }
                let place = response_id.as_ref().and_then(|id| self.traces.asked(id));
                self.generations.begin(generate, place);
                if let Some(response_id) = response_id {
                    self.turns.asked(response_id, self.generations.span(generation));
                }
            }
            Output::Resume(resume) => self.generations.resume(*resume),
            Output::Recall { generation, arguments, shown } => self.search_past(generation, arguments, shown),
            Output::CancelGenerate { generation } => {
                // A reply that waits for room has no model that would say that it is over.
                if self.generations.cancel(generation) {
                    let delta = Delta::Done { finish: Finish::Cancelled, usage: None, report: None };
                    inputs.push_back(MachineInput::Delta { generation, delta });
                }
            }
            Output::StopThinking { generation } => self.generations.stop_thinking(generation),
            Output::Close { conn, reason } => {
                let end = match reason {
                    CloseReason::Draining => End::Draining,
                    CloseReason::StoreStalled => End::StoreStalled,
                };
                if self.connections.end(conn, end) {
                    inputs.push_back(MachineInput::Detached { conn });
                }
            }
        }
    }

    fn store(&mut self, id: OpId, op: StoreOp, inputs: &mut VecDeque<MachineInput>) {
        let is_of_items = !matches!(
            op,
            StoreOp::ResponseStarted { .. } | StoreOp::ResponseFinished { .. } | StoreOp::ResponseReported { .. }
        );
        self.window.epoch += u64::from(is_of_items);
        self.to_compactor.extend(self.change(&op));
        if let StoreOp::ItemAdded { item, .. } = &op
            && item.is_said_by_user()
            && self.window.tools.person.is_some()
            && remember::asks_to_forget(&item.text())
        {
            self.memories.will_forget(id);
        }
        let is_heard = !self.connections.is_empty() && !self.life.is_drained;
        let at_ms = wall_ms();
        let measured = self.turns.kept(&op, is_heard, at_ms);
        self.traces.given(id, &op);
        if let StoreOp::ResponseFinished { response_id, status, usage, .. } = &op
            && self.turns.is_turn(response_id)
        {
            let tokens = if usage.input_tokens > 0 { usage.input_tokens + usage.output_tokens } else { 0 };
            self.to_compactor.push(ToCompactor::TurnEnded { tokens });
            // A reply that was cancelled before its prompt was read tells nothing of the fill.
            if tokens > 0 && *status != ResponseStatus::Failed {
                self.window.fill = Some(Counted::exactly(tokens));
                inputs.extend(self.fill_event().map(MachineInput::Tell));
            }
        }
        let has_words = matches!(op, StoreOp::ReplyExtended { .. } | StoreOp::ReplyFinished { .. });
        let sent = if has_words { self.connections.sent_last() } else { Vec::new() };
        self.queue.keep(id, op, measured, sent, at_ms);
    }

    /// Returns the message for an operation that changes earlier items. A reply never does: it comes behind all else.
    fn change(&self, op: &StoreOp) -> Option<ToCompactor> {
        let (about, said_before) = match op {
            StoreOp::ConfigChanged { .. } | StoreOp::ItemDeleted { .. } => (None, None),
            StoreOp::ItemAdded { item, after, .. } => (after.as_ref(), self.machine.said_before(&item.id).cloned()),
            StoreOp::ItemTruncated { item, .. } => (Some(&item.id), None),
            _ => return None,
        };
        let tells_something = self.window.shown_past.covered_through.is_some();
        let is_shown = |id: &String| !tells_something || self.machine.items().iter().any(|item| item.id == *id);
        Some(ToCompactor::Changed { op: op.clone(), is_shown: about.is_none_or(is_shown), said_before })
    }

    fn question(&self, input: &Input) -> Option<Question> {
        let tools = &self.window.tools;
        let has_past = self.window.shown_past.covered_through.is_some() || tools.person.is_some();
        let may_look = tools.preset.recall == Recall::Auto && has_past && !self.machine.is_replying();
        let may_look = may_look && self.life.draining_by.is_none();
        may_look.then(|| question_of(input, &self.machine)).flatten()
    }

    fn look_back(&self, question: &Question) -> BoxFuture<'static, Option<RecallResult>> {
        let (shared, tools) = (self.shared.clone(), self.window.tools.clone());
        let shown = self.machine.items();
        let told = self.machine.context().preface.iter().map(Message::text);
        let facts = tools.facts.now();
        let remembered = facts_for(&facts.text, tools.own(), question.person.as_deref());
        let preface = told.chain([remembered.to_owned()]).collect::<Vec<_>>().join("\n");
        let question = question.clone();
        let wait = Duration::from_millis(shared.settings.conversation.recall_wait_ms);
        let note = beside(async move {
            let past = PastOf { question: &question.text, shown: &shown, preface: &preface };
            look_back(&shared.settings, tools.recall_place(question.person.as_deref()), &past).await
        });
        Box::pin(async move { timeout(wait, note).await.ok().flatten().flatten() })
    }

    fn search_past(&mut self, generation: GenerationId, arguments: Vec<String>, shown: Vec<Arc<Item>>) {
        let (settings, tools) = (self.shared.settings.clone(), self.window.tools.clone());
        let asker = asker(&shown).map(str::to_owned);
        let traced = self.generations.trace_of_search(generation);
        let found = beside(async move {
            let results = recall(&settings, tools.recall_place(asker.as_deref()), &arguments, &shown).await;
            traced.into_iter().for_each(ToolTrace::end);
            results
        });
        self.recalls.push(Box::pin(async move {
            MachineInput::Recalled { generation, results: found.await.unwrap_or_default() }
        }));
    }

    fn tell_fill(&mut self) {
        if let Some(event) = self.fill_event() {
            self.feed(MachineInput::Tell(event));
        }
    }

    fn fill_event(&self) -> Option<Event> {
        let (Counted { tokens, margin_tokens, .. }, ctx_size) = (self.window.fill?, self.window.tools.preset.ctx_size);
        let ctx_size = u64::from(ctx_size);
        let fill = tokens as f64 / ctx_size.max(1) as f64;
        Some(Event::ContextUpdated { tokens, margin_tokens, ctx_size, fill, arm: self.window.arm.clone() })
    }
}

pub fn refuse(commands: &mut mpsc::Receiver<Box<Command>>, error: &Error) {
    commands.close();
    while let Ok(command) = commands.try_recv() {
        if let Command::Attach { answer, .. } = *command {
            let _ = answer.send(Err(error.clone()));
        }
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
