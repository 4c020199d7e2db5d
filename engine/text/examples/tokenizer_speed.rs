//! How long it takes to build a tokenizer of the family's real size and to encode with it:
//! `cargo run --release -p text --example tokenizer_speed`. The vocabulary is made up, of the real number of tokens and
//! merges, trained on nothing; what is timed does not depend on which tokens they are.

use std::collections::HashSet;
use std::time::Instant;
use text::Tokenizer;

const TOKENS: usize = 248_320;
const CONTROL: [&str; 5] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"];

fn main() {
    let (tokens, merges) = vocabulary();
    let mut types = vec![1u32; tokens.len()];
    types[TOKENS - CONTROL.len()..].fill(3);
    let merge_strings: Vec<String> = merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
    let json = tokenizer_json(&tokens, &merges);

    let start = Instant::now();
    let from_parts = Tokenizer::from_parts(&tokens, &types, &merge_strings, "qwen35").expect("a valid vocabulary");
    println!("from parts: {:.0} ms, {} tokens, {} merges", millis(start), tokens.len(), merges.len());
    let start = Instant::now();
    let from_json = Tokenizer::from_json(json.as_bytes()).expect("a valid file");
    println!("from json:  {:.0} ms, {:.1} MB", millis(start), json.len() as f64 / 1e6);
    assert_eq!(from_parts.fingerprint(), from_json.fingerprint());
    println!("resident:   {}", resident());

    let text = include_str!("../../../tests/data/reference/reference_text.txt").repeat(1_000);
    let start = Instant::now();
    let ids = from_parts.encode(&text);
    let seconds = start.elapsed().as_secs_f64();
    println!("encode:     {:.1} MB/s, {} tokens", text.len() as f64 / 1e6 / seconds, ids.len());
    assert_eq!(from_json.decode(&ids), text);
    let cached = from_parts.with_cache(64 << 20);
    cached.encode(&text);
    let start = Instant::now();
    cached.encode(&text);
    println!("cached:     {:.2} ms for {:.1} MB", millis(start), text.len() as f64 / 1e6);
}

/// Every merge makes a new token of two earlier ones, mostly short ones, as training does.
fn vocabulary() -> (Vec<String>, Vec<(String, String)>) {
    let mut tokens: Vec<String> =
        (0u32..0x200).filter_map(char::from_u32).filter(|c| is_byte_char(*c)).map(String::from).collect();
    assert_eq!(tokens.len(), 256);
    let mut seen: HashSet<String> = tokens.iter().cloned().collect();
    let mut merges = Vec::new();
    let mut random = 1u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % limit
    };
    while tokens.len() < TOKENS - CONTROL.len() {
        let span = if below(2) == 0 { 256 } else { tokens.len().min(20_000) };
        let (left, right) = (tokens[below(span)].clone(), tokens[below(256)].clone());
        let joined = format!("{left}{right}");
        if seen.insert(joined.clone()) {
            tokens.push(joined);
            merges.push((left, right));
        }
    }
    tokens.extend(CONTROL.map(String::from));
    (tokens, merges)
}

fn is_byte_char(c: char) -> bool {
    matches!(u32::from(c), 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff | 0x100..=0x143)
}

fn tokenizer_json(tokens: &[String], merges: &[(String, String)]) -> String {
    let normal = TOKENS - CONTROL.len();
    let vocab: serde_json::Map<String, serde_json::Value> =
        tokens[..normal].iter().zip(0u32..).map(|(token, id)| (token.clone(), id.into())).collect();
    let added: Vec<_> = CONTROL
        .iter()
        .zip(normal..)
        .map(|(name, id)| serde_json::json!({"id": id, "content": name, "special": true}))
        .collect();
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    serde_json::json!({
        "added_tokens": added,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    })
    .to_string()
}

fn millis(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.map_or("unknown".to_string(), |line| {
        line.trim_start_matches("VmRSS:").trim().to_string() + ", both tokenizers and their sources"
    })
}
