//! Walls of words: what the code of a folder must not name. A folder that does not exist yet names nothing.

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
        code: r"\b(?:tokio|sqlx|serde_json|chrono)\b",
        words: r"(?i)realtime|openai|completions|ollama|wyoming",
        why: "belongs to a door, the store or the runtime: sessions, prompts and speech are pure",
    },
    Wall {
        folders: &["services/access/", "services/replies/", "services/runtime/", "compaction/", "engine/"],
        code: r"\b(?:axum|tungstenite|schemars)\b",
        words: r"(?i)openai|chat/completions|ollama|wyoming|stainless|/v1/|/api/chat|response\.create",
        why: "belongs to a door: what a reply is made of knows no protocol",
    },
];

pub fn breaches(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for wall in &WALLS {
        let patterns = [wall.code, wall.words].map(|pattern| Regex::new(pattern).expect("a pattern"));
        let inside = |source: &&Source| {
            let folder = wall.folders.iter().any(|folder| source.path.starts_with(folder));
            folder && source.path.ends_with(".rs") && source.path.contains("src/")
        };
        for source in sources.iter().filter(inside) {
            for (text, pattern) in [&source.code, &source.code_and_strings].into_iter().zip(&patterns) {
                for found in pattern.find_iter(text) {
                    let line = line(text, found.start());
                    complaints.push(format!("{}:{line}: {} {}", source.path, found.as_str(), wall.why));
                }
            }
        }
    }
    complaints
}

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
