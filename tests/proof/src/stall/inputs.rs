//! Bodies from a schema: one that is light, and for each field that may grow one in which it is as large as the limits allow.

use anyhow::{Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tests::speech::vowel;

#[derive(Clone, Debug)]
pub struct HeavyField {
    path: String,
    way: Way,
    entry: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    TextOfAnItem,
    TextOfABody,
    ManyFields,
    MostEntries,
    FarTooManyEntries,
    FewLongEntries,
    ManyFacts,
    Sound,
}

/// Limits that an input reaches, and values that a schema does not tell.
#[derive(Clone, Debug, Default)]
pub struct InputLimits {
    pub bytes: usize,
    pub item_bytes: usize,
    pub entries: usize,
    /// Fields by their name: ids, and lists whose entries the schema leaves open.
    pub known: BTreeMap<String, Value>,
}

const AROUND: usize = 4096; // not a window: bytes of JSON
const AROUND_AN_ENTRY: usize = 64; // not a window: bytes of JSON
const LONGEST_LOOKED_THROUGH: usize = 999;
const FEW: usize = 8;
const FAR_TOO_MANY: usize = 30_000;
const DEEPEST: usize = 5;

pub fn heavy_fields(root: &Value, schema: &Value, limits: &InputLimits) -> Result<(Value, Vec<HeavyField>)> {
    let mut fields = Vec::new();
    grow(root, schema, "", limits, &mut fields);
    Ok((light(root, schema, "", limits)?, fields))
}

impl HeavyField {
    pub fn name(&self) -> String {
        format!("{} {:?}", self.path, self.way)
    }

    pub fn body(&self, light: &Value, limits: &InputLimits) -> Value {
        let mut body = light.clone();
        put(&mut body, &self.path, self.value(limits));
        body
    }

    fn value(&self, limits: &InputLimits) -> Value {
        // A line end takes two bytes in JSON.
        let room = limits.bytes.saturating_sub(AROUND) / 16 * 15;
        match self.way {
            Way::TextOfAnItem => json!(text(limits.item_bytes.min(room))),
            Way::TextOfABody => json!(text(room)),
            Way::ManyFields => (0..limits.entries).map(|n| (format!("name {n}"), json!("word"))).collect(),
            Way::MostEntries => json!(vec![&self.entry; limits.entries]),
            Way::FarTooManyEntries => json!(vec![&self.entry; FAR_TOO_MANY.max(limits.entries + 1)]),
            Way::FewLongEntries => {
                let words = text(room / FEW);
                (0..FEW).map(|n| self.long(n, &words)).collect()
            }
            Way::Sound => json!(sound(room)),
            Way::ManyFacts => {
                let many = (room / (LONGEST_LOOKED_THROUGH + AROUND_AN_ENTRY)).min(limits.entries);
                (0..many).map(|n| self.with("content", &facts(n))).collect()
            }
        }
    }

    /// A long entry: instructions first, then speakers with names.
    fn long(&self, n: usize, words: &str) -> Value {
        let mut entry = self.with("content", words);
        if entry.get("role").is_some() && n == 0 {
            entry["role"] = json!("system");
        } else if entry.get("role").is_some() {
            entry["name"] = json!(format!("Speaker {n}"));
        }
        entry
    }

    fn with(&self, field: &str, words: &str) -> Value {
        let mut entry = self.entry.clone();
        match &mut entry {
            Value::String(text) => *text = words.to_owned(),
            Value::Object(fields) if fields.contains_key(field) => fields[field] = json!(words),
            Value::Object(fields) => drop(fields.insert("description".to_owned(), json!(words))),
            entry => *entry = json!(words),
        }
        entry
    }
}

fn light(root: &Value, schema: &Value, name: &str, limits: &InputLimits) -> Result<Value> {
    if let Some(known) = limits.known.get(name).filter(|known| fits(root, schema, known)) {
        return Ok(known.clone());
    }
    let schema = resolved(root, schema);
    if let Some(value) = schema.get("const") {
        return Ok(value.clone());
    }
    if let Some(value) = schema["enum"].get(0) {
        return Ok(value.clone());
    }
    if let Some(first) = ["oneOf", "anyOf"].iter().find_map(|word| schema[*word].get(0)) {
        return light(root, first, name, limits);
    }
    Ok(match kind(schema) {
        Some("object") => {
            let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut fields = Map::new();
            for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
                let is_known = limits.known.get(field).is_some_and(|known| fits(root, inner, known));
                if required.contains(&json!(field)) || is_known {
                    fields.insert(field.clone(), light(root, inner, field, limits)?);
                }
            }
            Value::Object(fields)
        }
        Some("array") => json!([]),
        Some("string") => json!("word"),
        Some("integer" | "number") => json!(schema["minimum"].as_i64().unwrap_or(1).max(1)),
        Some("boolean") => json!(false),
        _ => {
            bail!("no input can be built for the field '{name}': give the proof a value for it (known of InputLimits)")
        }
    })
}

fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    let schema = resolved(root, schema);
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        // A field that is left open takes the lists that are known by its name.
        _ => return value.is_array() && schema.get("oneOf").is_none() && schema.get("anyOf").is_none(),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    kinds.contains(&kind)
}

/// Lists each field that may grow, in each way in which it grows.
fn grow(root: &Value, schema: &Value, path: &str, limits: &InputLimits, found: &mut Vec<HeavyField>) {
    if path.matches('/').count() > DEEPEST {
        return;
    }
    let schema = resolved(root, schema);
    for inner in ["oneOf", "anyOf"].iter().filter_map(|word| schema[*word].as_array()).flatten() {
        grow(root, inner, path, limits, found);
    }
    if schema.get("const").is_some() || schema.get("enum").is_some() {
        return;
    }
    let is_open = kind(schema).is_none() && schema.get("oneOf").is_none() && schema.get("anyOf").is_none();
    let mut ways: Vec<Way> = Vec::new();
    match kind(schema) {
        Some("object") => {
            for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
                grow(root, inner, &format!("{path}/{field}"), limits, found);
            }
            ways.extend((schema["additionalProperties"] == true).then_some(Way::ManyFields));
        }
        Some("string") if path.ends_with("/audio") => ways.push(Way::Sound),
        Some("string") => ways.extend([Way::TextOfAnItem, Way::TextOfABody]),
        Some("array") => ways.extend(LISTS),
        None if is_open => {
            ways.push(Way::TextOfABody);
            ways.extend(LISTS);
        }
        _ => {}
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let known = limits.known.get(name).and_then(|known| known.get(0)).cloned();
    let entry = known.or_else(|| light(root, schema.get("items")?, "", limits).ok()).unwrap_or_else(|| json!("word"));
    let field = |way| HeavyField { path: path.to_owned(), way, entry: entry.clone() };
    found.extend(ways.into_iter().map(field));
}

const LISTS: [Way; 4] = [Way::MostEntries, Way::FarTooManyEntries, Way::FewLongEntries, Way::ManyFacts];

/// Lines of sentences that the service looks through: facts, names, questions, and lines that are alike.
pub fn text(bytes: usize) -> String {
    let lines = "Remember that my sister lives in Lisbon.\n- the lamp is on\n\n\nYou are in area Kitchen (floor 1) and so on.\n\
                 Where does my sister live? Meine Schwester wohnt in Wien. 我的妹妹住在里斯本。\n";
    let mut text = lines.repeat(bytes / lines.len());
    text.extend(std::iter::repeat_n('x', bytes - text.len()));
    text
}

/// Returns base64 of audio in which a voice stammers: it pauses, as often as there is room.
fn sound(bytes: usize) -> String {
    let (voice, pause) = (vowel(AUDIO_RATE, 150), vec![0; AUDIO_RATE as usize * 400 / 1000]);
    let samples: Vec<i16> = [voice, pause].concat().into_iter().cycle().take(bytes / 4 * 3 / 2).collect();
    STANDARD.encode(speech::pcm::to_bytes(&samples))
}

const AUDIO_RATE: u32 = 24_000;

/// Returns as many facts as fit into a message that is looked through for them. Each number has other facts.
fn facts(number: usize) -> String {
    let word =
        |n: usize| (0..5).map(|place| char::from(b'a' + (n / 26_usize.pow(place) % 26) as u8)).collect::<String>();
    let facts = (0..100).map(|n| format!("I like {}. ", word(100 * number + n)));
    facts.collect::<String>().chars().take(LONGEST_LOOKED_THROUGH).collect()
}

fn put(body: &mut Value, path: &str, value: Value) {
    let mut place = body;
    for field in path.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[field];
    }
    *place = value;
}

fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str().and_then(|reference| root.pointer(reference.trim_start_matches('#'))) {
        Some(target) => resolved(root, target),
        None => schema,
    }
}

fn kind(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        kind => kind.as_str(),
    }
}
