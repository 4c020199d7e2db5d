//! What a long conversation costs before the model sees it: `cargo run --release -p text --example prompt_speed`.
//! A thousand messages, then one more: rendered and tokenised with and without the cache.

use std::time::Instant;

use serde_json::{Map, Value, json};
use text::{Template, TemplateInput, Tokenizer, encode_prompt};

fn main() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/dense-wide/tokenizer.json");
    let file = std::fs::read(path).expect("the reference is in the repository");
    let tokenizer = Tokenizer::from_json(&file).expect("a valid file");
    let template = Template::family().expect("a valid template");
    let lines: Vec<&str> = include_str!("../../../tests/data/reference/reference_text.txt").lines().collect();
    let mut messages = vec![json!({"role": "system", "content": "You are a voice assistant."})];
    for n in 0..1_000 {
        let role = if n % 2 == 0 { "user" } else { "assistant" };
        messages.push(json!({"role": role, "content": format!("{n}: {}", lines[n % lines.len()])}));
    }
    let ask = |messages: &mut Vec<Value>, text: &str| messages.push(json!({"role": "user", "content": text}));
    let options: Map<String, Value> = [("add_generation_prompt".to_string(), Value::Bool(true))].into_iter().collect();

    ask(&mut messages, "And now?");
    for round in 0..2 {
        let prompt = TemplateInput { messages: &messages, tools: &[], options: &options, now: None };
        let start = Instant::now();
        let rendered = template.render(&prompt).expect("a valid conversation");
        let render_ms = start.elapsed().as_secs_f64() * 1e3;
        let start = Instant::now();
        let encoded = encode_prompt(&tokenizer, &rendered);
        let encode_ms = start.elapsed().as_secs_f64() * 1e3;
        println!(
            "round {round}: render {render_ms:.2} ms, encode {encode_ms:.2} ms, {} bytes, {} tokens",
            rendered.text.len(),
            encoded.tokens.len()
        );
    }
    let tokenizer = tokenizer.with_cache(8 << 20);
    for round in 0..3 {
        ask(&mut messages, &format!("And now {round}?"));
        let prompt = TemplateInput { messages: &messages, tools: &[], options: &options, now: None };
        let rendered = template.render(&prompt).expect("a valid conversation");
        let start = Instant::now();
        let encoded = encode_prompt(&tokenizer, &rendered);
        let encode_ms = start.elapsed().as_secs_f64() * 1e3;
        println!("cached, round {round}: encode {encode_ms:.2} ms, {} tokens", encoded.tokens.len());
    }
}
