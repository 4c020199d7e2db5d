//! What follows when the store has answered an operation.

use super::Machine;
use crate::machine::happening::OpId;
use crate::machine::outbox::{Operation, Undo};
use crate::vocabulary::Refusal;

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
            Undo::Config(old) => (self.config, self.next_config) = (old.clone(), old),
            Undo::Added(id) => {
                self.ledger.outbox.unsay_item(&id);
                self.ledger.never_was(op, &id);
            }
            Undo::Truncated(old) => self.ledger.restore_text(op, old),
            Undo::Resumed { response_id, item } => self.was_not_resumed(&response_id, item, &message),
            Undo::Deleted(removed) => self.ledger.conversation.restore(removed),
            Undo::Begun { response_id, item_id } => {
                self.ledger.outbox.forget_item(&item_id);
                self.replies.forget_item(&response_id, &item_id);
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
}
