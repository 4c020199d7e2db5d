//! Detection of schemas that refer to nothing but themselves: no value fits them, and a reply that reached one could
//! not continue.

use std::collections::HashSet;

use serde_json::Value;

use super::parts::children;

pub const CIRCLE: &str = "its references go round in a circle or too far; let each lead to a type";

const MOST_STEPS: usize = 100_000;
const MOST_REFERENCES: usize = 100;

/// Returns the JSON pointer of a part that refers to nothing but itself. References without a target are left to the
/// compiler.
pub fn circle(root: &Value) -> Option<String> {
    let mut search =
        CircleSearch { root, seen: HashSet::new(), sound: HashSet::new(), steps: 0, targets: vec![("#", root)] };
    while let Some((reference, target)) = search.targets.pop() {
        if let Some(path) = search.circle_in(target) {
            return Some(format!("{reference}{path}"));
        }
    }
    None
}

struct CircleSearch<'a> {
    root: &'a Value,
    seen: HashSet<*const Value>,
    /// Schemas that are more than a reference to themselves.
    sound: HashSet<*const Value>,
    steps: usize,
    /// Targets of references that the search has yet to visit.
    targets: Vec<(&'a str, &'a Value)>,
}

impl<'a> CircleSearch<'a> {
    fn circle_in(&mut self, part: &'a Value) -> Option<String> {
        if !self.seen.insert(std::ptr::from_ref(part)) {
            return None;
        }
        if !self.is_sound(part, &mut Vec::new()) {
            return Some(String::new());
        }
        self.targets.extend(self.target(part));
        children(part).find_map(|(name, child)| Some(format!("/{name}{}", self.circle_in(child)?)))
    }

    fn target(&self, schema: &'a Value) -> Option<(&'a str, &'a Value)> {
        let reference = schema.get("$ref")?.as_str()?;
        Some((reference, self.root.pointer(reference.strip_prefix('#')?)?))
    }

    /// Tests whether a value can fit. `followed` holds the schemas whose answer depends on this one.
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
        let is_sound = self.target(schema).is_none_or(|(_, target)| self.is_sound(target, followed))
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
