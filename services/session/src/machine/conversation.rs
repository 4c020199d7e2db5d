//! The items of a session, in order, and what stands in the prompt besides them.

use super::recall::is_hidden;
use crate::prompt::Context;
use crate::vocabulary::{Item, ItemPlace, ItemStatus, NamedSpeaker, Placed, Role};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Entry {
    pub item: Arc<Item>,
    /// Clients know of it. A reply takes its place when it is asked for, and is announced with its first word.
    pub announced: bool,
    /// A summary tells it: it stands in no prompt.
    pub covered: bool,
}

/// An item that was taken out, and what stood before it.
#[derive(Clone, Debug)]
pub struct Removed {
    pub entry: Entry,
    pub before: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Conversation {
    entries: Vec<Entry>,
    context: Arc<Context>,
}

impl Conversation {
    pub fn new(items: Vec<Item>, context: Context) -> Conversation {
        let mut conversation = Conversation { entries: Vec::new(), context: Arc::new(context) };
        conversation.recover(items);
        conversation
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub fn set_context(&mut self, context: Context) {
        self.context = Arc::new(context);
        self.cover();
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn has(&self, id: &str) -> bool {
        self.index_of(id).is_some()
    }

    /// An item that clients know of.
    pub fn announced(&self, id: &str) -> Option<&Arc<Item>> {
        self.entries.iter().find(|entry| entry.announced && entry.item.id == id).map(|entry| &entry.item)
    }

    /// An item that clients know of, and that no summary tells.
    pub fn shown(&self, id: &str) -> Option<&Arc<Item>> {
        let entry = &self.entries[self.index_of(id)?];
        (entry.announced && !entry.covered).then_some(&entry.item)
    }

    /// The last item that clients know of.
    pub fn last_announced(&self) -> Option<&Arc<Item>> {
        self.entries.iter().rfind(|entry| entry.announced).map(|entry| &entry.item)
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Puts the item in its place and returns its predecessor there; at the end if the place is gone.
    pub fn insert(&mut self, item: Item, announced: bool, place: &ItemPlace) -> Option<String> {
        let at = match place {
            ItemPlace::Head => 0,
            ItemPlace::End => self.entries.len(),
            ItemPlace::After(id) => self.index_of(id).map_or(self.entries.len(), |index| index + 1),
        };
        // Before what a summary tells is where it tells, and so the store has it.
        let covered = self.entries.get(at).is_some_and(|next| next.covered);
        self.entries.insert(at, Entry { item: Arc::new(item), announced, covered });
        at.checked_sub(1).map(|before| self.entries[before].item.id.clone())
    }

    /// Where an item stands that comes right before this one.
    pub fn place_before(&self, id: &str) -> ItemPlace {
        match self.index_of(id).map(|index| index.checked_sub(1)) {
            None => ItemPlace::End,
            Some(None) => ItemPlace::Head,
            Some(Some(before)) => ItemPlace::After(self.entries[before].item.id.clone()),
        }
    }

    /// The item that clients see before this one; None at the head.
    pub fn previous_announced(&self, id: &str) -> Option<String> {
        let index = self.index_of(id)?;
        self.entries[..index].iter().rev().find(|entry| entry.announced).map(|entry| entry.item.id.clone())
    }

    /// Where clients see the item.
    pub fn placed(&self, id: &str) -> Placed {
        Placed { previous_item_id: self.previous_announced(id) }
    }

    pub fn announce(&mut self, id: &str) {
        if let Some(index) = self.index_of(id) {
            self.entries[index].announced = true;
        }
    }

    /// Puts another version in the place of the item, and returns the old one.
    pub fn replace(&mut self, item: Arc<Item>) -> Option<Arc<Item>> {
        let index = self.index_of(&item.id)?;
        Some(std::mem::replace(&mut self.entries[index].item, item))
    }

    pub fn remove(&mut self, id: &str) -> Option<Removed> {
        let index = self.index_of(id)?;
        let before = index.checked_sub(1).map(|before| self.entries[before].item.id.clone());
        Some(Removed { entry: self.entries.remove(index), before })
    }

    /// Puts an item back that could not be removed.
    pub fn restore(&mut self, removed: Removed) {
        if self.has(&removed.entry.item.id) {
            return;
        }
        let at = match &removed.before {
            None => 0,
            Some(id) => self.index_of(id).map_or(self.entries.len(), |index| index + 1),
        };
        self.entries.insert(at, removed.entry);
    }

    /// Puts items before all others that were not in memory, because a summary told them.
    pub fn recover(&mut self, items: Vec<Item>) {
        let missing = items.into_iter().filter(|item| !self.has(&item.id));
        let entry = |item| Entry { announced: !is_hidden(&item), item: Arc::new(item), covered: false };
        let missing: Vec<_> = missing.map(entry).collect();
        self.entries.splice(..0, missing);
        self.entries.iter_mut().for_each(|entry| entry.covered = false);
        self.cover();
    }

    /// What a prompt would be made of if items up to this one did not stand in it.
    pub fn behind(&self, covered_through: Option<&str>) -> Vec<Arc<Item>> {
        let context = Context { covered_through: covered_through.map(str::to_owned), ..Context::default() };
        let mut conversation = self.clone();
        conversation.set_context(context);
        conversation.snapshot()
    }

    /// Marks the items that a summary tells. An unknown id changes nothing.
    fn cover(&mut self) {
        let covered = match self.context.covered_through.as_deref().map(|id| self.index_of(id)) {
            None => 0,
            Some(Some(index)) => index + 1,
            Some(None) => return,
        };
        // Instructions at the head stand whatever is summarised.
        let is_instruction = |entry: &&Entry| entry.item.role() == Some(Role::System) && !entry.item.is_note_of_past();
        let leading = self.entries.iter().take_while(is_instruction).count();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            entry.covered = (leading..covered).contains(&index);
        }
    }

    /// What a prompt is made of: everything that is said and not told by a summary.
    pub fn snapshot(&self) -> Vec<Arc<Item>> {
        let stands = |entry: &&Entry| !entry.covered && entry.item.status != ItemStatus::InProgress;
        self.entries.iter().filter(stands).map(|entry| entry.item.clone()).collect()
    }

    /// The speaker of what is to be answered.
    pub fn asker(&self) -> Option<NamedSpeaker> {
        let last = self.entries.iter().map(|entry| &entry.item).rfind(|item| item.is_said_by_user());
        last.and_then(|item| item.speaker().cloned())
    }

    /// What the user said before this.
    pub fn said_before(&self, id: &str) -> Option<&Arc<Item>> {
        let earlier = &self.entries[..self.index_of(id)?];
        earlier.iter().map(|entry| &entry.item).rfind(|item| item.is_said_by_user())
    }

    fn index_of(&self, id: &str) -> Option<usize> {
        // Almost always asked for one of the newest.
        self.entries.iter().rposition(|entry| entry.item.id == id)
    }
}
