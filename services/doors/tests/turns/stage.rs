//! A machine with clients, a model and a store around it that check every rule that holds at all times.
//!
//! Over 600 lines because the clients, the store and the names of ids check each other.

use crate::check_against_schema;
use doors::openai_realtime::{ErrorBody, Limits, Renderer, item_value, parse};
use serde_json::{Value, json};
use session::machine::*;
use session::sentences::{Cutter, SentenceLimits};
use session::{Context, Delta, Event, Finish, Item, ItemBody, ItemStatus, Role, SessionConfig};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const LIMITS: Limits = Limits { item_bytes: 1000, tools: 3, entries: 100, id_chars: 40 };
const SENTENCES: SentenceLimits = SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 };
pub const SPEAKING: u32 = 170;

pub struct Stage {
    pub machine: Machine,
    /// True if items that a summary tells stay in memory.
    keeps_all: bool,
    pub now: Millis,
    pub clients: BTreeMap<ConnId, Ear>,
    pub generations: Vec<Generate>,
    pub stopped: Vec<GenerationId>,
    /// Generations that are to answer now.
    pub hurried: Vec<GenerationId>,
    pub resumed: Vec<Resume>,
    pub recalls: Vec<(GenerationId, Vec<String>)>,
    pub closed: Vec<(ConnId, CloseReason)>,
    pub store: FakeStore,
    /// Answers the store at once.
    pub store_answers: bool,
    pub unanswered: VecDeque<(OpId, StoreOp)>,
    names: Names,
    event_ids: HashSet<String>,
    /// Connections so far.
    attached: u64,
    /// Cuts the sentences of the newest generation, as a model does.
    cutter: Cutter,
    /// Text that was sent of each item of a reply.
    sent: HashMap<String, String>,
    /// Text that the store was given of each of them before it was sent.
    written: HashMap<String, String>,
    /// Words cannot be written down.
    pub words_fail: bool,
}

/// Client that mirrors the conversation, as LiveKit does.
pub struct Ear {
    pub frames: Vec<Value>,
    read: usize,
    extensions: Arc<AtomicBool>,
    renderer: Renderer,
    /// Frames of the door's own that wait for their turn.
    own_frames: Vec<String>,
    pub mirror: Vec<String>,
    /// Items the client was not told, because it asked for no replay.
    blind: bool,
    /// The text of each item of a reply.
    said: HashMap<String, String>,
    open_responses: HashSet<String>,
    seen_responses: HashSet<String>,
}

/// The store, in memory.
#[derive(Default)]
pub struct FakeStore {
    pub items: Vec<Item>,
    pub ops: Vec<StoreOp>,
    pub config: Option<SessionConfig>,
    /// Replies that were begun and not ended, done or refused, as the store's queue knows them.
    being_said: HashSet<String>,
    /// True if refused operations make others impossible.
    pub torn: bool,
    /// Ends of replies that were refused: they are tried again before whatever comes next, as the store's queue does.
    owed: Vec<StoreOp>,
}

/// Short names for the ids that the server makes.
#[derive(Default)]
struct Names {
    known: HashMap<String, String>,
    counts: HashMap<char, usize>,
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

/// A stage with client 1, which is a stock client.
pub fn stage() -> Stage {
    let mut stage = Stage::new(start());
    stage.attach(1, false, Replay::All);
    assert_eq!(stage.heard(1), ["session.created"]);
    stage
}

/// A stage with client 1, which opted in.
pub fn extended_stage() -> Stage {
    let mut stage = Stage::new(start());
    stage.attach(1, true, Replay::All);
    stage.heard(1);
    stage
}

impl Stage {
    pub fn new(start: Start) -> Stage {
        let store = FakeStore { items: start.items.clone(), ..FakeStore::default() };
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
            written: HashMap::new(),
            words_fail: false,
            unanswered: VecDeque::new(),
            names: Names::default(),
            event_ids: HashSet::new(),
            attached: 0,
            cutter: Cutter::new(SENTENCES),
            sent: HashMap::new(),
        }
    }

    pub fn attach(&mut self, conn: u64, extensions: bool, replay: Replay) {
        let conn = ConnId(conn);
        let hears_all = replay == Replay::All && self.keeps_all;
        let blind = !hears_all && !self.machine.entries().is_empty();
        self.attached += 1;
        self.clients.insert(conn, Ear::new(extensions, blind, self.attached));
        self.input(Happening::Attached { conn, replay });
    }

    pub fn detach(&mut self, conn: u64) {
        self.clients.remove(&ConnId(conn));
        self.input(Happening::Detached { conn: ConnId(conn) });
    }

    /// Time passes, and the machine is woken when it wants to be.
    pub fn wait(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(due) = self.machine.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.input(Happening::Tick);
        }
        self.now = end;
    }

    /// The client says something.
    pub fn client(&mut self, conn: u64, message: Value) {
        let conn = ConnId(conn);
        let Some(ear) = self.clients.get_mut(&conn) else { return };
        let received = parse(&message.to_string(), &LIMITS);
        match received {
            Ok(received) if received.is_extension && !ear.extensions.load(Ordering::Relaxed) => {
                let error = ErrorBody::new("extension_not_enabled", "not enabled").param("type");
                let event = ear.own(&error.caused_by(received.event_id));
                self.input(Happening::TellOne { conn, event });
            }
            Ok(received) => {
                if let Some(names) = received.extensions {
                    ear.extensions.store(names.iter().any(|name| name == "reprise"), Ordering::Relaxed);
                }
                self.input(Happening::Said { conn, input_id: received.event_id, input: received.input });
            }
            Err(error) => {
                let event = ear.own(&error);
                self.input(Happening::TellOne { conn, event });
            }
        }
    }

    /// The user says something, and client 1 asks for an answer.
    pub fn ask(&mut self, text: &str) {
        self.client(1, user(text));
        self.client(1, json!({"type": "response.create"}));
        self.heard(1);
    }

    /// The model says something in the newest generation.
    pub fn backend(&mut self, delta: Delta) {
        let generation = self.generations.last().expect("a generation").generation;
        let mut deltas = Vec::new();
        self.cutter.cut(delta, &mut deltas);
        for delta in deltas {
            self.input(Happening::Delta { generation, delta });
        }
    }

    pub fn content(&mut self, text: &str) {
        self.backend(Delta::text(text, 1));
    }

    pub fn done(&mut self) {
        self.backend(Delta::Done { finish: Finish::Stop, usage: None, report: None });
    }

    /// Lets the store answer what it was asked.
    pub fn answer_store(&mut self) {
        while !self.unanswered.is_empty() {
            self.answer_one();
        }
    }

    pub fn answer_one(&mut self) {
        if let Some((op, work)) = self.unanswered.pop_front() {
            match self.store.apply(work, &self.sent) {
                Ok(()) => self.input(Happening::StoreAcked { op }),
                Err(message) => self.input(Happening::StoreFailed { op, message: message.to_owned() }),
            }
        }
    }

    pub fn fail_store(&mut self) {
        if let Some((op, refused)) = self.unanswered.pop_front() {
            self.store.refuse(refused);
            self.input(Happening::StoreFailed { op, message: "the disk is full".into() });
        }
    }

    pub fn input(&mut self, happening: Happening) {
        let (mut out, mut resumed, mut words) = (Vec::new(), Vec::new(), None);
        self.machine.handle(happening, self.now, &mut out);
        for output in out {
            match output {
                Output::Words { .. } if self.words_fail => {
                    words = Some(Happening::WordsNotWritten { message: "the disk is full".into() });
                }
                Output::Words { item_id, text } => {
                    self.written.entry(item_id).or_default().push_str(&text);
                    words = Some(Happening::WordsWritten);
                }
                Output::Send { to, event } => {
                    assert!(!to.is_empty());
                    if let Event::TextDelta { item_id, text, .. } = &event
                        && let Some(written) = self.written.get(item_id)
                    {
                        assert!(written.contains(text), "{text:?} is sent before it is written: {written:?}");
                    }
                    for conn in to {
                        let Some(ear) = self.clients.get_mut(&conn) else { continue };
                        let mut frames = Vec::new();
                        match &event {
                            Event::Reached { mark, .. } => frames.push(ear.own_frames[*mark as usize].clone()),
                            event => ear.renderer.render(event, &mut frames),
                        }
                        for frame in frames {
                            self.hear(conn, serde_json::from_str(&frame).unwrap());
                        }
                    }
                }
                Output::Store { id, op } => {
                    // What is written of a reply that goes on begins with what was heard.
                    if let StoreOp::ReplyResumed { item, .. } = &op {
                        self.written.insert(item.id.clone(), item.text());
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
                Output::Close { conn, reason } => {
                    self.closed.push((conn, reason));
                }
            }
        }
        if let Some(words) = words {
            self.input(words);
        }
        resumed.into_iter().for_each(|resume| self.go_on(resume));
        if self.store_answers {
            self.answer_store();
        }
    }

    /// The model goes on with a reply that it kept, as the newest generation.
    fn go_on(&mut self, resume: Resume) {
        let Resume { generation, of, made, in_message, ended, .. } = resume.clone();
        let known = self.generations.iter().find(|known| known.generation == of).cloned();
        let known = known.unwrap_or_else(|| self.machine.ahead(Vec::new(), Context::default()));
        self.generations.push(Generate { generation, ..known });
        let cutter = Cutter::new(SENTENCES);
        self.cutter = if in_message { cutter.in_message() } else { cutter };
        made.into_iter().for_each(|delta| self.backend(delta));
        if let Some(finish) = ended {
            self.backend(Delta::Done { finish, usage: None, report: None });
        }
        self.resumed.push(resume);
    }

    /// A frame reaches a client.
    fn hear(&mut self, conn: ConnId, frame: Value) {
        check_against_schema("server_event", &frame).unwrap_or_else(|why| panic!("{frame}: {why}"));
        assert!(self.event_ids.insert(frame["event_id"].as_str().unwrap().to_owned()), "{frame}");
        self.check_promise(&frame);
        let Some(ear) = self.clients.get_mut(&conn) else { return };
        // What was told of the place of something that then did not happen is not taken back.
        ear.blind |= self.store.torn;
        ear.hear(frame.clone());
        if let Some(id) = frame["item_id"].as_str() {
            // A client that comes late hears all of it at once, so every client's text is the same.
            let said = ear.said.get(id).cloned().unwrap_or_default();
            let sent = self.sent.entry(id.to_owned()).or_default();
            assert!(sent.starts_with(&said) || said.starts_with(sent.as_str()), "{sent:?}, {said:?}");
            if said.len() > sent.len() {
                *sent = said;
            }
        }
    }

    /// Checks that the store has the items which clients hear of.
    fn check_promise(&self, frame: &Value) {
        let kind = frame["type"].as_str().unwrap();
        let id = frame["item"]["id"].as_str().or(frame["item_id"].as_str()).unwrap_or_default();
        let stored = self.store.items.iter().find(|item| item.id == id);
        match kind {
            "conversation.item.added" => assert!(stored.is_some(), "{frame} is not stored"),
            "conversation.item.done" => {
                let stored = stored.unwrap_or_else(|| panic!("{frame} is not stored"));
                assert_eq!(item_value(stored), frame["item"]);
            }
            "conversation.item.deleted" => {
                let is_owed = self.store.owed.iter().any(|op| op.reply_item() == Some(id));
                assert!(stored.is_none() || is_owed, "{frame} is still stored");
            }
            "conversation.item.truncated" => {
                let text = stored.unwrap_or_else(|| panic!("{frame} is not stored")).text();
                assert_eq!(json!(text.chars().count()), frame["text_end"]);
            }
            _ => {}
        }
    }

    /// Returns what the client heard since the last call, one line an event.
    pub fn heard(&mut self, conn: u64) -> Vec<String> {
        let Some(ear) = self.clients.get_mut(&ConnId(conn)) else { return Vec::new() };
        let new = &ear.frames[ear.read..];
        let lines = new.iter().map(|frame| self.names.line(frame)).collect();
        ear.read = ear.frames.len();
        lines
    }

    /// The whole frames since it was last asked, one a line.
    pub fn frames(&mut self, conn: u64) -> String {
        let Some(ear) = self.clients.get_mut(&ConnId(conn)) else { return String::new() };
        let lines: Vec<String> = ear.frames[ear.read..].iter().map(Value::to_string).collect();
        ear.read = ear.frames.len();
        lines.join("\n")
    }

    /// The id of the newest item of the assistant, as the clients know it.
    pub fn last_reply(&self) -> String {
        let is_reply =
            |item: &&std::sync::Arc<Item>| matches!(&item.body, ItemBody::Message { role: Role::Assistant, .. });
        let entries: Vec<_> = self.machine.entries().iter().map(|entry| &entry.item).collect();
        entries.into_iter().rev().find(is_reply).expect("a reply").id.clone()
    }

    /// The conversation, one line an item.
    pub fn history(&mut self) -> Vec<String> {
        let items: Vec<Value> = self.machine.items().iter().map(|item| item_value(item)).collect();
        items.iter().map(|item| self.names.item(item)).collect()
    }

    /// Returns the items of the store, one line each.
    pub fn stored(&mut self) -> Vec<String> {
        let items: Vec<Value> = self.store.items.iter().map(item_value).collect();
        items.iter().map(|item| self.names.item(item)).collect()
    }

    /// Checks at the end that mirrors, store and machine agree.
    pub fn check_agreement(&self) {
        let announced: Vec<&str> =
            self.machine.entries().iter().filter(|entry| entry.announced).map(|entry| entry.item.id.as_str()).collect();
        for (conn, ear) in self.clients.iter().filter(|(_, ear)| !ear.blind) {
            assert_eq!(ear.mirror, announced, "{conn:?}");
        }
        let said: Vec<Item> = self.machine.items().iter().map(|item| Item::clone(item)).collect();
        let stored: Vec<Item> =
            self.store.items.iter().filter(|item| item.status != ItemStatus::InProgress).cloned().collect();
        assert_eq!(stored, said);
    }

    /// Brings items back that left memory.
    pub fn recover(&mut self) {
        self.store.settle();
        let is_complete = |item: &&Item| item.status != ItemStatus::InProgress;
        let items = self.store.items.iter().filter(is_complete).cloned().collect();
        self.input(Happening::Recovered { items, behind: None });
    }

    /// The store has what the machine has, whatever it refused; where an item stands is not looked at.
    pub fn check_store(&mut self) {
        self.store.settle();
        let by_id = |mut items: Vec<Item>| {
            items.sort_by(|one, other| one.id.cmp(&other.id));
            items
        };
        let said = by_id(self.machine.entries().iter().map(|entry| Item::clone(&entry.item)).collect());
        assert_eq!(by_id(self.store.items.clone()), said);
        if let Some(config) = &self.store.config {
            assert_eq!(config, self.machine.config());
        }
    }

    pub fn check_no_open_response(&self) {
        for (conn, ear) in &self.clients {
            assert!(ear.open_responses.is_empty(), "{conn:?} waits for {:?}", ear.open_responses);
        }
    }
}

impl Ear {
    fn new(extensions: bool, blind: bool, seed: u64) -> Ear {
        let extensions = Arc::new(AtomicBool::new(extensions));
        Ear {
            frames: Vec::new(),
            read: 0,
            renderer: Renderer::new(extensions.clone(), seed),
            extensions,
            own_frames: Vec::new(),
            mirror: Vec::new(),
            blind,
            said: HashMap::new(),
            open_responses: HashSet::new(),
            seen_responses: HashSet::new(),
        }
    }

    /// Keeps an error of the door's own, and returns the event that tells its turn.
    fn own(&mut self, error: &ErrorBody) -> Event {
        let frame = self.renderer.error(error);
        let bytes = frame.len();
        self.own_frames.push(frame);
        Event::Reached { mark: self.own_frames.len() as u64 - 1, bytes }
    }

    fn hear(&mut self, frame: Value) {
        let kind = frame["type"].as_str().unwrap();
        const EXTENSIONS: [&str; 5] = [
            "response.output_text.logprobs",
            "response.sentence.done",
            "response.recall.done",
            "context.updated",
            "turn.report",
        ];
        let extension = EXTENSIONS.contains(&kind) || kind.starts_with("compaction.");
        assert!(self.extensions.load(Ordering::Relaxed) || !extension, "not asked for: {frame}");
        if self.frames.is_empty() {
            assert_eq!(kind, "session.created");
        }
        match kind {
            "conversation.item.added" => {
                let id = frame["item"]["id"].as_str().unwrap();
                assert!(!self.mirror.iter().any(|known| known == id), "twice: {frame}");
                let at = match frame["previous_item_id"].as_str() {
                    None => 0,
                    Some(before) => match self.mirror.iter().position(|known| known == before) {
                        Some(index) => index + 1,
                        None if self.blind => self.mirror.len(),
                        None => panic!("the predecessor is unknown: {frame}, {:?}", self.mirror),
                    },
                };
                self.mirror.insert(at, id.to_owned());
            }
            "conversation.item.done" if !self.blind => {
                let id = frame["item"]["id"].as_str().unwrap();
                let at = self.mirror.iter().position(|known| known == id).unwrap_or_else(|| panic!("{frame}"));
                let before = at.checked_sub(1).map(|before| self.mirror[before].as_str());
                assert_eq!(frame["previous_item_id"].as_str(), before, "{frame}");
            }
            "conversation.item.deleted" => {
                let id = frame["item_id"].as_str().unwrap();
                let before = self.mirror.len();
                self.mirror.retain(|known| known != id);
                assert!(self.blind || self.mirror.len() + 1 == before, "{frame}");
            }
            "response.created" => {
                let id = frame["response"]["id"].as_str().unwrap().to_owned();
                assert!(self.seen_responses.insert(id.clone()), "twice: {frame}");
                self.open_responses.insert(id);
            }
            "response.done" => {
                let id = frame["response"]["id"].as_str().unwrap();
                assert!(self.open_responses.remove(id), "not open: {frame}");
                assert!(frame["response"].get("status_details").is_some());
                assert!(frame["response"]["usage"].is_object());
            }
            _ => {
                if let Some(id) = frame["response_id"].as_str()
                    && kind != "turn.report"
                {
                    assert!(self.open_responses.contains(id), "outside its response: {frame}");
                }
            }
        }
        if kind == "response.output_item.added" && frame["item"]["type"] == "message" {
            // A reply that goes on begins with what was heard of it.
            let heard = frame["item"]["content"][0]["text"].as_str().unwrap_or_default();
            self.said.insert(frame["item"]["id"].as_str().unwrap().to_owned(), heard.to_owned());
        }
        if kind == "response.output_text.delta" {
            let said = self.said.entry(frame["item_id"].as_str().unwrap().to_owned()).or_default();
            said.push_str(frame["delta"].as_str().unwrap());
        }
        if kind == "response.output_text.done" {
            let id = frame["item_id"].as_str().unwrap();
            assert_eq!(self.said[id], frame["text"].as_str().unwrap(), "{frame}");
        }
        self.frames.push(frame);
    }
}

const IS_THERE: &str = "there is such an item";

impl FakeStore {
    fn apply(&mut self, op: StoreOp, sent: &HashMap<String, String>) -> Result<(), &'static str> {
        self.settle();
        let done = self.change(&op, sent);
        self.note(&op, done.is_ok());
        // Of an item that has left memory only the store knows that it is there.
        assert!(self.torn || done.is_ok() || done == Err(IS_THERE), "{}: {op:?}", done.unwrap_err());
        self.ops.push(op);
        done
    }

    fn refuse(&mut self, op: StoreOp) {
        self.settle();
        self.torn = true;
        if let StoreOp::ReplyFinished { item } = &op
            && self.being_said.contains(&item.id)
        {
            self.owed.push(op.clone());
        }
        if let StoreOp::ReplyWithdrawn { item_id } = &op
            && self.being_said.contains(item_id)
        {
            self.owed.push(op.clone());
        }
        self.note(&op, false);
    }

    fn settle(&mut self) {
        for op in std::mem::take(&mut self.owed) {
            match op {
                StoreOp::ReplyFinished { item } => {
                    let at = self.find(&item.id).unwrap();
                    self.items[at] = item;
                }
                StoreOp::ReplyWithdrawn { item_id } => self.items.retain(|item| item.id != item_id),
                _ => {}
            }
        }
    }

    fn change(&mut self, op: &StoreOp, sent: &HashMap<String, String>) -> Result<(), &'static str> {
        let said = |item: &str, text: &str| {
            let sent = sent.get(item).map(String::as_str).unwrap_or_default();
            assert!(sent.starts_with(text), "stored {text:?} of {item}, but sent is {sent:?}");
        };
        match op {
            StoreOp::ConfigChanged { config } => self.config = Some(config.clone()),
            StoreOp::ItemAdded { item, after, .. } | StoreOp::ReplyBegun { item, after, .. } => {
                if self.items.iter().any(|known| known.id == item.id) {
                    return Err(IS_THERE);
                }
                let at = match after {
                    None => 0,
                    Some(id) => self.find(id)? + 1,
                };
                self.items.insert(at, item.clone());
            }
            StoreOp::ItemTruncated { item, part, heard_chars } => {
                let at = self.find(&item.id)?;
                if self.items[at].status == ItemStatus::InProgress {
                    return Err("the item is still being said");
                }
                self.items[at].cut(*part, *heard_chars).ok_or("there is no such part")?;
            }
            StoreOp::ItemDeleted { item_id } => {
                let at = self.find(item_id)?;
                self.items.remove(at);
            }
            StoreOp::ReplyWithdrawn { item_id } => {
                let at = self.find(item_id)?;
                assert_eq!(self.items[at].status, ItemStatus::InProgress, "{op:?}");
                assert!(self.items[at].text().is_empty(), "{op:?}");
                self.items.remove(at);
            }
            StoreOp::ReplyResumed { item, .. } => {
                let at = self.find(&item.id)?;
                if self.items[at].status == ItemStatus::InProgress {
                    return Err("the item is being said already");
                }
                self.items[at] = item.clone();
            }
            StoreOp::ReplyExtended { item_id, text: piece } => {
                let at = self.find(item_id)?;
                self.check_is_said(at)?;
                let text = self.items[at].text() + piece;
                said(item_id, &text);
                self.items[at].body = ItemBody::message(Role::Assistant, text);
            }
            StoreOp::ReplyFinished { item } => {
                let at = self.find(&item.id)?;
                self.check_is_said(at)?;
                if matches!(item.body, ItemBody::Message { .. }) {
                    said(&item.id, &item.text());
                }
                self.items[at] = item.clone();
            }
            StoreOp::ResponseStarted { .. } | StoreOp::ResponseFinished { .. } | StoreOp::ResponseReported { .. } => {}
        }
        Ok(())
    }

    /// A reply's begin or end was answered.
    fn note(&mut self, op: &StoreOp, is_done: bool) {
        if let (StoreOp::ReplyBegun { item, .. } | StoreOp::ReplyResumed { item, .. }, true) = (op, is_done) {
            self.being_said.insert(item.id.clone());
        } else if !matches!(op, StoreOp::ReplyExtended { .. })
            && let Some(item_id) = op.reply_item()
        {
            self.being_said.remove(item_id);
        }
    }

    fn check_is_said(&self, at: usize) -> Result<(), &'static str> {
        let item = &self.items[at];
        let is_said = item.status == ItemStatus::InProgress && self.being_said.contains(&item.id);
        is_said.then_some(()).ok_or("the item is not being said")
    }

    fn find(&self, id: &str) -> Result<usize, &'static str> {
        self.items.iter().position(|item| item.id == id).ok_or("there is no such item")
    }
}

impl Names {
    fn name(&mut self, id: &str) -> String {
        let Some((prefix, rest)) = id.split_once('_') else { return id.to_owned() };
        if rest.len() != 21 {
            return id.to_owned(); // a client's
        }
        if let Some(name) = self.known.get(id) {
            return name.clone();
        }
        let letter = prefix.chars().next().unwrap().to_ascii_uppercase();
        let count = self.counts.entry(letter).or_default();
        *count += 1;
        let name = format!("{letter}{count}");
        self.known.insert(id.to_owned(), name.clone());
        name
    }

    fn item(&mut self, item: &Value) -> String {
        let id = self.name(item["id"].as_str().unwrap());
        let what = match item["type"].as_str().unwrap() {
            "message" => {
                let parts = item["content"].as_array().unwrap();
                let text: String = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
                format!("{} {text:?}", item["role"].as_str().unwrap())
            }
            "function_call" => {
                format!("call {}({})", item["name"].as_str().unwrap(), item["arguments"].as_str().unwrap())
            }
            _ => format!("output {:?}", item["output"].as_str().unwrap()),
        };
        let status = match item["status"].as_str().unwrap() {
            "completed" => String::new(),
            status => format!(" {status}"),
        };
        format!("{id} {what}{status}")
    }

    fn line(&mut self, frame: &Value) -> String {
        let kind = frame["type"].as_str().unwrap();
        let short = kind.strip_prefix("conversation.").unwrap_or(kind);
        let mut id = |key: &str| self.name(frame[key].as_str().unwrap());
        let details = match kind {
            "error" => {
                let error = &frame["error"];
                let event_id = error["event_id"].as_str().map(|id| format!(" to {id}")).unwrap_or_default();
                format!("{}{event_id}", error["code"].as_str().unwrap())
            }
            "conversation.item.added" | "conversation.item.done" => {
                let before = match frame["previous_item_id"].as_str() {
                    Some(_) => id("previous_item_id"),
                    None => "the head".to_owned(),
                };
                format!("{} after {before}", self.item(&frame["item"]))
            }
            "conversation.item.retrieved" | "response.output_item.added" | "response.output_item.done" => {
                self.item(&frame["item"])
            }
            "conversation.item.deleted" => id("item_id"),
            "conversation.item.truncated" => {
                format!("{} at {} ({} ms)", id("item_id"), frame["text_end"], frame["audio_end_ms"])
            }
            "response.created" | "response.done" => {
                let response = &frame["response"];
                let name = self.name(response["id"].as_str().unwrap());
                let output: Vec<String> =
                    response["output"].as_array().unwrap().iter().map(|item| self.item(item)).collect();
                let output = if output.is_empty() { String::new() } else { format!(" [{}]", output.join(", ")) };
                format!("{name} {}{output}", response["status"].as_str().unwrap())
            }
            "response.content_part.added" | "response.content_part.done" => format!("{}", frame["part"]["text"]),
            "response.output_text.delta" | "response.function_call_arguments.delta" => format!("{}", frame["delta"]),
            "response.output_text.done" => format!("{}", frame["text"]),
            "response.function_call_arguments.done" => {
                format!(
                    "{} {}({})",
                    id("call_id"),
                    frame["name"].as_str().unwrap(),
                    frame["arguments"].as_str().unwrap()
                )
            }
            "response.sentence.done" => {
                format!("{} {} {}..{}", frame["index"], frame["text"], frame["text_start"], frame["text_end"])
            }
            "turn.report" => {
                let ms = &frame["ms"];
                format!(
                    "{} reused {} computed {} ms {} {} {} {} {}",
                    id("response_id"),
                    frame["reused_tokens"],
                    frame["computed_tokens"],
                    ms["queue"],
                    ms["prefill"],
                    ms["first_token"],
                    ms["first_sentence"],
                    ms["total"]
                )
            }
            _ => String::new(),
        };
        format!("{short} {details}").trim_end().to_owned()
    }
}

pub fn user(text: &str) -> Value {
    json!({"type": "conversation.item.create",
           "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}})
}

pub fn user_as(id: &str, text: &str) -> Value {
    let mut message = user(text);
    message["item"]["id"] = json!(id);
    message
}
