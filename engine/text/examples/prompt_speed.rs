//! Measures the tokenizer on a conversation of a thousand messages, and again with one message more:
//! `cargo run --release -p text --example prompt_speed [-- tokenizer.json]`.

use std::time::Instant;

use chat::{Message, MessageRole, Prompt};
use text::{Template, TemplateInput, Tokenizer, encode_prompt};

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/dense-wide/tokenizer.json");

fn main() {
    let path = std::env::args().nth(1).unwrap_or(REFERENCE.to_string());
    let file = std::fs::read(path).expect("a tokenizer.json");
    let (start, before_kib) = (Instant::now(), resident_kib());
    let tokenizer = Tokenizer::from_json(&file).expect("a valid file");
    let resident_mib = resident_kib().saturating_sub(before_kib) as f64 / 1024.0;
    println!("opened in {:.0} ms: {} tokens, resident {resident_mib:.0} MiB more", millis(start), tokenizer.len());

    let template = Template::family().expect("a valid template");
    let lines: Vec<&str> = include_str!("../../../tests/data/reference/reference_text.txt").lines().collect();
    let message = |n: usize| {
        let role = if n.is_multiple_of(2) { MessageRole::User } else { MessageRole::Assistant };
        Message::new(role, format!("{n}: {}", lines[n % lines.len()]))
    };
    let mut prompt = Prompt { messages: (0..1_000).map(message).collect(), ..Prompt::default() };
    let speak = |what: &str, tokenizer: &Tokenizer, prompt: &Prompt| {
        let start = Instant::now();
        let rendered = template.render(&TemplateInput::of(prompt)).expect("a valid conversation");
        let (render_ms, start) = (millis(start), Instant::now());
        let tokens = encode_prompt(tokenizer, &rendered).tokens.len();
        println!("{what}: render {render_ms:.2} ms, encode {:.2} ms, {tokens} tokens", millis(start));
    };
    speak("without a cache", &tokenizer, &prompt);
    let tokenizer = tokenizer.with_cache(8 << 20);
    for what in ["first", "one message more", "one message more"] {
        speak(what, &tokenizer, &prompt);
        prompt.messages.push(message(prompt.messages.len()));
    }
}

fn millis(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}
