//! Fields that clients send and this service does not read: the log names each once, and `docs/fields.md` has what becomes
//! of all that stock clients send.

use runtime::first_time;

/// Names fields in the log, each once for a source: a user, or an address without a key.
pub fn note(door: &str, source: &str, unread: Vec<String>) {
    for field in unread {
        if first_time(source, format!("{door} {field}")) {
            tracing::info!(door, field, "a client sends a field that means nothing here, see docs/fields.md");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ollama::OllamaBody;
    use crate::openai_chat::ChatBody;
    use crate::openai_completions::CompletionsBody;
    use crate::openai_realtime::{ResponseFields, SessionFields};
    use crate::openai_responses::ResponsesBody;
    use crate::wyoming::TranscriptFields;
    use fields::{KnownFields, MOST_NAMES, read_schema, schema_of_object};
    use schemars::JsonSchema;
    use serde_json::{Value, json};
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
        assert_eq!(KnownFields::of::<ChatBody>().unread(&many).len(), MOST_NAMES);
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
        collect(&read_schema::<T>(), "", &mut all);
        all
    }

    /// The page and the structs that are read say the same.
    #[test]
    fn the_page_has_each_field_that_is_read() {
        assert_eq!(answered("Chat completions"), read_of::<ChatBody>());
        assert_eq!(answered("Completions"), read_of::<CompletionsBody>());
        assert_eq!(answered("Ollama"), read_of::<OllamaBody>());
        assert_eq!(answered("Responses"), read_of::<ResponsesBody>());
        assert_eq!(answered("Realtime sessions"), read_of::<SessionFields>());
        assert_eq!(answered("Realtime responses"), read_of::<ResponseFields>());
        assert_eq!(answered("Wyoming"), read_of::<TranscriptFields>());
    }
}
