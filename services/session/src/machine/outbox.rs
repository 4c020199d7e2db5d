//! What is to be sent and stored, in one order, with events held back until the store has what they promise.

use super::conversation::Removed;
use super::happening::{ConnId, OpId};
use super::output::{CloseReason, Output, StoreOp};
use crate::vocabulary::{Event, Item, ItemBody, ItemStatus, Refusal, Response, SessionConfig};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct Outbox {
    clients: Vec<ConnId>,
    /// What waits for nothing.
    urgent: Vec<Output>,
    steps: VecDeque<Step>,
    /// Operations that the store has not answered, issued or not.
    pub operations: BTreeMap<OpId, Operation>,
    operation_count: u64,
    /// Of each reply whose end the store does not have.
    said: BTreeMap<String, SaidBytes>,
    /// Words that are being written down, and their place in the reply: the item, and where they end.
    writing: Option<(String, usize)>,
}

/// Of the text of a reply.
#[derive(Clone, Copy, Debug, Default)]
struct SaidBytes {
    written: usize,
    sent: usize,
}

/// Words that could not be written down, and that no client hears.
pub struct Unsaid {
    pub response_id: String,
    pub item_id: String,
    /// So much of the item was sent.
    pub sent_bytes: usize,
}

/// The client that asked, and its own id of that: a refusal is told to it.
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

/// How the machine's state follows when the store cannot.
#[derive(Clone, Debug)]
pub enum Undo {
    Config(Arc<SessionConfig>),
    Added(String),
    /// The item as it was before, and how much of it was heard.
    Truncated {
        item: Arc<Item>,
        part: usize,
        heard_chars: usize,
    },
    Deleted(Removed),
    /// An item of a reply could not be begun.
    Begun {
        response_id: String,
        item_id: String,
    },
    /// So many bytes were sent and are not stored: with the next ones, then.
    Extended {
        response_id: String,
        bytes: usize,
    },
    /// The item of a reply that was to go on; as it was before.
    Resumed {
        response_id: String,
        item: Arc<Item>,
    },
    /// Something else about a reply.
    Reply {
        response_id: String,
    },
    /// Nothing depends on it.
    Nothing,
}

#[derive(Clone, Debug)]
enum Step {
    Send {
        to: Vec<ConnId>,
        event: Event,
        /// The operation that must be answered before.
        needs: Option<OpId>,
        /// Not said at all if that operation fails.
        if_stored: bool,
        /// With this, so many bytes of the reply's text are said: the store is to learn of it.
        said: Option<usize>,
    },
    /// The end of a reply only when everything before it was sent; else as soon as the operations before it are issued.
    Store {
        id: OpId,
        op: StoreOp,
        issued: bool,
    },
    Close {
        conn: ConnId,
    },
}

/// What became of replies when steps were let out.
#[derive(Clone, Debug)]
pub enum Said {
    /// So many bytes of the item's text have been sent.
    Bytes { item_id: String, bytes: usize },
    /// The item is over, and less of it was sent than the reply had: its clients had left.
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

    /// Nothing more is for the connection. Whether it was the last.
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

    /// Closes a connection behind what waits for it, because the service stops.
    pub fn close(&mut self, conn: ConnId) {
        self.steps.push_back(Step::Close { conn });
    }

    pub fn close_all(&mut self) {
        self.steps.extend(self.clients.iter().map(|&conn| Step::Close { conn }));
    }

    /// Closes all connections at once, because the store does not answer.
    pub fn drop_clients(&mut self) {
        let close = |conn| Output::Close { conn, reason: CloseReason::StoreStalled };
        self.urgent.extend(std::mem::take(&mut self.clients).into_iter().map(close));
    }

    pub fn at_once(&mut self, output: Output) {
        self.urgent.push(output);
    }

    /// To all clients.
    pub fn send(&mut self, event: Event) {
        self.send_after(None, event);
    }

    /// To all clients, once the store has answered `needs`.
    pub fn send_after(&mut self, needs: Option<OpId>, event: Event) {
        let to = self.clients.clone();
        self.steps.push_back(Step::Send { to, event, needs, if_stored: true, said: None });
    }

    /// To all clients, once the store has answered `op`, which is owed to it if it cannot.
    pub fn send_behind(&mut self, op: OpId, event: Event) {
        let to = self.clients.clone();
        self.steps.push_back(Step::Send { to, event, needs: Some(op), if_stored: false, said: None });
    }

    pub fn send_to(&mut self, conn: ConnId, event: Event) {
        if self.has(conn) {
            self.steps.push_back(Step::Send { to: vec![conn], event, needs: None, if_stored: true, said: None });
        }
    }

    /// Text of a reply, to all clients.
    pub fn say(&mut self, event: Event, said: Option<usize>) {
        let to = self.clients.clone();
        self.steps.push_back(Step::Send { to, event, needs: None, if_stored: true, said });
    }

    /// What was told before the connection came. Others may have left before the store answered, and their events with
    /// them: so it waits for the newest operation.
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

    /// Whether the store has not answered yet that this item of a reply is begun.
    pub fn begins(&self, id: &str) -> bool {
        let begins = |operation: &Operation| matches!(&operation.undo, Undo::Begun { item_id, .. } if item_id == id);
        self.operations.values().any(begins)
    }

    /// Lets out what may go, and returns what of a reply was sent with it.
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
                        // A client that comes in the middle of a reply hears again what others have heard.
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
                        // What was heard of it was sent before.
                        let bytes = item.text().len();
                        self.said.insert(item.id.clone(), SaidBytes { written: bytes, sent: bytes });
                    }
                    if issued {
                        continue;
                    }
                    if let StoreOp::ReplyFinished { item } = &mut op {
                        let bytes = self.said.remove(&item.id).map_or(0, |said| said.sent);
                        if item.shorten(bytes) {
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

    /// The words that were let out last are written down: now they may be sent.
    pub fn words_written(&mut self) {
        if let Some((item_id, bytes)) = self.writing.take() {
            self.said.entry(item_id).or_default().written = bytes;
        }
    }

    /// The words that were let out last could not be written down: they are not sent, nor what the reply says behind them. None:
    /// no client waits for them.
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

    /// What waits to be told and stored of the item goes by what was sent of it. Returns how it is in the end. None: it was
    /// deleted, or goes on.
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

    /// The last client has left: only what is to be stored is left. Returns the calls that no client was told to make.
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
                // Another item may stand under its id.
                Step::Store { op: StoreOp::ItemDeleted { item_id }, .. } => calls.retain(|call| call.id != *item_id),
                Step::Store { .. } | Step::Send { .. } | Step::Close { .. } => {}
            }
        }
        self.steps.retain(|step| matches!(step, Step::Store { .. }));
        calls
    }

    /// The operation failed: what only it would have made true is not said. That a response is over is said all the same.
    pub fn unsay(&mut self, op: OpId) {
        self.steps.retain(|step| match step {
            Step::Send { event: Event::ResponseDone { .. }, .. } => true,
            Step::Send { needs, if_stored: true, .. } => *needs != Some(op),
            _ => true,
        });
    }

    /// No client learns of the item that `op` was to make.
    pub fn unsay_item(&mut self, op: OpId, id: &str) {
        self.retain_of(
            op,
            id,
            |step| !matches!(step, Step::Send { event: Event::ItemAdded { item, .. }, .. } if item.id == id),
        );
    }

    /// `op` was to begin the item of a reply, or to go on with it: nothing of that is told or stored. What clients did to the
    /// item has its own answer.
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

    /// Of the steps behind `op`, up to those of another item under the same id, or of a reply that goes on with it.
    fn retain_of(&mut self, op: OpId, item_id: &str, mut stays: impl FnMut(&Step) -> bool) {
        let at = |op: OpId| self.steps.iter().position(|step| matches!(step, Step::Store { id, .. } if *id == op));
        let begin = at(op).map_or(0, |at| at + 1);
        let next = self.operations.range(op..).find(|(id, later)| **id > op && later.undo.makes(item_id));
        // What was let out stands in no step.
        let end = next.map_or(self.steps.len(), |(next, _)| at(*next).unwrap_or(begin));
        let mut number = 0;
        self.steps.retain(|step| {
            number += 1;
            !(begin..end).contains(&(number - 1)) || stays(step)
        });
    }

    /// What was heard of an item is less than the client said: `op` cuts it to this.
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

    /// The end of a response that waits to be told; from now on it waits for no operation.
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
    /// Whether the operation makes an item under this id, or goes on with it as another reply's.
    pub fn makes(&self, id: &str) -> bool {
        match self {
            Undo::Added(item_id) | Undo::Begun { item_id, .. } => item_id == id,
            Undo::Resumed { item, .. } => item.id == id,
            _ => false,
        }
    }
}
