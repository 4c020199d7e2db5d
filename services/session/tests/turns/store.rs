//! A store in memory that refuses what the real one refuses.

use session::machine::StoreOp;
use session::{Item, ItemBody, ItemStatus, Role, SessionConfig};
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub struct FakeStore {
    pub items: Vec<Item>,
    pub ops: Vec<StoreOp>,
    pub config: Option<SessionConfig>,
    /// Replies that were begun and not ended, done or refused, as the store's queue knows them.
    being_said: HashSet<String>,
    /// True if refused operations make others impossible.
    pub torn: bool,
    /// True if an item was made again whose id only the store still knew. What was added behind it before the refusal
    /// stands behind the older item in the store, and at the end in memory.
    pub was_made_twice: bool,
    /// Ends of replies that were refused: they are tried again before whatever comes next, as the store's queue does.
    owed: Vec<StoreOp>,
}

const IS_THERE: &str = "there is such an item";

impl FakeStore {
    pub fn with(items: Vec<Item>) -> FakeStore {
        FakeStore { items, ..FakeStore::default() }
    }

    pub fn apply(&mut self, op: StoreOp, sent: &HashMap<String, String>) -> Result<(), &'static str> {
        self.settle();
        let done = self.change(&op, sent);
        self.note(&op, done.is_ok());
        // Of an item that has left memory only the store knows that it is there.
        self.was_made_twice |= done == Err(IS_THERE);
        assert!(self.torn || done.is_ok() || done == Err(IS_THERE), "{}: {op:?}", done.unwrap_err());
        self.ops.push(op);
        done
    }

    pub fn refuse(&mut self, op: StoreOp) {
        self.settle();
        self.torn = true;
        if let StoreOp::ReplyFinished { item: Item { id: item_id, .. } } | StoreOp::ReplyWithdrawn { item_id } = &op
            && self.being_said.contains(item_id)
        {
            self.owed.push(op.clone());
        }
        self.note(&op, false);
    }

    pub fn settle(&mut self) {
        for op in std::mem::take(&mut self.owed) {
            match op {
                StoreOp::ReplyFinished { item } => {
                    let at = self.find(&item.id).unwrap();
                    self.items[at] = item;
                }
                StoreOp::ReplyWithdrawn { item_id } => self.items.retain(|item| item.id != item_id),
                _ => {}
            }
        }
    }

    fn change(&mut self, op: &StoreOp, sent: &HashMap<String, String>) -> Result<(), &'static str> {
        let said = |item: &str, text: &str| {
            let sent = sent.get(item).map(String::as_str).unwrap_or_default();
            assert!(sent.starts_with(text), "stored {text:?} of {item}, but sent is {sent:?}");
        };
        match op {
            StoreOp::ConfigChanged { config } => self.config = Some(config.clone()),
            StoreOp::ItemAdded { item, after, .. } | StoreOp::ReplyBegun { item, after, .. } => {
                if self.items.iter().any(|known| known.id == item.id) {
                    return Err(IS_THERE);
                }
                let at = match after {
                    None => 0,
                    Some(id) => self.find(id)? + 1,
                };
                self.items.insert(at, item.clone());
            }
            StoreOp::ItemTruncated { item, part, heard_chars } => {
                let at = self.find(&item.id)?;
                if self.items[at].status == ItemStatus::InProgress {
                    return Err("the item is still being said");
                }
                self.items[at].cut(*part, *heard_chars).ok_or("there is no such part")?;
            }
            StoreOp::ItemDeleted { item_id } => {
                let at = self.find(item_id)?;
                self.items.remove(at);
            }
            StoreOp::ReplyWithdrawn { item_id } => {
                let at = self.find(item_id)?;
                assert_eq!(self.items[at].status, ItemStatus::InProgress, "{op:?}");
                assert!(self.items[at].text().is_empty(), "{op:?}");
                self.items.remove(at);
            }
            StoreOp::ReplyResumed { item, .. } => {
                let at = self.find(&item.id)?;
                if self.items[at].status == ItemStatus::InProgress {
                    return Err("the item is being said already");
                }
                self.items[at] = item.clone();
            }
            StoreOp::ReplyExtended { item_id, text: piece } => {
                let at = self.find(item_id)?;
                self.check_is_said(at)?;
                let text = self.items[at].text() + piece;
                said(item_id, &text);
                self.items[at].body = ItemBody::message(Role::Assistant, text);
            }
            StoreOp::ReplyFinished { item } => {
                let at = self.find(&item.id)?;
                self.check_is_said(at)?;
                if matches!(item.body, ItemBody::Message { .. }) {
                    said(&item.id, &item.text());
                }
                self.items[at] = item.clone();
            }
            StoreOp::ResponseStarted { .. } | StoreOp::ResponseFinished { .. } | StoreOp::ResponseReported { .. } => {}
        }
        Ok(())
    }

    /// Notes that a reply's begin or end was answered.
    fn note(&mut self, op: &StoreOp, is_done: bool) {
        if let (StoreOp::ReplyBegun { item, .. } | StoreOp::ReplyResumed { item, .. }, true) = (op, is_done) {
            self.being_said.insert(item.id.clone());
        } else if !matches!(op, StoreOp::ReplyExtended { .. })
            && let Some(item_id) = op.reply_item()
        {
            self.being_said.remove(item_id);
        }
    }

    fn check_is_said(&self, at: usize) -> Result<(), &'static str> {
        let item = &self.items[at];
        let is_said = item.status == ItemStatus::InProgress && self.being_said.contains(&item.id);
        is_said.then_some(()).ok_or("the item is not being said")
    }

    /// True while the end of this reply waits to be tried again.
    pub fn owes(&self, item_id: &str) -> bool {
        self.owed.iter().any(|op| op.reply_item() == Some(item_id))
    }

    fn find(&self, id: &str) -> Result<usize, &'static str> {
        self.items.iter().position(|item| item.id == id).ok_or("there is no such item")
    }
}
