//! Fields that a client wrote and no struct reads.

use crate::schema::read_schema;
use schemars::JsonSchema;
use serde_json::Value;
use std::collections::BTreeMap;

pub struct KnownFields {
    schema: Value,
}

impl KnownFields {
    pub fn of<T: JsonSchema>() -> KnownFields {
        KnownFields { schema: read_schema::<T>() }
    }

    pub fn of_kinds<T: JsonSchema>() -> BTreeMap<String, KnownFields> {
        let kinds = read_schema::<T>();
        let kinds = kinds["oneOf"].as_array().into_iter().flatten();
        let kind = |schema: &Value| {
            let kind = schema["properties"]["type"]["const"].as_str()?.to_owned();
            Some((kind, KnownFields { schema: schema.clone() }))
        };
        kinds.filter_map(kind).collect()
    }

    pub fn unread(&self, body: &Value) -> Vec<String> {
        let mut unread = Vec::new();
        look(body, &self.schema, String::new(), &mut unread);
        unread
    }
}

/// Characters of a name, which comes from a client.
const NAME_CHARS: usize = 64;
pub const MOST_NAMES: usize = 16;
const LEVELS: u32 = 3;

fn look(value: &Value, schema: &Value, path: String, unread: &mut Vec<String>) {
    let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else { return };
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let name: String = name.chars().take(NAME_CHARS).collect();
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match known.get(&name) {
            Some(schema) => look(value, schema_of_object(schema), path, unread),
            None => name_all(value, path, LEVELS, unread),
        }
    }
}

fn name_all(value: &Value, path: String, levels: u32, unread: &mut Vec<String>) {
    if unread.len() >= MOST_NAMES {
        return;
    }
    match value.as_object().filter(|fields| levels > 0 && fields.values().any(|value| !value.is_null())) {
        Some(fields) => {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                let name: String = name.chars().take(NAME_CHARS).collect();
                name_all(value, format!("{path}.{name}"), levels - 1, unread);
            }
        }
        None => unread.push(path),
    }
}

pub fn schema_of_object(schema: &Value) -> &Value {
    let choices = schema["anyOf"].as_array().into_iter().flatten();
    choices.into_iter().find(|choice| choice["properties"].is_object()).unwrap_or(schema)
}
