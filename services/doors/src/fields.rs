//! Fields that clients send and this service does not read. None is let go in silence: the log names each once, and
//! `docs/fields.md` has what becomes of all that stock clients send.

use crate::routes::openapi::read;
use runtime::first_time;
use schemars::JsonSchema;
use serde_json::Value;
use std::collections::BTreeMap;

/// The fields that a door reads of a body.
pub struct KnownFields {
    schema: Value,
}

/// Names fields in the log, each once for a source: a user, or an address without a key.
pub fn note(door: &str, source: &str, unread: Vec<String>) {
    for field in unread {
        if first_time(source, format!("{door} {field}")) {
            tracing::info!(door, field, "a client sends a field that means nothing here, see docs/fields.md");
        }
    }
}

impl KnownFields {
    pub fn of<T: JsonSchema>() -> KnownFields {
        KnownFields { schema: read::<T>() }
    }

    /// Returns the fields of each kind of an enum that a `type` tells apart.
    pub fn of_kinds<T: JsonSchema>() -> BTreeMap<String, KnownFields> {
        let kinds = read::<T>();
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

/// A field's name in the log comes from a client, and so does how many there are.
const NAME_CHARS: usize = 64;
const MOST: usize = 16;
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

/// Names all fields inside of an unknown one.
fn name_all(value: &Value, path: String, levels: u32, unread: &mut Vec<String>) {
    if unread.len() >= MOST {
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

/// Returns the object's schema of a field that may be null.
fn schema_of_object(schema: &Value) -> &Value {
    let choices = schema["anyOf"].as_array().into_iter().flatten();
    choices.into_iter().find(|choice| choice["properties"].is_object()).unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ollama::OllamaBody;
    use crate::openai_chat::ChatBody;
    use crate::openai_realtime::{ResponseFields, SessionFields};
    use crate::openai_responses::ResponsesBody;
    use crate::wyoming::TranscriptFields;
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_not_read_is_found_also_inside() {
        let body = json!({
            "model": "m", "messages": [{ "role": "user", "content": "x", "cache_control": 1 }], "store": true, "seed": null,
            "stream_options": { "include_usage": true, "include_obfuscation": false }, "user": null,
            "metadata": { "session_id": "new", "theirs": 1 },
        });
        let unread = KnownFields::of::<ChatBody>().unread(&body);
        assert_eq!(unread, ["store", "stream_options.include_obfuscation", "metadata.theirs"]);
        let many: Value =
            (0..100).map(|at| (format!("field {at}"), json!(1))).collect::<serde_json::Map<_, _>>().into();
        assert_eq!(KnownFields::of::<ChatBody>().unread(&many).len(), MOST);
    }

    /// The fields that a section of the page says are done or refused.
    fn answered(section: &str) -> BTreeSet<String> {
        let page = include_str!("../../../docs/fields.md");
        let section = page.split("\n## ").find(|text| text.starts_with(section)).expect(section);
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let is_read = |becomes: &str| becomes.starts_with("done") || becomes.starts_with("refused");
        rows.filter(|(_, becomes)| is_read(becomes)).map(|(field, _)| field.to_owned()).collect()
    }

    /// Every field as the page writes it: `options.top_k`.
    fn read_of<T: JsonSchema>() -> BTreeSet<String> {
        fn collect(schema: &Value, path: &str, all: &mut BTreeSet<String>) {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let inner = schema_of_object(schema);
                if inner["properties"].is_object() {
                    collect(inner, &path, all);
                } else {
                    all.insert(path);
                }
            }
        }
        let mut all = BTreeSet::new();
        collect(&read::<T>(), "", &mut all);
        all
    }

    /// The page and the structs that are read say the same.
    #[test]
    fn the_page_has_each_field_that_is_read() {
        assert_eq!(answered("Chat completions"), read_of::<ChatBody>());
        assert_eq!(answered("Ollama"), read_of::<OllamaBody>());
        assert_eq!(answered("Responses"), read_of::<ResponsesBody>());
        assert_eq!(answered("Realtime sessions"), read_of::<SessionFields>());
        assert_eq!(answered("Realtime responses"), read_of::<ResponseFields>());
        assert_eq!(answered("Wyoming"), read_of::<TranscriptFields>());
    }
}
