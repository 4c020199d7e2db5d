//! Clients that come and go.

use super::Machine;
use crate::machine::conversation::Entry;
use crate::machine::input::{ConnId, Replay};
use crate::machine::reply::Reply;
use crate::vocabulary::{Event, Item, ItemStatus};
use std::sync::Arc;

impl Machine {
    pub(super) fn attach(&mut self, conn: ConnId, replay: &Replay) {
        self.ledger.outbox.attach(conn);
        self.ledger.outbox.send_to(conn, Event::Opened(self.state()));
        self.replay(conn, replay);
        if self.draining {
            self.ledger.outbox.close(conn);
        }
        self.warming.changed();
    }

    fn replay(&mut self, conn: ConnId, replay: &Replay) {
        let entries = self.ledger.conversation.entries();
        let from = match replay {
            Replay::Nothing => entries.len(),
            Replay::All => 0,
            Replay::After(id) => {
                let known = entries.iter().rposition(|entry| entry.item.id == *id);
                known.map_or(0, |index| index + usize::from(!is_known_in_part(&entries[index])))
            }
        };
        let open = self.replies.active().and_then(Reply::open_item);
        let mut previous_item_id =
            entries[..from].iter().rev().find(|entry| entry.announced).map(|entry| entry.item.id.clone());
        let mut events = Vec::new();
        // The item in progress comes with its response.
        let is_told = |entry: &&Entry| entry.announced && open.is_none_or(|open| open.id != entry.item.id);
        for Entry { item, .. } in entries[from..].iter().filter(is_told) {
            let previous_item_id = previous_item_id.replace(item.id.clone());
            events.push(Event::ItemAdded { item: Item::clone(item), previous_item_id, is_new: false });
        }
        events.extend(self.replies.open.iter().flat_map(|reply| reply.so_far(&self.ledger)));
        // The client that asked has all of it now.
        if let Replay::After(id) = replay {
            self.ledger.conversation.mark_told_whole(id);
        }
        for event in events {
            // The connection gets all text so far at once.
            let said = match &event {
                Event::TextDelta { item_id, text, .. } if self.ledger.conversation.has(item_id) => Some(text.len()),
                _ => None,
            };
            self.ledger.outbox.replay(conn, event, said);
        }
    }

    pub(super) fn detach(&mut self, conn: ConnId) {
        self.mark_told_in_part();
        if self.ledger.outbox.detach(conn) {
            self.last_client_left();
        }
    }

    pub(super) fn drop_clients(&mut self) {
        self.mark_told_in_part();
        self.ledger.outbox.drop_clients();
        self.last_client_left();
    }

    /// Marks the items whose end a client that leaves now has not been told.
    fn mark_told_in_part(&mut self) {
        let open = self.replies.active().and_then(Reply::open_item).map(|item| item.id.clone());
        for item_id in self.ledger.outbox.untold_ends().into_iter().chain(open) {
            self.ledger.conversation.mark_told_in_part(&item_id);
        }
    }

    /// Cancels the work that no client would hear after the last one left.
    fn last_client_left(&mut self) {
        self.cancel(|_| true);
        if !self.warming.buffer.is_empty() || !self.warming.outlives_clients() {
            self.stop_warming();
        }
        for call in self.ledger.outbox.forget_clients() {
            self.ledger.conversation.replace(Arc::new(call));
        }
        self.warming.buffer.clear();
    }
}

/// True if a client that names the item as its last one may not have all of it.
fn is_known_in_part(entry: &Entry) -> bool {
    entry.told_in_part || entry.item.status != ItemStatus::Completed
}
