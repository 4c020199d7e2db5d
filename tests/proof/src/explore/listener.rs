//! A client, and what it can expect of what it hears.

use session::{Event, ItemBody};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub struct Listener {
    pub unanswered: BTreeMap<String, Wanted>,
    pub open: BTreeSet<String>,
    done: BTreeSet<String>,
    pub heard: BTreeMap<String, String>,
    pub items: Vec<String>,
}

/// Answer to an input, besides a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Item(String),
    Response,
    Ended,
    Cut(String),
    Deleted(String),
}

impl Listener {
    /// The client forgets what it heard; what it is told next comes again from the begin.
    pub fn hear(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Refused { input_id: Some(id), .. } => drop(self.unanswered.remove(id)),
            Event::ItemAdded { item, is_new, .. } => {
                self.answer(&Wanted::Item(item.id.clone()));
                if self.items.contains(&item.id) && *is_new {
                    return Err(format!("{} is added twice", item.id));
                }
                self.items.push(item.id.clone());
                if !is_new {
                    self.heard.insert(item.id.clone(), item.text());
                }
            }
            Event::ItemTruncated { item_id, heard_chars, .. } => {
                self.answer(&Wanted::Cut(item_id.clone()));
                if let Some(heard) = self.heard.get_mut(item_id) {
                    *heard = heard.chars().take(*heard_chars).collect();
                }
            }
            Event::ItemDeleted { item_id } => {
                self.answer(&Wanted::Deleted(item_id.clone()));
                self.items.retain(|id| id != item_id);
                self.heard.remove(item_id);
            }
            Event::ResponseStarted { response } => {
                self.answer(&Wanted::Response);
                if self.done.contains(&response.id) || !self.open.insert(response.id.clone()) {
                    return Err(format!("{} is begun twice", response.id));
                }
                if self.open.len() > 1 {
                    return Err(format!("two responses are under way: {:?}", self.open));
                }
            }
            Event::ResponseDone { response } => {
                self.answer(&Wanted::Ended);
                if !self.open.remove(&response.id) {
                    return Err(format!("{} ends and was not begun", response.id));
                }
                self.done.insert(response.id.clone());
            }
            Event::ReplyStarted { item, .. } => {
                if !matches!(item.body, ItemBody::Message { .. }) {
                    return Ok(());
                }
                // Where a reply goes on, the client knows what was heard of it.
                if let Some(heard) = self.heard.insert(item.id.clone(), item.text())
                    && !item.text().is_empty()
                    && !heard.starts_with(&item.text())
                {
                    return Err(format!("{} goes on behind {:?}, and {heard:?} was heard", item.id, item.text()));
                }
                if !self.items.contains(&item.id) {
                    self.items.push(item.id.clone());
                }
            }
            Event::TextDelta { item_id, text, .. } => {
                let heard = self.heard.entry(item_id.clone()).or_default();
                heard.push_str(text);
            }
            Event::TextDone { item_id, text, .. } => self.must_have(item_id, text)?,
            Event::ReplyDone { item, .. } => {
                if matches!(item.body, ItemBody::Message { .. }) {
                    self.must_have(&item.id, &item.text())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn answer(&mut self, what: &Wanted) {
        self.unanswered.retain(|_, wanted| wanted != what);
    }

    fn must_have(&self, item_id: &str, text: &str) -> Result<(), String> {
        let heard = self.heard.get(item_id).map(String::as_str).unwrap_or_default();
        if heard == text {
            return Ok(());
        }
        Err(format!("{item_id} is done as {text:?}, and {heard:?} was heard"))
    }
}
