//! Checks and prepares JSON schemas for llguidance.

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Map, Value, json};

use super::circles::{CIRCLE, circle};
use super::env::GrammarEnv;
use super::error::GrammarError;
use super::parts::{children, escaped};

/// Limit on nesting. The compiler recurses, and its stack must not overflow.
const DEEPEST_SCHEMA: usize = 64;
/// Limit on the parts of a refused schema that are compiled on their own to name the one at fault.
const MOST_PARTS_TRIED: usize = 200;

/// White space between the parts of a JSON reply: a space, or one new line and its indentation. Bounded, because a
/// small model may otherwise write blanks without end.
const WHITESPACE: &str = r"\x20|\r?\n[\x20\t]{0,32}";

/// llguidance negates bounds. The least 64-bit integer has no opposite, and the library recurses on it until the stack
/// overflows.
const LEAST_NUMBER: f64 = -9e18;
const LOWER_BOUNDS: [&str; 2] = ["minimum", "exclusiveMinimum"];

/// Refuses schemas that would crash the compiler, and schemas that no reply could fit.
pub fn check(schema: &Value) -> Result<(), GrammarError> {
    let refused = |part: String, why: String| Err(GrammarError::Schema { part, why });
    if depth_exceeds(schema, DEEPEST_SCHEMA) {
        return refused("#".into(), format!("it is nested more than {DEEPEST_SCHEMA} levels deep; flatten it"));
    }
    if let Some(part) = number_too_low(schema, false) {
        return refused(
            format!("#{part}"),
            format!("numbers below {LEAST_NUMBER:e} are not supported; choose a larger one"),
        );
    }
    if let Some(part) = circle(schema) {
        return refused(part, CIRCLE.into());
    }
    Ok(())
}

pub fn of_reply(name: &str, schema: &Value) -> GrammarWithLexer {
    with_options(name, schema, json!({ "whitespace_pattern": WHITESPACE }))
}

/// Prepares JSON inside a tool call, spaced as the template writes it into the history. `lenient` drops demands that a
/// grammar cannot keep.
pub fn of_argument(name: &str, schema: &Value, lenient: bool) -> GrammarWithLexer {
    let options = json!({
        "whitespace_flexible": false,
        "item_separator": ", ?",
        "key_separator": ": ?",
        "lenient": lenient,
    });
    with_options(name, schema, options)
}

/// Finds the smallest part of a refused schema that is refused on its own too: its JSON pointer and the reason.
pub fn unsupported_part(env: &GrammarEnv, schema: &Value, lenient: bool, why: String) -> (String, String) {
    let mut search = RefusedPartSearch { env, root: schema, lenient, tries: 0 };
    let mut found = ("#".to_string(), why);
    let mut part = schema;
    while let Some((path, child, why)) = search.refused_child(part) {
        found = (format!("{}/{path}", found.0), why);
        part = child;
    }
    found
}

/// Returns the schema with the definitions of `root`, so that its references resolve.
pub fn with_definitions(schema: &Value, root: &Value) -> Value {
    let mut schema = schema.clone();
    if let (Value::Object(schema), Value::Object(root)) = (&mut schema, root) {
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = root.get(key)
                && !schema.contains_key(key)
            {
                schema.insert(key.to_string(), definitions.clone());
            }
        }
    }
    schema
}

fn with_options(name: &str, schema: &Value, mut options: Value) -> GrammarWithLexer {
    // Some models write letters beyond ASCII as escapes; that is valid JSON.
    options["json_allow_general_unicode_escapes"] = Value::Bool(true);
    let mut schema = schema.clone();
    raise_lower_bounds(&mut schema);
    let mut schema = if let Value::Object(schema) = schema { schema } else { Map::new() };
    schema.insert("x-guidance".to_string(), options);
    GrammarWithLexer { name: Some(name.into()), lark_grammar: None, json_schema: Some(Value::Object(schema)) }
}

struct RefusedPartSearch<'a> {
    env: &'a GrammarEnv,
    root: &'a Value,
    lenient: bool,
    tries: usize,
}

impl<'a> RefusedPartSearch<'a> {
    fn refused_child(&mut self, schema: &'a Value) -> Option<(String, &'a Value, String)> {
        children(schema).find_map(|(path, child)| {
            self.tries += 1;
            if self.tries > MOST_PARTS_TRIED {
                return None;
            }
            let alone = of_argument("part", &with_definitions(child, self.root), self.lenient);
            let why = self.env.why_not(TopLevelGrammar { grammars: vec![alone], max_tokens: None })?;
            Some((path, child, why))
        })
    }
}

fn depth_exceeds(value: &Value, limit: usize) -> bool {
    match (value, limit) {
        (Value::Object(_) | Value::Array(_), 0) => true,
        (Value::Object(map), _) => map.values().any(|value| depth_exceeds(value, limit - 1)),
        (Value::Array(list), _) => list.iter().any(|value| depth_exceeds(value, limit - 1)),
        _ => false,
    }
}

fn is_too_low(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number < LEAST_NUMBER)
}

fn number_too_low(value: &Value, in_constant: bool) -> Option<String> {
    match value {
        Value::Object(map) => map.iter().find_map(|(name, value)| {
            // Lower bounds are raised elsewhere, and a default does not decide what fits.
            let is_let_be = LOWER_BOUNDS.contains(&name.as_str()) || name == "default";
            let may_be_low = !in_constant && value.is_number() && is_let_be;
            let in_constant = in_constant || matches!(name.as_str(), "const" | "enum");
            let found = if may_be_low { None } else { number_too_low(value, in_constant) };
            found.map(|part| format!("/{}{part}", escaped(name)))
        }),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(index, value)| Some(format!("/{index}{}", number_too_low(value, in_constant)?))),
        number => is_too_low(number).then(String::new),
    }
}

/// Raises lower bounds that the compiler cannot take. Every integer that a model would say still fits.
fn raise_lower_bounds(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match is_too_low(value) && LOWER_BOUNDS.contains(&name.as_str()) {
                    true => *value = json!(LEAST_NUMBER),
                    false => raise_lower_bounds(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(raise_lower_bounds),
        _ => {}
    }
}
