//! Keys of older versions, which are still read.

use crate::layers::Table;
use crate::origin::Origin;
use config::{Value, ValueKind};

/// Section, old key and new key.
const RENAMED: [(&str, &str, &str); 2] =
    [("memory", "trail_tokens", "recurrence_log_tokens"), ("experiment", "by", "unit")];

/// Moves the values of old keys to the new ones. Returns a line for each, which names both. A new key goes before an old one.
pub(crate) fn move_old_keys(layer: &mut Table) -> Vec<String> {
    let mut lines = Vec::new();
    for (section, old, new) in RENAMED {
        let Some(Value { kind: ValueKind::Table(keys), .. }) = layer.get_mut(section) else { continue };
        let Some(value) = keys.remove(old) else { continue };
        lines.push(format!("{}: {section}.{old} is an old name, write {section}.{new}", Origin::of(&value)));
        keys.entry(new.to_string()).or_insert(value);
    }
    lines
}
