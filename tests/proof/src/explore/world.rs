//! The machine, with everything around it that can happen next.

mod rules;

use super::compactor::ExploredCompactor;
use super::kept::Kept;
use super::listener::{Listener, Wanted};
use super::scene::{Broken, Scene};
use super::script::{PIECES, context, machine, request, words};
use compaction::phases::Activity;
use session::machine::{ConnId, Generate, GenerationId, Machine, MachineInput, Millis, OpId, Output, Replay, StoreOp};
use session::{
    Delta, Event, Finish, GenerationPurpose, Heard, Input, Item, ItemBody, ItemPlace, NewItem, NewTurn, ResumeRequest,
    Role,
};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug)]
pub enum Action {
    Attach(u64),
    Detach(u64),
    Say(u64, Saying),
    Delta(GenerationId),
    ModelStops(GenerationId, Finish),
    ModelFails(GenerationId),
    StoreAnswers,
    StoreFails,
    JournalFails,
    CompactorDone,
    CompactorFails,
    /// The process is killed; so many of the operations that wait are in the store. It starts again.
    Crash(usize),
    Drain,
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saying {
    Item,
    Respond,
    Cancel,
    Cut,
    Delete,
    Resume,
    Turn,
    Partial,
    Final,
    /// The user said something else than the transcript had.
    OtherFinal,
}

#[derive(Clone, Debug)]
struct Making {
    left: VecDeque<Delta>,
    /// End by itself. `None`: not known yet, because it resumes a kept reply.
    finish: Finish,
    is_cancelled: bool,
    prompt: Vec<String>,
    begun: Begun,
}

/// Generation under which a reply was begun, and its prompt: those of the early begin, not of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Begun {
    by: GenerationId,
    prompt: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct World {
    broken: Broken,
    begins_early: bool,
    left: Scene,
    life: u8,
    now: Millis,
    machine: Machine,
    kept: Kept,
    pending: VecDeque<(OpId, StoreOp)>,
    making: BTreeMap<GenerationId, Making>,
    held: BTreeMap<GenerationId, VecDeque<Delta>>,
    early: Option<Begun>,
    listeners: BTreeMap<u64, Listener>,
    compactor: ExploredCompactor,
    epoch: u64,
    said: u8,
    /// Items whose words a client or a failure changed since they were heard.
    changed: Vec<String>,
    had_failures: bool,
    journal_fails: bool,
    is_draining: bool,
    pub wrong: Option<String>,
}

impl World {
    pub fn new(scene: Scene) -> World {
        World::broken(scene, Broken::Nothing)
    }

    pub fn broken(scene: Scene, broken: Broken) -> World {
        let kept = Kept::default();
        let mut world = World {
            broken,
            begins_early: scene.partials > 0,
            left: scene,
            life: 0,
            now: 0,
            machine: machine(0, &kept, scene.partials > 0),
            kept,
            pending: VecDeque::new(),
            making: BTreeMap::new(),
            held: BTreeMap::new(),
            early: None,
            listeners: BTreeMap::new(),
            compactor: ExploredCompactor::new(),
            epoch: 0,
            said: 0,
            changed: Vec::new(),
            had_failures: false,
            journal_fails: false,
            is_draining: false,
            wrong: None,
        };
        world.take(&Action::Attach(1));
        world
    }

    /// Lists the next possible actions, always in the same order.
    pub fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.wrong.is_some() {
            return actions;
        }
        for (generation, making) in &self.making {
            if making.left.is_empty() {
                actions.push(Action::ModelStops(*generation, making.finish));
            } else {
                actions.push(Action::Delta(*generation));
            }
            if making.is_cancelled {
                actions.push(Action::ModelStops(*generation, Finish::Cancelled));
                actions.push(Action::ModelStops(*generation, Finish::Held));
            }
            if self.left.model_failures > 0 {
                actions.push(Action::ModelFails(*generation));
            }
        }
        if !self.pending.is_empty() {
            actions.push(Action::StoreAnswers);
            if self.left.store_failures > 0 {
                actions.push(Action::StoreFails);
            }
        }
        if self.left.journal_failures > 0 && !self.making.is_empty() && !self.journal_fails {
            actions.push(Action::JournalFails);
        }
        if self.compactor.step.is_some() {
            actions.push(Action::CompactorDone);
            if self.left.model_failures > 0 {
                actions.push(Action::CompactorFails);
            }
        }
        for (conn, listener) in &self.listeners {
            self.sayings(*conn, listener, &mut actions);
            if self.left.detachments > 0 {
                actions.push(Action::Detach(*conn));
            }
        }
        for conn in (1..=self.left.sockets).filter(|conn| !self.listeners.contains_key(conn) && !self.is_draining) {
            actions.push(Action::Attach(conn));
        }
        if self.left.crashes > 0 {
            actions.push(Action::Crash(0));
            if !self.pending.is_empty() {
                actions.push(Action::Crash(self.pending.len()));
            }
        }
        if self.left.drains > 0 && !self.is_draining {
            actions.push(Action::Drain);
        }
        if self.left.ticks > 0 && self.machine.next_deadline().is_some() {
            actions.push(Action::Tick);
        }
        actions
    }

    fn sayings(&self, conn: u64, listener: &Listener, actions: &mut Vec<Action>) {
        let left = &self.left;
        let knows_reply = self.last_reply(listener).is_some();
        let may = [
            (Saying::Item, left.items > 0),
            (Saying::Respond, left.responses > 0),
            (Saying::Cancel, left.cancels > 0 && !listener.open.is_empty()),
            (Saying::Cut, left.cuts > 0 && knows_reply),
            (Saying::Delete, left.deletions > 0 && knows_reply),
            (Saying::Resume, left.resumes > 0),
            (Saying::Turn, left.turns > 0),
            (Saying::Partial, left.partials > 0),
            (Saying::Final, left.finals > 0 && !self.machine.heard().is_empty()),
            (Saying::OtherFinal, left.finals > 0 && !self.machine.heard().is_empty()),
        ];
        // A client that asks on and on without an answer tells nothing new.
        if listener.unanswered.len() < 3 {
            actions.extend(may.iter().filter(|(_, may)| *may).map(|(saying, _)| Action::Say(conn, *saying)));
        }
    }

    fn last_reply(&self, listener: &Listener) -> Option<String> {
        listener.items.iter().rev().find(|id| listener.heard.contains_key(*id)).cloned()
    }

    pub fn take(&mut self, action: &Action) {
        match action {
            Action::Attach(conn) => {
                self.listeners.insert(*conn, Listener::default());
                self.handle(MachineInput::Attached { conn: ConnId(*conn), replay: Replay::All });
            }
            Action::Detach(conn) => {
                self.left.detachments -= 1;
                self.listeners.remove(conn);
                self.handle(MachineInput::Detached { conn: ConnId(*conn) });
            }
            Action::Say(conn, saying) => self.say(*conn, *saying),
            Action::Delta(generation) => {
                let Some(making) = self.making.get_mut(generation) else { return };
                let Some(delta) = making.left.pop_front() else { return };
                if making.prompt != making.begun.prompt {
                    let (begun, asked) = (&making.begun.prompt, &making.prompt);
                    self.wrong = Some(format!("a reply that was begun to {begun:?} answers {asked:?}"));
                }
                self.handle(MachineInput::Delta { generation: *generation, delta });
            }
            Action::ModelStops(generation, finish) => self.model_stops(*generation, *finish),
            Action::ModelFails(generation) => {
                self.left.model_failures -= 1;
                self.making.remove(generation);
                let failure = session::Failure::new(session::FailureCode::EngineFailed, "it broke");
                self.handle(MachineInput::Delta { generation: *generation, delta: Delta::Failed(failure) });
            }
            Action::StoreAnswers => {
                let Some((id, op)) = self.pending.pop_front() else { return };
                self.kept.apply(op);
                self.handle(MachineInput::StoreAcked { op: id });
            }
            Action::StoreFails => {
                let Some((id, op)) = self.pending.pop_front() else { return };
                self.left.store_failures -= 1;
                self.had_failures = true;
                if let StoreOp::ReplyBegun { item, .. } = &op {
                    self.kept.journal.remove(&item.id);
                }
                self.handle(MachineInput::StoreFailed { op: id, message: "full".to_owned() });
            }
            Action::JournalFails => {
                (self.left.journal_failures, self.journal_fails) = (self.left.journal_failures - 1, true)
            }
            Action::CompactorDone => self.compactor_done(),
            Action::CompactorFails => {
                self.left.model_failures -= 1;
                self.compactor.fails();
            }
            Action::Crash(applied) => self.crash(*applied),
            Action::Drain => {
                (self.left.drains, self.is_draining) = (self.left.drains - 1, true);
                self.handle(MachineInput::Drain);
            }
            Action::Tick => {
                self.left.ticks -= 1;
                self.now = self.machine.next_deadline().unwrap_or(self.now);
                self.handle(MachineInput::Tick);
            }
        }
        let begun = self.compactor.go_on(self.activity());
        self.note(begun);
        self.look();
    }

    fn activity(&self) -> Activity {
        Activity {
            replying: self.machine.is_replying(),
            settled: self.machine.is_settled(),
            ending: self.is_draining,
            epoch: self.epoch,
        }
    }

    fn say(&mut self, conn: u64, saying: Saying) {
        let Some(listener) = self.listeners.get(&conn) else { return };
        let reply = self.last_reply(listener).unwrap_or_default();
        self.said += 1;
        let number = self.said;
        let item = |id: &str| NewItem {
            id: Some(id.to_owned()),
            body: ItemBody::message(Role::User, format!("words of {id}")),
        };
        let (item_id, left) = (format!("u{number}"), &mut self.left);
        let (input, wanted) = match saying {
            Saying::Item => {
                left.items -= 1;
                let place = ItemPlace::End;
                (Input::AddItem { item: item(&item_id), place }, Wanted::Item(item_id))
            }
            Saying::Respond => {
                left.responses -= 1;
                (Input::Respond(Box::new(request())), Wanted::Response)
            }
            Saying::Cancel => {
                left.cancels -= 1;
                (Input::CancelResponse { response_id: None }, Wanted::Ended)
            }
            Saying::Cut => {
                left.cuts -= 1;
                self.changed.push(reply.clone());
                let cut = Wanted::Cut(reply.clone());
                (Input::TruncateItem { item_id: reply, part: 0, heard: Heard::Chars(3) }, cut)
            }
            Saying::Delete => {
                left.deletions -= 1;
                self.changed.push(reply.clone());
                (Input::DeleteItem { item_id: reply.clone() }, Wanted::Deleted(reply))
            }
            Saying::Resume => {
                left.resumes -= 1;
                (Input::Resume(ResumeRequest::default()), Wanted::Response)
            }
            Saying::Turn => {
                left.turns -= 1;
                let items = vec![item(&item_id)];
                let turn = NewTurn { behind: None, interrupts: true, items, request: request() };
                (Input::TakeTurn(Box::new(turn)), Wanted::Item(item_id))
            }
            Saying::Partial => {
                left.partials -= 1;
                let text = format!("part {number}");
                return self.handle(MachineInput::Said {
                    conn: ConnId(conn),
                    input_id: None,
                    input: Input::Hear { text },
                });
            }
            Saying::Final | Saying::OtherFinal => {
                left.finals -= 1;
                let text = (saying == Saying::OtherFinal).then(|| format!("words of {item_id}"));
                let item = Some(item_id.clone());
                (Input::HeardAll { text, item_id: item, speaker: None, respond: true }, Wanted::Item(item_id))
            }
        };
        let input_id = format!("i{number}");
        if let Some(listener) = self.listeners.get_mut(&conn).filter(|_| !self.is_draining) {
            listener.unanswered.insert(input_id.clone(), wanted);
        }
        if self.broken == Broken::Inbox && saying == Saying::Respond {
            return;
        }
        self.handle(MachineInput::Said { conn: ConnId(conn), input_id: Some(input_id), input });
    }

    fn model_stops(&mut self, generation: GenerationId, finish: Finish) {
        let Some(making) = self.making.remove(&generation) else { return };
        if finish == Finish::Held {
            self.held.insert(generation, making.left);
        }
        let delta = Delta::Done { finish, usage: None, report: None };
        self.handle(MachineInput::Delta { generation, delta });
        if self.left.compactions > 0 && finish == Finish::Stop {
            self.left.compactions -= 1;
            self.compactor.look_soon();
        }
    }

    fn compactor_done(&mut self) {
        // All but what was said last.
        let items = self.machine.items();
        let could_cover = items.len().checked_sub(2).map(|last| items[last].id.clone());
        let done = self.compactor.done(could_cover, self.activity());
        match done {
            Ok(Some(covered)) if self.kept.item(&covered).is_some() => {
                self.kept.covered_through = Some(covered.clone());
                if self.broken == Broken::Swap {
                    return;
                }
                self.handle(MachineInput::Context(context(Some(covered))));
            }
            // What it was to tell was deleted: the store refuses it.
            Ok(_) => {}
            Err(why) => self.wrong = Some(why),
        }
    }

    fn crash(&mut self, applied: usize) {
        self.left.crashes -= 1;
        for (_, op) in std::mem::take(&mut self.pending).into_iter().take(applied) {
            self.kept.apply(op);
        }
        let kept = std::mem::take(&mut self.kept).restarted();
        for (conn, listener) in std::mem::take(&mut self.listeners) {
            for (id, heard) in listener.heard.iter().filter(|(id, _)| !self.changed.contains(id)) {
                let stored = kept.item(id).map(Item::text).unwrap_or_default();
                if !stored.starts_with(heard) {
                    self.wrong =
                        Some(format!("client {conn} heard {heard:?} of {id}, and after a crash {stored:?} is kept"));
                }
            }
        }
        self.life += 1;
        self.machine = machine(self.life, &kept, self.begins_early);
        self.kept = kept;
        self.early = None;
        (self.making, self.held, self.compactor) = (BTreeMap::new(), BTreeMap::new(), ExploredCompactor::new());
    }

    fn handle(&mut self, input: MachineInput) {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let mut out = Vec::new();
            self.machine.handle(input, self.now, &mut out);
            for output in out {
                next = next.or(self.write(&output));
                self.follow(output);
            }
        }
    }

    /// Words go to the journal before anything else happens.
    fn write(&mut self, output: &Output) -> Option<MachineInput> {
        let Output::Words { item_id, text } = output else { return None };
        if std::mem::take(&mut self.journal_fails) {
            return Some(MachineInput::WordsNotWritten { message: "full".to_owned() });
        }
        if self.broken != Broken::Journal {
            self.kept.words(item_id, text);
        }
        Some(MachineInput::WordsWritten)
    }

    fn follow(&mut self, output: Output) {
        match output {
            Output::Send { to, event } => {
                let checked = self.holds(&event);
                self.note(checked);
                let is_twice = self.broken == Broken::Telling && matches!(event, Event::TextDelta { .. });
                for conn in to.iter().chain(to.iter().filter(|_| is_twice)) {
                    let heard = self.listeners.get_mut(&conn.0).map_or(Ok(()), |listener| listener.hear(&event));
                    self.note(heard);
                }
                let checked = self.was_never_said(&event);
                self.note(checked);
            }
            Output::Store { id, op } => {
                self.kept.issued(&op);
                self.epoch += 1;
                if matches!(op, StoreOp::ItemTruncated { .. } | StoreOp::ItemDeleted { .. }) {
                    self.compactor.changed();
                }
                self.pending.push_back((id, op));
            }
            Output::Generate(generate) => self.generate(&generate),
            Output::Resume(resume) => {
                let mut left: VecDeque<Delta> = resume.made.into_iter().collect();
                if resume.ended.is_none() {
                    let Some(rest) = self.held.remove(&resume.of) else {
                        self.wrong = Some(format!("{:?} goes on, and the model keeps nothing of it", resume.of));
                        return;
                    };
                    left.extend(rest);
                }
                self.begin(
                    resume.generation,
                    true,
                    left,
                    resume.ended.unwrap_or(Finish::Stop),
                    Vec::new(),
                    Begun { by: resume.of, prompt: Vec::new() },
                );
            }
            Output::CancelGenerate { generation } => {
                if let Some(making) = self.making.get_mut(&generation) {
                    making.is_cancelled = true;
                }
            }
            Output::Close { conn, .. } => drop(self.listeners.remove(&conn.0)),
            Output::Words { .. } | Output::Recall { .. } | Output::StopThinking { .. } => {}
        }
    }

    fn generate(&mut self, generate: &Generate) {
        let Generate { generation, items, purpose, .. } = generate;
        let is_early = *purpose == GenerationPurpose::EarlyReply;
        let heard = items.last().filter(|_| is_early).map(|item| item.text());
        if heard.is_some_and(|heard| heard != self.machine.heard()) {
            self.wrong = Some("a reply is begun early to what the user did not say".to_owned());
        }
        let told = self.prompt_is_whole(&items[..items.len() - usize::from(is_early)]);
        self.note(told);
        let prompt: Vec<String> = items.iter().map(|item| item.text()).collect();
        let is_reply = generate.is_reply();
        let mut begun = Begun { by: *generation, prompt: prompt.clone() };
        if is_early {
            self.early = Some(begun.clone());
        } else if is_reply {
            let is_same = |early: &Begun| early.prompt == prompt || self.broken == Broken::Early;
            begun = self.early.take().filter(is_same).unwrap_or(begun);
        }
        let is_said = is_reply || is_early;
        let pieces = (0..PIECES).filter(|_| is_said).map(|piece| Delta::text(words(self.life, begun.by, piece), 1));
        self.begin(*generation, is_reply, pieces.collect(), Finish::Stop, prompt, begun);
    }

    fn begin(
        &mut self,
        generation: GenerationId,
        is_reply: bool,
        left: VecDeque<Delta>,
        finish: Finish,
        prompt: Vec<String>,
        begun: Begun,
    ) {
        if self.making.values().any(|making| !making.is_cancelled) {
            let what = if is_reply { "for a reply" } else { "to work ahead" };
            self.wrong = Some(format!("the model is asked {what} while it makes another reply"));
        }
        self.making.insert(generation, Making { left, finish, is_cancelled: false, prompt, begun });
    }

    fn note(&mut self, checked: Result<(), String>) {
        if let Err(why) = checked {
            self.wrong.get_or_insert(why);
        }
    }
}
