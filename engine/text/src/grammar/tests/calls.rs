use serde_json::{Map, Value, json};

use super::tool_schema;
use super::validator::fits;
use super::walk::{allowed, assert_masks_are_exact, env, feed, id, walk};
use crate::ToolSchema;
use crate::grammar::{CallChoice, Grammar, GrammarError};
use crate::reply::{ReplyParser, ReplyPart};

fn tools() -> Vec<ToolSchema> {
    [
        json!({ "type": "function", "function": {
            "name": "set_timer",
            "parameters": {
                "type": "object",
                "properties": {
                    "minutes": { "type": "integer", "minimum": 1, "maximum": 600 },
                    "label": { "type": "string" },
                    "loud": { "type": "boolean" },
                    "tone": { "enum": ["bell", "bell tower", "gong"] },
                    "volume": { "type": "number", "minimum": 0, "maximum": 1 }
                },
                "required": ["minutes", "tone"]
            }
        } }),
        json!({ "name": "turn_on", "parameters": {
            "type": "object",
            "properties": {
                "rooms": { "type": "array", "items": { "$ref": "#/$defs/room" }, "minItems": 1, "maxItems": 3 },
                "colour": { "type": "object", "properties": { "r": { "type": "integer" }, "name": { "type": "string" } },
                            "required": ["r"], "additionalProperties": false },
                "until": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
                "code": { "type": "string", "pattern": "^[A-Z]{2}[0-9]{1,3}$" },
                "short": { "type": "string", "minLength": 2, "maxLength": 6 }
            },
            "$defs": { "room": { "enum": ["kitchen", "hall"] } },
            "required": ["rooms"]
        } }),
        json!({ "type": "function", "function": { "name": "stop" } }),
    ]
    .map(|tool| tool_schema(&tool))
    .into()
}

fn read_calls(text: &str) -> Vec<(String, Map<String, Value>)> {
    let tools = tools();
    let mut rest = text;
    let mut calls = Vec::new();
    while !rest.is_empty() {
        if !calls.is_empty() {
            rest = rest.strip_prefix('\n').expect("a new line between calls");
        }
        rest = rest.strip_prefix("<tool_call>\n<function=").expect("a call begins");
        let (name, after) = rest.split_once(">\n").expect("the name ends");
        let tool = tools.iter().find(|tool| tool.name == name);
        let tool = tool.unwrap_or_else(|| panic!("no tool {name:?}"));
        rest = after;
        let mut arguments = Map::new();
        while let Some(after) = rest.strip_prefix("<parameter=") {
            let (key, after) = after.split_once(">\n").expect("the key ends");
            let (value, after) = after.split_once("</parameter>").expect("the value ends");
            let value = value.strip_suffix('\n').unwrap_or(value);
            rest = after.strip_prefix('\n').expect("a new line after the value");
            let schema = &tool.parameters["properties"][key];
            let value = match value {
                text if schema["type"] == "string" || schema.get("enum").is_some() => json!(text),
                "None" => Value::Null,
                "True" | "False" => json!(value == "True"),
                other => serde_json::from_str(other).unwrap_or_else(|e| panic!("{key}: {e}: {value:?}")),
            };
            assert!(arguments.insert(key.to_string(), value).is_none(), "{key} comes twice");
        }
        rest = rest.strip_prefix("</function>\n</tool_call>").expect("the call ends");
        if !tool.parameters.is_null() {
            let mut schema = tool.parameters.clone();
            schema["additionalProperties"] = json!(false);
            fits(&Value::Object(arguments.clone()), &schema, &schema).unwrap_or_else(|why| panic!("{why}"));
        }
        calls.push((name.to_string(), arguments));
    }
    assert_eq!(calls, read_as_replies_are(text), "{text:?}");
    calls
}

fn read_as_replies_are(text: &str) -> Vec<(String, Map<String, Value>)> {
    let mut reply = ReplyParser::new(false, &tools());
    let mut pieces = Vec::new();
    reply.push(text, &mut pieces);
    reply.finish(&mut pieces);
    let mut calls: Vec<(String, String)> = Vec::new();
    for piece in pieces {
        match piece {
            ReplyPart::Call { name, .. } => calls.push((name, String::new())),
            ReplyPart::Arguments { index, json } => calls[index].1.push_str(&json),
            other => panic!("{other:?} in {text:?}"),
        }
    }
    calls.into_iter().map(|(name, json)| (name, serde_json::from_str(&json).unwrap())).collect()
}

#[test]
fn every_walk_is_calls_with_arguments_of_their_schemas() {
    let grammar = Grammar::tool_calls(&tools(), &CallChoice::Required, true).unwrap();
    let mut most = 0;
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let calls = read_calls(&walk(&grammar, seed, 5 + seed as usize));
        assert!(!calls.is_empty());
        most = most.max(calls.len());
        seen.extend(calls.iter().map(|(name, _)| name.clone()));
    }
    assert!(most > 1, "several calls in one reply are possible");
    assert_eq!(seen.len(), 3);
}

#[test]
fn a_named_tool_is_called_once() {
    let grammar = Grammar::tool_calls(&tools(), &CallChoice::Named("turn_on".into()), true).unwrap();
    for seed in 0..40 {
        let calls = read_calls(&walk(&grammar, seed, 40));
        assert_eq!(calls.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["turn_on"]);
    }
    let one = Grammar::tool_calls(&tools(), &CallChoice::Required, false).unwrap();
    assert!((0..40).all(|seed| read_calls(&walk(&one, seed, 40)).len() == 1));
}

#[test]
fn in_auto_mode_text_is_free_until_a_call_begins() {
    let grammar = Grammar::tool_calls(&tools(), &CallChoice::Auto, true).unwrap();
    let mut matcher = env().matcher(&grammar).unwrap();
    assert_eq!(matcher.mask(), Ok(None));
    feed(&mut matcher, "I'll <set> it. {\"a\": ").unwrap();
    assert_eq!(matcher.mask(), Ok(None));
    feed(&mut matcher, "\n\n<tool_call>\n<function=").unwrap();
    assert!(feed(&mut matcher, "x").is_err());
    feed(&mut matcher, "stop>\n</function>\n</tool_call>").unwrap();
    assert!(!matcher.is_finished(), "another call may follow");
    assert!(feed(&mut matcher, "Done").is_err());
    feed(&mut matcher, "<|im_end|>").unwrap();
    assert!(matcher.is_finished());

    let mut matcher = env().matcher(&grammar).unwrap();
    feed(&mut matcher, "Good morning.<|im_end|>").unwrap();
    assert!(matcher.is_finished());
    assert_eq!(allowed(matcher.mask().unwrap().unwrap()), [id("<|endoftext|>"), id("<|im_end|>")]);

    for seed in 0..60 {
        let text = walk(&grammar, seed, 20 + seed as usize);
        if let Some(at) = text.find("<tool_call>") {
            read_calls(&text[at..]);
        }
    }
}

/// A parser of the reply's text could not tell a spelled-out marker from the real one.
#[test]
fn a_marker_cannot_be_spelled_out() {
    let grammar = Grammar::tool_calls(&tools(), &CallChoice::Auto, true).unwrap();
    let mut matcher = env().matcher(&grammar).unwrap();
    for piece in ["<", "tool", "_", "call"] {
        for token in super::walk::tokenizer().encode_plain(piece) {
            matcher.accept(token).unwrap();
        }
    }
    let mask = matcher.mask().unwrap().expect("something is forbidden now").to_vec();
    let tokenizer = super::walk::tokenizer();
    for token in 0..tokenizer.len() as u32 {
        let completes = !tokenizer.is_control(token) && tokenizer.token_bytes(token).starts_with(b">");
        let may = mask[token as usize / 32] >> (token % 32) & 1 == 1;
        assert_eq!(may, !completes && !tokenizer.token_bytes(token).is_empty(), "{token}");
    }
    assert!(matches!(matcher.accept(id(">")), Err(GrammarError::Rejected { .. })));
    feed(&mut matcher, "s>").unwrap();
    assert_eq!(matcher.mask(), Ok(None));
}

#[test]
fn a_call_after_reasoning() {
    let required = Grammar::tool_calls(&tools(), &CallChoice::Required, true).unwrap().after_reasoning();
    let mut matcher = env().matcher(&required).unwrap();
    feed(&mut matcher, "Hm.\n</think>\n\n<tool_call>\n<function=stop>\n</function>\n</tool_call><|im_end|>").unwrap();
    assert!(matcher.is_finished());

    let auto = Grammar::tool_calls(&tools(), &CallChoice::Auto, true).unwrap().after_reasoning();
    let mut matcher = env().matcher(&auto).unwrap();
    assert!(matcher.accept(id("<tool_call>")).is_err(), "not while it thinks");
    let calls = "<tool_call>\n<function=stop>\n</function>\n</tool_call>\n".repeat(2);
    feed(&mut matcher, &format!("Hm.\n</think>\n\nYes.\n\n{}<|im_end|>", calls.trim_end())).unwrap();
    assert!(matcher.is_finished());
    let mut matcher = env().matcher(&auto).unwrap();
    feed(&mut matcher, "Hm.\n</think>\n\nNo.<|im_end|>").unwrap();
    assert!(matcher.is_finished());
}

#[test]
fn what_the_template_writes_is_accepted() {
    let grammar = Grammar::tool_calls(&tools(), &CallChoice::Required, true).unwrap();
    let timer = |parameters: &str| format!("<tool_call>\n<function=set_timer>\n{parameters}</function>\n</tool_call>");
    let with = |key: &str, value: &str| format!("<parameter={key}>\n{value}\n</parameter>\n");
    let bell = with("tone", "bell");
    for (text, may) in [
        (timer(&format!("{}{bell}", with("minutes", "5"))), true),
        (timer(&format!("{bell}{}", with("minutes", "5"))), true),
        (timer(&bell), false),
        (timer(&with("minutes", "5")), false),
        (timer(&format!("{bell}{}{bell}", with("minutes", "5"))), false),
        (timer(&format!("{}{}", with("minutes", "5"), with("tone", "bell tower"))), true),
        (timer(&format!("{}{}", with("minutes", "5"), with("tone", "bells"))), false),
        (timer(&format!("{bell}{}", with("minutes", "601"))), false),
        (timer(&format!("{bell}{}", with("minutes", "five"))), false),
        (timer(&format!("{bell}{}{}", with("label", "two\nlines </para> \"x\""), with("minutes", "5"))), true),
        (timer(&format!("{bell}{}{}", with("label", ""), with("minutes", "5"))), true),
        (timer(&format!("{bell}{}{}", with("loud", "true"), with("minutes", "5"))), true),
        (timer(&format!("{bell}{}{}", with("loud", "False"), with("minutes", "5"))), true),
        (timer(&format!("{bell}{}{}", with("label", "a </tool_call> b"), with("minutes", "5"))), false),
        (timer(&format!("{bell}{}{}", with("loud", "maybe"), with("minutes", "5"))), false),
        (timer(&format!("{bell}{}{}", with("volume", "0.25"), with("minutes", "5"))), true),
        (timer(&format!("{bell}{}{}", with("size", "3"), with("minutes", "5"))), false),
    ] {
        let mut matcher = env().matcher(&grammar).unwrap();
        assert_eq!(feed(&mut matcher, &text).is_ok(), may, "{text}");
    }
    let on = |key: &str, value: &str| {
        let rooms = with("rooms", "[\"kitchen\", \"hall\"]");
        format!("<tool_call>\n<function=turn_on>\n{rooms}{}</function>\n</tool_call>", with(key, value))
    };
    for (text, may) in [
        (on("colour", "{\"r\": 3, \"name\": \"a \\\"b\\\"\"}"), true),
        (on("colour", "{\"r\":3}"), true),
        (on("colour", "{}"), false),
        (on("until", "null"), true),
        (on("until", "None"), true),
        (on("until", "-99999999999999999999"), false),
        (on("until", "12"), true),
        (on("until", "noon"), false),
        (on("code", "AB12"), true),
        (on("code", "AB12x"), false),
        (on("short", "a b\n c"), true),
        (on("short", "a"), false),
        (on("short", "1234567"), false),
    ] {
        let mut matcher = env().matcher(&grammar).unwrap();
        assert_eq!(feed(&mut matcher, &text).is_ok(), may, "{text}");
    }
}

#[test]
fn the_mask_is_exactly_what_is_accepted() {
    let grammar = Grammar::tool_calls(&tools(), &CallChoice::Required, true).unwrap();
    let timer = "<tool_call>\n<function=set_timer>\n";
    let on = "<tool_call>\n<function=turn_on>\n";
    for (seed, begun) in [
        format!("{timer}<parameter=label>\nsome text\n</"),
        format!("{timer}<parameter=label>\na </tool_call"),
        format!("{timer}<parameter=tone>\nbell"),
        format!("{timer}<parameter=minutes>\n5\n</parameter>\n"),
        format!("{on}<parameter=short>\nab"),
        format!("{on}<parameter=rooms>\n[\"hall\""),
    ]
    .iter()
    .enumerate()
    {
        let mut matcher = env().matcher(&grammar).unwrap();
        feed(&mut matcher, begun).unwrap();
        assert_masks_are_exact(matcher, seed as u64, 6);
    }
}

#[test]
fn more_parameters_than_bits_and_tools_without_any() {
    let properties: Map<String, Value> = (0..70).map(|n| (format!("p{n}"), json!({ "type": "integer" }))).collect();
    let many = json!({ "name": "many", "parameters": { "properties": properties, "required": ["p69"] } });
    let open = json!({ "name": "open", "parameters": { "type": "object", "additionalProperties": true } });
    let grammar =
        Grammar::tool_calls(&[many, open].map(|tool| tool_schema(&tool)), &CallChoice::Required, true).unwrap();
    let call = |name: &str, rest: &str| format!("<tool_call>\n<function={name}>\n{rest}</function>\n</tool_call>");
    for (text, may) in [
        (call("many", "<parameter=p69>\n1\n</parameter>\n<parameter=p3>\n2\n</parameter>\n"), true),
        (call("many", "<parameter=p3>\n2\n</parameter>\n"), false),
        (call("open", ""), true),
        (call("open", "<parameter=any_thing>\nx\n</parameter>\n<parameter=b>\ny\n</parameter>\n"), true),
    ] {
        let mut matcher = env().matcher(&grammar).unwrap();
        assert_eq!(feed(&mut matcher, &text).is_ok(), may, "{text}");
    }
}

#[test]
fn choices_that_cannot_be_are_named() {
    let refused =
        |tools: &[ToolSchema], choice: CallChoice| Grammar::tool_calls(tools, &choice, true).unwrap_err().to_string();
    assert_eq!(refused(&[], CallChoice::Auto), "a tool call is asked for but the request has no tools; send some");
    assert_eq!(
        refused(&tools(), CallChoice::Named("sing".into())),
        "there is no tool \"sing\"; the request's tools are: set_timer, turn_on, stop"
    );
    let odd = json!({ "name": "a", "parameters": { "properties": { "x": { "$ref": "#/$defs/none" } } } });
    let text = refused(&[tool_schema(&odd)], CallChoice::Auto);
    assert!(text.starts_with("the schema of tool \"a\" is not supported at #/properties/x/$ref"), "{text}");
    assert!(refused(&[tool_schema(&json!({ "name": "a b" }))], CallChoice::Auto).contains("\"a b\""));
}
