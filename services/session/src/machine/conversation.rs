//! Items of a session, in order, and the context of its prompt.

use super::recall::is_hidden;
use crate::context::Context;
use crate::ids::is_hidden_id;
use crate::vocabulary::{Item, ItemPlace, ItemStatus, NamedSpeaker, Placed, Role};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Entry {
    pub item: Arc<Item>,
    /// True if clients know the item. A reply reserves its place with the request, and announces it with its first
    /// word.
    pub announced: bool,
    pub covered: bool,
    /// True if a client left before it was told the end of the item.
    pub told_in_part: bool,
}

#[derive(Clone, Debug)]
pub struct Removed {
    pub entry: Entry,
    pub before: Option<String>,
}

/// Covered items that left memory; the store has them.
#[derive(Clone, Debug)]
struct DepartedItems {
    at: usize,
    last: String,
    announced: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Conversation {
    entries: Vec<Entry>,
    departed: Option<DepartedItems>,
    context: Arc<Context>,
}

impl Conversation {
    pub fn new(items: Vec<Item>, leading: usize, context: Context) -> Conversation {
        let entries = items.into_iter().map(Entry::stored).collect();
        let mut conversation = Conversation { entries, departed: None, context: Arc::new(context) };
        let through = conversation.context.covered_through.clone();
        conversation.departed =
            through.filter(|id| !conversation.has(id)).map(|last| DepartedItems::behind(leading, last));
        conversation.cover();
        conversation
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub fn set_context(&mut self, context: Context, most_told: usize) {
        self.context = Arc::new(context);
        self.cover();
        self.unload(most_told);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn has(&self, id: &str) -> bool {
        self.index_of(id).is_some()
    }

    pub fn announced(&self, id: &str) -> Option<&Arc<Item>> {
        self.entries.iter().find(|entry| entry.announced && entry.item.id == id).map(|entry| &entry.item)
    }

    pub fn shown(&self, id: &str) -> Option<&Arc<Item>> {
        let entry = &self.entries[self.index_of(id)?];
        (entry.announced && !entry.covered).then_some(&entry.item)
    }

    pub fn last_announced(&self) -> Option<&Arc<Item>> {
        self.entries.iter().rfind(|entry| entry.announced).map(|entry| &entry.item)
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Inserts the item and returns the id before it; at the end if the place no longer exists.
    pub fn insert(&mut self, item: Item, announced: bool, place: &ItemPlace) -> Option<String> {
        let end = || (self.entries.len(), self.before(self.entries.len()));
        let (at, before) = match place {
            ItemPlace::Head => (0, None),
            ItemPlace::End => end(),
            ItemPlace::After(id) => self.index_behind(id).map_or_else(end, |at| (at, Some(id.clone()))),
        };
        // An item before a covered one is covered too, except instructions at the head.
        let is_told = self.entries.get(at).is_some_and(|next| next.covered)
            || self
                .departed
                .as_ref()
                .is_some_and(|departed| at == departed.at && before.as_ref() != Some(&departed.last));
        let covered =
            is_told && !(is_instruction(&item) && self.entries[..at].iter().all(|entry| is_instruction(&entry.item)));
        self.put(at, before.as_deref(), Entry { item: Arc::new(item), announced, covered, told_in_part: false });
        before
    }

    fn put(&mut self, at: usize, before: Option<&str>, entry: Entry) {
        let is_before_left = self.is_before_left(at, before);
        if let Some(departed) = self.departed.as_mut().filter(|_| is_before_left) {
            departed.at += 1;
        }
        self.entries.insert(at, entry);
    }

    fn is_before_left(&self, at: usize, before: Option<&str>) -> bool {
        self.departed
            .as_ref()
            .is_some_and(|departed| at < departed.at || at == departed.at && before != Some(&departed.last))
    }

    fn before(&self, at: usize) -> Option<String> {
        match &self.departed {
            Some(departed) if departed.at == at => Some(departed.last.clone()),
            _ => at.checked_sub(1).map(|before| self.entries[before].item.id.clone()),
        }
    }

    fn index_behind(&self, id: &str) -> Option<usize> {
        match &self.departed {
            Some(departed) if departed.last == id => Some(departed.at),
            _ => self.index_of(id).map(|index| index + 1),
        }
    }

    pub fn place_before(&self, id: &str) -> ItemPlace {
        match self.index_of(id) {
            None => ItemPlace::End,
            Some(index) => self.before(index).map_or(ItemPlace::Head, ItemPlace::After),
        }
    }

    pub fn previous_announced(&self, id: &str) -> Option<String> {
        let index = self.index_of(id)?;
        let newest_of =
            |entries: &[Entry]| entries.iter().rfind(|entry| entry.announced).map(|entry| entry.item.id.clone());
        match self.departed.as_ref().filter(|departed| departed.at <= index) {
            None => newest_of(&self.entries[..index]),
            Some(departed) => newest_of(&self.entries[departed.at..index])
                .or_else(|| departed.announced.clone())
                .or_else(|| newest_of(&self.entries[..departed.at])),
        }
    }

    pub fn placed(&self, id: &str) -> Placed {
        Placed { previous_item_id: self.previous_announced(id) }
    }

    pub fn announce(&mut self, id: &str) {
        if let Some(index) = self.index_of(id) {
            self.entries[index].announced = true;
        }
    }

    pub fn mark_told_in_part(&mut self, id: &str) {
        if let Some(index) = self.index_of(id) {
            self.entries[index].told_in_part = true;
        }
    }

    /// Marks an item as told to its end, unless it still goes on.
    pub fn mark_told_whole(&mut self, id: &str) {
        if let Some(index) = self.index_of(id) {
            let entry = &mut self.entries[index];
            entry.told_in_part &= entry.item.status == ItemStatus::InProgress;
        }
    }

    pub fn replace(&mut self, item: Arc<Item>) -> Option<Arc<Item>> {
        let index = self.index_of(&item.id)?;
        Some(std::mem::replace(&mut self.entries[index].item, item))
    }

    pub fn remove(&mut self, id: &str) -> Option<Removed> {
        let index = self.index_of(id)?;
        let before = self.before(index);
        if let Some(departed) = self.departed.as_mut().filter(|departed| index < departed.at) {
            departed.at -= 1;
        }
        Some(Removed { entry: self.entries.remove(index), before })
    }

    pub fn restore(&mut self, removed: Removed) {
        if self.has(&removed.entry.item.id) {
            return;
        }
        let known = removed.before.as_ref().map(|id| self.index_behind(id));
        let (at, before) = match (known, &self.departed) {
            (None, _) => (0, None),
            (Some(Some(at)), _) => (at, removed.before),
            // The item before it has left memory.
            (Some(None), Some(departed)) if removed.entry.covered => (departed.at, Some(departed.last.clone())),
            (Some(None), _) => (self.entries.len(), self.before(self.entries.len())),
        };
        self.put(at, before.as_deref(), removed.entry);
    }

    /// Makes these items, and those in memory behind them, the prompt in this order. Items that are not in memory come
    /// back, behind the item `behind` of the store.
    pub fn recover(&mut self, items: Vec<Item>, behind: Option<String>) {
        let ids = self.entries.iter().map(|entry| entry.item.id.clone());
        let index_of: HashMap<String, usize> = ids.zip(0..).collect();
        let known = items.iter().find_map(|item| index_of.get(&item.id).copied());
        let from = known.unwrap_or(self.entries.len());
        if items.first().is_some_and(|first| !index_of.contains_key(&first.id)) {
            self.departed = behind.map(|last| DepartedItems::behind(from, last));
        }
        let rest = self.entries.split_off(from);
        let mut rest = (from..).zip(rest).peekable();
        for item in items {
            match index_of.get(&item.id) {
                Some(known) => {
                    while let Some((_, entry)) = rest.next_if(|(index, _)| index <= known) {
                        self.entries.push(entry);
                    }
                }
                None => self.entries.push(Entry::stored(item)),
            }
        }
        self.entries.extend(rest.map(|(_, entry)| entry));
        self.entries[from..].iter_mut().for_each(|entry| entry.covered = false);
    }

    /// Lists the items of a prompt whose summary covered everything up to this item.
    pub fn behind(&self, covered_through: Option<&str>) -> Vec<Arc<Item>> {
        let context = Context { covered_through: covered_through.map(str::to_owned), ..Context::default() };
        let mut conversation = self.clone();
        conversation.set_context(context, usize::MAX);
        conversation.snapshot()
    }

    fn cover(&mut self) {
        let covered = match self.context.covered_through.as_deref().map(|id| self.index_of(id)) {
            None => 0,
            Some(Some(index)) => index + 1,
            Some(None) => return,
        };
        // No summary covers instructions at the head.
        let head = self.departed.as_ref().map_or(self.entries.len(), |departed| departed.at);
        let leading = self.entries[..head].iter().take_while(|entry| is_instruction(&entry.item)).count();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            entry.covered = (leading..covered).contains(&index);
        }
    }

    /// Unloads the oldest covered items, except the newest `most_told`. The store has them. All items behind a reply in
    /// progress stay.
    fn unload(&mut self, most_told: usize) {
        let told = self.entries.iter().filter(|entry| entry.covered).count();
        let mut beyond = told.saturating_sub(most_told);
        let mut stayed = 0;
        let departed = &mut self.departed;
        self.entries.retain(|entry| {
            if entry.item.status == ItemStatus::InProgress {
                beyond = 0;
            }
            let leaves = beyond > 0 && entry.covered;
            if leaves {
                beyond -= 1;
                DepartedItems::add(departed, stayed, entry);
            } else {
                stayed += 1;
            }
            !leaves
        });
    }

    pub fn snapshot(&self) -> Vec<Arc<Item>> {
        let stands = |entry: &&Entry| !entry.covered && entry.item.status != ItemStatus::InProgress;
        self.entries.iter().filter(stands).map(|entry| entry.item.clone()).collect()
    }

    pub fn asker(&self) -> Option<NamedSpeaker> {
        let last = self.entries.iter().map(|entry| &entry.item).rfind(|item| item.is_said_by_user());
        last.and_then(|item| item.speaker().cloned())
    }

    pub fn said_before(&self, id: &str) -> Option<&Arc<Item>> {
        let earlier = &self.entries[..self.index_of(id)?];
        earlier.iter().map(|entry| &entry.item).rfind(|item| item.is_said_by_user())
    }

    fn index_of(&self, id: &str) -> Option<usize> {
        // Most callers ask for one of the newest.
        self.entries.iter().rposition(|entry| entry.item.id == id)
    }
}

impl Entry {
    fn stored(item: Item) -> Entry {
        Entry { announced: !is_hidden(&item), item: Arc::new(item), covered: false, told_in_part: false }
    }
}

impl DepartedItems {
    fn behind(at: usize, last: String) -> DepartedItems {
        // Clients do not know items with hidden ids.
        let announced = (!is_hidden_id(&last)).then(|| last.clone());
        DepartedItems { at, last, announced }
    }

    fn add(departed: &mut Option<DepartedItems>, at: usize, entry: &Entry) {
        match departed {
            // An entry before all that has left is not the newest of it.
            Some(departed) if at < departed.at => departed.at -= 1,
            _ => {
                let (last, before) = (entry.item.id.clone(), departed.take());
                let announced = entry.announced.then(|| last.clone());
                let known = before.as_ref().and_then(|before| before.announced.clone());
                *departed = Some(DepartedItems {
                    at: before.map_or(at, |departed| departed.at),
                    last,
                    announced: announced.or(known),
                });
            }
        }
    }
}

fn is_instruction(item: &Item) -> bool {
    item.role() == Some(Role::System) && !item.is_note_of_past()
}
