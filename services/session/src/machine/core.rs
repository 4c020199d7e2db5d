//! The machine: its state, and who handles what.

use super::buffer::Warming;
use super::clients::Clients;
use super::conversation::{Conversation, Entry};
use super::happening::{ConnId, GenerationId, Happening, Millis, Replay};
use super::outbox::{Action, Outbox};
use super::output::{CloseReason, Generate, GenerationPurpose, OpId, Output};
use super::replies::Reply;
use super::responses::Ended;
use super::storing::Operation;
use crate::ids::Ids;
use crate::prompt::Context;
use crate::speech::SpeakingRate;
use crate::vocabulary::{Event, Item, SessionConfig, SessionState};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What a machine starts from: a new session, or one that was read from the store.
#[derive(Clone, Debug)]
pub struct Start {
    pub session_id: String,
    pub conversation_id: String,
    /// The model's name as clients see it.
    pub model: String,
    pub config: SessionConfig,
    /// In order. None may be in progress.
    pub items: Vec<Item>,
    pub context: Context,
    pub limits: MachineLimits,
    pub speaking: SpeakingRate,
    /// Drawn at random each time a session is loaded.
    pub id_seed: u64,
}

/// The values come from the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineLimits {
    pub session_items: usize,
    /// Responses that may run beside the conversation at once.
    pub responses_beside: usize,
    /// Events and operations that may wait for the store.
    pub outbox_steps: usize,
    /// Least time between two speculations. None: no speculation.
    pub speculate_ms: Option<u64>,
    /// Searches of the past that the model may make for one reply.
    pub recalls: u32,
}

#[derive(Debug)]
pub struct Machine {
    pub(super) session_id: String,
    pub(super) conversation_id: String,
    pub(super) model: String,
    pub(super) limits: MachineLimits,
    pub(super) speaking: SpeakingRate,
    pub(super) ids: Ids,
    pub(super) config: SessionConfig,
    pub(super) context: Arc<Context>,
    pub(super) conversation: Conversation,
    pub(super) clients: Clients,
    pub(super) outbox: Outbox,
    /// What each unanswered operation of the store is about.
    pub(super) operations: HashMap<OpId, Operation>,
    pub(super) operation_count: u64,
    /// At most one in the conversation, some beside it.
    pub(super) replies: Vec<Reply>,
    pub(super) generation_count: u64,
    /// Replies that are over for the clients and whose report has not come.
    pub(super) ended: VecDeque<Ended>,
    /// What the user is saying: the transcript so far.
    pub(super) buffer: String,
    pub(super) warming: Warming,
    pub(super) draining: bool,
}

/// The moment of a call to `handle` and where its outputs go.
pub(super) struct Moment<'a> {
    pub now: Millis,
    pub out: &'a mut Vec<Output>,
}

impl Machine {
    pub fn new(start: Start) -> Machine {
        let mut machine = Machine {
            session_id: start.session_id,
            conversation_id: start.conversation_id,
            model: start.model,
            limits: start.limits,
            speaking: start.speaking,
            ids: Ids::new(start.id_seed),
            config: start.config,
            context: Arc::new(Context::default()),
            conversation: Conversation::new(start.items),
            clients: Clients::default(),
            outbox: Outbox::default(),
            operations: HashMap::new(),
            operation_count: 0,
            replies: Vec::new(),
            generation_count: 0,
            ended: VecDeque::new(),
            buffer: String::new(),
            warming: Warming::default(),
            draining: false,
        };
        machine.set_context(start.context);
        machine
    }

    /// Takes one thing that happened at `now` and appends what is to be done.
    pub fn handle(&mut self, happening: Happening, now: Millis, out: &mut Vec<Output>) {
        let moment = &mut Moment { now, out };
        match happening {
            Happening::Attached { conn, replay } => self.attach(conn, &replay),
            Happening::Detached { conn } => self.detach(conn, moment),
            Happening::Said { conn, input_id, input } => self.said(conn, input_id, input, moment),
            Happening::Delta { generation, delta } => self.delta(generation, delta, moment),
            Happening::StoreAcked { op } => self.store_acked(op),
            Happening::StoreFailed { op, message } => self.store_failed(op, &message, moment),
            Happening::Context(context) => self.set_context(context),
            Happening::Recovered(items) => {
                self.conversation.recover(items);
                // What stands in the prompt is for `Context` to say.
                self.conversation.cover_through(self.context.covered_through.as_deref());
            }
            Happening::Recalled { generation, results } => self.recalled(generation, &results, moment),
            Happening::Tell(event) => self.send(event),
            Happening::TellOne { conn, event } => self.send_to(conn, event),
            Happening::Drain => self.drain(moment),
            Happening::Tick => {}
        }
        self.warm(moment);
        self.flush(moment);
    }

    /// When `Tick` is wanted, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.warming_deadline()
    }

    /// No client is connected and nothing is under way: the session may leave memory.
    pub fn is_idle(&self) -> bool {
        self.clients.is_empty() && self.replies.is_empty() && self.outbox.is_settled() && self.operations.is_empty()
    }

    /// The store has all that was said.
    pub fn is_settled(&self) -> bool {
        self.outbox.is_settled() && self.operations.is_empty()
    }

    /// What stands in the prompt besides the items.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// What the user said before this item.
    pub fn said_before(&self, id: &str) -> Option<&Arc<Item>> {
        self.conversation.said_before(id)
    }

    /// What a prompt would be made of if items up to this one did not stand in it.
    pub fn items_behind(&self, covered_through: Option<&str>) -> Vec<Arc<Item>> {
        let mut conversation = self.conversation.clone();
        conversation.cover_through(covered_through);
        conversation.snapshot()
    }

    /// The prompt of the next turn with another view of the past, to be warmed before it is used.
    pub fn ahead(&self, items: Vec<Arc<Item>>, context: Context) -> Generate {
        Generate {
            generation: GenerationId(0),
            response_id: None,
            purpose: GenerationPurpose::WarmHistory,
            items,
            context: Arc::new(context),
            config: Arc::new(self.config.clone()),
            options: Arc::default(),
            max_tokens: Some(0),
        }
    }

    /// Whether some of these items are not in memory.
    pub fn lacks(&self, items: &[Item]) -> bool {
        items.iter().any(|item| !self.conversation.has(&item.id))
    }

    /// Whether a reply of the conversation is under way.
    pub fn is_replying(&self) -> bool {
        self.replies.iter().any(|reply| reply.in_conversation)
    }

    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// The items that are said, in order, but for those that a summary tells.
    pub fn items(&self) -> Vec<Arc<Item>> {
        self.conversation.snapshot()
    }

    /// All items, also those that no prompt holds and those that clients do not know of yet.
    pub fn entries(&self) -> &[Entry] {
        self.conversation.entries()
    }

    fn attach(&mut self, conn: ConnId, replay: &Replay) {
        self.clients.add(conn);
        let state = self.state();
        self.send_to(conn, Event::Opened(state));
        self.replay(conn, replay);
        if self.draining {
            self.outbox.push(Action::Close { conn, reason: CloseReason::Draining }, None);
        }
        self.warming.wanted = true;
    }

    /// Tells a connection the items it does not have, and the replies that are under way.
    fn replay(&mut self, conn: ConnId, replay: &Replay) {
        let entries = self.conversation.entries();
        let from = match replay {
            Replay::Nothing => entries.len(),
            Replay::All => 0,
            Replay::After(id) => entries.iter().rposition(|entry| entry.item.id == *id).map_or(0, |index| index + 1),
        };
        let open = self.replies.iter().find(|reply| reply.in_conversation).and_then(Reply::open_item_id);
        let mut previous_item_id =
            entries[..from].iter().rev().find(|entry| entry.announced).map(|entry| entry.item.id.clone());
        let mut events = Vec::new();
        for entry in entries[from..].iter().filter(|entry| entry.announced) {
            // The one that is being said comes with its response.
            if Some(entry.item.id.as_str()) != open {
                let item = Item::clone(&entry.item);
                events.push(Event::ItemAdded { item, previous_item_id: previous_item_id.clone(), is_new: false });
                previous_item_id = Some(entry.item.id.clone());
            }
        }
        events.extend(self.replies.iter().flat_map(|reply| reply.so_far(&self.conversation)));
        // Others may have left before the store answered, and their events with them.
        let needs = self.outbox.newest_unanswered();
        for event in events {
            // The connection hears all that was said so far at once.
            let said = match &event {
                Event::TextDelta { item_id, text, .. } if self.conversation.has(item_id) => Some(text.len()),
                _ => None,
            };
            self.outbox.push(Action::Send { to: vec![conn], event, needs, if_stored: false, said }, None);
        }
    }

    fn detach(&mut self, conn: ConnId, moment: &mut Moment) {
        self.outbox.forget(conn);
        if self.clients.remove(conn) && self.clients.is_empty() {
            self.last_client_left(moment);
        }
    }

    /// The last client has left: what no client hears is not said.
    fn last_client_left(&mut self, moment: &mut Moment) {
        self.cancel_all(moment);
        for call in self.outbox.forget_clients() {
            self.conversation.replace(Arc::new(call));
        }
        self.buffer.clear();
        self.stop_warming(moment);
    }

    fn drain(&mut self, moment: &mut Moment) {
        self.draining = true;
        self.cancel_all(moment);
        self.stop_warming(moment);
        for conn in self.clients.all() {
            self.outbox.push(Action::Close { conn, reason: CloseReason::Draining }, None);
        }
    }

    fn set_context(&mut self, context: Context) {
        self.conversation.cover_through(context.covered_through.as_deref());
        self.context = Arc::new(context);
        self.warming.wanted = true;
    }

    pub(super) fn state(&self) -> Box<SessionState> {
        Box::new(SessionState {
            session_id: self.session_id.clone(),
            model: self.model.clone(),
            config: self.config.clone(),
        })
    }

    /// To all clients.
    pub(super) fn send(&mut self, event: Event) {
        self.send_after(None, event);
    }

    /// To all clients, once the store has acknowledged `needs`.
    pub(super) fn send_after(&mut self, needs: Option<OpId>, event: Event) {
        let to = self.clients.all();
        self.outbox.push(Action::Send { to, event, needs, if_stored: true, said: None }, None);
    }

    pub(super) fn send_to(&mut self, conn: ConnId, event: Event) {
        if self.clients.has(conn) {
            self.outbox.push(Action::Send { to: vec![conn], event, needs: None, if_stored: true, said: None }, None);
        }
    }

    fn flush(&mut self, moment: &mut Moment) {
        loop {
            let said = self.outbox.flush(moment.out);
            if said.is_empty() {
                break;
            }
            self.store_said(said);
        }
        if self.outbox.len() > self.limits.outbox_steps && !self.clients.is_empty() {
            for conn in self.clients.all() {
                moment.out.push(Output::Close { conn, reason: CloseReason::StoreStalled });
            }
            self.clients.clear();
            self.last_client_left(moment);
            let said = self.outbox.flush(moment.out);
            self.store_said(said);
        }
    }
}
