//! Rules that hold at each step, and rules that hold when no work is left.

use super::super::script::script;
use super::World;
use session::machine::GenerationId;
use session::{Event, Item, ItemStatus};
use std::sync::Arc;

impl World {
    pub(super) fn holds(&self, event: &Event) -> Result<(), String> {
        match event {
            Event::ItemAdded { item, is_new: true, .. } if self.kept.item(&item.id).is_none() => {
                // It may be deleted again by now.
                let is_deleted = self.changed.contains(&item.id) || self.had_failures;
                if is_deleted { Ok(()) } else { Err(format!("{} is told and not stored", item.id)) }
            }
            Event::TextDelta { item_id, .. } => {
                let stored = self.kept.text(item_id);
                if stored.is_none() && !self.changed.contains(item_id) && !self.had_failures {
                    return Err(format!("words of {item_id} are sent, which is not begun"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks that clients hear nothing that a crash could take, and nothing twice.
    pub(super) fn was_never_said(&self, event: &Event) -> Result<(), String> {
        let Event::TextDelta { item_id, .. } = event else { return Ok(()) };
        for listener in self.listeners.values() {
            let Some(heard) = listener.heard.get(item_id) else { continue };
            let stored = self.kept.text(item_id).unwrap_or_default();
            if !stored.starts_with(heard.as_str()) && !self.changed.contains(item_id) {
                return Err(format!("{heard:?} was heard of {item_id}, and {stored:?} is written down"));
            }
            let is_of_one = (0..=self.life)
                .flat_map(|life| (1..=20).map(move |generation| script(life, GenerationId(generation))))
                .any(|script| script.starts_with(heard.as_str()));
            if !is_of_one {
                return Err(format!("{heard:?} was heard of {item_id}, which no reply says"));
            }
        }
        Ok(())
    }

    /// A prompt has every item that no summary tells, once.
    pub(super) fn prompt_is_whole(&self, items: &[Arc<Item>]) -> Result<(), String> {
        let entries = self.machine.entries();
        let covered = self.kept.covered_through.as_deref();
        let from = covered.and_then(|id| entries.iter().position(|entry| entry.item.id == id)).map_or(0, |at| at + 1);
        let wanted: Vec<&str> = entries[from..]
            .iter()
            .filter(|entry| entry.item.status != ItemStatus::InProgress)
            .map(|entry| entry.item.id.as_str())
            .collect();
        let found: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
        if covered.is_none_or(|id| entries.iter().any(|entry| entry.item.id == id)) && wanted != found {
            // The reply's own place was taken when it was asked for.
            return Err(format!("a prompt has {found:?}, and {wanted:?} are said"));
        }
        Ok(())
    }

    /// Checks a state without work: all is answered and stored.
    pub(super) fn look(&mut self) {
        if !self.pending.is_empty() || !self.making.is_empty() || self.wrong.is_some() {
            return;
        }
        if self.machine.is_replying() || !self.machine.is_settled() {
            self.wrong = Some("the machine waits, and nothing will come".to_owned());
            return;
        }
        for (conn, listener) in &self.listeners {
            if !listener.open.is_empty() || !listener.unanswered.is_empty() {
                let (open, unanswered) = (&listener.open, &listener.unanswered);
                self.wrong = Some(format!("client {conn} waits for {unanswered:?} and {open:?}"));
                return;
            }
        }
        let known: Vec<(&str, String)> =
            self.machine.entries().iter().map(|entry| (entry.item.id.as_str(), entry.item.text())).collect();
        let stored: Vec<(&str, String)> = self.kept.items.iter().map(|item| (item.id.as_str(), item.text())).collect();
        if known != stored && !self.had_failures {
            self.wrong = Some(format!("the machine has {known:?}, the store {stored:?}"));
        }
        if !self.kept.open_responses.is_empty() && !self.had_failures {
            self.wrong = Some(format!("the store has responses without an end: {:?}", self.kept.open_responses));
        }
        let is_silent = self.compactor.step.is_none() && !self.is_draining;
        if is_silent && !self.compactor.is_quiet() {
            self.wrong = Some("the compactor waits in a silence, and nothing will come".to_owned());
        }
    }
}
