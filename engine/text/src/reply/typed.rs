//! Arguments come as text; the tool's JSON schema gives them their types. A text that does not fit its type stays a
//! string, so that the tool can say what is wrong with it.

use crate::ToolSchema;
use serde_json::{Map, Number, Value};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub struct ToolTypes {
    schemas: HashMap<String, Value>,
}

/// JSON types but strings, from the one that the fewest texts fit to the one that most do.
const NARROW_FIRST: [&str; 6] = ["null", "boolean", "integer", "number", "object", "array"];

/// Limit on the depth of a schema: it may refer to itself.
const DEPTH: usize = 16;

impl ToolTypes {
    pub fn new(tools: &[ToolSchema]) -> Self {
        Self { schemas: tools.iter().map(|tool| (tool.name.clone(), tool.parameters.clone())).collect() }
    }

    /// Writes the JSON object of a call's arguments in pieces, one for each argument. A parameter that was written
    /// twice has its last value.
    pub fn arguments(&self, tool: &str, parameters: &[(String, String)]) -> Vec<String> {
        let whole = self.schemas.get(tool).unwrap_or(&Value::Null);
        let mut arguments = Map::new();
        for (key, text) in parameters {
            let value = match whole.get("properties").and_then(|properties| properties.get(key)) {
                Some(schema) => typed(text, schema, whole),
                None => Value::from(text.as_str()),
            };
            arguments.insert(key.clone(), value);
        }
        if arguments.is_empty() {
            return vec!["{}".to_string()];
        }
        let last = arguments.len() - 1;
        let pieces = arguments.iter().enumerate().map(|(at, (key, value))| {
            let before = if at == 0 { "{" } else { "," };
            let after = if at == last { "}" } else { "" };
            format!("{before}{}:{value}{after}", Value::from(key.as_str()))
        });
        pieces.collect()
    }
}

fn typed(text: &str, schema: &Value, whole: &Value) -> Value {
    let mut types = Vec::new();
    let mut members = Vec::new();
    collect(schema, whole, DEPTH, &mut Vec::new(), &mut types, &mut members);
    types.retain(|kind| *kind == "string" || NARROW_FIRST.contains(kind));
    if let Some(member) = members.iter().find(|member| is_written(text, member)) {
        return (*member).clone();
    }
    let trimmed = text.trim();
    if types.is_empty() && members.is_empty() {
        // The schema allows anything. Only objects and arrays become more than text.
        let structure =
            serde_json::from_str(trimmed).ok().filter(|value: &Value| value.is_object() || value.is_array());
        return structure.unwrap_or_else(|| Value::from(text));
    }
    let read = NARROW_FIRST.into_iter().filter(|kind| types.contains(kind)).find_map(|kind| read(trimmed, kind));
    read.unwrap_or_else(|| Value::from(text))
}

fn collect<'s>(
    schema: &'s Value,
    whole: &'s Value,
    depth: usize,
    followed: &mut Vec<&'s Value>,
    types: &mut Vec<&'s str>,
    members: &mut Vec<&'s Value>,
) {
    if depth == 0 {
        return;
    }
    match schema.get("type") {
        Some(Value::String(name)) => types.push(name),
        Some(Value::Array(names)) => types.extend(names.iter().filter_map(Value::as_str)),
        _ => {}
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        types.push("null");
    }
    members.extend(schema.get("const"));
    members.extend(schema.get("enum").and_then(Value::as_array).into_iter().flatten());
    for several in ["anyOf", "oneOf", "allOf"] {
        for schema in schema.get(several).and_then(Value::as_array).into_iter().flatten() {
            collect(schema, whole, depth - 1, followed, types, members);
        }
    }
    let referred = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
    // A second visit of a reference gives nothing new, and a few references in a row would repeat it a million times.
    if let Some(schema) = referred.and_then(|path| whole.pointer(path))
        && !followed.iter().any(|known| std::ptr::eq(*known, schema))
    {
        followed.push(schema);
        collect(schema, whole, depth - 1, followed, types, members);
    }
}

/// Parses a text as one JSON type. The template writes values as Python does, so a model may write `True` and `None` as
/// well as `true` and `null`.
fn read(text: &str, kind: &str) -> Option<Value> {
    match (kind, text) {
        ("null", "null" | "None") => Some(Value::Null),
        ("boolean", "true" | "True") => Some(Value::Bool(true)),
        ("boolean", "false" | "False") => Some(Value::Bool(false)),
        ("integer", _) => integer(text).map(Value::Number),
        ("number", _) => integer_text(text).or_else(|| float(text)).map(Value::Number),
        ("object", _) => serde_json::from_str(text).ok().filter(Value::is_object),
        ("array", _) => serde_json::from_str(text).ok().filter(Value::is_array),
        _ => None,
    }
}

/// Parses an integer; in JSON Schema `5.0` is one.
fn integer(text: &str) -> Option<Number> {
    integer_text(text).or_else(|| {
        let number = float(text)?.as_f64()?;
        // Beyond 2^53 a float does not tell which integer was meant.
        let exact = number.fract() == 0.0 && number.abs() < (1u64 << 53) as f64;
        exact.then(|| Number::from(number as i64))
    })
}

fn integer_text(text: &str) -> Option<Number> {
    text.parse::<i64>().ok().map(Number::from).or_else(|| text.parse::<u64>().ok().map(Number::from))
}

fn float(text: &str) -> Option<Number> {
    // Rust would also read `inf`, `nan` and `infinity`.
    let plausible = text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E'));
    if plausible { text.parse().ok().and_then(Number::from_f64) } else { None }
}

fn is_written(text: &str, member: &Value) -> bool {
    match member {
        Value::String(member) => text == member,
        Value::Null => read(text.trim(), "null").is_some(),
        Value::Bool(_) => read(text.trim(), "boolean").as_ref() == Some(member),
        Value::Number(number) => {
            read(text.trim(), "number").and_then(|value| Some(value.as_f64()? == number.as_f64()?)).unwrap_or(false)
        }
        Value::Array(_) | Value::Object(_) => serde_json::from_str::<Value>(text).is_ok_and(|value| value == *member),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(schema: Value, text: &str) -> Value {
        let parameters = json!({
            "type": "object", "properties": {"a": schema},
            "$defs": {"Colour": {"enum": ["red", "blue"]}, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "integer"}]}}});
        let tool = ToolSchema { name: "f".into(), strict: false, parameters };
        let pieces = ToolTypes::new(&[tool]).arguments("f", &[("a".to_string(), text.to_string())]);
        let mut object: Value = serde_json::from_str(&pieces.concat()).unwrap();
        object["a"].take()
    }

    #[test]
    fn texts_become_what_the_schema_says() {
        let typed = |name: &str| json!({"type": name});
        let cases = [
            (typed("integer"), "30", json!(30)),
            (typed("integer"), " -7\n", json!(-7)),
            (typed("integer"), "5.0", json!(5)),
            (typed("integer"), "18446744073709551615", json!(18446744073709551615u64)),
            (typed("integer"), "5.5", json!("5.5")),
            (typed("integer"), "thirty", json!("thirty")),
            (typed("integer"), "99999999999999999999", json!("99999999999999999999")),
            (typed("number"), "5", json!(5)),
            (typed("number"), "5.50", json!(5.5)),
            (typed("number"), "1e-07", json!(1e-7)),
            (typed("number"), ".5", json!(0.5)),
            (typed("number"), "inf", json!("inf")),
            (typed("number"), "1e999", json!("1e999")),
            (typed("boolean"), "True", json!(true)),
            (typed("boolean"), "false", json!(false)),
            (typed("boolean"), "yes", json!("yes")),
            (typed("null"), "None", json!(null)),
            (typed("string"), "42", json!("42")),
            (typed("string"), " two \n", json!(" two \n")),
            (typed("string"), "null", json!("null")),
            (typed("array"), "[1, \"a\"]", json!([1, "a"])),
            (typed("array"), "{}", json!("{}")),
            (typed("object"), "{\"b\": {\"z\": 1, \"a\": 2}}", json!({"b": {"z": 1, "a": 2}})),
            (typed("object"), "{'b': 1}", json!("{'b': 1}")),
            (json!({"type": ["string", "null"]}), "null", json!(null)),
            (json!({"type": ["string", "null"]}), "nulls", json!("nulls")),
            (json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}), "None", json!(null)),
            (json!({"anyOf": [{"type": "integer"}, {"type": "array"}]}), "[2]", json!([2])),
            (json!({"type": "string", "nullable": true}), "None", json!(null)),
            (json!({"enum": [1, 2.5, "x", null, true]}), "2.5", json!(2.5)),
            (json!({"enum": [1, 2.5, "x", null, true]}), "True", json!(true)),
            (json!({"enum": ["1", "2"]}), "2", json!("2")),
            (json!({"enum": ["1", "2"]}), "3", json!("3")),
            (json!({"const": 5}), "5", json!(5)),
            (json!({"$ref": "#/$defs/Colour"}), "red", json!("red")),
            (json!({"$ref": "#/$defs/Loop"}), "7", json!(7)),
            (json!({"$ref": "#/nowhere"}), "7", json!("7")),
            (json!({}), "7", json!("7")),
            (json!({}), "{\"x\": 7}", json!({"x": 7})),
            (json!(true), "7", json!("7")),
            (json!({"type": 5}), "7", json!("7")),
        ];
        for (schema, text, expected) in cases {
            let found = value(schema.clone(), text);
            assert_eq!(found.to_string(), expected.to_string(), "{schema}, {text:?}");
        }
    }

    #[test]
    fn unknown_tools_and_parameters_pass_through() {
        let parameters = json!({"properties": {"n": {"type": "integer"}}});
        let named = |name: &str, parameters| ToolSchema { name: name.into(), strict: false, parameters };
        let types = ToolTypes::new(&[named("bare", parameters), named("odd", json!(5))]);
        let pairs = [("n".to_string(), "1".to_string()), ("m \"".to_string(), "2\n".to_string())];
        assert_eq!(types.arguments("other", &pairs).concat(), r#"{"n":"1","m \"":"2\n"}"#);
        assert_eq!(types.arguments("bare", &pairs), [r#"{"n":1"#, r#","m \"":"2\n"}"#]);
        assert_eq!(types.arguments("bare", &[]), ["{}"]);
        let twice = [("n".to_string(), "1".to_string()), ("n".to_string(), "2".to_string())];
        assert_eq!(types.arguments("bare", &twice), [r#"{"n":2}"#]);
    }
}
