//! What reading leaves behind: every value with its origin, and every mistake.

use std::cell::{Cell, RefCell};

use crate::error::Mistake;
use crate::origin::Origin;

/// One value that holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// `server`, or `presets."qwen3.5-9b".kv`.
    pub section: String,
    pub key: String,
    /// As TOML.
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

    /// A line of `[preset]` is read once for each preset, but is one mistake.
    pub fn add(&self, mistake: Mistake) {
        self.mistake_count.update(|count| count + 1);
        let mut mistakes = self.mistakes.borrow_mut();
        if !mistakes.contains(&mistake) {
            mistakes.push(mistake);
        }
    }

    /// Values that contradict each other, as (section, key). The mistake is told at the value of the latest layer, because
    /// the defaults agree with each other, and at the first of them where that layer has several.
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

    /// Grows with each mistake that is found, also with one that was found before.
    pub fn mistake_count(&self) -> usize {
        self.mistake_count.get()
    }

    /// Every value, or all mistakes. A key that is unknown where it stands may be right in another section.
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
