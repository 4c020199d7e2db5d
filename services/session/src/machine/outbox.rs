//! What is to be sent and stored, in one order, with events held back until the store has what they promise.

use super::happening::{ConnId, GenerationId};
use super::output::{CloseReason, OpId, Output, StoreOp};
use crate::vocabulary::{Event, Item, ItemBody, ItemStatus};
use std::collections::{HashMap, HashSet, VecDeque};

#[derive(Clone, Debug, Default)]
pub struct Outbox {
    steps: VecDeque<Step>,
    /// Operations that are not answered, issued or not.
    unanswered: HashSet<OpId>,
    /// Bytes sent of each reply whose end the store does not have.
    said: HashMap<String, usize>,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub action: Action,
    /// The reply it belongs to.
    pub generation: Option<GenerationId>,
}

#[derive(Clone, Debug)]
pub enum Action {
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
    Store {
        id: OpId,
        op: StoreOp,
        /// Only when everything before it was sent; otherwise as soon as the operations before it are issued.
        after_sends: bool,
        issued: bool,
    },
    Close {
        conn: ConnId,
        reason: CloseReason,
    },
}

/// What became of replies when steps were let out.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        self.steps.is_empty() && self.unanswered.is_empty()
    }

    pub fn push(&mut self, action: Action, generation: Option<GenerationId>) {
        if let Action::Store { id, .. } = &action {
            self.unanswered.insert(*id);
        }
        self.steps.push_back(Step { action, generation });
    }

    /// The newest operation that is not answered: when it is, all before it are.
    pub fn newest_unanswered(&self) -> Option<OpId> {
        self.unanswered.iter().max().copied()
    }

    pub fn answered(&mut self, op: OpId) {
        self.unanswered.remove(&op);
    }

    /// Lets out what may go, and returns what of a reply was sent with it.
    pub fn flush(&mut self, out: &mut Vec<Output>) -> Vec<Said> {
        let mut said = Vec::new();
        while let Some(Step { action, generation }) = self.steps.pop_front() {
            match action {
                Action::Send { needs: Some(op), .. } if self.unanswered.contains(&op) => {
                    self.steps.push_front(Step { action, generation });
                    break;
                }
                Action::Send { to, .. } if to.is_empty() => {}
                Action::Send { to, event, said: bytes, .. } => {
                    if let (Some(bytes), Event::TextDelta { item_id, .. }) = (bytes, &event) {
                        self.said.insert(item_id.clone(), bytes);
                        said.push(Said::Bytes { item_id: item_id.clone(), bytes });
                    }
                    out.push(Output::Send { to, event });
                }
                Action::Store { issued: true, .. } => {}
                Action::Store { id, mut op, .. } => {
                    if let StoreOp::ReplyFinished { item } = &mut op {
                        let bytes = self.said.remove(&item.id).unwrap_or(0);
                        if item.shorten(bytes) {
                            said.push(Said::Less(self.shorten_rest(item, bytes)));
                        }
                    }
                    out.push(Output::Store { id, op });
                }
                Action::Close { conn, reason } => out.push(Output::Close { conn, reason }),
            }
        }
        // The store need not wait for events that wait for it.
        for step in &mut self.steps {
            match &mut step.action {
                Action::Store { issued: true, .. } => {}
                Action::Store { after_sends: true, .. } => break,
                Action::Store { id, op, issued, .. } => {
                    *issued = true;
                    out.push(Output::Store { id: *id, op: op.clone() });
                }
                Action::Send { .. } | Action::Close { .. } => {}
            }
        }
        said
    }

    /// The connection has left: nothing more is for it.
    pub fn forget(&mut self, conn: ConnId) {
        for step in &mut self.steps {
            if let Action::Send { to, .. } = &mut step.action {
                to.retain(|&other| other != conn);
            }
        }
        self.steps.retain(|step| !matches!(step.action, Action::Close { conn: other, .. } if other == conn));
    }

    /// What waits to be told and stored of the item goes by what was sent of it. Returns how it is in the end.
    fn shorten_rest(&mut self, item: &Item, bytes: usize) -> Item {
        let mut last = item.clone();
        for step in &mut self.steps {
            match &mut step.action {
                Action::Send { event: Event::ItemAdded { item: told, .. }, .. } if told.id == item.id => {
                    told.shorten(bytes);
                }
                Action::Store { op: StoreOp::ItemTruncated { item: kept, heard_chars, .. }, issued: false, .. }
                    if kept.id == item.id =>
                {
                    kept.shorten(bytes);
                    *heard_chars = kept.text().chars().count();
                    last = kept.clone();
                }
                Action::Store { op: StoreOp::ItemDeleted { item_id }, .. } if *item_id == item.id => break,
                Action::Send { .. } | Action::Store { .. } | Action::Close { .. } => {}
            }
        }
        last
    }

    /// The last client has left: only what is to be stored is left. Returns the calls that no client was told to make.
    pub fn forget_clients(&mut self) -> Vec<Item> {
        let is_call = |step: &Step| match &step.action {
            Action::Send { event: Event::ReplyDone { item, .. }, .. } => match item.body {
                ItemBody::FunctionCall { .. } => Some(item.id.clone()),
                _ => None,
            },
            _ => None,
        };
        let unmade: HashSet<String> = self.steps.iter().filter_map(is_call).collect();
        let mut calls = Vec::new();
        for step in &mut self.steps {
            if let Action::Store { op: StoreOp::ReplyFinished { item }, issued: false, .. } = &mut step.action
                && unmade.contains(&item.id)
            {
                item.status = ItemStatus::Incomplete;
                calls.push(item.clone());
            }
        }
        self.steps.retain(|step| matches!(step.action, Action::Store { .. }));
        calls
    }

    /// Keeps the steps for which `keep` says so. Operations that are dropped unissued are forgotten.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut Step) -> bool) {
        let unanswered = &mut self.unanswered;
        self.steps.retain_mut(|step| {
            let kept = keep(step);
            if !kept && let Action::Store { id, issued: false, .. } = &step.action {
                unanswered.remove(id);
            }
            kept
        });
    }
}
