//! What the store is asked to keep, and what happens when it has, or cannot.

use super::conversation::Removed;
use super::core::{Machine, Moment};
use super::happening::GenerationId;
use super::inputs::Asker;
use super::outbox::{Action, Said};
use super::output::{OpId, StoreOp};
use super::replies::Reply;
use super::responses::End;
use crate::vocabulary::{Event, Failure, FailureCode, Item, Refusal, ResponseStatus, SessionConfig, StatusDetails};
use std::sync::Arc;

/// An operation that the store has not answered.
#[derive(Clone, Debug)]
pub struct Operation {
    asker: Option<Asker>,
    undo: Undo,
}

/// How the machine's state follows when the store cannot.
#[derive(Clone, Debug)]
pub enum Undo {
    Config(Box<SessionConfig>),
    Added(String),
    Truncated(Arc<Item>),
    Deleted(Removed),
    /// An item of a reply could not be begun.
    Begun(GenerationId, String),
    /// So many bytes were sent and are not stored: with the next ones, then.
    Extended(GenerationId, usize),
    /// Something else about a reply.
    Reply(GenerationId),
    /// Nothing depends on it.
    Nothing,
}

impl Operation {
    pub fn of(asker: &Asker, undo: Undo) -> Operation {
        Operation { asker: Some(asker.clone()), undo }
    }

    pub fn own(undo: Undo) -> Operation {
        Operation { asker: None, undo }
    }
}

impl Machine {
    /// As soon as the operations before it are issued.
    pub(super) fn store(&mut self, op: StoreOp, operation: Operation) -> OpId {
        self.queue_operation(op, operation, false, None)
    }

    /// `after_sends`: not before everything that was said before is on its way.
    pub(super) fn queue_operation(
        &mut self,
        op: StoreOp,
        operation: Operation,
        after_sends: bool,
        generation: Option<GenerationId>,
    ) -> OpId {
        self.operation_count += 1;
        let id = OpId(self.operation_count);
        self.operations.insert(id, operation);
        self.outbox.push(Action::Store { id, op, after_sends, issued: false }, generation);
        id
    }

    /// Text left for the clients: now the store may have it. One operation at a time for each reply; what is said
    /// meanwhile goes with the next.
    pub(super) fn store_said(&mut self, said: Vec<Said>) {
        for said in said {
            match said {
                Said::Bytes { item_id, bytes } => {
                    if let Some(reply) = self.replies.iter_mut().find(|reply| reply.is_saying(&item_id)) {
                        reply.sent = reply.sent.max(bytes);
                        let generation = reply.generation;
                        self.store_unstored(generation);
                    }
                }
                Said::Less(item) => {
                    self.conversation.replace(Arc::new(item));
                }
            }
        }
    }

    fn store_unstored(&mut self, generation: GenerationId) {
        let Some(index) = self.replies.iter().position(|reply| reply.generation == generation) else { return };
        let reply = &self.replies[index];
        let text = reply.unstored().to_owned();
        let Some(item_id) = reply.open_item_id().map(str::to_owned) else { return };
        if reply.storing.is_some() || text.is_empty() {
            return;
        }
        let undo = Undo::Extended(generation, text.len());
        let op = StoreOp::ReplyExtended { item_id, text };
        let op = self.queue_operation(op, Operation::own(undo), false, Some(generation));
        let reply = &mut self.replies[index];
        (reply.stored, reply.storing) = (reply.sent, Some(op));
    }

    pub(super) fn store_acked(&mut self, op: OpId) {
        self.outbox.answered(op);
        if let Some(Operation { undo: Undo::Extended(generation, _), .. }) = self.operations.remove(&op) {
            self.storing_reply(generation, op).map(|reply| reply.storing.take());
            self.store_unstored(generation);
        }
    }

    /// The reply whose open message the operation extends.
    fn storing_reply(&mut self, generation: GenerationId, op: OpId) -> Option<&mut Reply> {
        self.replies.iter_mut().find(|reply| reply.generation == generation && reply.storing == Some(op))
    }

    pub(super) fn store_failed(&mut self, op: OpId, message: &str, moment: &mut Moment) {
        self.outbox.answered(op);
        let Some(Operation { asker, undo }) = self.operations.remove(&op) else { return };
        // What only this operation would have made true is not said.
        let needs_it = |action: &Action| matches!(action, Action::Send { needs: Some(needs), if_stored: true, .. } if *needs == op);
        match undo {
            Undo::Config(old) => {
                self.outbox.retain(|step| !needs_it(&step.action));
                self.config = *old;
            }
            Undo::Added(id) => {
                self.outbox.retain(|step| !needs_it(&step.action) && !announces(&step.action, &id));
                self.never_was(op, &id);
            }
            Undo::Truncated(old) => {
                self.outbox.retain(|step| !needs_it(&step.action));
                self.restore_text(op, old);
            }
            Undo::Deleted(removed) => {
                self.outbox.retain(|step| !needs_it(&step.action));
                self.conversation.restore(removed);
            }
            Undo::Begun(generation, item_id) => {
                self.forget_begun(generation, &item_id);
                self.never_was(op, &item_id);
                self.fail_reply(generation, message, moment);
            }
            Undo::Extended(generation, bytes) => {
                if let Some(reply) = self.storing_reply(generation, op) {
                    reply.storing = None;
                    reply.stored = reply.stored.saturating_sub(bytes);
                }
            }
            Undo::Reply(generation) => {
                self.outbox.retain(|step| {
                    let is_end = matches!(&step.action, Action::Send { event: Event::ResponseDone { .. }, .. });
                    !needs_it(&step.action) || is_end
                });
                self.fail_reply(generation, message, moment);
            }
            Undo::Nothing => self.outbox.retain(|step| !needs_it(&step.action)),
        }
        self.warming.wanted = true;
        if let Some(asker) = asker {
            self.refuse(asker, Refusal::StoreFailed { cause: message.to_owned() });
        }
    }

    /// The item that `op` should have made does not exist, so that no later failure may bring it back. One that was made
    /// after it under the same id is another.
    fn never_was(&mut self, op: OpId, id: &str) {
        let mut made_again = false;
        for (_, later) in self.operations.iter_mut().filter(|(other, _)| **other > op) {
            match &later.undo {
                Undo::Added(other) if other == id => made_again = true,
                Undo::Truncated(item) if item.id == id => later.undo = Undo::Nothing,
                Undo::Deleted(removed) if removed.entry.item.id == id => later.undo = Undo::Nothing,
                _ => {}
            }
        }
        if !made_again {
            self.conversation.remove(id);
        }
    }

    /// The item was not truncated by `op`. If something was done to it since, that counts, and falls back to `old`.
    fn restore_text(&mut self, op: OpId, old: Arc<Item>) {
        let mut later: Vec<_> = self.operations.iter_mut().filter(|(other, _)| **other > op).collect();
        later.sort_by_key(|(other, _)| **other);
        for (_, Operation { undo, .. }) in later {
            match undo {
                Undo::Truncated(item) if item.id == old.id => {
                    *item = old;
                    return;
                }
                Undo::Deleted(removed) if removed.entry.item.id == old.id => {
                    removed.entry.item = old;
                    return;
                }
                _ => {}
            }
        }
        self.conversation.replace(old);
    }

    /// Nothing of the item was said, and nothing of it will be.
    fn forget_begun(&mut self, generation: GenerationId, item_id: &str) {
        let mut dropped = Vec::new();
        self.outbox.retain(|step| {
            let about_it = match &step.action {
                Action::Send { event, .. } => event.is_about(item_id),
                Action::Store { op, issued, .. } => !issued && op.reply_item() == Some(item_id),
                Action::Close { .. } => false,
            };
            if about_it && let Action::Store { id, .. } = &step.action {
                dropped.push(*id);
            }
            !about_it
        });
        for id in dropped {
            self.operations.remove(&id);
        }
        if let Some(reply) = self.replies.iter_mut().find(|reply| reply.generation == generation) {
            reply.forget_item(item_id);
        }
    }

    /// A reply that cannot be stored ends as failed: now if it is under way, else where its end is waiting to be told.
    fn fail_reply(&mut self, generation: GenerationId, message: &str, moment: &mut Moment) {
        let failure = Failure::new(FailureCode::StoreFailed, format!("the reply could not be stored: {message}"));
        if let Some(index) = self.replies.iter().position(|reply| reply.generation == generation) {
            let reply = self.replies.remove(index);
            return self.end_reply(reply, End::Failed(failure), moment);
        }
        let details = StatusDetails::Failed(failure);
        let conversation = &self.conversation;
        self.outbox.retain(|step| {
            if step.generation == Some(generation)
                && let Action::Send { event: Event::ResponseDone { response }, needs, .. } = &mut step.action
            {
                response.status = ResponseStatus::Failed;
                response.details = Some(details.clone());
                response.output.retain(|item| response.conversation_id.is_none() || conversation.has(&item.id));
                *needs = None;
            }
            true
        });
    }
}

/// Whether a client would learn of the item from this.
fn announces(action: &Action, id: &str) -> bool {
    matches!(action, Action::Send { event: Event::ItemAdded { item, .. }, .. } if item.id == id)
}
