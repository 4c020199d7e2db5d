//! Findings of the reader: every value with its origin, and every mistake.

use std::cell::{Cell, RefCell};

use crate::error::Mistake;
use crate::origin::Origin;

#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// `server`, or `presets."qwen3.5-9b".kv`.
    pub section: String,
    pub key: String,
    pub value: String,
    pub origin: Origin,
}

#[derive(Default)]
pub(crate) struct Findings {
    effective: RefCell<Vec<Effective>>,
    mistakes: RefCell<Vec<Mistake>>,
    mistake_count: Cell<usize>,
}

pub(crate) const UNKNOWN: &str = "an unknown key";

impl Findings {
    pub fn keep(&self, value: Effective) {
        self.effective.borrow_mut().push(value);
    }

    /// Adds a mistake once: the reader meets a line of `[preset]` for each preset.
    pub fn add(&self, mistake: Mistake) {
        self.mistake_count.update(|count| count + 1);
        let mut mistakes = self.mistakes.borrow_mut();
        if !mistakes.contains(&mistake) {
            mistakes.push(mistake);
        }
    }

    /// Adds a contradiction between values, as (section, key). Its place is the value of the latest layer, because the
    /// defaults agree with each other, and the first of them if that layer has several.
    pub fn contradiction(&self, keys: &[(&str, &str)], found: String, allowed: &str) {
        let written = keys.iter().rev().filter_map(|(section, key)| self.origin(section, key));
        if let Some(origin) = written.max_by_key(|origin| origin.layer) {
            self.add(Mistake { origin, found, allowed: allowed.to_string(), hint: None });
        }
    }

    pub fn origin(&self, section: &str, key: &str) -> Option<Origin> {
        let effective = self.effective.borrow();
        effective.iter().find(|value| value.section == section && value.key == key).map(|value| value.origin.clone())
    }

    /// Counts all mistakes so far, repeated ones included.
    pub fn mistake_count(&self) -> usize {
        self.mistake_count.get()
    }

    pub fn finish(self) -> Result<Vec<Effective>, Vec<Mistake>> {
        let (effective, mut mistakes) = (self.effective.into_inner(), self.mistakes.into_inner());
        for mistake in mistakes.iter_mut().filter(|mistake| mistake.found == UNKNOWN && mistake.hint.is_none()) {
            let last = mistake.origin.key.rsplit('.').next().unwrap_or_default();
            let right = effective.iter().find(|value| value.key == last && !value.section.starts_with("presets."));
            mistake.hint = right.map(|value| format!("did you mean `{last}` in [{}]", value.section));
        }
        if mistakes.is_empty() { Ok(effective) } else { Err(mistakes) }
    }
}
