//! Changes that clients and replies share: the items, their operations in the store and their events; and the undo of a
//! change that the store refused.

use super::conversation::{Conversation, Removed};
use super::input::OpId;
use super::outbox::{Asker, Operation, Outbox, Undo};
use super::output::StoreOp;
use crate::ids::{HIDDEN, Ids, NOTE_OF_PAST, is_hidden_id};
use crate::speech;
use crate::vocabulary::{
    Event, Heard, Item, ItemBody, ItemPlace, ItemStatus, ItemUse, NewItem, NoteSource, Refusal, RequestPart, Role,
};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Ledger {
    pub ids: Ids,
    pub conversation: Conversation,
    pub outbox: Outbox,
    /// Bytes of items that clients have added, also of those deleted since: the store and the compactor have handled
    /// them.
    pub added_bytes: usize,
}

impl Ledger {
    pub fn new_item_id(&mut self) -> String {
        loop {
            let id = self.ids.next("item");
            if !self.conversation.has(&id) {
                return id;
            }
        }
    }

    pub fn complete_item(&mut self, item: NewItem) -> Item {
        let id = item.id.unwrap_or_else(|| self.new_item_id());
        let mut body = item.body;
        if let ItemBody::FunctionCall { call_id, .. } = &mut body
            && call_id.is_empty()
        {
            *call_id = self.ids.next("call");
        }
        Item::new(id, body, ItemStatus::Completed)
    }

    pub fn check_room(&self, items: &[NewItem], most_items: usize, most_bytes: usize) -> Result<(), Refusal> {
        if self.conversation.len() + items.len() > most_items {
            return Err(Refusal::TooManyItems { limit: most_items });
        }
        let bytes = self.added_bytes + items.iter().map(|item| item.body.text_bytes()).sum::<usize>();
        if bytes <= most_bytes { Ok(()) } else { Err(Refusal::TooMuchText { limit: most_bytes }) }
    }

    /// Adds the item to the conversation at once; clients see it when it is stored.
    pub fn add_item(
        &mut self,
        asker: &Asker,
        item: NewItem,
        place: &ItemPlace,
        of_request: Option<RequestPart>,
    ) -> Result<(), Refusal> {
        if let ItemPlace::After(id) = place
            && self.conversation.announced(id).is_none()
        {
            return Err(Refusal::NoSuchPlace { item_id: id.clone() });
        }
        let item = self.complete_item(item);
        if is_hidden_id(&item.id) || self.conversation.has(&item.id) {
            return Err(Refusal::ItemExists { item_id: item.id });
        }
        self.added_bytes += item.body.text_bytes();
        let after = self.conversation.insert(item.clone(), true, place);
        let previous_item_id = self.conversation.previous_announced(&item.id);
        let op = StoreOp::ItemAdded { item: item.clone(), after, sources: Vec::new(), of_request };
        let op = self.outbox.store_for(Some(asker), op, Undo::Added(item.id.clone()));
        self.outbox.send_after(Some(op), Event::ItemAdded { item, previous_item_id, is_new: true });
        Ok(())
    }

    /// Adds an item that the prompt and the store hold and clients do not see. Returns its id.
    pub fn add_hidden(&mut self, body: ItemBody, place: &ItemPlace, sources: Vec<NoteSource>) -> String {
        let item_id = self.ids.next(HIDDEN);
        self.add_unannounced(item_id, body, place, sources)
    }

    pub fn add_note(&mut self, text: String, before: Option<&str>, sources: Vec<NoteSource>) {
        let place = before.map_or(ItemPlace::End, |id| self.conversation.place_before(id));
        let item_id = self.ids.next(NOTE_OF_PAST);
        self.add_unannounced(item_id, ItemBody::message(Role::System, text), &place, sources);
    }

    /// Removes an item that the store has deleted already. Clients see it if they know the item.
    pub fn lose_item(&mut self, item_id: &str) {
        let is_new = |operation: &Operation| matches!(&operation.undo, Undo::Added(added) if added == item_id);
        if self.outbox.operations.values().any(is_new) {
            return; // a later item with the same id
        }
        if self.conversation.remove(item_id).is_some_and(|removed| removed.entry.announced) {
            self.outbox.send(Event::ItemDeleted { item_id: item_id.to_owned() });
        }
    }

    fn add_unannounced(
        &mut self,
        item_id: String,
        body: ItemBody,
        place: &ItemPlace,
        sources: Vec<NoteSource>,
    ) -> String {
        let item = Item::new(item_id, body, ItemStatus::Completed);
        let item_id = item.id.clone();
        let after = self.conversation.insert(item.clone(), false, place);
        let op = StoreOp::ItemAdded { item, after, sources, of_request: None };
        self.outbox.store(op, Undo::Added(item_id.clone()));
        item_id
    }

    pub fn truncate_item(
        &mut self,
        asker: &Asker,
        item_id: String,
        part: usize,
        heard: Heard,
        words_per_minute: u32,
    ) -> Result<(), Refusal> {
        let Some(old) = self.conversation.announced(&item_id) else {
            return Err(Refusal::NoSuchItem { item_id, wanted: ItemUse::Truncate });
        };
        let mut item = Item::clone(old);
        let ItemBody::Message { role: Role::Assistant, parts, .. } = &item.body else {
            return Err(Refusal::NotTruncatable);
        };
        let Some(text) = parts.get(part) else { return Err(Refusal::NoSuchPart { parts: parts.len() }) };
        let heard_chars = match heard {
            Heard::Chars(chars) => chars,
            Heard::Ms(ms) => speech::heard_chars(text, ms, words_per_minute),
        };
        let heard_chars = item.cut(part, heard_chars).unwrap_or_default();
        let heard_ms = match (heard, &item.body) {
            (Heard::Ms(ms), _) => ms,
            (_, ItemBody::Message { parts, .. }) => speech::spoken_ms(&parts[part], words_per_minute),
            _ => 0,
        };
        if let Some(old) = self.conversation.replace(Arc::new(item.clone())) {
            let undo = Undo::Truncated { item: old, part, heard_chars };
            let op = StoreOp::ItemTruncated { item, part, heard_chars };
            let op = self.outbox.store_for(Some(asker), op, undo);
            self.outbox.send_after(Some(op), Event::ItemTruncated { item_id, part, heard_ms, heard_chars });
        }
        Ok(())
    }

    pub fn delete_item(&mut self, asker: &Asker, item_id: String) {
        // A half-made call left the conversation with its response.
        if let Some(removed) = self.conversation.remove(&item_id) {
            let op = StoreOp::ItemDeleted { item_id: item_id.clone() };
            let op = self.outbox.store_for(Some(asker), op, Undo::Deleted(removed));
            self.outbox.send_after(Some(op), Event::ItemDeleted { item_id });
        }
    }

    pub fn begin_item(&mut self, response_id: &str, item: Item, place: &ItemPlace) -> OpId {
        let after = self.conversation.insert(item.clone(), false, place);
        let response_id = response_id.to_owned();
        let undo = Undo::Begun { response_id: response_id.clone(), item_id: item.id.clone() };
        self.outbox.store(StoreOp::ReplyBegun { response_id, item, after }, undo)
    }

    /// Gives up a reserved place; returns the id before it, and the operation.
    pub fn withdraw(&mut self, item_id: &str) -> Option<(Option<String>, OpId)> {
        let before = self.conversation.remove(item_id)?.before;
        let op = StoreOp::ReplyWithdrawn { item_id: item_id.to_owned() };
        Some((before, self.outbox.store(op, Undo::Nothing)))
    }

    /// Removes the item that `op` failed to make, so that no later failure brings it back. A later item with the same
    /// id is another one.
    pub fn never_was(&mut self, op: OpId, id: &str) {
        for later in self.outbox.operations.range_mut(op..).map(|(_, later)| later) {
            match &later.undo {
                Undo::Added(other) if other == id => return,
                Undo::Truncated { item, .. } if item.id == id => later.undo = Undo::Nothing,
                Undo::Deleted(removed) if removed.entry.item.id == id => later.undo = Undo::Nothing,
                _ => {}
            }
        }
        self.conversation.remove(id);
    }

    /// Brings back an item that `op` failed to delete: the store then refused every later item with its id.
    pub fn was_not_deleted(&mut self, op: OpId, removed: Removed) {
        let item = removed.entry.item.clone();
        let mut stands = true;
        for later in self.outbox.operations.range_mut(op..).map(|(_, later)| later) {
            match &later.undo {
                Undo::Added(other) if *other == item.id => later.undo = Undo::Nothing,
                Undo::Deleted(again) if again.entry.item.id == item.id => {
                    stands = false;
                    break;
                }
                _ => {}
            }
        }
        if stands {
            self.conversation.restore(removed);
        }
        self.restore_text(op, item);
    }

    pub fn restore_text(&mut self, op: OpId, mut item: Arc<Item>) {
        let mut cut = Vec::new();
        let mut stands = true;
        for (id, later) in self.outbox.operations.range_mut(op..) {
            match &mut later.undo {
                Undo::Truncated { item: before, part, heard_chars } if before.id == item.id => {
                    before.clone_from(&item);
                    let heard = Arc::make_mut(&mut item).cut(*part, *heard_chars);
                    cut.extend(heard.map(|heard| (*id, item.clone(), heard)));
                }
                Undo::Resumed { item: before, .. } if before.id == item.id => {
                    before.clone_from(&item);
                    stands = false;
                    break;
                }
                Undo::Deleted(removed) if removed.entry.item.id == item.id => {
                    removed.entry.item = item.clone();
                    stands = false;
                    break;
                }
                // A later item with its id is another one.
                Undo::Added(other) if *other == item.id => {
                    stands = false;
                    break;
                }
                _ => {}
            }
        }
        cut.into_iter().for_each(|(op, item, heard)| self.outbox.cut_again(op, &item, heard));
        if stands {
            self.conversation.replace(item);
        }
    }
}
