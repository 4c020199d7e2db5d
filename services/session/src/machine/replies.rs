//! A reply while it is made: deltas of the model become events.

use super::conversation::Conversation;
use super::core::{Machine, Moment};
use super::happening::{GenerationId, Millis};
use super::outbox::Action;
use super::output::{Generate, OpId, StoreOp};
use super::recall::Recall;
use super::responses::End;
use super::storing::{Operation, Undo};
use crate::sentences::Sentence;
use crate::vocabulary::{
    Delta, Event, Finish, Item, ItemBody, ItemPlace, ItemStatus, Response, Role, TokenLogprob, Usage,
};
use std::sync::Arc;

#[derive(Debug)]
pub struct Reply {
    pub generation: GenerationId,
    pub in_conversation: bool,
    /// As it will be told when it is done; `output` holds the items that are complete.
    pub response: Response,
    pub usage: Usage,
    pub created_at: Millis,
    pub first_token_at: Option<Millis>,
    pub first_sentence_at: Option<Millis>,
    /// The place of its first item, taken when the reply was asked for, and the operation that keeps it: so the first
    /// word waits for no disk.
    pub reserved: Option<(String, OpId)>,
    pub open: Option<Open>,
    /// Items begun.
    pub outputs: usize,
    /// Bytes of the open message that were sent.
    pub sent: usize,
    /// Bytes of the open message that the store was given.
    pub stored: usize,
    /// The operation that gives the store the last of them.
    pub storing: Option<OpId>,
    /// What it was asked with: it goes on from there when the model has searched the past.
    pub asked: Option<Box<Generate>>,
    /// Searches the model may still make, and those that it has asked for.
    pub recalls_left: u32,
    pub recalls: Vec<Recall>,
    /// The next item stands behind this one, of which clients do not know.
    pub behind: Option<String>,
}

/// What is being said.
#[derive(Debug)]
pub enum Open {
    Message {
        item_id: String,
        text: String,
    },
    Call {
        item_id: String,
        call_id: String,
        name: String,
        arguments: String,
    },
    /// A call that the service answers.
    Recall {
        arguments: String,
    },
}

/// Where the time of a reply went, as its clients saw it: from the request on.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTimes {
    pub first_token_ms: Option<f64>,
    pub first_sentence_ms: Option<f64>,
    pub total_ms: f64,
}

impl Reply {
    /// What was sent and the store was not given.
    pub fn unstored(&self) -> &str {
        match &self.open {
            Some(Open::Message { text, .. }) => text.get(self.stored..self.sent).unwrap_or_default(),
            _ => "",
        }
    }

    pub fn open_item_id(&self) -> Option<&str> {
        match self.open.as_ref()? {
            Open::Message { item_id, .. } | Open::Call { item_id, .. } => Some(item_id.as_str()),
            Open::Recall { .. } => None,
        }
    }

    pub fn is_saying(&self, item_id: &str) -> bool {
        self.open_item_id() == Some(item_id)
    }

    /// The open item as it would be if it ended here.
    pub fn item_so_far(&self) -> Option<Item> {
        Some(match self.open.as_ref()? {
            Open::Message { item_id, text, .. } => {
                Item::new(item_id, ItemBody::message(Role::Assistant, text), ItemStatus::InProgress)
            }
            Open::Call { item_id, call_id, name, arguments } => call_item(item_id, call_id, name, arguments),
            Open::Recall { .. } => return None,
        })
    }

    /// The events by which a connection that comes late catches up with this reply.
    pub fn so_far(&self, conversation: &Conversation) -> Vec<Event> {
        let response_id = self.response.id.clone();
        let mut events = vec![Event::ResponseStarted { response: Box::new(self.response.clone()) }];
        let (Some(open), Some(output_index)) = (&self.open, self.outputs.checked_sub(1)) else { return events };
        let item = match open {
            Open::Message { item_id, .. } => empty_message(item_id),
            Open::Call { item_id, call_id, name, .. } => call_item(item_id, call_id, name, ""),
            Open::Recall { .. } => return events,
        };
        let item_id = item.id.clone();
        let place = self.in_conversation.then(|| conversation.placed(&item_id));
        events.push(Event::ReplyStarted { response_id: response_id.clone(), output_index, item, place });
        match open {
            Open::Message { text, .. } => {
                let (text, logprobs) = (text.clone(), Vec::new());
                events.push(Event::TextDelta { response_id, item_id, output_index, text, logprobs });
            }
            Open::Call { call_id, arguments, .. } if !arguments.is_empty() => {
                let (call_id, json) = (call_id.clone(), arguments.clone());
                events.push(Event::ArgumentsDelta { response_id, item_id, output_index, call_id, json });
            }
            Open::Call { .. } | Open::Recall { .. } => {}
        }
        events
    }

    /// The item could not be begun after all.
    pub fn forget_item(&mut self, item_id: &str) {
        if self.reserved.as_ref().is_some_and(|(reserved, _)| reserved == item_id) {
            self.reserved = None;
        }
        if self.is_saying(item_id) {
            self.open = None;
        }
        self.response.output.retain(|item| item.id != item_id);
    }

    pub fn times(&self, now: Millis) -> ReplyTimes {
        let since = |at: Millis| at.saturating_sub(self.created_at) as f64;
        ReplyTimes {
            first_token_ms: self.first_token_at.map(since),
            first_sentence_ms: self.first_sentence_at.map(since),
            total_ms: since(now),
        }
    }
}

impl Machine {
    pub(super) fn delta(&mut self, generation: GenerationId, delta: Delta, moment: &mut Moment) {
        if self.warming.running == Some(generation) {
            if delta.is_last() {
                self.warming.running = None;
            }
            return;
        }
        let Some(index) = self.replies.iter().position(|reply| reply.generation == generation) else {
            if let Delta::Done { report, .. } = delta {
                self.late_report(generation, report);
            }
            return;
        };
        let mut reply = self.replies.remove(index);
        match delta {
            Delta::Prompt { input_tokens, cached_tokens } => {
                reply.usage.input_tokens = input_tokens;
                reply.usage.cached_tokens = cached_tokens;
            }
            Delta::Reasoning { text, tokens } => {
                reply.usage.output_tokens += tokens;
                reply.usage.reasoning_tokens += tokens;
                self.tell(&reply, None, Event::ReasoningDelta { response_id: reply.response.id.clone(), text });
            }
            Delta::Text { text, tokens, sentences, logprobs } => {
                reply.usage.output_tokens += tokens;
                self.say(&mut reply, text, logprobs, moment.now);
                self.tell_sentences(&mut reply, sentences, moment.now);
            }
            Delta::CallStarted { name, .. } if self.is_recall(&reply, &name) => self.begin_recall(&mut reply),
            Delta::CallStarted { name, call_id } => self.begin_call(&mut reply, name, call_id, moment.now),
            Delta::CallArguments { json, tokens } => {
                reply.usage.output_tokens += tokens;
                self.extend_call(&mut reply, json);
            }
            Delta::Done { finish, usage, report } => {
                reply.usage = usage.unwrap_or(reply.usage);
                if matches!(finish, Finish::Stop | Finish::ToolCalls) && self.searches(&mut reply, moment) {
                    self.replies.push(reply);
                    return;
                }
                let response_id = reply.response.id.clone();
                let times = self.conclude(reply, End::of(finish), moment.now);
                if let Some(report) = report {
                    self.report(response_id, report, times);
                }
                return;
            }
            Delta::Failed(failure) => {
                self.conclude(reply, End::Failed(failure), moment.now);
                return;
            }
        }
        self.replies.push(reply);
    }

    /// Text for the user.
    fn say(&mut self, reply: &mut Reply, text: String, logprobs: Vec<TokenLogprob>, now: Millis) {
        if text.is_empty() {
            return;
        }
        if !matches!(reply.open, Some(Open::Message { .. })) {
            self.close_open(reply, ItemStatus::Completed);
            self.begin_message(reply);
        }
        reply.first_token_at.get_or_insert(now);
        let Some(Open::Message { item_id, text: all }) = &mut reply.open else { return };
        all.push_str(&text);
        let said = reply.in_conversation.then_some(all.len());
        let (response_id, item_id) = (reply.response.id.clone(), item_id.clone());
        let event = Event::TextDelta { response_id, item_id, output_index: reply.outputs - 1, text, logprobs };
        let to = self.clients.all();
        self.outbox.push(Action::Send { to, event, needs: None, if_stored: true, said }, Some(reply.generation));
    }

    fn tell_sentences(&mut self, reply: &mut Reply, sentences: Vec<Sentence>, now: Millis) {
        let Some(item_id) = reply.open_item_id().map(str::to_owned) else { return };
        for sentence in sentences.into_iter().filter(|sentence| !sentence.text.trim().is_empty()) {
            reply.first_sentence_at.get_or_insert(now);
            let (response_id, item_id) = (reply.response.id.clone(), item_id.clone());
            self.tell(reply, None, Event::SentenceDone { response_id, item_id, sentence });
        }
    }

    fn begin_message(&mut self, reply: &mut Reply) {
        let (item_id, op) = match reply.reserved.take() {
            Some((item_id, op)) => (item_id, Some(op)),
            None => {
                let item_id = self.new_item_id();
                let op = self.begin_item(reply, empty_message(&item_id), None);
                (item_id, op)
            }
        };
        self.announce_item(reply, empty_message(&item_id), op);
        reply.open = Some(Open::Message { item_id, text: String::new() });
    }

    fn begin_call(&mut self, reply: &mut Reply, name: String, call_id: Option<String>, now: Millis) {
        self.close_open(reply, ItemStatus::Completed);
        reply.first_token_at.get_or_insert(now);
        let item_id = self.new_item_id();
        let call_id = call_id.unwrap_or_else(|| self.ids.next("call"));
        let item = call_item(&item_id, &call_id, &name, "");
        // No message came first: the call has its place.
        let before = reply.reserved.take().and_then(|(reserved, _)| self.withdraw(reply.generation, reserved));
        let op = self.begin_item(reply, item.clone(), before);
        self.announce_item(reply, item, op);
        reply.open = Some(Open::Call { item_id, call_id, name, arguments: String::new() });
    }

    fn extend_call(&mut self, reply: &mut Reply, json: String) {
        if let Some(Open::Recall { arguments }) = &mut reply.open {
            return arguments.push_str(&json);
        }
        let Some(Open::Call { item_id, call_id, arguments, .. }) = &mut reply.open else { return };
        if json.is_empty() {
            return;
        }
        arguments.push_str(&json);
        let (item_id, call_id) = (item_id.clone(), call_id.clone());
        let (response_id, output_index) = (reply.response.id.clone(), reply.outputs - 1);
        self.tell(reply, None, Event::ArgumentsDelta { response_id, item_id, output_index, call_id, json });
    }

    /// Gives a new item of the reply its place: `before` says what it was asked to stand behind, else it stands behind
    /// the item of the reply before it, or at the end.
    fn begin_item(&mut self, reply: &mut Reply, item: Item, before: Option<Option<String>>) -> Option<OpId> {
        if !reply.in_conversation {
            return None;
        }
        let last = reply.response.output.iter().rev().find(|item| self.conversation.has(&item.id));
        let before = before.or_else(|| reply.behind.clone().map(Some));
        let place = match (before, last) {
            (Some(None), _) => ItemPlace::Head,
            (Some(Some(id)), _) => ItemPlace::After(id),
            (None, Some(last)) => ItemPlace::After(last.id.clone()),
            (None, None) => ItemPlace::End,
        };
        let after = self.conversation.insert(item.clone(), false, &place);
        let undo = Undo::Begun(reply.generation, item.id.clone());
        let op = StoreOp::ReplyBegun { response_id: reply.response.id.clone(), item, after };
        reply.behind = None;
        Some(self.queue_operation(op, Operation::own(undo), false, Some(reply.generation)))
    }

    fn announce_item(&mut self, reply: &mut Reply, item: Item, op: Option<OpId>) {
        let output_index = reply.outputs;
        reply.outputs += 1;
        if reply.in_conversation {
            self.conversation.announce(&item.id);
        }
        let place = reply.in_conversation.then(|| self.conversation.placed(&item.id));
        let response_id = reply.response.id.clone();
        self.tell(reply, op, Event::ReplyStarted { response_id, output_index, item, place });
    }

    /// The open item is over.
    pub(super) fn close_open(&mut self, reply: &mut Reply, status: ItemStatus) {
        (reply.sent, reply.stored, reply.storing) = (0, 0, None);
        match reply.open.take() {
            None => {}
            Some(Open::Message { item_id, text }) => self.close_message(reply, item_id, text, status),
            Some(Open::Call { item_id, call_id, name, arguments }) if status == ItemStatus::Completed => {
                self.close_call(reply, item_id, call_id, name, arguments);
            }
            Some(Open::Recall { arguments }) if status == ItemStatus::Completed => {
                reply.recalls.push(Recall::new(&mut self.ids, arguments));
            }
            Some(Open::Recall { .. }) => {}
            // Half a call must not be made: clients act on a call that is done, so this one never was.
            Some(Open::Call { item_id, .. }) => self.take_call_back(reply, item_id),
        }
    }

    fn close_message(&mut self, reply: &mut Reply, item_id: String, text: String, status: ItemStatus) {
        let (response_id, output_index) = (reply.response.id.clone(), reply.outputs - 1);
        let done = Event::TextDone { response_id, item_id: item_id.clone(), output_index, text: text.clone() };
        self.tell(reply, None, done);
        let item = Item::new(item_id, ItemBody::message(Role::Assistant, text), status);
        self.finish_item(reply, item);
    }

    fn close_call(&mut self, reply: &mut Reply, item_id: String, call_id: String, name: String, arguments: String) {
        let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
        let mut item = call_item(&item_id, &call_id, &name, &arguments);
        item.status = ItemStatus::Completed;
        self.finish_item(reply, item);
    }

    /// The item is stored before clients hear that it is complete: they act on a call then.
    fn finish_item(&mut self, reply: &mut Reply, item: Item) {
        let op = reply.in_conversation.then(|| {
            self.conversation.replace(Arc::new(item.clone()));
            let op = StoreOp::ReplyFinished { item: item.clone() };
            self.queue_operation(op, Operation::own(Undo::Reply(reply.generation)), true, Some(reply.generation))
        });
        let place = reply.in_conversation.then(|| self.conversation.placed(&item.id));
        let (response_id, output_index) = (reply.response.id.clone(), reply.outputs - 1);
        self.tell(reply, op, Event::ReplyDone { response_id, output_index, item: item.clone(), place });
        reply.response.output.push(item);
    }

    fn take_call_back(&mut self, reply: &Reply, item_id: String) {
        if reply.in_conversation {
            self.conversation.remove(&item_id);
            let op = StoreOp::ReplyWithdrawn { item_id: item_id.clone() };
            let op = self.queue_operation(op, Operation::own(Undo::Nothing), false, Some(reply.generation));
            self.tell(reply, Some(op), Event::ItemDeleted { item_id });
        }
    }

    /// Gives up a place that was taken for a reply; returns what stood before it.
    pub(super) fn withdraw(&mut self, generation: GenerationId, item_id: String) -> Option<Option<String>> {
        let before = self.conversation.remove(&item_id)?.before;
        let op = StoreOp::ReplyWithdrawn { item_id };
        self.queue_operation(op, Operation::own(Undo::Nothing), false, Some(generation));
        Some(before)
    }

    pub(super) fn tell(&mut self, reply: &Reply, needs: Option<OpId>, event: Event) {
        let to = self.clients.all();
        self.outbox.push(Action::Send { to, event, needs, if_stored: true, said: None }, Some(reply.generation));
    }
}

pub fn empty_message(item_id: &str) -> Item {
    let body = ItemBody::Message { role: Role::Assistant, parts: Vec::new() };
    Item::new(item_id, body, ItemStatus::InProgress)
}

fn call_item(item_id: &str, call_id: &str, name: &str, arguments: &str) -> Item {
    let body =
        ItemBody::FunctionCall { call_id: call_id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
    Item::new(item_id, body, ItemStatus::InProgress)
}
