use serde_json::{Value, json};

use super::validator::fits;
use super::walk::{allowed, assert_masks_are_exact, env, feed, id, walk};
use crate::grammar::{Grammar, GrammarError};

fn schemas() -> Vec<Value> {
    vec![
        json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "minLength": 1, "maxLength": 12 },
                "age": { "type": "integer", "minimum": 0, "maximum": 130 },
                "height": { "type": "number", "minimum": 0.5, "maximum": 2.5 },
                "tags": { "type": "array", "items": { "enum": ["a", "ab", "b\"c"] }, "minItems": 1, "maxItems": 4 },
                "married": { "type": "boolean" },
                "note": { "anyOf": [{ "type": "string" }, { "type": "null" }] }
            },
            "required": ["name", "age", "tags"],
            "additionalProperties": false
        }),
        json!({ "type": "object" }),
        json!({ "type": "array", "items": { "type": ["integer", "null"] }, "maxItems": 5 }),
        json!({ "type": "object", "additionalProperties": { "type": "integer", "multipleOf": 5 } }),
        json!({ "enum": ["yes", "no", 3, null, true] }),
        json!({ "const": { "a": [1, 2] } }),
        json!({ "type": "string", "pattern": "^[a-c]{2,5}-[0-9]+$" }),
        json!({ "type": "integer", "minimum": -7, "maximum": 12 }),
        json!({
            "type": "object",
            "properties": { "value": { "type": "integer" }, "next": { "$ref": "#/$defs/node" } },
            "required": ["value"],
            "additionalProperties": false,
            "$defs": { "node": { "anyOf": [{ "$ref": "#" }, { "type": "null" }] } }
        }),
        json!({
            "anyOf": [
                { "type": "object", "properties": { "kind": { "const": "a" } }, "required": ["kind"] },
                { "type": "object", "properties": { "kind": { "const": "b" }, "n": { "type": "number" } },
                  "required": ["kind", "n"], "additionalProperties": false },
            ]
        }),
    ]
}

#[test]
fn every_walk_is_json_of_its_schema() {
    let schemas = schemas();
    for seed in 0..200 {
        let schema = &schemas[seed as usize % schemas.len()];
        let text = walk(&Grammar::json_schema(schema).unwrap(), seed, 10 + seed as usize / 4);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}: {text:?}"));
        fits(&value, schema, schema).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn any_object_is_an_object() {
    for seed in 0..30 {
        let text = walk(&Grammar::json_object(), seed, 30);
        assert!(serde_json::from_str::<Value>(&text).unwrap().is_object(), "{text}");
    }
}

/// JSON as a model writes it by itself must pass.
#[test]
fn usual_json_is_accepted() {
    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string" }, "days": { "type": "array", "items": { "type": "integer" } } },
        "required": ["city"]
    });
    for text in [
        "{\"city\":\"Köln\",\"days\":[1,2]}",
        "{\"city\": \"K\\u00f6ln \\\"\\n\", \"days\": [1, 2]}",
        "{\n  \"city\": \"東京\",\n  \"days\": [\n    1,\n    2\n  ]\n}",
        "{\"city\": \"x\", \"more\": {\"a\": null}}",
    ] {
        let mut matcher = env().matcher(&Grammar::json_schema(&schema).unwrap()).unwrap();
        assert_eq!(feed(&mut matcher, text), Ok(()), "{text}");
        assert!(feed(&mut matcher, "<|im_end|>").is_ok() && matcher.is_finished());
    }
    for (text, until) in [
        ("[1", ""),
        ("{\"city\": 3", "{\"city\": "),
        ("{}", "{"),
        ("{\"city\": \"x\"} and", "{\"city\": \"x\"}"),
        ("{\n\n\n", "{\n"),
    ] {
        let mut matcher = env().matcher(&Grammar::json_schema(&schema).unwrap()).unwrap();
        let refused = feed(&mut matcher, text).expect_err(text);
        assert!(until.starts_with(refused.as_str()), "{text:?} was refused after {refused:?}");
    }
}

#[test]
fn the_mask_is_exactly_what_is_accepted() {
    for (seed, schema) in schemas().iter().take(4).enumerate() {
        let matcher = env().matcher(&Grammar::json_schema(schema).unwrap()).unwrap();
        assert_masks_are_exact(matcher, seed as u64, 12);
    }
}

#[test]
fn a_remembered_grammar_is_fresh() {
    let grammar = Grammar::json_schema(&json!({ "enum": ["only here"] })).unwrap();
    let mut first = env().matcher(&grammar).unwrap();
    feed(&mut first, "\"only here\"").unwrap();
    let mut second = env().matcher(&grammar).unwrap();
    assert!(first.is_finished() && !second.is_finished());
    feed(&mut second, "\"only here\"").unwrap();
    // More grammars than the cache holds change nothing.
    for n in 0..10 {
        let mut other = env().matcher(&Grammar::json_schema(&json!({ "const": n })).unwrap()).unwrap();
        feed(&mut other, &n.to_string()).unwrap();
    }
    feed(&mut env().matcher(&grammar).unwrap(), "\"only here\"").unwrap();
}

#[test]
fn after_the_end_only_a_stop_token_is_allowed() {
    let mut matcher = env().matcher(&Grammar::json_schema(&json!({ "const": 5 })).unwrap()).unwrap();
    feed(&mut matcher, "5").unwrap();
    assert!(matcher.is_finished());
    assert_eq!(allowed(matcher.mask().unwrap().unwrap()), [id("<|endoftext|>"), id("<|im_end|>")]);
    assert!(matcher.accept(id("5")).is_err());
    assert_eq!(matcher.accept(id("<|im_end|>")), Ok(()));
    assert_eq!(matcher.accept(id("<|im_end|>")), Ok(()));
}

#[test]
fn reasoning_is_free_and_then_the_grammar_holds() {
    let grammar = Grammar::json_schema(&json!({ "type": "boolean" })).unwrap().after_reasoning();
    let mut matcher = env().matcher(&grammar).unwrap();
    feed(&mut matcher, "Is 5 > 3? {}[ </thin").unwrap();
    // Forbidden: the end of the reply, a tool call, and the marker in ordinary letters.
    let mask = matcher.mask().unwrap().unwrap().to_vec();
    for (token, may) in [("<|im_end|>", false), ("<tool_call>", false), ("k", true), ("</think>", true), ("a", true)] {
        let token = id(token);
        assert_eq!(mask[token as usize / 32] >> (token % 32) & 1 == 1, may, "{token}");
    }
    feed(&mut matcher, "k").unwrap();
    assert_eq!(feed(&mut matcher, ">"), Err(String::new()));
    assert!(matches!(matcher.accept(id("<|im_end|>")), Err(GrammarError::Rejected { .. })));
    feed(&mut matcher, " or not.\n</think>\n\ntrue").unwrap();
    assert!(matcher.is_finished());
    for seed in 0..10 {
        let text = walk(&grammar, seed, 30);
        let (_, after) = text.split_once("</think>\n\n").expect("the reasoning ends");
        assert!(["true", "false"].contains(&after), "{text:?}");
    }
}

#[test]
fn a_refused_token_changes_nothing() {
    let mut matcher = env().matcher(&Grammar::json_schema(&json!({ "enum": ["ab", "ac"] })).unwrap()).unwrap();
    feed(&mut matcher, "\"a").unwrap();
    let refused = matcher.accept(id("x")).unwrap_err();
    assert_eq!(refused.to_string(), format!("token {} (\"x\") is not allowed here by the grammar", id("x")));
    assert!(matcher.accept(1_000_000).is_err());
    feed(&mut matcher, "c\"").unwrap();
    assert!(matcher.is_finished());
}
