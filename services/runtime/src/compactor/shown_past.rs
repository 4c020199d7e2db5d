//! Part of the past that the prompt shows: the summary in use, the pins, and the first item behind them.

use compaction::{CompactionLimits, PinnedText, PlainMessage, Speaker};
use serde_json::{Value, json};
use session::{Context, Item, Message, MessageRole};
use std::collections::HashSet;
use std::sync::Arc;
use store::{MadeBy, Pin, Summary, SummaryKind, View};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShownPast {
    /// Version in use: a summary, or turns that left without one.
    pub version: Option<u64>,
    pub newest_version: u64,
    pub text: String,
    pub text_version: Option<u64>,
    pub covered_through: Option<String>,
    /// True if no summary covers some of them, or only one from before they were changed.
    pub owes_summary: bool,
    /// Pins beside the summary, by id. Newer pins wait for the next summary, so that the prompt stays as it is.
    pub placed_pins: HashSet<String>,
    pub trimmed: HashSet<String>,
    pub pins: Vec<Pin>,
    /// True after a person undid the last summary: the next one waits until the prompt is full.
    pub was_undone: bool,
}

impl ShownPast {
    pub fn of(view: &View) -> ShownPast {
        let pins = view.pins.clone();
        let newest = view.newest_summary.as_ref();
        let mut shown_past = ShownPast {
            newest_version: newest.map_or(0, |newest| newest.version),
            was_undone: newest.is_some_and(|newest| newest.undone_at_ms.is_some()),
            trimmed: view.trimmed.iter().cloned().collect(),
            pins,
            ..ShownPast::default()
        };
        if let Some(summary) = &view.summary {
            shown_past.put(summary);
            // What a person wrote stays until they write something else.
            shown_past.owes_summary |= view.summary_is_stale && summary.made_by != MadeBy::User;
        }
        shown_past
    }

    fn put(&mut self, summary: &Summary) {
        let is_drop = summary.kind == SummaryKind::Drop;
        self.version = Some(summary.version);
        self.text = summary.text.clone();
        self.text_version = if is_drop { summary.based_on } else { Some(summary.version) };
        self.covered_through = Some(summary.to_item.clone());
        self.owes_summary = is_drop;
        let ids = summary.pins.as_array().map(Vec::as_slice).unwrap_or_default();
        self.placed_pins = ids.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }

    pub fn with(&self, summary: &Summary) -> ShownPast {
        let mut shown_past = self.clone();
        shown_past.put(summary);
        shown_past.was_undone = false;
        shown_past
    }

    pub fn take_back(&mut self, to: Option<&Summary>) {
        self.version = None;
        self.text.clear();
        (self.text_version, self.covered_through, self.owes_summary) = (None, None, false);
        self.placed_pins.clear();
        if let Some(summary) = to {
            self.put(summary);
        }
    }

    pub fn shows_the_same_as(&self, other: &ShownPast) -> bool {
        let shown = |shown_past: &ShownPast| ShownPast { newest_version: 0, ..shown_past.clone() };
        shown(self) == shown(other)
    }

    pub fn place_pins(&mut self) {
        self.placed_pins = self.pins.iter().map(|pin| pin.id.clone()).collect();
    }

    fn placed(&self) -> impl Iterator<Item = &Pin> {
        self.pins.iter().filter(|pin| self.placed_pins.contains(&pin.id))
    }

    pub fn placed_ids(&self) -> Value {
        json!(self.placed().map(|pin| &pin.id).collect::<Vec<_>>())
    }

    pub fn memory(&self, limits: &CompactionLimits) -> Option<PlainMessage> {
        compaction::context_message(&self.text, &self.placed().map(pin_of).collect::<Vec<_>>(), limits)
    }

    /// Returns the context of a prompt with these items. A pin that is neither in them nor beside the summary is a note
    /// until the next swap.
    pub fn context(&self, items: &[Arc<Item>], limits: &CompactionLimits, has_recall: bool) -> Context {
        let is_shown = |pin: &&Pin| {
            let in_words = |source: &String| items.iter().any(|item| item.id == *source);
            self.placed_pins.contains(&pin.id) || pin.source_item.as_ref().is_some_and(in_words)
        };
        let notes = self.pins.iter().filter(|pin| !is_shown(pin)).map(|pin| pin.text.clone()).collect();
        Context {
            preface: self.memory(limits).iter().map(message_of).collect(),
            covered_through: self.covered_through.clone(),
            trimmed: self.trimmed.clone(),
            recall: has_recall && self.covered_through.is_some(),
            notes,
        }
    }
}

pub fn pin_of(pin: &Pin) -> PinnedText {
    PinnedText { id: pin.id.clone(), text: pin.text.clone(), source: pin.source_item.clone() }
}

pub fn message_of(message: &PlainMessage) -> Message {
    let role = match message.speaker {
        Speaker::User => MessageRole::User,
        Speaker::Assistant => MessageRole::Assistant,
        Speaker::Context => MessageRole::Tool,
    };
    Message::new(role, &message.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_session_made_itself_is_no_news() {
        let shown_past =
            ShownPast { version: Some(2), newest_version: 2, text: "- Ann.".into(), ..ShownPast::default() };
        let made_since = ShownPast { newest_version: 3, ..shown_past.clone() };
        assert!(shown_past.shows_the_same_as(&made_since));
        let others = [
            ShownPast { version: Some(3), ..shown_past.clone() },
            ShownPast { was_undone: true, ..shown_past.clone() },
            ShownPast { trimmed: ["a".to_owned()].into(), ..shown_past.clone() },
        ];
        assert!(others.iter().all(|other| !shown_past.shows_the_same_as(other)));
    }
}
