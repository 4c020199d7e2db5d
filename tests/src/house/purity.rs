//! Walls of words: what the code of a folder must not name. A folder that does not exist yet names nothing.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::source::{Source, line};

struct Wall {
    folders: &'static [&'static str],
    /// Looked for outside of comments, strings and tests.
    code: &'static str,
    /// Looked for in strings too.
    words: &'static str,
    why: &'static str,
}

const NOTHING: &str = r"[^\s\S]";

const INSIDE: &[&str] = &[
    "compaction/",
    "engine/",
    "services/access/",
    "services/experiment/",
    "services/prompt/",
    "services/remember/",
    "services/replies/",
    "services/runtime/",
    "services/session/",
    "services/speech/",
    "services/store/",
];

const PROTOCOLS: &str = r"(?ix) openai | realtime | chat/completions | chatcmpl | stainless | ollama | wyoming | whisper | piper
    | pipecat | livekit | /v1/[\w/]* | /api/[\w/]* | event-stream | multipart | audio/ | input_audio | server_vad | semantic_vad";

const WALLS: [Wall; 3] = [
    Wall {
        folders: &[
            "engine/",
            "compaction/",
            "services/remember/",
            "services/settings/",
            "services/session/",
            "services/prompt/",
            "services/speech/",
        ],
        code: r"\b(?:Instant|SystemTime)\b|\bstd::env\b|\bstd::\{[^;]*\benv\b",
        words: NOTHING,
        why: "belongs to the caller: time and environment are arguments",
    },
    Wall {
        folders: &["services/session/", "services/prompt/", "services/speech/"],
        code: r"\b(?:tokio|sqlx|serde_json|chrono)\b|(?i:completions)",
        words: NOTHING,
        why: "belongs to a door, the store or the runtime: sessions, prompts and speech are pure",
    },
    Wall {
        folders: INSIDE,
        code: r"\b(?:axum|tungstenite|schemars)\b",
        words: PROTOCOLS,
        why: "belongs to a door: what a reply is made of knows no protocol",
    },
];

pub fn breaches(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for wall in &WALLS {
        let patterns = [wall.code, wall.words].map(|pattern| Regex::new(pattern).expect("a pattern"));
        for source in behind(wall.folders, sources) {
            for (text, pattern) in [&source.code, &source.code_and_strings].into_iter().zip(&patterns) {
                for found in pattern.find_iter(text) {
                    let line = line(text, found.start());
                    complaints.push(format!("{}:{line}: {} {}", source.path, found.as_str(), wall.why));
                }
            }
        }
    }
    let words: BTreeSet<&str> = behind(SPEAKERS, sources).flat_map(strings).map(|(_, word)| word).collect();
    for source in behind(INSIDE, sources) {
        for (at, word) in strings(source).filter(|(_, word)| words.contains(word)) {
            let line = line(&source.code_and_strings, at);
            complaints.push(format!("{}:{line}: {word:?} is a word of a protocol, and belongs to a door", source.path));
        }
    }
    complaints
}

fn behind<'a>(folders: &'static [&'static str], sources: &'a [Source<'a>]) -> impl Iterator<Item = &'a Source<'a>> {
    let sources = sources.iter().filter(|source| source.path.ends_with(".rs") && source.path.contains("src/"));
    sources.filter(|source| folders.iter().any(|folder| source.path.starts_with(folder)))
}

const SPEAKERS: &[&str] = &["services/doors/", "services/voices/"];

/// Strings in the form of wire words, such as `response.create`, `audio-chunk` and `/api/chat`, with their places.
fn strings<'a>(source: &'a Source) -> impl Iterator<Item = (usize, &'a str)> {
    let found = WIRE_WORD.captures_iter(&source.code_and_strings).map(|found| found.get(1).expect("a group"));
    let words = found.map(|word| (word.start(), word.as_str()));
    words.filter(|(_, word)| !OF_FILES.iter().any(|file| word.starts_with(file)))
}

static WIRE_WORD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#""([a-z_]+(?:[.-][a-z_]+)+|/(?:v1|api)/[^"]*)""#).expect("a pattern"));
const OF_FILES: [&str; 3] = ["general.", "limits.", "speech."];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{files::File, source};

    #[test]
    fn a_reply_that_knows_its_doors_is_found() {
        for impure in
            ["use axum::Json;", "struct OpenAiReply;", "const PATH: &str = \"/v1/responses\";", "fn for_ollama() {}"]
        {
            assert_eq!(found("services/replies/src/a.rs", impure), 1, "{impure}");
            assert_eq!(found("services/runtime/src/a.rs", impure), 1, "{impure}");
            assert_eq!(found("services/doors/src/a.rs", impure), 0, "{impure}");
        }
    }

    fn found(path: &str, text: &str) -> usize {
        breaches(&source::product(&[File::new(path, text)])).len()
    }

    #[test]
    fn a_wire_word_of_any_door_is_found_inside() {
        let door = "#[serde(rename = \"lamp.switched\")]\nconst PATH: &str = \"/api/lamp\";";
        let files = |path: &str, text: &str| {
            let server = File::new("services/voices/src/b.rs", "const SOUND: &str = \"sound-piece\";");
            let files = [File::new("services/doors/src/lamp.rs", door), server, File::new(path, text)];
            breaches(&source::product(&files))
        };
        for folder in INSIDE {
            let path = format!("{folder}src/a.rs");
            for word in ["lamp.switched", "sound-piece"] {
                let complaint = format!("{path}:2: {word:?} is a word of a protocol, and belongs to a door");
                assert_eq!(files(&path, &format!("\n\"{word}\"")), [complaint]);
            }
            assert_eq!(files(&path, "\"lamp.switched.twice\" lamp.switched // \"sound-piece\""), [""; 0]);
        }
        assert_eq!(files("services/doors/src/a.rs", "\"lamp.switched\""), [""; 0]);
    }

    #[test]
    fn words_of_speech_are_found_in_every_crate_inside() {
        for word in ["audio/pcmu", "server_vad", "input_audio_buffer", "Wyoming", "whisper", "LiveKit"] {
            for folder in INSIDE {
                assert_eq!(found(&format!("{folder}src/a.rs"), &format!("\"{word}\"")), 1, "{folder} {word}");
            }
            assert_eq!(found("services/voices/src/a.rs", &format!("\"{word}\"")), 0, "{word}");
        }
    }

    #[test]
    fn a_clock_in_the_engine_is_found() {
        assert_eq!(found("engine/src/a.rs", "let t = std::time::Instant::now();"), 1);
        assert_eq!(found("engine/kernels/src/a.rs", "let t = std::env::var(\"X\");"), 1);
        assert_eq!(found("compaction/src/a.rs", "use std::time::SystemTime;"), 1);
        assert_eq!(found("services/settings/src/a.rs", "use std::{env, fs};\nenv::vars()"), 1);
        assert_eq!(found("engine/src/a.rs", "#[cfg(test)] mod tests { use std::time::Instant; }"), 0);
        assert_eq!(found("engine/src/a.rs", "// Instant\nuse crate::env::X;\nlet t = env!(\"X\");"), 0);
        assert_eq!(found("services/runtime/src/a.rs", "use std::time::Instant;"), 0);
        assert_eq!(found("engine/src/tests/a.rs", "use std::time::Instant;"), 0);
    }

    #[test]
    fn a_session_that_knows_its_doors_is_found() {
        for impure in [
            "use crate::realtime::Item;",
            "struct OpenAiItem;",
            "const PATH: &str = \"/v1/chat/completions\";",
            "fn for_ollama() {}",
            "enum Door { Wyoming }",
            "use serde_json::Value;",
            "tokio::spawn(f())",
            "let pool: sqlx::SqlitePool;",
            "let now = SystemTime::now();",
            "let now: Instant;",
        ] {
            assert_eq!(found("services/session/src/machine/a.rs", impure), 1, "{impure}");
            assert_eq!(found("services/prompt/src/a.rs", impure), 1, "{impure}");
            assert_eq!(found("services/session/src/a.rs", &format!("// {impure}")), 0, "{impure}");
            assert_eq!(found("services/doors/src/a.rs", impure), 0, "{impure}");
        }
        assert_eq!(found("services/session/src/a.rs", "use std::time::Duration;\nenum Door { Spoken }"), 0);
    }
}
