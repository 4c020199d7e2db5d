//! Schemas and tools that a hostile client may send.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::tool_schema;
use super::walk::{env, tokenizer};
use crate::grammar::{CallChoice, Grammar, GrammarEnv, GrammarError, Matcher, circles};

fn refused(schema: &Value) -> (String, String) {
    match Grammar::json_schema(schema).and_then(|grammar| env().matcher(&grammar)).map(|_| ()) {
        Err(GrammarError::Schema { part, why }) => (part, why),
        other => panic!("{schema}: {other:?}"),
    }
}

#[test]
fn an_unsupported_part_is_named() {
    let schema = json!({
        "type": "object",
        "properties": {
            "fine": { "type": "string" },
            "list": { "type": "array", "items": { "type": "object", "properties": {
                "a/b": { "type": "array", "uniqueItems": true }
            } } }
        }
    });
    let (part, why) = refused(&schema);
    assert_eq!(part, "#/properties/list/items/properties/a~1b");
    assert!(why.contains("uniqueItems"), "{why}");
    let (part, why) = refused(&json!({ "type": "string", "pattern": "(?=a)b" }));
    assert!(part == "#" && !why.is_empty(), "{part} {why}");
    let (_, why) = refused(&json!({ "$ref": "https://example.org/x.json" }));
    assert!(why.contains("example.org"), "{why}");
    let (_, why) = refused(&json!({ "type": "integer", "minimum": 5, "maximum": 4 }));
    assert!(why.to_lowercase().contains("unsatisfiable"), "{why}");
    assert_eq!(refused(&json!(7)).0, "#");

    let strict = |strict: bool| {
        let tool = json!({ "name": "t", "strict": strict, "parameters": { "properties": {
            "ok": { "type": "string" },
            "x": { "type": "object", "properties": { "y": { "type": "array", "uniqueItems": true } } }
        } } });
        env().matcher(&Grammar::tool_calls(&[tool_schema(&tool)], &CallChoice::Auto, true).unwrap()).map(|_| ())
    };
    assert_eq!(strict(false), Ok(()), "what cannot be promised is let go");
    let error = strict(true).unwrap_err();
    let GrammarError::Tool { tool, part, why } = &error else { panic!("{error}") };
    assert_eq!((tool.as_str(), part.as_str()), ("t", "#/properties/x/properties/y"));
    assert!(why.contains("uniqueItems") && !why.contains('<'), "{why}");
}

#[test]
fn the_least_integer_ends_no_process() {
    for least in [json!(i64::MIN), json!(-1e19), json!(-1e300)] {
        for name in ["minimum", "exclusiveMinimum"] {
            for kind in ["integer", "number"] {
                let a = json!({ "type": kind, name: least, "maximum": i64::MAX, "default": least });
                let bound = json!({ "properties": { "a": a } });
                let made = Grammar::json_schema(&bound).and_then(|grammar| env().matcher(&grammar)).map(|_| ());
                // Numbers with a fraction have bounds that the library cannot read.
                assert!(kind == "number" || made.is_ok(), "{bound}: {made:?}");
            }
        }
        for (part, schema) in [
            ("#/properties/a/const", json!({ "properties": { "a": { "const": least } } })),
            ("#/properties/a~1b/enum/1", json!({ "properties": { "a/b": { "enum": [1, least] } } })),
            ("#/maximum", json!({ "type": "integer", "maximum": least })),
            ("#/const/minimum", json!({ "const": { "minimum": least } })),
            ("#/properties/minimum/const", json!({ "properties": { "minimum": { "const": least } } })),
        ] {
            let (refused_part, why) = refused(&schema);
            assert_eq!(
                (refused_part.as_str(), why.as_str()),
                (part, "numbers below -9e18 are not supported; choose a larger one")
            );
            let tool = json!({ "name": "t", "parameters": { "properties": { "x": schema } } });
            let error = Grammar::tool_calls(&[tool_schema(&tool)], &CallChoice::Auto, true).unwrap_err();
            assert!(error.to_string().contains("numbers below"), "{error}");
        }
    }
}

/// Fuzzing found this: the schema passed, and the reply then failed with an error in the library's own words.
#[test]
fn a_schema_that_refers_to_nothing_but_itself_is_refused() {
    let definitions = json!({ "a": { "$ref": "#/$defs/b" }, "b": { "anyOf": [{ "$ref": "#/$defs/a" }] } });
    let circle = json!({ "$ref": "#/$defs/a" });
    for (part, schema) in [
        ("#", json!({ "$ref": "#" })),
        ("#", json!({ "anyOf": [{ "$ref": "#" }] })),
        ("#", json!({ "allOf": [{ "$ref": "#" }, { "type": "object" }] })),
        ("#/properties/x", json!({ "properties": { "x": circle }, "type": "object", "$defs": definitions })),
        ("#/$defs/a", json!({ "type": "array", "items": circle, "$defs": definitions })),
        (
            "#/x/items",
            json!({ "$ref": "#/x", "x": { "type": "array", "items": { "$ref": "#/y" } }, "y": { "$ref": "#/y" } }),
        ),
    ] {
        let (refused_part, why) = refused(&schema);
        assert_eq!((refused_part.as_str(), why.as_str()), (part, circles::CIRCLE));
        let tool =
            Grammar::tool_calls(&[tool_schema(&json!({ "name": "t", "parameters": schema }))], &CallChoice::Auto, true);
        assert!(matches!(tool, Err(GrammarError::Tool { .. })), "{schema}");
    }
    // The library reads this reference as the root.
    assert!(refused(&json!({ "$ref": "#/" })).1.contains("no reply can fit it"));
    for fine in [
        json!({ "anyOf": [{ "$ref": "#" }, { "type": "integer" }] }),
        json!({ "type": "object", "properties": { "a": { "$ref": "#" } } }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "type": "null" } } }),
    ] {
        assert!(Grammar::json_schema(&fine).and_then(|grammar| env().matcher(&grammar)).is_ok(), "{fine}");
    }
    // Each of many refers to each other, and none is sound.
    let choices: Vec<Value> = (0..60).map(|at| json!({ "$ref": format!("#/$defs/d{at}") })).collect();
    let definitions: Map<String, Value> = (0..60).map(|at| (format!("d{at}"), json!({ "anyOf": choices }))).collect();
    refused(&json!({ "$defs": definitions }));
}

#[test]
fn depth_size_and_cycles_are_errors() {
    let mut deep = json!({ "type": "integer" });
    for _ in 0..500 {
        deep = json!({ "items": deep });
    }
    assert!(refused(&deep).1.contains("nested"));
    let tool = json!({ "name": "t", "parameters": { "properties": { "x": deep.clone() } } });
    assert!(matches!(
        Grammar::tool_calls(&[tool_schema(&tool)], &CallChoice::Auto, true),
        Err(GrammarError::Tool { .. })
    ));
    // The deepest allowed nesting compiles, also on the small stack of a test thread.
    let mut nested = json!({ "type": "integer" });
    for _ in 0..31 {
        nested = json!({ "type": "array", "items": { "anyOf": [nested, { "type": "null" }] } });
    }
    let _ = Grammar::json_schema(&nested).map(|grammar| env().matcher(&grammar).map(|_| ()));
    let mut nested = json!({ "type": "integer" });
    for _ in 0..30 {
        nested = json!({ "type": "object", "properties": { "a": nested } });
    }
    let grammar = Grammar::json_schema(&nested).unwrap();
    assert!(env().matcher(&grammar).is_ok());

    let circle =
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } });
    let _ = Grammar::json_schema(&circle).map(|grammar| env().matcher(&grammar).map(|_| ()));
    let tool = json!({ "name": "t", "parameters": { "properties": { "x": { "$ref": "#/$defs/a" } }, "$defs": circle["$defs"] } });
    let error = Grammar::tool_calls(&[tool_schema(&tool)], &CallChoice::Auto, true).unwrap_err();
    assert!(error.to_string().contains("circle"), "{error}");

    for pattern in ["(a{1,1000}){1,1000}", "((((a{100}){100}){100}){100})", "(", "\\", "a(?=b)", &"(".repeat(5000)] {
        let grammar = Grammar::json_schema(&json!({ "type": "string", "pattern": pattern })).unwrap();
        let error = env().matcher(&grammar).map(|_| ());
        assert!(matches!(error, Err(GrammarError::Schema { .. })) || pattern.len() < 30, "{pattern}: {error:?}");
    }
}

/// Builds definitions of which each is a choice between ten references to the next: 1.8 kB for ten million values.
fn bomb(key: &str) -> Value {
    let choices = |level: usize| json!({ key: vec![json!({ "$ref": format!("#/$defs/l{}", level + 1) }); 10] });
    let mut definitions: Map<String, Value> = (0..7).map(|level| (format!("l{level}"), choices(level))).collect();
    definitions.insert("l7".into(), json!({ "type": "object", "properties": { "a": { "type": "integer" } } }));
    Value::Object(definitions)
}

#[test]
fn references_by_the_million_take_neither_time_nor_memory() {
    let began = std::time::Instant::now();
    for key in ["anyOf", "oneOf"] {
        let parameters = json!({ "properties": { "x": { "$ref": "#/$defs/l0" } }, "$defs": bomb(key) });
        assert!(parameters.to_string().len() < 2400);
        let tool = json!({ "name": "t", "parameters": parameters });
        let tools = [tool_schema(&tool)];
        let grammar = Grammar::tool_calls(&tools, &CallChoice::Required, true).unwrap();
        assert!(env().matcher(&grammar).is_ok(), "ten million equal forms are one");
        let mut parts = Vec::new();
        let mut parser = crate::ReplyParser::new(false, &tools);
        let call = "<tool_call>\n<function=t>\n<parameter=x>\n{\"a\": 1}\n</parameter>\n</function>\n</tool_call>";
        parser.push(call, &mut parts);
        assert_eq!(parts[1], crate::ReplyPart::Arguments { index: 0, json: r#"{"x":{"a":1}}"#.into() });
    }
    let refused = |parameters: Value| {
        let tool = json!({ "name": "t", "parameters": parameters });
        Grammar::tool_calls(&[tool_schema(&tool)], &CallChoice::Required, true).unwrap_err().to_string()
    };
    // Intersections are visited anew each time, because they are no choice.
    let all = json!({ "properties": { "x": { "$ref": "#/$defs/l0" } }, "$defs": bomb("allOf") });
    let nested = json!({ "properties": { "x": { "allOf": [
        { "anyOf": [{ "allOf": vec![json!({ "$ref": "#/$defs/l0" }); 300] }] }, { "$ref": "#/$defs/l0" }
    ] } }, "$defs": bomb("allOf") });
    for parameters in [all, nested] {
        let tool = json!({ "name": "t", "parameters": parameters });
        let _ = Grammar::tool_calls(&[tool_schema(&tool)], &CallChoice::Required, true);
    }
    let choices: Vec<Value> = (0..101).map(|least| json!({ "type": "integer", "minimum": least })).collect();
    let message = refused(json!({ "properties": { "x": { "anyOf": choices } } }));
    assert!(message.contains("more than 100 forms"), "{message}");
    // Large definitions that many parameters refer to are copied for each of them.
    let definitions: Map<String, Value> = (0..5_000).map(|at| (format!("d{at}"), json!({ "type": "null" }))).collect();
    let list = json!({ "type": "array", "items": { "$ref": "#/$defs/d0" } });
    let many: Map<String, Value> = (0..100).map(|at| (format!("p{at}"), list.clone())).collect();
    let message = refused(json!({ "properties": many, "$defs": definitions }));
    assert!(message.contains("more than 200000 parts"), "{message}");
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_vocabulary_without_the_tokens_is_refused() {
    let tokens: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).chain([b"<end>".to_vec()]).collect();
    let mut control = vec![false; 257];
    control[256] = true;
    let env = GrammarEnv::from_tokens(tokens.clone(), &control, &[256], None).unwrap();
    let calls = Grammar::tool_calls(&[tool_schema(&json!({ "name": "a" }))], &CallChoice::Auto, true).unwrap();
    assert_eq!(env.matcher(&calls).unwrap_err(), GrammarError::MissingToken { name: "<tool_call>" });
    let thinking = Grammar::json_object().after_reasoning();
    assert_eq!(env.matcher(&thinking).unwrap_err(), GrammarError::MissingToken { name: "</think>" });
    assert!(env.matcher(&Grammar::json_object()).is_ok());
    assert!(matches!(GrammarEnv::from_tokens(tokens, &control, &[300], None), Err(GrammarError::Vocabulary { .. })));
    assert!(matches!(GrammarEnv::from_tokens(vec![], &[], &[], None), Err(GrammarError::Vocabulary { .. })));
}

#[test]
fn matchers_go_to_other_threads() {
    fn sendable<T: Send>() {}
    fn shareable<T: Send + Sync>() {}
    sendable::<Matcher>();
    shareable::<Grammar>();
    shareable::<GrammarEnv>();
    shareable::<Arc<crate::Tokenizer>>();
}

fn any_json() -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "oneOf",
        "$ref",
        "$defs",
        "required",
        "additionalProperties",
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
        "format",
        "x-guidance",
        "minItems",
        "maxItems",
        "multipleOf",
        "not",
        "a",
        "prefixItems",
        "patternProperties",
    ]);
    let words = prop::sample::select(vec![
        "string",
        "integer",
        "number",
        "object",
        "array",
        "null",
        "boolean",
        "#",
        "#/",
        "#/$defs/a",
        "#/properties/a",
        "date",
        "^a|b$",
        "[",
        "a\n</parameter>",
        "\u{7f}\"\\",
        "ä",
        "",
    ]);
    let leaf = prop_oneof![
        words.prop_map(|word| json!(word)),
        any::<bool>().prop_map(|value| json!(value)),
        (-3i64..40).prop_map(|value| json!(value)),
        any::<f64>().prop_map(|value| json!(value)),
        Just(Value::Null),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((keys.clone(), inner), 0..4).prop_map(|members| {
                Value::Object(members.into_iter().map(|(key, value)| (key.to_string(), value)).collect::<Map<_, _>>())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_schema_makes_it_panic(schema in any_json(), name in "[a-z<>\n]{0,3}") {
        if let Ok(mut matcher) = Grammar::json_schema(&schema).and_then(|grammar| env().matcher(&grammar)) {
            let _ = matcher.mask().map(|mask| mask.map(<[u32]>::len));
        }
        let tool = json!({ "name": name, "parameters": { "properties": { "x": schema.clone(), "y": {} }, "$defs": { "a": schema } } });
        if let Ok(grammar) = Grammar::tool_calls(&[tool_schema(&tool)], &CallChoice::Required, true) {
            // Every grammar that `tool_calls` accepts is valid Lark: only schemas and patterns may be refused from here
            // on.
            if let Err(error) = env().matcher(&grammar).map(|_| ()) {
                prop_assert!(matches!(error, GrammarError::Tool { .. }), "{error}");
            }
        }
    }

    #[test]
    fn any_tokens_may_be_offered(tokens in prop::collection::vec(0u32..1100, 0..40)) {
        let grammar = Grammar::tool_calls(&[tool_schema(&json!({ "name": "a", "parameters": { "properties": { "x": {} } } }))], &CallChoice::Auto, true);
        let mut matcher = env().matcher(&grammar.unwrap().after_reasoning()).unwrap();
        for token in tokens {
            let may = matcher.mask().unwrap().is_none_or(|mask| {
                mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
            });
            let taken = matcher.accept(token).is_ok();
            let unused = tokenizer().token_bytes(token).is_empty();
            prop_assert!(taken || !may || unused, "token {token} is in the mask but is refused");
        }
    }
}
