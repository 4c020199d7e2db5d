//! A reply in progress: turns the model's deltas into events.

use super::held::HeldReply;
use super::input::{GenerationId, Millis, OpId, RecallResult};
use super::ledger::Ledger;
use super::outbox::Undo;
use super::output::{Generate, Output, StoreOp};
use super::recall::{RECALL, RECALL_CALL_ID, has_recall};
use crate::sentences::Sentence;
use crate::vocabulary::{
    Delta, Ending, Event, Item, ItemBody, ItemPlace, ItemStatus, NamedSpeaker, NoteSource, Response, ResponseStatus,
    Role, SessionConfig, TokenLogprob, ToolChoice, TurnReport, Usage,
};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Reply {
    pub generation: GenerationId,
    pub response: Response,
    pub usage: Usage,
    created_at: Millis,
    times: TurnReport,
    /// Place of the first item, reserved with the request, and its operation: so the first word waits for no disk.
    reserved: Option<(String, OpId)>,
    open: Option<Open>,
    /// Sentences of the open message that were told.
    sentences: Vec<Sentence>,
    heard_chars: usize,
    outputs: usize,
    sent: usize,
    stored: usize,
    storing: Option<OpId>,
    /// Request of the reply, to continue from after a search of the past.
    asked: Option<Box<Generate>>,
    /// Searches that the model may still make, and those that it asked for: call id and arguments.
    recalls_left: u32,
    recalls: Vec<(String, String)>,
    // True once the model was told that it may search no more.
    may_not_search: bool,
    /// Hidden item behind which the next item belongs; clients do not know it.
    behind: Option<String>,
    answers: Option<NamedSpeaker>,
    thinks_no_more: bool,
}

#[derive(Clone, Debug)]
enum Open {
    Item(Item),
    Recall(String),
}

impl Reply {
    pub fn new(generation: GenerationId, response: Response, asked: Option<Box<Generate>>, recalls: u32) -> Reply {
        Reply {
            generation,
            response,
            usage: Usage::default(),
            created_at: 0,
            times: TurnReport::default(),
            reserved: None,
            open: None,
            sentences: Vec::new(),
            heard_chars: 0,
            outputs: 0,
            sent: 0,
            stored: 0,
            storing: None,
            asked,
            recalls_left: recalls,
            recalls: Vec::new(),
            may_not_search: false,
            behind: None,
            answers: None,
            thinks_no_more: false,
        }
    }

    /// Announces the response. In a conversation it reserves the place behind the question, whatever clients add before
    /// the first word.
    pub fn start(&mut self, ledger: &mut Ledger, now: Millis) {
        self.created_at = now;
        if self.in_conversation() {
            self.answers = ledger.conversation.asker();
            let item = empty_message(&ledger.new_item_id(), &self.answers);
            let item_id = item.id.clone();
            self.reserved = Some((item_id, ledger.begin_item(&self.response.id, item, &ItemPlace::End)));
        }
        ledger.outbox.send(Event::ResponseStarted { response: Box::new(self.response.clone()) });
    }

    pub fn resume(&mut self, item: Item, ledger: &mut Ledger, now: Millis) {
        self.created_at = now;
        let (response_id, text) = (self.response.id.clone(), item.text());
        (self.sent, self.stored, self.heard_chars) = (text.len(), text.len(), text.chars().count());
        ledger.outbox.send(Event::ResponseStarted { response: Box::new(self.response.clone()) });
        if let Some(old) = ledger.conversation.replace(Arc::new(item.clone())) {
            let undo = Undo::Resumed { response_id: response_id.clone(), item: old };
            let op = StoreOp::ReplyResumed { response_id: response_id.clone(), item: item.clone() };
            ledger.outbox.store(op, undo);
        }
        let (output_index, item_begun) = (0, item.clone());
        ledger.outbox.send(Event::ReplyStarted { response_id, output_index, item: item_begun, place: None });
        (self.outputs, self.open) = (1, Some(Open::Item(item)));
    }

    pub fn hold(&self) -> Option<HeldReply> {
        let item = match &self.open {
            Some(Open::Item(item @ Item { body: ItemBody::Message { .. }, .. })) => Some(item.clone()),
            None if self.outputs == 0 && self.recalls.is_empty() && self.behind.is_none() => None,
            _ => return None,
        };
        let most_tokens = self.response.max_output_tokens;
        Some(HeldReply::stopped(self.generation, item, self.asked.clone(), self.recalls_left, most_tokens))
    }

    pub fn in_conversation(&self) -> bool {
        self.response.conversation_id.is_some()
    }

    pub fn open_item(&self) -> Option<&Item> {
        match self.open.as_ref()? {
            Open::Item(item) => Some(item),
            Open::Recall(_) => None,
        }
    }

    pub fn is_saying(&self, item_id: &str) -> bool {
        self.open_item().is_some_and(|item| item.id == item_id)
    }

    pub fn so_far(&self, ledger: &Ledger) -> Vec<Event> {
        let mut events = vec![Event::ResponseStarted { response: Box::new(self.response.clone()) }];
        let (Some(item), Some(output_index)) = (self.open_item(), self.outputs.checked_sub(1)) else { return events };
        let (response_id, item_id) = (self.response.id.clone(), item.id.clone());
        let mut empty = item.clone();
        match &mut empty.body {
            ItemBody::Message { parts, .. } => parts.clear(),
            ItemBody::FunctionCall { arguments, .. } => arguments.clear(),
            ItemBody::FunctionCallOutput { .. } => {}
        }
        let place = self.in_conversation().then(|| ledger.conversation.placed(&item_id));
        let started = Event::ReplyStarted { response_id: response_id.clone(), output_index, item: empty, place };
        events.push(started);
        match &item.body {
            ItemBody::Message { parts, .. } => {
                let (text, logprobs) = (parts.concat(), Vec::new());
                let (response, item) = (response_id.clone(), item_id.clone());
                events.push(Event::TextDelta { response_id, item_id, output_index, text, logprobs });
                events.extend(self.sentences.iter().map(|sentence| Event::SentenceDone {
                    response_id: response.clone(),
                    item_id: item.clone(),
                    sentence: sentence.clone(),
                }));
            }
            ItemBody::FunctionCall { call_id, arguments, .. } if !arguments.is_empty() => {
                let (call_id, json) = (call_id.clone(), arguments.clone());
                events.push(Event::ArgumentsDelta { response_id, item_id, output_index, call_id, json });
            }
            ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => {}
        }
        events
    }

    pub fn delta(&mut self, delta: Delta, ledger: &mut Ledger, now: Millis) {
        match delta {
            Delta::Prompt { input_tokens, cached_tokens } => {
                (self.usage.input_tokens, self.usage.cached_tokens) = (input_tokens, cached_tokens);
            }
            Delta::PromptTokens(tokens) => {
                ledger.outbox.send(Event::PromptTokens { response_id: self.response.id.clone(), tokens });
            }
            Delta::Reasoning { text, tokens } => {
                self.usage.output_tokens += tokens;
                self.usage.reasoning_tokens += tokens;
                ledger.outbox.send(Event::ReasoningDelta { response_id: self.response.id.clone(), text });
            }
            Delta::Text { text, tokens, sentences, logprobs } => {
                self.usage.output_tokens += tokens;
                self.say(text, logprobs, ledger, now);
                self.tell_sentences(sentences, ledger, now);
            }
            Delta::CallStarted { name, .. } if self.is_recall(&name, ledger) => {
                self.close_open(ItemStatus::Completed, ledger);
                self.open = Some(Open::Recall(String::new()));
            }
            Delta::CallStarted { name, call_id } => self.begin_call(name, call_id, ledger, now),
            Delta::CallArguments { json, tokens } => {
                self.usage.output_tokens += tokens;
                self.extend_call(json, ledger);
            }
            Delta::Done { .. } | Delta::Failed(_) => {}
        }
    }

    /// Asks the model to answer now, also after a search of the past.
    pub fn stop_thinking(&mut self, ledger: &mut Ledger) {
        self.thinks_no_more = true;
        ledger.outbox.at_once(Output::StopThinking { generation: self.generation });
        ledger.outbox.send(Event::ThinkingStopped { response_id: self.response.id.clone() });
    }

    fn since(&self, now: Millis) -> f64 {
        now.saturating_sub(self.created_at) as f64
    }

    fn say(&mut self, text: String, logprobs: Vec<TokenLogprob>, ledger: &mut Ledger, now: Millis) {
        if text.is_empty() && logprobs.is_empty() {
            return;
        }
        if !self.open_item().is_some_and(|item| matches!(item.body, ItemBody::Message { .. })) {
            self.close_open(ItemStatus::Completed, ledger);
            self.begin_message(ledger);
        }
        self.times.first_token_ms.get_or_insert(self.since(now));
        let is_kept = self.in_conversation();
        let Some(Open::Item(Item { id, body: ItemBody::Message { parts, .. }, .. })) = &mut self.open else { return };
        let Some(all) = parts.first_mut() else { return };
        all.push_str(&text);
        let said = is_kept.then_some(all.len());
        let (response_id, item_id, output_index) = (self.response.id.clone(), id.clone(), self.outputs - 1);
        ledger.outbox.say(Event::TextDelta { response_id, item_id, output_index, text, logprobs }, said);
    }

    fn tell_sentences(&mut self, sentences: Vec<Sentence>, ledger: &mut Ledger, now: Millis) {
        let Some(item_id) = self.open_item().map(|item| item.id.clone()) else { return };
        for mut sentence in sentences {
            sentence.text_start += self.heard_chars;
            sentence.text_end += self.heard_chars;
            self.times.first_sentence_ms.get_or_insert(self.since(now));
            self.sentences.push(sentence.clone());
            let (response_id, item_id) = (self.response.id.clone(), item_id.clone());
            ledger.outbox.send(Event::SentenceDone { response_id, item_id, sentence });
        }
    }

    fn begin_message(&mut self, ledger: &mut Ledger) {
        let (mut item, op) = match self.reserved.take() {
            Some((item_id, op)) => (empty_message(&item_id, &self.answers), Some(op)),
            None => {
                let item = empty_message(&ledger.new_item_id(), &self.answers);
                let op = self.begin_item(item.clone(), None, ledger);
                (item, op)
            }
        };
        self.announce_item(item.clone(), op, ledger);
        if let ItemBody::Message { parts, .. } = &mut item.body {
            parts.push(String::new());
        }
        self.open = Some(Open::Item(item));
    }

    fn begin_call(&mut self, name: String, call_id: Option<String>, ledger: &mut Ledger, now: Millis) {
        self.close_open(ItemStatus::Completed, ledger);
        self.times.first_token_ms.get_or_insert(self.since(now));
        let item_id = ledger.new_item_id();
        let call_id = call_id.unwrap_or_else(|| ledger.ids.next("call"));
        let body = ItemBody::FunctionCall { call_id, name, arguments: String::new() };
        let item = Item::new(item_id, body, ItemStatus::InProgress);
        // There was no message, so the call takes its place.
        let before = self.reserved.take().and_then(|(reserved, _)| ledger.withdraw(&reserved));
        let op = self.begin_item(item.clone(), before.map(|(before, _)| before), ledger);
        self.announce_item(item.clone(), op, ledger);
        self.open = Some(Open::Item(item));
    }

    fn extend_call(&mut self, json: String, ledger: &mut Ledger) {
        let (item_id, call_id) = match &mut self.open {
            Some(Open::Recall(arguments)) => return arguments.push_str(&json),
            Some(Open::Item(Item { id, body: ItemBody::FunctionCall { call_id, arguments, .. }, .. }))
                if !json.is_empty() =>
            {
                arguments.push_str(&json);
                (id.clone(), call_id.clone())
            }
            _ => return,
        };
        let (response_id, output_index) = (self.response.id.clone(), self.outputs - 1);
        ledger.outbox.send(Event::ArgumentsDelta { response_id, item_id, output_index, call_id, json });
    }

    /// Inserts a new item of the reply: behind `before` if given, else behind the reply's last item, or at the end.
    fn begin_item(&mut self, item: Item, before: Option<Option<String>>, ledger: &mut Ledger) -> Option<OpId> {
        if !self.in_conversation() {
            return None;
        }
        let last = self.response.output.iter().rev().find(|item| ledger.conversation.has(&item.id));
        let place = match (before.or_else(|| self.behind.take().map(Some)), last) {
            (Some(None), _) => ItemPlace::Head,
            (Some(Some(id)), _) => ItemPlace::After(id),
            (None, Some(last)) => ItemPlace::After(last.id.clone()),
            (None, None) => ItemPlace::End,
        };
        self.behind = None;
        Some(ledger.begin_item(&self.response.id, item, &place))
    }

    fn announce_item(&mut self, item: Item, op: Option<OpId>, ledger: &mut Ledger) {
        let output_index = self.outputs;
        self.outputs += 1;
        let place = self.in_conversation().then(|| {
            ledger.conversation.announce(&item.id);
            ledger.conversation.placed(&item.id)
        });
        let response_id = self.response.id.clone();
        ledger.outbox.send_after(op, Event::ReplyStarted { response_id, output_index, item, place });
    }

    fn close_open(&mut self, status: ItemStatus, ledger: &mut Ledger) {
        (self.sent, self.stored, self.storing) = (0, 0, None);
        self.heard_chars = 0;
        self.sentences.clear();
        let is_whole = status == ItemStatus::Completed;
        let mut item = match self.open.take() {
            Some(Open::Item(item)) => item,
            Some(Open::Recall(arguments)) if is_whole => {
                let call_id = ledger.ids.next(RECALL_CALL_ID.trim_end_matches('_'));
                return self.recalls.push((call_id, arguments));
            }
            Some(Open::Recall(_)) | None => return,
        };
        let (response_id, output_index) = (self.response.id.clone(), self.outputs - 1);
        match &mut item.body {
            // Clients act on a complete call, so half a call is withdrawn.
            ItemBody::FunctionCall { .. } if !is_whole => {
                if self.in_conversation()
                    && let Some((_, op)) = ledger.withdraw(&item.id)
                {
                    ledger.outbox.send_behind(op, Event::ItemDeleted { item_id: item.id });
                }
                return;
            }
            ItemBody::FunctionCall { arguments, .. } if arguments.trim().is_empty() => *arguments = "{}".to_owned(),
            ItemBody::Message { parts, .. } => {
                let (response_id, item_id, text) = (response_id.clone(), item.id.clone(), parts.concat());
                ledger.outbox.send(Event::TextDone { response_id, item_id, output_index, text });
            }
            ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => {}
        }
        item.status = status;
        // The store gets the item before clients hear that it is complete: they act on a call then.
        let op = self.in_conversation().then(|| {
            ledger.conversation.replace(Arc::new(item.clone()));
            ledger.outbox.store(StoreOp::ReplyFinished { item: item.clone() }, self.undo())
        });
        let place = self.in_conversation().then(|| ledger.conversation.placed(&item.id));
        ledger.outbox.send_after(op, Event::ReplyDone { response_id, output_index, item: item.clone(), place });
        self.response.output.push(item);
    }

    pub fn undo(&self) -> Undo {
        Undo::Reply { response_id: self.response.id.clone() }
    }

    pub fn conclude(&mut self, (status, details): Ending, ledger: &mut Ledger, now: Millis) -> TurnReport {
        let is_whole = status == ResponseStatus::Completed;
        self.close_open(if is_whole { ItemStatus::Completed } else { ItemStatus::Incomplete }, ledger);
        if let Some((item_id, _)) = self.reserved.take() {
            ledger.withdraw(&item_id);
        }
        (self.response.status, self.response.details) = (status, details.clone());
        self.response.usage = Some(self.usage);
        let response_id = self.response.id.clone();
        let op = StoreOp::ResponseFinished { response_id, status, details, usage: self.usage };
        let op = ledger.outbox.store(op, self.undo());
        ledger.outbox.send_after(Some(op), Event::ResponseDone { response: Box::new(self.response.clone()) });
        TurnReport { total_ms: self.since(now), expects_answer: self.response.expects_answer(), ..self.times.clone() }
    }

    /// Gives the store the bytes of the open message that were sent. One operation at a time; later words go with the
    /// next.
    pub fn said(&mut self, bytes: usize, ledger: &mut Ledger) {
        self.sent = self.sent.max(bytes);
        let Some(Open::Item(Item { id, body: ItemBody::Message { parts, .. }, .. })) = &self.open else { return };
        let text = parts.first().and_then(|text| text.get(self.stored..self.sent)).unwrap_or_default();
        if self.storing.is_some() || text.is_empty() {
            return;
        }
        let undo = Undo::Extended { response_id: self.response.id.clone(), bytes: text.len() };
        let op = StoreOp::ReplyExtended { item_id: id.clone(), text: text.to_owned() };
        (self.stored, self.storing) = (self.sent, Some(ledger.outbox.store(op, undo)));
    }

    pub fn extended(&mut self, op: OpId, lost_bytes: usize) {
        if self.storing == Some(op) {
            (self.storing, self.stored) = (None, self.stored.saturating_sub(lost_bytes));
        }
    }

    pub fn cut_off(&mut self, item_id: &str, bytes: usize) {
        if let Some(Open::Item(item)) =
            self.open.as_mut().filter(|open| matches!(open, Open::Item(item) if item.id == item_id))
        {
            item.shorten(bytes);
        }
        self.response.end_at(item_id, bytes);
    }

    pub fn forget_item(&mut self, item_id: &str) {
        self.reserved.take_if(|(reserved, _)| reserved == item_id);
        if self.is_saying(item_id) {
            self.open = None;
        }
        self.response.output.retain(|item| item.id != item_id);
    }

    fn is_recall(&self, name: &str, ledger: &Ledger) -> bool {
        let asked = self.asked.as_ref().filter(|_| self.recalls_left > 0 || !self.may_not_search);
        name == RECALL && asked.is_some_and(|asked| has_recall(&asked.config, ledger.conversation.context()))
    }

    pub fn searches(&mut self, ledger: &mut Ledger) -> bool {
        if !matches!(self.open, Some(Open::Recall(_))) && self.recalls.is_empty() {
            return false;
        }
        self.close_open(ItemStatus::Completed, ledger);
        let is_call = |item: &Item| matches!(item.body, ItemBody::FunctionCall { .. });
        // The client answers the other calls first; then the model may search again.
        if self.response.output.iter().any(is_call) {
            return false;
        }
        self.behind = match self.reserved.take() {
            Some((reserved, _)) => ledger.withdraw(&reserved).and_then(|(before, _)| before),
            None => self.response.output.last().map(|item| item.id.clone()),
        };
        for (call_id, arguments) in self.recalls.clone() {
            let call = ItemBody::FunctionCall { call_id, name: RECALL.to_owned(), arguments };
            self.add_hidden(call, Vec::new(), ledger);
        }
        self.may_not_search = self.recalls_left == 0;
        let may_search = |_: &&(String, String)| !self.may_not_search;
        let arguments = self.recalls.iter().filter(may_search).map(|(_, arguments)| arguments.clone()).collect();
        let shown = self.asked.as_ref().map(|asked| asked.items.clone()).unwrap_or_default();
        ledger.outbox.at_once(Output::Recall { generation: self.generation, arguments, shown });
        true
    }

    pub fn recalled(&mut self, results: Vec<RecallResult>, ledger: &mut Ledger) {
        let mut results = results.into_iter();
        for (call_id, _) in std::mem::take(&mut self.recalls) {
            let none = || RecallResult { text: NO_MORE.to_owned(), ..RecallResult::default() };
            let RecallResult { query, text, places, sources } = results.next().unwrap_or_else(none);
            self.add_hidden(ItemBody::FunctionCallOutput { call_id, output: text }, sources, ledger);
            let response_id = self.response.id.clone();
            ledger.outbox.send(Event::RecallDone { response_id, query, places, note: None });
        }
        self.recalls_left = self.recalls_left.saturating_sub(1);
        if let Some(asked) = &mut self.asked {
            asked.context = ledger.conversation.context().clone();
            asked.items = ledger.conversation.snapshot();
            // A client's tools may still be called, until the model asks for one search more. They stay in the prompt, which
            // would change without them.
            if self.recalls_left == 0 && (self.may_not_search || asked.config.tools.is_empty()) {
                let config = SessionConfig { tool_choice: ToolChoice::None, ..SessionConfig::clone(&asked.config) };
                asked.config = Arc::new(config);
            }
            ledger.outbox.at_once(Output::Generate(asked.clone()));
            if self.thinks_no_more {
                ledger.outbox.at_once(Output::StopThinking { generation: self.generation });
            }
        }
    }

    fn add_hidden(&mut self, body: ItemBody, sources: Vec<NoteSource>, ledger: &mut Ledger) {
        let place = self.behind.take().map_or(ItemPlace::End, ItemPlace::After);
        self.behind = Some(ledger.add_hidden(body, &place, sources));
    }
}

const NO_MORE: &str = "No more can be searched for this reply.";

fn empty_message(item_id: &str, answers: &Option<NamedSpeaker>) -> Item {
    let body = ItemBody::Message { role: Role::Assistant, parts: Vec::new(), speaker: answers.clone() };
    Item::new(item_id, body, ItemStatus::InProgress)
}
