//! Changes that leave JSON JSON: they get past the first reader.

use super::random::Random;
use serde_json::{Map, Value, json};
use std::ops::Range;

/// Changes one value of the JSON, or of one line of JSON.
pub fn change(input: &mut Vec<u8>, random: &mut Random) {
    let (mut value, place) = match serde_json::from_slice::<Value>(input) {
        Ok(value) => (value, 0..input.len()),
        Err(_) => {
            let place = line(input, random);
            let Ok(value) = serde_json::from_slice(&input[place.clone()]) else { return };
            (value, place)
        }
    };
    let spare = value.clone();
    let count = nodes(&value);
    let chosen = random.below(count);
    if let Some(node) = node(&mut value, &mut { chosen }) {
        change_node(node, &spare, random);
    }
    input.splice(place, value.to_string().into_bytes());
}

fn line(input: &[u8], random: &mut Random) -> Range<usize> {
    let at = random.below(input.len() + 1);
    let start = input[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let end = input[at..].iter().position(|byte| *byte == b'\n').map_or(input.len(), |end| at + end);
    let event = if input[start..end].starts_with(b"data: ") { 6 } else { 0 };
    start + event..end
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(entries) => entries.iter().map(nodes).sum(),
        Value::Object(fields) => fields.values().map(nodes).sum(),
        _ => 0,
    }
}

fn node<'v>(value: &'v mut Value, left: &mut usize) -> Option<&'v mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(entries) => entries.iter_mut().find_map(|entry| node(entry, left)),
        Value::Object(fields) => fields.values_mut().find_map(|field| node(field, left)),
        _ => None,
    }
}

fn change_node(node: &mut Value, whole: &Value, random: &mut Random) {
    match random.below(8) {
        0 => *node = other(random),
        1 => {
            let mut copy = whole.clone();
            let count = nodes(&copy);
            let mut chosen = random.below(count);
            if let Some(part) = self::node(&mut copy, &mut chosen) {
                *node = part.take();
            }
        }
        2 => {
            for _ in 0..1 + random.below(40) {
                let inner = node.take();
                *node = if random.one_in(2) { json!([inner]) } else { json!({ "items": inner }) };
            }
        }
        _ => inside(node, random),
    }
}

fn inside(node: &mut Value, random: &mut Random) {
    match node {
        Value::Object(fields) if !fields.is_empty() => {
            let name = random.pick(&fields.keys().cloned().collect::<Vec<_>>()).clone();
            match random.below(3) {
                0 => drop(fields.shift_remove(&name)),
                1 => {
                    let value = fields.shift_remove(&name).unwrap_or_default();
                    fields.insert(name + "_", value);
                }
                _ => {
                    let names: Vec<String> = fields.keys().cloned().collect();
                    let other = fields[random.pick(&names)].clone();
                    fields.insert(name, other);
                }
            }
        }
        Value::Array(entries) if !entries.is_empty() => {
            let at = random.below(entries.len());
            if random.one_in(2) {
                entries.remove(at);
            } else {
                let again = vec![entries[at].clone(); 1 + random.below(20)];
                entries.extend(again);
            }
        }
        Value::String(text) => {
            let more =
                *random.pick(&["", " ", "\u{0}", "ü", "x", "💩", "<tool_call>", "#/$defs/a", "^(a+)+$", "\u{202e}"]);
            *text = match random.below(3) {
                0 => more.repeat(1 + random.below(300)),
                1 => format!("{text}{more}"),
                _ => more.to_owned(),
            };
        }
        Value::Number(_) => {
            *node = random
                .pick(&[
                    json!(-1),
                    json!(0),
                    json!(1e300),
                    json!(0.5),
                    json!(u64::MAX),
                    json!(i64::MIN),
                    json!(1 << 31),
                ])
                .clone();
        }
        other => *other = self::other(random),
    }
}

fn other(random: &mut Random) -> Value {
    match random.below(9) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(1e300),
        4 => json!(""),
        5 => json!([]),
        6 => Value::Object(Map::new()),
        7 => json!([[null], {}]),
        _ => json!("x".repeat(random.below(2000))),
    }
}
