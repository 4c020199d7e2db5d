//! Events and operations in one order; an event waits until the store has what it promises.

use super::conversation::Removed;
use super::input::{ConnId, OpId};
use super::output::{CloseReason, Output, StoreOp};
use crate::vocabulary::{Event, Item, ItemBody, ItemStatus, Refusal, Response, SessionConfig};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct Outbox {
    clients: Vec<ConnId>,
    urgent: Vec<Output>,
    steps: VecDeque<Step>,
    pub operations: BTreeMap<OpId, Operation>,
    operation_count: u64,
    said: BTreeMap<String, SaidBytes>,
    /// Words on their way to the journal: the item, and the byte at which they end.
    writing: Option<(String, usize)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SaidBytes {
    written: usize,
    sent: usize,
}

pub struct Unsaid {
    pub response_id: String,
    pub item_id: String,
    pub sent_bytes: usize,
}

/// Client that asked, and its own id of the input: a refusal goes there.
#[derive(Clone, Debug)]
pub struct Asker {
    pub conn: ConnId,
    pub input_id: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Operation {
    pub asker: Option<Asker>,
    pub undo: Undo,
}

#[derive(Clone, Debug)]
pub enum Undo {
    Config(Arc<SessionConfig>),
    Added(String),
    Truncated {
        item: Arc<Item>,
        part: usize,
        heard_chars: usize,
    },
    Deleted(Removed),
    Begun {
        response_id: String,
        item_id: String,
    },
    /// Bytes that were sent and are not stored: they go with the next ones.
    Extended {
        response_id: String,
        bytes: usize,
    },
    Resumed {
        response_id: String,
        item: Arc<Item>,
    },
    Reply {
        response_id: String,
    },
    Nothing,
}

#[derive(Clone, Debug)]
enum Step {
    Send {
        to: Vec<ConnId>,
        event: Event,
        needs: Option<OpId>,
        /// True if the event is dropped when that operation fails.
        if_stored: bool,
        /// Bytes of the reply's text up to this event: the store will get them.
        said: Option<usize>,
    },
    /// The end of a reply leaves when everything before it was sent; any other operation once those before it are
    /// issued.
    Store {
        id: OpId,
        op: StoreOp,
        issued: bool,
    },
    Close {
        conn: ConnId,
    },
}

#[derive(Clone, Debug)]
pub enum Said {
    Bytes {
        item_id: String,
        bytes: usize,
    },
    /// Item that ended with less text than the reply had: its clients had left.
    Less(Item),
}

impl Outbox {
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    pub fn is_settled(&self) -> bool {
        self.steps.is_empty() && self.operations.is_empty()
    }

    pub fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    pub fn has(&self, conn: ConnId) -> bool {
        self.clients.contains(&conn)
    }

    pub fn attach(&mut self, conn: ConnId) {
        self.clients.retain(|other| *other != conn);
        self.clients.push(conn);
    }

    pub fn detach(&mut self, conn: ConnId) -> bool {
        for step in &mut self.steps {
            if let Step::Send { to, .. } = step {
                to.retain(|&other| other != conn);
            }
        }
        self.steps.retain(|step| !matches!(step, Step::Close { conn: other } if *other == conn));
        let was_there = self.has(conn);
        self.clients.retain(|other| *other != conn);
        was_there && self.clients.is_empty()
    }

    /// Lists the items of replies whose end waits to be sent.
    pub fn untold_ends(&self) -> Vec<String> {
        let end = |step: &Step| match step {
            Step::Send { event: Event::ReplyDone { item, .. }, .. } => Some(item.id.clone()),
            _ => None,
        };
        self.steps.iter().filter_map(end).collect()
    }

    pub fn close(&mut self, conn: ConnId) {
        self.steps.push_back(Step::Close { conn });
    }

    pub fn close_all(&mut self) {
        self.steps.extend(self.clients.iter().map(|&conn| Step::Close { conn }));
    }

    pub fn drop_clients(&mut self) {
        let close = |conn| Output::Close { conn, reason: CloseReason::StoreStalled };
        self.urgent.extend(std::mem::take(&mut self.clients).into_iter().map(close));
    }

    pub fn at_once(&mut self, output: Output) {
        self.urgent.push(output);
    }

    pub fn send(&mut self, event: Event) {
        self.send_after(None, event);
    }

    /// Sends to all clients after the store has answered `needs`; a failure drops the event.
    pub fn send_after(&mut self, needs: Option<OpId>, event: Event) {
        let to = self.clients.clone();
        self.steps.push_back(Step::Send { to, event, needs, if_stored: true, said: None });
    }

    /// Sends to all clients after the store has answered `op`, even if it failed.
    pub fn send_behind(&mut self, op: OpId, event: Event) {
        let to = self.clients.clone();
        self.steps.push_back(Step::Send { to, event, needs: Some(op), if_stored: false, said: None });
    }

    pub fn send_to(&mut self, conn: ConnId, event: Event) {
        if self.has(conn) {
            self.steps.push_back(Step::Send { to: vec![conn], event, needs: None, if_stored: true, said: None });
        }
    }

    pub fn say(&mut self, event: Event, said: Option<usize>) {
        let to = self.clients.clone();
        self.steps.push_back(Step::Send { to, event, needs: None, if_stored: true, said });
    }

    /// Sends an older event to a new connection. It waits for the newest operation: other clients may have left before
    /// the store answered, and their events with them.
    pub fn replay(&mut self, conn: ConnId, event: Event, said: Option<usize>) {
        let needs = self.operations.last_key_value().map(|(op, _)| *op);
        self.steps.push_back(Step::Send { to: vec![conn], event, needs, if_stored: false, said });
    }

    pub fn refuse(&mut self, asker: Asker, refusal: Refusal) {
        self.send_to(asker.conn, Event::Refused { input_id: asker.input_id, refusal });
    }

    pub fn store(&mut self, op: StoreOp, undo: Undo) -> OpId {
        self.store_for(None, op, undo)
    }

    pub fn store_for(&mut self, asker: Option<&Asker>, op: StoreOp, undo: Undo) -> OpId {
        self.operation_count += 1;
        let id = OpId(self.operation_count);
        self.operations.insert(id, Operation { asker: asker.cloned(), undo });
        self.steps.push_back(Step::Store { id, op, issued: false });
        id
    }

    pub fn begins(&self, id: &str) -> bool {
        let begins = |operation: &Operation| matches!(&operation.undo, Undo::Begun { item_id, .. } if item_id == id);
        self.operations.values().any(begins)
    }

    pub fn flush(&mut self, out: &mut Vec<Output>) -> Vec<Said> {
        out.append(&mut self.urgent);
        let mut said = Vec::new();
        while let Some(step) = self.steps.pop_front() {
            match step {
                Step::Send { needs: Some(op), .. } if self.operations.contains_key(&op) => {
                    self.steps.push_front(step);
                    break;
                }
                Step::Send { to, .. } if to.is_empty() => {}
                Step::Send { said: Some(bytes), event: Event::TextDelta { ref item_id, ref text, .. }, .. }
                    if self.said.entry(item_id.clone()).or_default().written < bytes =>
                {
                    if self.writing.is_none() {
                        // A client that connects in the middle of a reply hears again what others have heard.
                        let new_bytes = bytes - self.said[item_id].written;
                        let new = text.get(text.len().saturating_sub(new_bytes)..).unwrap_or(text);
                        out.push(Output::Words { item_id: item_id.clone(), text: new.to_owned() });
                        self.writing = Some((item_id.clone(), bytes));
                    }
                    self.steps.push_front(step);
                    break;
                }
                Step::Send { to, event, said: bytes, .. } => {
                    if let (Some(bytes), Event::TextDelta { item_id, .. }) = (bytes, &event) {
                        let known = self.said.entry(item_id.clone()).or_default();
                        known.sent = known.sent.max(bytes);
                        said.push(Said::Bytes { item_id: item_id.clone(), bytes });
                    }
                    out.push(Output::Send { to, event });
                }
                Step::Store { id, mut op, issued } => {
                    if let StoreOp::ReplyResumed { item, .. } = &op {
                        // The heard text was sent before.
                        let bytes = item.text().len();
                        self.said.insert(item.id.clone(), SaidBytes { written: bytes, sent: bytes });
                    }
                    if issued {
                        continue;
                    }
                    if let StoreOp::ReplyFinished { item } = &mut op {
                        let bytes = self.said.remove(&item.id).map_or(0, |said| said.sent);
                        if item.shorten(bytes) {
                            self.shorten_undo(id, &item.id, bytes);
                            said.extend(self.shorten_rest(item, bytes).map(Said::Less));
                        }
                    }
                    out.push(Output::Store { id, op });
                }
                Step::Close { conn } => out.push(Output::Close { conn, reason: CloseReason::Draining }),
            }
        }
        // The store need not wait for events that wait for it.
        for step in &mut self.steps {
            match step {
                Step::Store { op: StoreOp::ReplyFinished { .. }, .. } => break,
                Step::Store { id, op, issued } if !*issued => {
                    *issued = true;
                    out.push(Output::Store { id: *id, op: op.clone() });
                }
                Step::Store { .. } | Step::Send { .. } | Step::Close { .. } => {}
            }
        }
        said
    }

    pub fn words_written(&mut self) {
        if let Some((item_id, bytes)) = self.writing.take() {
            self.said.entry(item_id).or_default().written = bytes;
        }
    }

    /// Drops the words that the journal refused, and the rest of the reply behind them. `None` if no client waits for
    /// them.
    pub fn unsay_words(&mut self) -> Option<Unsaid> {
        let (item_id, _) = self.writing.take()?;
        let response_id = self.steps.iter().find_map(|step| match step {
            Step::Send { event: Event::TextDelta { response_id, item_id: of, .. }, .. } if *of == item_id => {
                Some(response_id.clone())
            }
            _ => None,
        })?;
        let sent_bytes = self.said.get(&item_id).map_or(0, |said| said.sent);
        self.steps.retain_mut(|step| match step {
            Step::Send { event, .. } => event.end_at(&response_id, &item_id, sent_bytes),
            Step::Store { .. } | Step::Close { .. } => true,
        });
        Some(Unsaid { response_id, item_id, sent_bytes })
    }

    /// Shortens all waiting events and operations of the item to the sent bytes. Returns the final item; `None` if it
    /// was deleted or resumes.
    fn shorten_rest(&mut self, item: &Item, bytes: usize) -> Option<Item> {
        let mut last = item.clone();
        for step in &mut self.steps {
            match step {
                Step::Send { event: Event::ItemAdded { item: told, .. }, .. } if told.id == item.id => {
                    told.shorten(bytes);
                }
                Step::Store { op: StoreOp::ItemTruncated { item: kept, heard_chars, .. }, issued: false, .. }
                    if kept.id == item.id =>
                {
                    kept.shorten(bytes);
                    *heard_chars = kept.text().chars().count();
                    last = kept.clone();
                }
                Step::Send { event: Event::ItemTruncated { item_id, heard_chars, .. }, .. } if *item_id == item.id => {
                    *heard_chars = last.text().chars().count().min(*heard_chars);
                }
                Step::Store { op: StoreOp::ReplyResumed { item: kept, .. }, .. } if kept.id == item.id => {
                    kept.shorten(bytes);
                    kept.status = ItemStatus::InProgress;
                    return None;
                }
                Step::Store { op: StoreOp::ItemDeleted { item_id }, .. } if *item_id == item.id => return None,
                Step::Send { .. } | Step::Store { .. } | Step::Close { .. } => {}
            }
        }
        Some(last)
    }

    /// Shortens the item that a refusal of a later operation would bring back.
    fn shorten_undo(&mut self, op: OpId, item_id: &str, bytes: usize) {
        for later in self.operations.range_mut(op..).map(|(_, later)| &mut later.undo) {
            let (item, is_last) = match later {
                Undo::Truncated { item, .. } => (item, false),
                Undo::Resumed { item, .. } => (item, true),
                Undo::Deleted(removed) => (&mut removed.entry.item, true),
                _ => continue,
            };
            if item.id == item_id {
                Arc::make_mut(item).shorten(bytes);
                if is_last {
                    return;
                }
            }
        }
    }

    pub fn forget_clients(&mut self) -> Vec<Item> {
        let is_call = |step: &Step| match step {
            Step::Send { event: Event::ReplyDone { item, .. }, .. } => match item.body {
                ItemBody::FunctionCall { .. } => Some(item.id.clone()),
                _ => None,
            },
            _ => None,
        };
        let unmade: HashSet<String> = self.steps.iter().filter_map(is_call).collect();
        let mut calls: Vec<Item> = Vec::new();
        for step in &mut self.steps {
            match step {
                Step::Store { op: StoreOp::ReplyFinished { item }, issued: false, .. } if unmade.contains(&item.id) => {
                    item.status = ItemStatus::Incomplete;
                    calls.push(item.clone());
                }
                // Another item may have its id.
                Step::Store { op: StoreOp::ItemDeleted { item_id }, .. } => calls.retain(|call| call.id != *item_id),
                Step::Store { .. } | Step::Send { .. } | Step::Close { .. } => {}
            }
        }
        self.steps.retain(|step| matches!(step, Step::Store { .. }));
        calls
    }

    /// Drops events that depend on the failed operation, except the end of a response.
    pub fn unsay(&mut self, op: OpId) {
        self.steps.retain(|step| match step {
            Step::Send { event: Event::ResponseDone { .. }, .. } => true,
            Step::Send { needs, if_stored: true, .. } => *needs != Some(op),
            _ => true,
        });
    }

    pub fn unsay_item(&mut self, op: OpId, id: &str) {
        self.retain_of(
            op,
            id,
            |step| !matches!(step, Step::Send { event: Event::ItemAdded { item, .. }, .. } if item.id == id),
        );
    }

    /// Drops the events and operations of a reply's item that `op` failed to begin or resume. Changes by clients have
    /// their own answers.
    pub fn forget_item(&mut self, op: OpId, item_id: &str) {
        let mut never = Vec::new();
        self.retain_of(op, item_id, |step| match step {
            Step::Send { event: Event::ItemTruncated { .. } | Event::ItemDeleted { .. }, needs, .. } => {
                !needs.is_some_and(|op| never.contains(&op))
            }
            Step::Send { event, .. } => !event.is_about(item_id),
            Step::Store { id, op, issued: false } if op.reply_item() == Some(item_id) => {
                never.push(*id);
                false
            }
            Step::Store { .. } | Step::Close { .. } => true,
        });
        never.iter().for_each(|op| drop(self.operations.remove(op)));
    }

    /// Filters the steps behind `op`, up to those of another item with the same id, or of a reply that resumes it.
    fn retain_of(&mut self, op: OpId, item_id: &str, mut stays: impl FnMut(&Step) -> bool) {
        let at = |op: OpId| self.steps.iter().position(|step| matches!(step, Step::Store { id, .. } if *id == op));
        let begin = at(op).map_or(0, |at| at + 1);
        let next = self.operations.range(op..).find(|(id, later)| **id > op && later.undo.makes(item_id));
        // A step that has left is no longer in the queue.
        let end = next.map_or(self.steps.len(), |(next, _)| at(*next).unwrap_or(begin));
        let mut number = 0;
        self.steps.retain(|step| {
            number += 1;
            !(begin..end).contains(&(number - 1)) || stays(step)
        });
    }

    /// Corrects the cut of `op`: the user heard less than the client said.
    pub fn cut_again(&mut self, op: OpId, cut: &Item, heard: usize) {
        for step in &mut self.steps {
            match step {
                Step::Store { id, op: StoreOp::ItemTruncated { item, heard_chars, .. }, .. } if *id == op => {
                    item.clone_from(cut);
                    *heard_chars = heard;
                }
                Step::Send { event: Event::ItemTruncated { heard_chars, .. }, needs, .. } if *needs == Some(op) => {
                    *heard_chars = heard;
                }
                Step::Store { .. } | Step::Send { .. } | Step::Close { .. } => {}
            }
        }
    }

    /// Returns the waiting end of a response; it no longer waits for an operation.
    pub fn unsaid_end(&mut self, response_id: &str) -> Option<&mut Response> {
        self.steps.iter_mut().find_map(|step| match step {
            Step::Send { event: Event::ResponseDone { response }, needs, .. } if response.id == response_id => {
                *needs = None;
                Some(&mut **response)
            }
            _ => None,
        })
    }
}

impl Undo {
    pub fn makes(&self, id: &str) -> bool {
        match self {
            Undo::Added(item_id) | Undo::Begun { item_id, .. } => item_id == id,
            Undo::Resumed { item, .. } => item.id == id,
            _ => false,
        }
    }
}
