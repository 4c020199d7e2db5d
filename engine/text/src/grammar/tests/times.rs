use std::time::Instant;

use serde_json::json;

use super::tool_schema;
use super::walk::Dice;
use crate::ToolSchema;
use crate::grammar::{CallChoice, Grammar, GrammarEnv};

/// Builds a vocabulary of the family's size and token lengths: bytes, words of syllables with and without a leading
/// blank, digits, punctuation, runs of blanks, and pieces of other scripts.
fn large_vocabulary() -> (Vec<Vec<u8>>, Vec<bool>) {
    let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    let mut seen: std::collections::HashSet<Vec<u8>> = tokens.iter().cloned().collect();
    let syllables =
        "the ing er an re on at en or es ti con pro de in is ed al st ar ou le te ri ro ne li la ma co mi ca";
    let syllables: Vec<&str> = syllables.split(' ').collect();
    let marks: Vec<&str> = "( ) { } [ ] \" ' , . : ; / \\ < > = + - * _ \n \t & | ! ? # @ % $".split(' ').collect();
    let letters: Vec<char> = ('\u{4e00}'..'\u{5600}').chain('\u{400}'..'\u{460}').chain('\u{905}'..'\u{939}').collect();
    let mut dice = Dice::new(4);
    while tokens.len() < 248_000 {
        let mut text = String::new();
        match dice.below(20) {
            0..12 => {
                text.push_str(["", " ", " ", "\n"][dice.below(4)]);
                (0..1 + dice.below(4)).for_each(|_| text.push_str(syllables[dice.below(syllables.len())]));
                if dice.below(4) == 0 {
                    text = text.to_uppercase();
                }
            }
            12..14 => (0..1 + dice.below(5)).for_each(|_| text.push_str(marks[dice.below(marks.len())])),
            14 => (0..1 + dice.below(30)).for_each(|_| text.push([' ', ' ', '\n', '\t'][dice.below(4)])),
            15 => (0..1 + dice.below(3)).for_each(|_| text.push((b'0' + dice.below(10) as u8) as char)),
            _ => (0..1 + dice.below(4)).for_each(|_| text.push(letters[dice.below(letters.len())])),
        }
        if seen.insert(text.clone().into_bytes()) {
            tokens.push(text.into_bytes());
        }
    }
    let mut control = vec![false; tokens.len()];
    for name in ["<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"] {
        tokens.push(name.into());
        control.push(true);
    }
    (tokens, control)
}

/// Run by hand: `cargo test -p text --release -- --ignored --nocapture time_of_a_mask`
#[test]
#[ignore = "prints times; run it by hand"]
fn time_of_a_mask() {
    let (tokens, control) = large_vocabulary();
    let find = |name: &str| tokens.iter().position(|bytes| bytes == name.as_bytes()).unwrap() as u32;
    let (stop, call) = (find("<|im_end|>"), find("<tool_call>"));
    let start = Instant::now();
    let env = GrammarEnv::from_tokens(tokens.clone(), &control, &[stop], None).unwrap();
    let ids: std::collections::HashMap<&[u8], u32> =
        tokens.iter().enumerate().map(|(id, bytes)| (bytes.as_slice(), id as u32)).collect();
    println!("env of {} tokens: {:.0} ms", tokens.len(), start.elapsed().as_secs_f64() * 1e3);

    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string" }, "days": { "type": "array", "items": { "type": "integer" } } },
        "required": ["city", "days"]
    });
    let tool = |n: usize| {
        json!({ "name": format!("tool_{n}"), "parameters": { "properties": {
        "text": { "type": "string" }, "short": { "type": "string", "maxLength": 80 },
        "count": { "type": "integer", "minimum": 0 }, "place": schema.clone()
    }, "required": ["count"] } })
    };
    let tools: Vec<ToolSchema> = (0..20).map(|n| tool_schema(&tool(n))).collect();
    let parameter = |key: &str| format!("\n<function=tool_7>\n<parameter={key}>\n");
    let words = "the canal on the river is in the dense region of the one rail";
    let calls = Grammar::tool_calls(&tools, &CallChoice::Auto, true).unwrap();
    let speech = |text: String| (calls.clone(), None, text);
    let within = |text: String| (calls.clone(), Some(call), text);
    let cases = [
        ("JSON", (Grammar::json_schema(&schema).unwrap(), None, format!(r#"{{"city": "{words}", "days": [1, 22]}}"#))),
        ("any JSON object", (Grammar::json_object(), None, format!(r#"{{"city": {{"a": "{words}", "b": [1]}}}}"#))),
        ("speech, 20 tools", speech(words.to_string())),
        ("call, text", within(parameter("text") + words + "\n" + words + "\n</parameter>\n")),
        ("call, short text", within(parameter("short") + words + "\n</parameter>\n")),
        ("call, integer", within(parameter("count") + "1234\n</parameter>\n")),
        ("call, JSON", within(format!("{}{{\"city\": \"{words}\"", parameter("place")))),
    ];
    for (name, (grammar, before, text)) in cases {
        let start = Instant::now();
        let mut matcher = env.matcher(&grammar).unwrap();
        let compile_ms = start.elapsed().as_secs_f64() * 1e3;
        let start = Instant::now();
        env.matcher(&grammar).unwrap();
        let again_ms = start.elapsed().as_secs_f64() * 1e3;
        before.iter().for_each(|token| matcher.accept(*token).unwrap());
        let (mut times, mut rest) = (Vec::new(), text.as_bytes());
        while !rest.is_empty() {
            // The longest token that fits, as tokenizers mostly choose.
            let mut longest = (1..=rest.len().min(24)).rev();
            let longest = longest.find_map(|length| ids.get(&rest[..length]).map(|token| (*token, length)));
            let (token, length) = longest.unwrap();
            let start = Instant::now();
            matcher.mask().unwrap();
            times.push(start.elapsed().as_secs_f64() * 1e6);
            matcher.accept(token).unwrap();
            rest = &rest[length..];
        }
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let most = times.iter().copied().fold(0.0, f64::max);
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        let count = times.len();
        print!("{name:18} compile {compile_ms:5.1} ms, again {again_ms:4.2} ms; ");
        println!("{count:3} masks: mean {mean:6.0} µs, median {median:6.0}, most {most:6.0}");
    }
}
