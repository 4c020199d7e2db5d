//! Words that no log may hold: keys and secrets that tests show a service, and what they say as users. The test clients
//! note them, and each service that a test starts is checked.

use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Mutex;

static SECRETS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Shorter words stand in logs by chance.
const LEAST_SECRET_CHARS: usize = 8;
const LEAST_SAID_CHARS: usize = 12;
/// Fields of the doors in which users' words stand, and models'.
const FIELDS: [&str; 6] = ["text", "content", "input", "prompt", "delta", "output"];

/// A request's header or a variable of the environment.
pub fn note_header(name: &str, value: &str) {
    let name = name.to_ascii_lowercase();
    let is_secret = ["authorization", "key", "token", "secret", "protocol"].iter().any(|word| name.contains(word));
    if is_secret {
        // Of 'Bearer KEY', and of a list of sub-protocols, what is none.
        let words = value.split([' ', ',']).map(|word| word.trim_start_matches("openai-insecure-api-key."));
        let secrets = words.filter(|word| word.chars().count() >= LEAST_SECRET_CHARS && !is_protocol(word));
        lock(&SECRETS).extend(secrets.map(str::to_owned));
    }
}

fn is_protocol(word: &str) -> bool {
    ["realtime", "openai-beta.realtime-v1"].contains(&word)
}

/// A body or an event. What is no JSON says nothing.
pub fn note_body(body: &str) {
    if let Ok(body) = serde_json::from_str(body) {
        note_said(&body);
    }
}

pub fn note_said(value: &Value) {
    match value {
        Value::Array(parts) => parts.iter().for_each(note_said),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().filter(|_| FIELDS.contains(&name.as_str())) {
                    Some(text) => note_text(text),
                    None => note_said(value),
                }
            }
        }
        _ => {}
    }
}

/// A log has one line for each thing, so a text's first line is enough.
pub fn note_text(text: &str) {
    let line = text.trim().lines().next().unwrap_or_default().trim();
    let is_speech = line.contains(' ') && line.chars().count() >= LEAST_SAID_CHARS;
    if is_speech {
        lock(&SAID).insert(line.chars().take(200).collect());
    }
}

/// Returns the secret that a line of a log holds. `may_tell`: the configuration asks for what users say.
pub fn leaks(line: &str, may_tell: bool) -> Option<String> {
    let found = |kept: &Mutex<BTreeSet<String>>| lock(kept).iter().find(|kept| line.contains(*kept)).cloned();
    found(&SECRETS).or_else(|| if may_tell { None } else { found(&SAID) })
}

fn lock(kept: &Mutex<BTreeSet<String>>) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
    kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_a_word_of_a_user_are_found_in_a_log() {
        note_header("Authorization", "Bearer rk_abc_0123456789");
        note_header("sec-websocket-protocol", "realtime, openai-insecure-api-key.ek_9876543210");
        note_header("content-type", "application/json; charset=utf-8");
        note_body(
            r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "the blue xylophone\nplays"}]}]}"#,
        );
        note_body("no JSON at all");
        for line in ["refused key=rk_abc_0123456789", "protocol ek_9876543210 is wrong", "heard: the blue xylophone"] {
            assert!(leaks(line, false).is_some(), "{line}");
        }
        assert_eq!(leaks("heard: the blue xylophone", true), None);
        for line in ["a realtime session begins", "application/json; charset=utf-8", "a client sends a field: text"] {
            assert_eq!(leaks(line, false), None);
        }
    }
}
