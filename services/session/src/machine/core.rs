//! The machine: dispatches each input to the part that it concerns.

mod ahead;
mod coming;
mod resuming;
mod storing;

use super::conversation::{Conversation, Entry};
use super::held::HeldReply;
use super::input::{GenerationId, MachineInput, Millis, RecallResult};
use super::ledger::Ledger;
use super::outbox::{Asker, Outbox, Said, Undo};
use super::output::{Generate, Output, StoreOp};
use super::replies::Replies;
use super::reply::Reply;
use super::warming::Warming;
use crate::context::Context;
use crate::ids::{Ids, is_hidden_id};
use crate::vocabulary::{
    ConfigUpdate, ConversationChoice, Delta, Event, GenerationPurpose, Input, InputItem, Item, ItemBody, ItemPlace,
    ItemStatus, ItemUse, NamedSpeaker, NewItem, NewTurn, Refusal, RequestPart, Response, ResponseRequest,
    ResumeRequest, Role, SessionConfig, SessionState,
};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Start {
    pub session_id: String,
    pub conversation_id: String,
    pub model: String,
    pub config: SessionConfig,
    /// Items in order; none may be in progress.
    pub items: Vec<Item>,
    pub leading: usize,
    pub context: Context,
    pub limits: MachineLimits,
    pub words_per_minute: u32,
    pub backchannels: Vec<String>,
    pub id_seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineLimits {
    pub session_items: usize,
    pub told_items: usize,
    /// Bytes of items that clients add while the session is in memory.
    pub session_bytes: usize,
    pub responses_beside: usize,
    pub outbox_steps: usize,
    pub speculate_ms: Option<u64>,
    /// Time without a change of the partial transcript after which the early reply begins. `None` disables early
    /// replies.
    pub early_ms: Option<u64>,
    pub recalls: u32,
    /// Time within which a stopped reply may resume. 0 disables resuming.
    pub resume_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Machine {
    session_id: String,
    conversation_id: String,
    model: String,
    limits: MachineLimits,
    words_per_minute: u32,
    backchannels: Vec<String>,
    config: Arc<SessionConfig>,
    next_config: Arc<SessionConfig>,
    ledger: Ledger,
    replies: Replies,
    held: Option<HeldReply>,
    generation_count: u64,
    warming: Warming,
    noted: Option<RecallResult>,
    draining: bool,
    now: Millis,
}

// Clients that may come back at once while the store is at work, and miss the whole conversation.
const CLIENTS_THAT_COME_BACK: usize = 4;

impl Machine {
    pub fn new(start: Start) -> Machine {
        let conversation = Conversation::new(start.items, start.leading, start.context);
        let ledger = Ledger { ids: Ids::new(start.id_seed), conversation, outbox: Outbox::default(), added_bytes: 0 };
        let config = Arc::new(start.config);
        Machine {
            session_id: start.session_id,
            conversation_id: start.conversation_id,
            model: start.model,
            limits: start.limits,
            words_per_minute: start.words_per_minute,
            backchannels: start.backchannels,
            next_config: config.clone(),
            config,
            ledger,
            replies: Replies::new(start.limits.responses_beside),
            held: None,
            generation_count: 0,
            warming: Warming::default(),
            noted: None,
            draining: false,
            now: 0,
        }
    }

    pub fn handle(&mut self, input: MachineInput, now: Millis, out: &mut Vec<Output>) {
        self.now = now;
        let was_replying = self.is_replying();
        match input {
            MachineInput::Attached { conn, replay } => self.attach(conn, &replay),
            MachineInput::Detached { conn } => self.detach(conn),
            MachineInput::Said { conn, input_id, input } => self.said(Asker { conn, input_id }, input),
            MachineInput::Delta { generation, delta } => self.delta(generation, delta),
            MachineInput::StoreAcked { op } => self.store_acked(op),
            MachineInput::StoreFailed { op, message } => self.store_failed(op, message),
            MachineInput::WordsWritten => self.ledger.outbox.words_written(),
            MachineInput::WordsNotWritten { message } => self.words_not_written(&message),
            MachineInput::Context(context) => {
                self.ledger.conversation.set_context(context, self.limits.told_items);
                self.warming.changed();
            }
            MachineInput::Recovered { items, behind } => self.ledger.conversation.recover(items, behind),
            MachineInput::Recalled { generation, results } => {
                if let Some(reply) = self.replies.of_generation(generation) {
                    reply.recalled(results, &mut self.ledger);
                }
            }
            MachineInput::ItemsGone { item_ids } => {
                for item_id in &item_ids {
                    self.stop_saying(item_id);
                    self.hold_deleted(item_id);
                    self.ledger.lose_item(item_id);
                }
                self.warming.changed();
            }
            MachineInput::Noted { before, note } => {
                self.ledger.add_note(note.text.clone(), before.as_deref(), note.sources.clone());
                self.noted = Some(note);
            }
            MachineInput::Tell(event) => self.ledger.outbox.send(event),
            MachineInput::TellOne { conn, event } => self.ledger.outbox.send_to(conn, event),
            MachineInput::Drain => self.drain(),
            MachineInput::Tick => {}
        }
        if was_replying && !self.is_replying() {
            self.warming.reply_ended(self.ledger.outbox.has_clients());
        }
        self.warm();
        self.flush(out);
        // Also what clients missed that came back waits there, until the store has answered what was asked before.
        let missed = CLIENTS_THAT_COME_BACK * self.ledger.conversation.len();
        if self.ledger.outbox.len() > self.limits.outbox_steps + missed && self.ledger.outbox.has_clients() {
            self.drop_clients();
            self.flush(out);
        }
    }

    pub fn is_idle(&self) -> bool {
        !self.ledger.outbox.has_clients() && self.replies.open.is_empty() && self.is_settled()
    }

    /// True if clients added more than a quarter of the limit: the session should leave memory soon after its use.
    pub fn is_large(&self) -> bool {
        self.ledger.added_bytes > self.limits.session_bytes / 4
    }

    pub fn text_bytes(&self) -> usize {
        let items = self.ledger.conversation.entries().iter().map(|entry| entry.item.body.text_bytes());
        let next = Some(&self.next_config).filter(|next| !Arc::ptr_eq(next, &self.config));
        self.config.text_bytes() + next.map_or(0, |next| next.text_bytes()) + items.sum::<usize>()
    }

    pub fn is_settled(&self) -> bool {
        self.ledger.outbox.is_settled()
    }

    pub fn context(&self) -> &Context {
        self.ledger.conversation.context()
    }

    pub fn said_before(&self, id: &str) -> Option<&Arc<Item>> {
        self.ledger.conversation.said_before(id)
    }

    pub fn items_behind(&self, covered_through: Option<&str>) -> Vec<Arc<Item>> {
        self.ledger.conversation.behind(covered_through)
    }

    pub fn is_replying(&self) -> bool {
        self.replies.active().is_some()
    }

    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    pub fn heard(&self) -> &str {
        &self.warming.buffer
    }

    pub fn items(&self) -> Vec<Arc<Item>> {
        self.ledger.conversation.snapshot()
    }

    pub fn entries(&self) -> &[Entry] {
        self.ledger.conversation.entries()
    }

    fn drain(&mut self) {
        self.draining = true;
        self.cancel_all();
        self.ledger.outbox.close_all();
    }

    fn state(&self) -> Box<SessionState> {
        let (session_id, model) = (self.session_id.clone(), self.model.clone());
        Box::new(SessionState { session_id, model, config: SessionConfig::clone(&self.config) })
    }

    fn said(&mut self, asker: Asker, input: Input) {
        if !self.ledger.outbox.has(asker.conn) || self.draining {
            return; // the client's last words crossed with our goodbye
        }
        let done = match input {
            Input::Configure(update) => self.configure(&asker, &update),
            Input::AddItem { item, place } => self.add_item(&asker, item, &place),
            Input::ReadItem { item_id } => self.read_item(&asker, item_id),
            Input::TruncateItem { item_id, part, heard } => {
                self.stop_saying(&item_id);
                self.hold_what_is_cut(&item_id);
                let done = self.ledger.truncate_item(&asker, item_id, part, heard, self.words_per_minute);
                if done.is_ok() {
                    self.warming.changed();
                }
                done
            }
            Input::DeleteItem { item_id } => self.delete_item(&asker, item_id),
            Input::Respond(request) => self.create_response(&request).map(drop),
            Input::TakeTurn(turn) => self.take_turn(&asker, *turn),
            Input::Resume(request) => self.resume(&request),
            Input::CancelResponse { response_id } => self.cancel_response(response_id.as_deref()),
            Input::StopThinking { response_id } => self.replies.stop_thinking(response_id.as_deref(), &mut self.ledger),
            Input::DropSpeech => {
                self.ledger.outbox.send_to(asker.conn, Event::SpeechDropped);
                Ok(())
            }
            Input::Hear { text } => {
                self.warming.hear(text);
                Ok(())
            }
            Input::HeardAll { text, item_id, speaker, respond } => {
                self.heard_all(&asker, text, item_id, speaker, respond)
            }
        };
        if let Err(refusal) = done {
            self.ledger.outbox.refuse(asker, refusal);
        }
    }

    fn configure(&mut self, asker: &Asker, update: &ConfigUpdate) -> Result<(), Refusal> {
        let mut config = SessionConfig::clone(&self.config);
        config.apply(update);
        if config == *self.config {
            self.ledger.outbox.send_to(asker.conn, Event::Configured(self.state()));
            return Ok(());
        }
        let old = std::mem::replace(&mut self.config, Arc::new(config.clone()));
        self.next_config = self.config.clone();
        self.warming.changed();
        let op = self.ledger.outbox.store_for(Some(asker), StoreOp::ConfigChanged { config }, Undo::Config(old));
        self.ledger.outbox.send_after(Some(op), Event::Configured(self.state()));
        Ok(())
    }

    fn add_item(&mut self, asker: &Asker, item: NewItem, place: &ItemPlace) -> Result<(), Refusal> {
        self.ledger.check_room(std::slice::from_ref(&item), self.limits.session_items, self.limits.session_bytes)?;
        let said = self.held.is_some().then(|| item.clone());
        self.ledger.add_item(asker, item, place, None)?;
        if let Some(said) = said {
            self.held_hears(&said);
        }
        self.warming.changed();
        Ok(())
    }

    fn read_item(&mut self, asker: &Asker, item_id: String) -> Result<(), Refusal> {
        let Some(item) = self.ledger.conversation.announced(&item_id) else {
            return Err(Refusal::NoSuchItem { item_id, wanted: ItemUse::Read });
        };
        let item = self.replies.open_item(&item_id).unwrap_or(item).clone();
        self.ledger.outbox.send_to(asker.conn, Event::ItemRead { item });
        Ok(())
    }

    fn delete_item(&mut self, asker: &Asker, item_id: String) -> Result<(), Refusal> {
        if self.ledger.conversation.announced(&item_id).is_none() {
            return Err(Refusal::NoSuchItem { item_id, wanted: ItemUse::Delete });
        }
        self.stop_saying(&item_id);
        self.hold_what_is_cut(&item_id);
        self.hold_deleted(&item_id);
        self.ledger.delete_item(asker, item_id);
        self.warming.changed();
        Ok(())
    }

    fn stop_saying(&mut self, item_id: &str) {
        self.cancel(|reply| reply.in_conversation() && reply.is_saying(item_id));
    }

    fn cancel(&mut self, is_meant: impl Fn(&Reply) -> bool) -> bool {
        self.hold(&is_meant);
        self.replies.cancel(is_meant, &mut self.ledger, self.now)
    }

    fn heard_all(
        &mut self,
        asker: &Asker,
        text: Option<String>,
        item_id: Option<String>,
        speaker: Option<NamedSpeaker>,
        respond: bool,
    ) -> Result<(), Refusal> {
        let text = text.unwrap_or_else(|| self.warming.buffer.clone());
        if text.trim().is_empty() {
            return Err(Refusal::NothingSaid);
        }
        let body = ItemBody::Message { role: Role::User, parts: vec![text], speaker };
        let item = NewItem { id: item_id, body };
        self.add_item(asker, item, &ItemPlace::End)?;
        self.warming.buffer.clear();
        if respond { self.create_response(&Default::default()).map(drop) } else { Ok(()) }
    }

    fn take_turn(&mut self, asker: &Asker, turn: NewTurn) -> Result<(), Refusal> {
        let NewTurn { behind, interrupts, items, request } = turn;
        let in_conversation = self.is_for_conversation(&request)?;
        let interrupts = interrupts && in_conversation;
        if !interrupts {
            self.replies.check_room(in_conversation)?;
        }
        let last = self.ledger.conversation.entries().iter().rfind(|entry| !entry.item.is_note_of_past());
        if behind.is_some_and(|behind| last.is_some_and(|last| last.item.id != behind)) {
            return Err(Refusal::SaidSince);
        }
        self.ledger.check_room(&items, self.limits.session_items, self.limits.session_bytes)?;
        let is_there =
            |item: &NewItem| item.id.clone().filter(|id| is_hidden_id(id) || self.ledger.conversation.has(id));
        if let Some(item_id) = items.iter().find_map(is_there) {
            return Err(Refusal::ItemExists { item_id });
        }
        if interrupts {
            self.cancel(Reply::in_conversation);
        }
        self.let_go();
        let last = items.len().saturating_sub(1);
        for (at, item) in items.into_iter().enumerate() {
            let of_request = request.of_request.map(|digest| RequestPart { digest, is_last: at == last });
            self.ledger.add_item(asker, item, &ItemPlace::End, of_request)?;
        }
        let config = self.create_response(&request)?;
        if in_conversation {
            self.next_config = config;
        }
        Ok(())
    }

    fn create_response(&mut self, request: &ResponseRequest) -> Result<Arc<SessionConfig>, Refusal> {
        let noted = self.noted.take();
        let in_conversation = self.is_for_conversation(request)?;
        self.replies.check_room(in_conversation)?;
        if self.is_resume(request) && self.resume(&ResumeRequest::default()).is_ok() {
            return Ok(self.config.clone());
        }
        let (items, context) = match &request.input {
            None => (self.items(), self.ledger.conversation.context().clone()),
            Some(input) => (self.resolve_input(input)?, Arc::default()),
        };
        let mut config = SessionConfig::clone(&self.config);
        config.apply(&request.config);
        let config = Arc::new(config);
        let generation = self.next_generation();
        let response = self.new_response(in_conversation, config.max_output_tokens);
        let response = Response { metadata: request.metadata.clone(), ..response };
        let generate = Box::new(Generate {
            generation,
            response_id: Some(response.id.clone()),
            purpose: GenerationPurpose::Reply,
            is_beside: !in_conversation,
            partial: None,
            items,
            context,
            max_tokens: config.max_output_tokens.limit(),
            config: config.clone(),
            options: Arc::new(request.options.clone()),
        });
        if in_conversation {
            self.stop_warming();
            self.let_go();
            self.next_config = self.config.clone();
        }
        let asked = in_conversation.then(|| generate.clone());
        self.ledger.outbox.at_once(Output::Generate(generate));
        let (response_id, metadata) = (response.id.clone(), response.metadata.clone());
        let op = StoreOp::ResponseStarted { response_id, in_conversation, metadata, of_request: request.of_request };
        let mut reply = Reply::new(generation, response, asked, self.limits.recalls);
        self.ledger.outbox.store(op, reply.undo());
        reply.start(&mut self.ledger, self.now);
        if let Some(RecallResult { query, text, places, .. }) = noted {
            let (response_id, note) = (reply.response.id.clone(), Some(text));
            self.ledger.outbox.send(Event::RecallDone { response_id, query, places, note });
        }
        self.replies.open.push(reply);
        Ok(config)
    }

    fn is_for_conversation(&self, request: &ResponseRequest) -> Result<bool, Refusal> {
        match &request.conversation {
            ConversationChoice::Auto => Ok(true),
            ConversationChoice::None => Ok(false),
            ConversationChoice::Named(id) if *id == self.conversation_id => Ok(true),
            ConversationChoice::Named(id) => Err(Refusal::NoSuchConversation { conversation_id: id.clone() }),
        }
    }

    fn resolve_input(&mut self, input: &[InputItem]) -> Result<Vec<Arc<Item>>, Refusal> {
        let resolve = |(index, item): (usize, &InputItem)| match item {
            InputItem::Item(item) => Ok(Arc::new(self.ledger.complete_item(item.clone()))),
            InputItem::Reference(id) => match self.ledger.conversation.announced(id) {
                Some(item) if item.status != ItemStatus::InProgress => Ok(item.clone()),
                _ => Err(Refusal::NoSuchReference { item_id: id.clone(), index }),
            },
        };
        input.iter().enumerate().map(resolve).collect()
    }

    fn cancel_response(&mut self, response_id: Option<&str>) -> Result<(), Refusal> {
        let was_there = self.cancel(|reply| match response_id {
            None => reply.in_conversation(),
            Some(id) => reply.response.id == id,
        });
        if was_there { Ok(()) } else { Err(Refusal::NoActiveResponse) }
    }

    fn cancel_all(&mut self) {
        self.cancel(|_| true);
        self.stop_warming();
    }

    fn delta(&mut self, generation: GenerationId, delta: Delta) {
        if self.warming.running == Some(generation) {
            self.warming.running.take_if(|_| delta.is_last());
            return;
        }
        self.held_says(generation, &delta);
        self.replies.delta(generation, delta, &mut self.ledger, self.now);
    }

    fn next_generation(&mut self) -> GenerationId {
        self.generation_count += 1;
        GenerationId(self.generation_count)
    }

    fn flush(&mut self, out: &mut Vec<Output>) {
        loop {
            let said = self.ledger.outbox.flush(out);
            if said.is_empty() {
                break;
            }
            for said in said {
                match said {
                    Said::Bytes { item_id, bytes } => self.replies.said(&item_id, bytes, &mut self.ledger),
                    Said::Less(item) => drop(self.ledger.conversation.replace(Arc::new(item))),
                }
            }
        }
    }
}
