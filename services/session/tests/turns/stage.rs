//! A machine with clients, a model and a store around it that check every rule that holds at all times.

use crate::client::Client;
use crate::inputs::{respond, user};
use crate::lines::Names;
use crate::store::FakeStore;
use session::machine::*;
use session::sentences::{Cutter, SentenceLimits};
use session::{
    Context, Delta, Event, Finish, GenerationPurpose, Input, Item, ItemBody, ItemStatus, Response, Role, SessionConfig,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

const SENTENCES: SentenceLimits = SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 };
pub const SPEAKING: u32 = 170;

pub struct Stage {
    pub machine: Machine,
    /// True if items that a summary tells stay in memory.
    keeps_all: bool,
    pub now: Millis,
    pub clients: BTreeMap<ConnId, Client>,
    pub generations: Vec<Generate>,
    pub stopped: Vec<GenerationId>,
    /// Generations that are to answer now.
    pub hurried: Vec<GenerationId>,
    pub resumed: Vec<Resume>,
    pub recalls: Vec<(GenerationId, Vec<String>)>,
    pub closed: Vec<(ConnId, CloseReason)>,
    pub store: FakeStore,
    /// True if the store answers at once.
    pub store_answers: bool,
    pub unanswered: VecDeque<(OpId, StoreOp)>,
    names: Names,
    /// Splitter of the newest generation's text, as a model has one.
    cutter: Cutter,
    /// Text of each item of a reply that was sent.
    sent: HashMap<String, String>,
    /// Text of each of them that the journal was given.
    written: HashMap<String, String>,
    pub words_fail: bool,
}

pub fn start() -> Start {
    Start {
        session_id: "sess_1".into(),
        conversation_id: "conv_1".into(),
        model: "test-model".into(),
        config: SessionConfig::new("Be brief."),
        items: Vec::new(),
        leading: 0,
        context: Context::default(),
        limits: MachineLimits {
            session_items: 50,
            told_items: 50,
            session_bytes: 100_000,
            responses_beside: 2,
            outbox_steps: 200,
            speculate_ms: None,
            early_ms: None,
            recalls: 1,
            resume_ms: 10_000,
        },
        words_per_minute: SPEAKING,
        backchannels: vec!["mhm".into(), "uh-huh".into()],
        id_seed: 7,
    }
}

pub fn stage() -> Stage {
    stage_from(start())
}

pub fn stage_from(start: Start) -> Stage {
    let mut stage = Stage::new(start);
    stage.attach(1, Replay::All);
    stage.heard(1);
    stage
}

impl Stage {
    pub fn new(start: Start) -> Stage {
        let store = FakeStore::with(start.items.clone());
        Stage {
            keeps_all: start.limits.told_items >= start.limits.session_items,
            machine: Machine::new(start),
            now: 1000,
            clients: BTreeMap::new(),
            generations: Vec::new(),
            stopped: Vec::new(),
            hurried: Vec::new(),
            resumed: Vec::new(),
            recalls: Vec::new(),
            closed: Vec::new(),
            store,
            store_answers: true,
            unanswered: VecDeque::new(),
            names: Names::default(),
            cutter: Cutter::new(SENTENCES),
            sent: HashMap::new(),
            written: HashMap::new(),
            words_fail: false,
        }
    }

    pub fn attach(&mut self, conn: u64, replay: Replay) {
        let conn = ConnId(conn);
        let hears_all = replay == Replay::All && self.keeps_all;
        let blind = !hears_all && !self.machine.entries().is_empty();
        self.clients.insert(conn, Client::new(blind));
        self.feed(MachineInput::Attached { conn, replay });
    }

    pub fn detach(&mut self, conn: u64) {
        self.clients.remove(&ConnId(conn));
        self.feed(MachineInput::Detached { conn: ConnId(conn) });
    }

    pub fn wait(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(due) = self.machine.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.feed(MachineInput::Tick);
        }
        self.now = end;
    }

    pub fn client(&mut self, conn: u64, input: Input) {
        if self.clients.contains_key(&ConnId(conn)) {
            self.feed(MachineInput::Said { conn: ConnId(conn), input_id: None, input });
        }
    }

    pub fn client_as(&mut self, conn: u64, input_id: &str, input: Input) {
        self.feed(MachineInput::Said { conn: ConnId(conn), input_id: Some(input_id.to_owned()), input });
    }

    /// The user says something, and client 1 asks for an answer.
    pub fn ask(&mut self, text: &str) {
        self.client(1, user(text));
        self.client(1, respond());
        self.heard(1);
    }

    pub fn model(&mut self, delta: Delta) {
        let generation = self.generations.last().expect("a generation").generation;
        let mut deltas = Vec::new();
        self.cutter.cut(delta, &mut deltas);
        for delta in deltas {
            self.feed(MachineInput::Delta { generation, delta });
        }
    }

    pub fn content(&mut self, text: &str) {
        self.model(Delta::text(text, 1));
    }

    pub fn done(&mut self) {
        self.model(Delta::Done { finish: Finish::Stop, usage: None, report: None });
    }

    /// Lets the store answer all that it was asked.
    pub fn answer_store(&mut self) {
        while !self.unanswered.is_empty() {
            self.answer_one();
        }
    }

    pub fn answer_one(&mut self) {
        if let Some((op, work)) = self.unanswered.pop_front() {
            match self.store.apply(work, &self.sent) {
                Ok(()) => self.feed(MachineInput::StoreAcked { op }),
                Err(message) => self.feed(MachineInput::StoreFailed { op, message: message.to_owned() }),
            }
        }
    }

    pub fn fail_store(&mut self) {
        if let Some((op, refused)) = self.unanswered.pop_front() {
            self.store.refuse(refused);
            self.feed(MachineInput::StoreFailed { op, message: "the disk is full".into() });
        }
    }

    pub fn feed(&mut self, input: MachineInput) {
        let (mut out, mut resumed, mut words) = (Vec::new(), Vec::new(), None);
        self.machine.handle(input, self.now, &mut out);
        for output in out {
            match output {
                Output::Words { .. } if self.words_fail => {
                    words = Some(MachineInput::WordsNotWritten { message: "the disk is full".into() });
                }
                Output::Words { item_id, text } => {
                    self.written.entry(item_id).or_default().push_str(&text);
                    words = Some(MachineInput::WordsWritten);
                }
                Output::Send { to, event } => self.send(&to, &event),
                Output::Store { id, op } => {
                    if let StoreOp::ReplyResumed { item, .. } = &op {
                        self.note_resumed(item);
                    }
                    self.unanswered.push_back((id, op));
                }
                Output::Generate(generate) => {
                    if generate.purpose == GenerationPurpose::EarlyReply {
                        assert!(!self.machine.is_replying() && !self.clients.is_empty());
                        assert_eq!(generate.items.last().unwrap().text(), self.machine.heard());
                    }
                    self.cutter = Cutter::new(SENTENCES);
                    self.generations.push(*generate);
                }
                Output::Resume(resume) => resumed.push(*resume),
                Output::Recall { generation, arguments, .. } => self.recalls.push((generation, arguments)),
                Output::CancelGenerate { generation } => self.stopped.push(generation),
                Output::StopThinking { generation } => self.hurried.push(generation),
                Output::Close { conn, reason } => self.closed.push((conn, reason)),
            }
        }
        if let Some(words) = words {
            self.feed(words);
        }
        resumed.into_iter().for_each(|resume| self.go_on(resume));
        if self.store_answers {
            self.answer_store();
        }
    }

    /// Lets the model go on with a reply that it kept, as the newest generation.
    fn go_on(&mut self, resume: Resume) {
        let Resume { generation, of, made, in_message, ended, .. } = resume.clone();
        let known = self.generations.iter().find(|known| known.generation == of).cloned();
        let known = known.unwrap_or_else(|| self.machine.ahead(Vec::new(), Context::default()));
        self.generations.push(Generate { generation, ..known });
        let cutter = Cutter::new(SENTENCES);
        self.cutter = if in_message { cutter.in_message() } else { cutter };
        made.into_iter().for_each(|delta| self.model(delta));
        if let Some(finish) = ended {
            self.model(Delta::Done { finish, usage: None, report: None });
        }
        self.resumed.push(resume);
    }

    /// Takes the heard text of an item that goes on for written and sent: another reply said it, or the client made it.
    fn note_resumed(&mut self, item: &Item) {
        let heard = item.text();
        let sent = self.sent.entry(item.id.clone()).or_default();
        if !sent.starts_with(&heard) {
            sent.clone_from(&heard);
        }
        self.written.insert(item.id.clone(), heard);
    }

    fn send(&mut self, to: &[ConnId], event: &Event) {
        assert!(!to.is_empty());
        if let Event::TextDelta { item_id, text, .. } = event
            && let Some(written) = self.written.get(item_id)
        {
            assert!(written.contains(text), "{text:?} is sent before it is written: {written:?}");
        }
        self.check_promise(event);
        for conn in to {
            let Some(client) = self.clients.get_mut(conn) else { continue };
            // What was told of the place of something that then did not happen is not taken back.
            client.blind |= self.store.torn;
            client.hear(event.clone());
            let Event::TextDelta { item_id, .. } = event else { continue };
            // A client that comes late hears all of it at once, so every client's text is the same.
            let said = &client.said[item_id];
            let sent = self.sent.entry(item_id.clone()).or_default();
            assert!(sent.starts_with(said) || said.starts_with(sent.as_str()), "{sent:?}, {said:?}");
            if said.len() > sent.len() {
                sent.clone_from(said);
            }
        }
    }

    /// Checks that the store has the items which clients hear of.
    fn check_promise(&self, event: &Event) {
        let stored = |id: &str| {
            let item = self.store.items.iter().find(|item| item.id == id);
            item.unwrap_or_else(|| panic!("{event:?} is not stored"))
        };
        match event {
            Event::ItemAdded { item, is_new: true, .. } | Event::ReplyDone { item, place: Some(_), .. } => {
                assert_eq!(stored(&item.id), item);
            }
            Event::ItemAdded { item, .. } | Event::ReplyStarted { item, place: Some(_), .. } => {
                stored(&item.id);
            }
            Event::ItemDeleted { item_id } => {
                let is_there = self.store.items.iter().any(|item| item.id == *item_id);
                assert!(!is_there || self.store.owes(item_id), "{event:?} is still stored");
            }
            Event::ItemTruncated { item_id, heard_chars, .. } => {
                assert_eq!(stored(item_id).text().chars().count(), *heard_chars);
            }
            _ => {}
        }
    }

    pub fn heard(&mut self, conn: u64) -> Vec<String> {
        let Some(client) = self.clients.get_mut(&ConnId(conn)) else { return Vec::new() };
        let lines = client.events[client.read..].iter().map(|event| self.names.line(event)).collect();
        client.read = client.events.len();
        lines
    }

    pub fn last_response(&self, conn: u64) -> &Response {
        let ends = self.clients[&ConnId(conn)].events.iter().rev().find_map(|event| match event {
            Event::ResponseDone { response } => Some(response),
            _ => None,
        });
        ends.expect("the end of a response")
    }

    pub fn last_reply(&self) -> String {
        let is_reply = |item: &&Arc<Item>| matches!(&item.body, ItemBody::Message { role: Role::Assistant, .. });
        self.machine.entries().iter().map(|entry| &entry.item).rfind(is_reply).expect("a reply").id.clone()
    }

    pub fn history(&mut self) -> Vec<String> {
        self.machine.items().iter().map(|item| self.names.item(item)).collect()
    }

    pub fn stored(&mut self) -> Vec<String> {
        self.store.items.iter().map(|item| self.names.item(item)).collect()
    }

    /// Checks at the end that mirrors, store and machine agree.
    pub fn check_agreement(&self) {
        let ordered = !self.store.was_made_twice;
        let ids = |mut ids: Vec<String>| {
            if !ordered {
                ids.sort();
            }
            ids
        };
        let announced = self.machine.entries().iter().filter(|entry| entry.announced);
        let announced = ids(announced.map(|entry| entry.item.id.clone()).collect());
        for (conn, client) in self.clients.iter().filter(|(_, client)| !client.blind) {
            assert_eq!(ids(client.mirror.clone()), announced, "{conn:?}");
        }
        let said: Vec<Item> = self.machine.items().iter().map(|item| Item::clone(item)).collect();
        let stored = self.store.items.iter().filter(|item| item.status != ItemStatus::InProgress).cloned().collect();
        match ordered {
            true => assert_eq!(stored, said),
            false => assert_eq!(by_id(stored), by_id(said)),
        }
    }

    /// Brings items back that left memory.
    pub fn recover(&mut self) {
        self.store.settle();
        let is_complete = |item: &&Item| item.status != ItemStatus::InProgress;
        let items = self.store.items.iter().filter(is_complete).cloned().collect();
        self.feed(MachineInput::Recovered { items, behind: None });
    }

    /// Checks that the store has what the machine has, whatever it refused, in any order.
    pub fn check_store(&mut self) {
        self.store.settle();
        let said = by_id(self.machine.entries().iter().map(|entry| Item::clone(&entry.item)).collect());
        assert_eq!(by_id(self.store.items.clone()), said);
        if let Some(config) = &self.store.config {
            assert_eq!(config, self.machine.config());
        }
    }

    pub fn check_no_open_response(&self) {
        self.clients.values().for_each(Client::check_no_open_response);
    }
}

fn by_id(mut items: Vec<Item>) -> Vec<Item> {
    items.sort_by(|one, other| one.id.cmp(&other.id));
    items
}
