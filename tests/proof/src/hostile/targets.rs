//! The parsers that meet bytes from outside. A new one is a row here and a folder of inputs.

use super::doors::{self, of_door};
use super::told::told;
use super::{answers, files, stored};
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use text::grammar::{CallChoice, Grammar, GrammarEnv};
use text::{ReplyParser, ReplyPart, Template, TemplateInput, Tokenizer, ToolSchema};

pub struct HostileTarget {
    pub name: &'static str,
    pub corpus: &'static str,
    /// True if the bytes are accepted; an error says why that is a failure.
    pub take: fn(&[u8]) -> Result<bool, String>,
    pub most_ms: u64,
    pub most_bytes: u64,
}

const MIB: u64 = 1 << 20;

pub const TARGETS: [HostileTarget; 30] = [
    door("chat", "chat", |bytes| of_door(doors::chat, bytes)),
    door("completions", "completions", |bytes| of_door(doors::completions, bytes)),
    door("ollama_chat", "ollama", |bytes| of_door(doors::ollama_chat, bytes)),
    door("ollama_generate", "ollama", |bytes| of_door(doors::ollama_generate, bytes)),
    door("responses", "responses", |bytes| of_door(doors::responses, bytes)),
    door("responses_frame", "responses", |bytes| of_door(doors::responses_frame, bytes)),
    door("realtime", "realtime", |bytes| of_door(doors::realtime, bytes)),
    door("wyoming", "wyoming", |bytes| of_door(doors::wyoming, bytes)),
    door("speech_form", "speech", |bytes| of_door(doors::speech_form, bytes)),
    door("speech_server", "wyoming", |bytes| of_door(doors::speech_server, bytes)),
    door("items", "items", |bytes| of_door(doors::items, bytes)),
    door("bodies", "bodies", |bytes| of_door(doors::bodies, bytes)),
    HostileTarget { name: "calls", corpus: "calls", take: calls, most_ms: 1000, most_bytes: 64 * MIB },
    HostileTarget { name: "schemas", corpus: "schemas", take: schemas, most_ms: 10_000, most_bytes: 1024 * MIB },
    HostileTarget { name: "template", corpus: "chat", take: template, most_ms: 2000, most_bytes: 256 * MIB },
    file("gguf", "../../../engine/weights/fuzz/seeds/gguf", |bytes| of_file(files::gguf(bytes))),
    file("safetensors", "../../../engine/weights/fuzz/seeds/safetensors", |bytes| of_file(files::safetensors(bytes))),
    file("config", "../../../engine/weights/fuzz/seeds/config", |bytes| of_file(files::config(bytes))),
    file("settings", "settings", |bytes| of_file(files::settings(bytes))),
    file("tokenizer", "tokenizer", |bytes| of_file(files::tokenizer(bytes))),
    file("state", "state", stored::state),
    file("packed", "packed", stored::packed),
    file("hub", "hub", answers::hub),
    file("upstream", "upstream", answers::upstream),
    file("memories", "memories", answers::memories),
    file("summaries", "summaries", answers::summaries),
    file("import_lines", "import", stored::import_lines),
    file("import", "import", stored::import),
    file("journal_lines", "journal", stored::journal_lines),
    file("journal", "journal", stored::journal),
];

const fn file(name: &'static str, corpus: &'static str, take: fn(&[u8]) -> Result<bool, String>) -> HostileTarget {
    HostileTarget { name, corpus, take, most_ms: 2000, most_bytes: 256 * MIB }
}

fn of_file(read: Result<(), String>) -> Result<bool, String> {
    read.map_or_else(|message| told(&message), |()| Ok(true))
}

/// A body of 64 KiB becomes less than 64 MiB.
const fn door(name: &'static str, corpus: &'static str, take: fn(&[u8]) -> Result<bool, String>) -> HostileTarget {
    HostileTarget { name, corpus, take, most_ms: 1000, most_bytes: 64 * MIB }
}

impl HostileTarget {
    /// A build without optimisation is slower, and machines that run other tests are.
    pub fn most_time(&self) -> Duration {
        Duration::from_millis(self.most_ms * if cfg!(debug_assertions) { 10 } else { 1 })
    }
}

/// Reads a model's words, cut in two ways: the parts must be the same, and arguments must be objects.
fn calls(bytes: &[u8]) -> Result<bool, String> {
    static TOOLS: LazyLock<Vec<ToolSchema>> = LazyLock::new(|| ToolSchema::of_all(&answers::tools()));
    let text = String::from_utf8_lossy(bytes);
    let in_reasoning = bytes.first().is_some_and(|first| first % 2 == 1);
    let of_pieces = |piece_chars: usize| {
        let mut reply = ReplyParser::new(in_reasoning, &TOOLS);
        let (mut parts, chars) = (Vec::new(), text.chars().collect::<Vec<_>>());
        for piece in chars.chunks(piece_chars) {
            reply.push(&piece.iter().collect::<String>(), &mut parts);
        }
        reply.finish(&mut parts);
        joined(parts)
    };
    let (whole, cut) = (of_pieces(usize::MAX), of_pieces(3));
    if whole != cut {
        return Err(format!("cut, it has other parts: {whole:?} and {cut:?}"));
    }
    let mut has_call = false;
    for part in &whole {
        if let ReplyPart::Arguments { json, .. } = part {
            has_call = true;
            let arguments: Value =
                serde_json::from_str(json).map_err(|error| format!("arguments {json:?}: {error}"))?;
            if !arguments.is_object() {
                return Err(format!("arguments are {json}"));
            }
        }
    }
    Ok(has_call)
}

fn joined(parts: Vec<ReplyPart>) -> Vec<ReplyPart> {
    let mut all: Vec<ReplyPart> = Vec::new();
    for part in parts {
        match (all.last_mut(), part) {
            (Some(ReplyPart::Reasoning(text)), ReplyPart::Reasoning(more))
            | (Some(ReplyPart::Content(text)), ReplyPart::Content(more)) => text.push_str(&more),
            (Some(ReplyPart::Arguments { json, index }), ReplyPart::Arguments { json: more, index: same })
                if *index == same =>
            {
                json.push_str(&more);
            }
            (_, part) => all.push(part),
        }
    }
    all
}

/// Schemas of tools and of replies, as far as a grammar.
fn schemas(bytes: &[u8]) -> Result<bool, String> {
    static ENV: LazyLock<GrammarEnv> = LazyLock::new(|| {
        let tokenizer = include_bytes!("../../../data/reference/dense-wide/tokenizer.json");
        let tokenizer = Arc::new(Tokenizer::from_json(tokenizer).expect("it is a tokenizer"));
        let stops: Vec<u32> = ["<|im_end|>", "<|endoftext|>"].iter().filter_map(|name| tokenizer.id_of(name)).collect();
        GrammarEnv::new(tokenizer, &stops).expect("it is a vocabulary")
    });
    let Ok(schema) = serde_json::from_slice::<Value>(bytes) else { return Ok(false) };
    let tool = ToolSchema { name: "f".to_owned(), strict: bytes.len().is_multiple_of(2), parameters: schema.clone() };
    let of_tool = Grammar::tool_calls(&[tool], &CallChoice::Required, true);
    let grammars = [of_tool, Grammar::json_schema(&schema)];
    let mut is_taken = false;
    for grammar in grammars {
        match grammar.and_then(|grammar| ENV.matcher(&grammar)) {
            Ok(mut matcher) => {
                is_taken = true;
                matcher.mask().map_err(|error| error.to_string())?;
            }
            Err(error) => drop(told(&error.to_string())?),
        }
    }
    Ok(is_taken)
}

/// Messages, tools and options through the family's template.
fn template(bytes: &[u8]) -> Result<bool, String> {
    static TEMPLATE: LazyLock<Template> = LazyLock::new(|| Template::family().expect("it is a template"));
    let Ok(body) = serde_json::from_slice::<Value>(bytes) else { return Ok(false) };
    let prompt = match ::doors::chat_prompt(&body) {
        Ok(prompt) => prompt,
        Err(error) => return told(&error.message),
    };
    match TEMPLATE.render(&TemplateInput::of(&prompt)) {
        Ok(rendered) => {
            let is_there = |at: &usize| rendered.text.as_bytes().get(*at) == Some(&b'<');
            if !rendered.inert.iter().all(is_there) || !rendered.inert.is_sorted() {
                return Err("the marks of what came from outside are wrong".to_owned());
            }
            Ok(true)
        }
        Err(error) => told(&error.to_string()),
    }
}
