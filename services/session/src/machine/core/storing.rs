//! Consequences of the store's answers.

use super::Machine;
use crate::machine::input::OpId;
use crate::machine::outbox::{Operation, Undo, Unsaid};
use crate::vocabulary::{Refusal, SessionConfig};
use std::sync::Arc;

impl Machine {
    pub(super) fn store_acked(&mut self, op: OpId) {
        if let Some(Operation { undo: Undo::Extended { response_id, .. }, .. }) =
            self.ledger.outbox.operations.remove(&op)
        {
            self.replies.extended(&response_id, op, 0, &mut self.ledger);
        }
    }

    pub(super) fn store_failed(&mut self, op: OpId, message: String) {
        let Some(Operation { asker, undo }) = self.ledger.outbox.operations.remove(&op) else { return };
        self.ledger.outbox.unsay(op);
        match undo {
            Undo::Config(old) => self.restore_config(op, old),
            Undo::Added(id) => {
                self.ledger.outbox.unsay_item(op, &id);
                self.ledger.never_was(op, &id);
            }
            Undo::Truncated { item, .. } => self.ledger.restore_text(op, item),
            Undo::Resumed { response_id, item } => self.was_not_resumed(op, &response_id, item, &message),
            Undo::Deleted(removed) => self.ledger.was_not_deleted(op, removed),
            Undo::Begun { response_id, item_id } => {
                self.ledger.outbox.forget_item(op, &item_id);
                self.replies.forget_item(&response_id, &item_id, &mut self.ledger);
                self.ledger.never_was(op, &item_id);
                self.replies.fail(&response_id, &message, &mut self.ledger, self.now);
            }
            Undo::Extended { response_id, bytes } => {
                self.replies.extended(&response_id, op, bytes, &mut self.ledger);
            }
            Undo::Reply { response_id } => self.replies.fail(&response_id, &message, &mut self.ledger, self.now),
            Undo::Nothing => {}
        }
        self.warming.changed();
        if let Some(asker) = asker {
            self.ledger.outbox.refuse(asker, Refusal::StoreFailed { cause: message });
        }
    }

    /// Ends a reply behind the words that were sent: the journal refused the next ones, and a kill could lose them.
    pub(super) fn words_not_written(&mut self, message: &str) {
        let Some(Unsaid { response_id, item_id, sent_bytes }) = self.ledger.outbox.unsay_words() else { return };
        self.replies.cut_off(&response_id, &item_id, sent_bytes);
        self.replies.fail(&response_id, message, &mut self.ledger, self.now);
    }

    /// Restores the old configuration. A later change is complete, so it only gets `old` as its own fallback.
    fn restore_config(&mut self, op: OpId, old: Arc<SessionConfig>) {
        let later = self.ledger.outbox.operations.range_mut(op..).find_map(|(_, later)| match &mut later.undo {
            Undo::Config(before) => Some(before),
            _ => None,
        });
        match later {
            Some(before) => *before = old,
            None => (self.config, self.next_config) = (old.clone(), old),
        }
    }
}
