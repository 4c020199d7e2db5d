//! A session's machine between a parser and renderers, with a store that answers at once. Checks each frame.

use doors::openai_realtime::{ErrorBody, Limits, Renderer, parse, schema};
use serde_json::{Value, json};
use session::machine::*;
use session::sentences::{Cutter, SentenceLimits};
use session::{Context, Delta, Event, Finish, SessionConfig};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

const LIMITS: Limits = Limits { item_bytes: 1000, tools: 3, entries: 100, id_chars: 40 };
const SENTENCES: SentenceLimits = SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 };

pub struct Stage {
    machine: Machine,
    connections: BTreeMap<ConnId, Connection>,
    generation: Option<GenerationId>,
    cutter: Cutter,
    pub store_fails: bool,
    event_ids: HashSet<String>,
}

pub struct Connection {
    pub frames: Vec<Value>,
    read: usize,
    renderer: Renderer,
    own_frames: Vec<String>,
}

impl Stage {
    pub fn new() -> Stage {
        let start = Start {
            session_id: "sess_1".into(),
            conversation_id: "conv_1".into(),
            model: "test-model".into(),
            config: SessionConfig::new("Be brief."),
            items: Vec::new(),
            leading: 0,
            context: Context { recall: true, ..Context::default() },
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
            words_per_minute: 170,
            backchannels: Vec::new(),
            id_seed: 7,
        };
        Stage {
            machine: Machine::new(start),
            connections: BTreeMap::new(),
            generation: None,
            cutter: Cutter::new(SENTENCES),
            store_fails: false,
            event_ids: HashSet::new(),
        }
    }

    /// Returns a stage with connection 1, which has heard that its session is there.
    pub fn with_client(extensions: bool) -> Stage {
        let mut stage = Stage::new();
        stage.attach(1, extensions);
        stage.frames(1);
        stage
    }

    pub fn attach(&mut self, conn: u64, extensions: bool) {
        let renderer = Renderer::new(Arc::new(AtomicBool::new(extensions)), conn);
        let connection = Connection { frames: Vec::new(), read: 0, renderer, own_frames: Vec::new() };
        self.connections.insert(ConnId(conn), connection);
        self.feed(MachineInput::Attached { conn: ConnId(conn), replay: Replay::All });
    }

    pub fn client(&mut self, conn: u64, message: Value) {
        let conn = ConnId(conn);
        let input = match parse(&message.to_string(), &LIMITS) {
            Ok(received) => MachineInput::Said { conn, input_id: received.event_id, input: received.input },
            Err(error) => {
                let event = self.connections.get_mut(&conn).expect("it is there").own(&error);
                MachineInput::TellOne { conn, event }
            }
        };
        self.feed(input);
    }

    pub fn content(&mut self, text: &str) {
        self.model(Delta::text(text, 1));
    }

    pub fn done(&mut self) {
        self.model(Delta::Done { finish: Finish::Stop, usage: None, report: None });
    }

    pub fn model(&mut self, delta: Delta) {
        let generation = self.generation.expect("a generation");
        let mut deltas = Vec::new();
        self.cutter.cut(delta, &mut deltas);
        deltas.into_iter().for_each(|delta| self.feed(MachineInput::Delta { generation, delta }));
    }

    pub fn found(&mut self, query: &str, text: &str) {
        let generation = self.generation.expect("a generation");
        let results = vec![RecallResult { query: query.into(), text: text.into(), places: 1, sources: Vec::new() }];
        self.feed(MachineInput::Recalled { generation, results });
    }

    pub fn feed(&mut self, input: MachineInput) {
        let mut waiting = VecDeque::from([input]);
        while let Some(input) = waiting.pop_front() {
            let mut out = Vec::new();
            self.machine.handle(input, 1000, &mut out);
            for output in out {
                match output {
                    // The journal answers before anything else happens.
                    Output::Words { .. } => waiting.push_front(MachineInput::WordsWritten),
                    Output::Send { to, event } => to.into_iter().for_each(|conn| self.send(conn, &event)),
                    Output::Store { id: op, .. } if self.store_fails => {
                        waiting.push_back(MachineInput::StoreFailed { op, message: "the disk is full".into() });
                    }
                    Output::Store { id: op, .. } => waiting.push_back(MachineInput::StoreAcked { op }),
                    Output::Generate(generate) => {
                        (self.generation, self.cutter) = (Some(generate.generation), Cutter::new(SENTENCES));
                    }
                    _ => {}
                }
            }
        }
    }

    fn send(&mut self, conn: ConnId, event: &Event) {
        let connection = self.connections.get_mut(&conn).expect("it is there");
        let mut frames = Vec::new();
        match event {
            Event::Reached { mark, .. } => frames.push(connection.own_frames[*mark as usize].clone()),
            event => connection.renderer.render(event, &mut frames),
        }
        for frame in frames {
            static SCHEMA: LazyLock<Value> = LazyLock::new(schema);
            let frame: Value = serde_json::from_str(&frame).unwrap();
            ::tests::json_schema::check(&SCHEMA, "server_event", &frame).unwrap_or_else(|why| panic!("{frame}: {why}"));
            assert!(self.event_ids.insert(frame["event_id"].as_str().unwrap().to_owned()), "{frame}");
            connection.frames.push(frame);
        }
    }

    pub fn frames(&mut self, conn: u64) -> String {
        let connection = self.connections.get_mut(&ConnId(conn)).expect("it is there");
        let lines: Vec<String> = connection.frames[connection.read..].iter().map(Value::to_string).collect();
        connection.read = connection.frames.len();
        lines.join("\n")
    }

    pub fn types(&mut self, conn: u64) -> Vec<String> {
        let connection = self.connections.get_mut(&ConnId(conn)).expect("it is there");
        let new = connection.frames[connection.read..].iter();
        let types = new.map(|frame| frame["type"].as_str().unwrap().to_owned()).collect();
        connection.read = connection.frames.len();
        types
    }

    pub fn last(&self, conn: u64) -> &Value {
        self.connections[&ConnId(conn)].frames.last().expect("a frame")
    }

    pub fn last_item(&self) -> String {
        self.machine.entries().last().expect("an item").item.id.clone()
    }
}

impl Connection {
    /// Keeps an error of the door's own, and returns the event that tells its turn.
    fn own(&mut self, error: &ErrorBody) -> Event {
        let frame = self.renderer.error(error);
        let bytes = frame.len();
        self.own_frames.push(frame);
        Event::Reached { mark: self.own_frames.len() as u64 - 1, bytes }
    }
}

pub fn user_as(id: &str, text: &str) -> Value {
    json!({"type": "conversation.item.create", "item": {"id": id, "type": "message", "role": "user",
           "content": [{"type": "input_text", "text": text}]}})
}
