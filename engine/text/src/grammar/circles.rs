//! Schemas that refer to nothing but themselves: no value fits them, and a reply that came to one could not go on.

use std::collections::HashSet;

use serde_json::Value;

use super::schema::children;

/// Steps that looking at one schema may take.
const MOST_STEPS: usize = 100_000;
/// References from one to the next.
const MOST_REFERENCES: usize = 100;

/// The first part that refers to nothing but itself, as a JSON pointer. A reference that leads to nothing is not for this to tell.
pub fn circle(root: &Value) -> Option<String> {
    let mut search = CircleSearch { root, sound: HashSet::new(), steps: 0 };
    let mut parts = vec![("#".to_string(), root)];
    let mut seen = HashSet::new();
    while let Some((path, part)) = parts.pop() {
        if !seen.insert(std::ptr::from_ref(part)) {
            continue;
        }
        if !search.is_sound(part, &mut Vec::new()) {
            return Some(path);
        }
        parts.extend(target(part, root).map(|target| (format!("{path}/$ref"), target)));
        parts.extend(children(part).into_iter().map(|(child, part)| (format!("{path}/{child}"), part)));
    }
    None
}

fn target<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

struct CircleSearch<'a> {
    root: &'a Value,
    /// Those that are more than a reference to themselves.
    sound: HashSet<*const Value>,
    steps: usize,
}

impl<'a> CircleSearch<'a> {
    /// `followed`: what must be sound for this to be asked.
    fn is_sound(&mut self, schema: &'a Value, followed: &mut Vec<*const Value>) -> bool {
        let this = std::ptr::from_ref(schema);
        if self.sound.contains(&this) {
            return true;
        }
        self.steps += 1;
        if followed.contains(&this) || followed.len() == MOST_REFERENCES || self.steps > MOST_STEPS {
            return false;
        }
        followed.push(this);
        let choices = |key: &str| schema.get(key).and_then(Value::as_array).filter(|choices| !choices.is_empty());
        let is_sound = target(schema, self.root).is_none_or(|target| self.is_sound(target, followed))
            && choices("allOf").is_none_or(|all| all.iter().all(|part| self.is_sound(part, followed)))
            && ["anyOf", "oneOf"].into_iter().all(|key| {
                choices(key).is_none_or(|choices| choices.iter().any(|choice| self.is_sound(choice, followed)))
            });
        followed.pop();
        if is_sound {
            self.sound.insert(this);
        }
        is_sound
    }
}
