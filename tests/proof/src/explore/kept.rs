//! Store and journal of the world: operations in order, and words that were written before they were sent.

use session::machine::StoreOp;
use session::{Item, ItemStatus, Role};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub items: Vec<Item>,
    pub journal: BTreeMap<String, String>,
    pub open_responses: Vec<String>,
    pub covered_through: Option<String>,
}

impl Kept {
    pub fn item(&self, id: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.id == id)
    }

    /// The operation was given to the store: the journal knows of a reply before its first word.
    pub fn issued(&mut self, op: &StoreOp) {
        match op {
            StoreOp::ReplyBegun { item, .. } | StoreOp::ReplyResumed { item, .. } => {
                self.journal.insert(item.id.clone(), item.text());
            }
            _ => {}
        }
    }

    pub fn words(&mut self, item_id: &str, text: &str) {
        if let Some(words) = self.journal.get_mut(item_id) {
            words.push_str(text);
        }
    }

    pub fn text(&self, item_id: &str) -> Option<String> {
        let stored = self.item(item_id).map(Item::text);
        let written = self.journal.get(item_id).cloned();
        stored.clone().max_by_length(written)
    }

    pub fn apply(&mut self, op: StoreOp) {
        match op {
            StoreOp::ConfigChanged { .. } | StoreOp::ResponseReported { .. } => {}
            StoreOp::ItemAdded { item, after, .. } | StoreOp::ReplyBegun { item, after, .. } => {
                self.insert(item, after)
            }
            StoreOp::ItemTruncated { item, .. } => self.replace(item),
            StoreOp::ReplyResumed { item, .. } => self.replace(item),
            StoreOp::ItemDeleted { item_id } | StoreOp::ReplyWithdrawn { item_id } => {
                self.items.retain(|item| item.id != item_id);
                self.journal.remove(&item_id);
            }
            StoreOp::ReplyExtended { item_id, text } => {
                if let Some(item) = self.items.iter_mut().find(|item| item.id == item_id) {
                    let all = item.text() + &text;
                    *item = Item { status: item.status, ..Item::message(&item.id, Role::Assistant, all) };
                }
            }
            StoreOp::ReplyFinished { item } => {
                self.journal.remove(&item.id);
                self.replace(item);
            }
            StoreOp::ResponseStarted { response_id, .. } => self.open_responses.push(response_id),
            StoreOp::ResponseFinished { response_id, .. } => self.open_responses.retain(|id| *id != response_id),
        }
    }

    fn insert(&mut self, item: Item, after: Option<String>) {
        let at = match after {
            None => 0,
            Some(id) => self.items.iter().position(|item| item.id == id).map_or(self.items.len(), |at| at + 1),
        };
        self.items.insert(at, item);
    }

    fn replace(&mut self, item: Item) {
        if let Some(old) = self.items.iter_mut().find(|old| old.id == item.id) {
            *old = item;
        }
    }

    /// Returns the state after a start: cut-off replies end with the words in the journal, or never were.
    pub fn restarted(mut self) -> Kept {
        for item in self.items.iter_mut().filter(|item| item.status == ItemStatus::InProgress) {
            let written = self.journal.get(&item.id).cloned();
            let words = Some(item.text()).max_by_length(written).unwrap_or_default();
            *item = Item { status: ItemStatus::Incomplete, ..Item::message(&item.id, Role::Assistant, words) };
        }
        self.items.retain(|item| item.status != ItemStatus::Incomplete || !item.text().is_empty());
        Kept { journal: BTreeMap::new(), open_responses: Vec::new(), ..self }
    }
}

trait Longer {
    fn max_by_length(self, other: Self) -> Self;
}

impl Longer for Option<String> {
    fn max_by_length(self, other: Self) -> Self {
        let length = |text: &Option<String>| text.as_ref().map(String::len);
        if length(&other) > length(&self) { other } else { self }
    }
}
