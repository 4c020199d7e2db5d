//! The part of JSON Schema that the tests' schemas use, written from the standard and not from the grammar.

use serde_json::Value;

pub fn fits(value: &Value, schema: &Value, root: &Value) -> Result<(), String> {
    let complain = |why: &str| Err(format!("{value} against {schema}: {why}"));
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return fits(value, root.pointer(&reference[1..]).unwrap(), root);
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return complain("not the constant");
    }
    if schema.get("enum").and_then(Value::as_array).is_some_and(|values| !values.contains(value)) {
        return complain("not in the enumeration");
    }
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array)
        && !choices.iter().any(|choice| fits(value, choice, root).is_ok())
    {
        return complain("none of anyOf");
    }
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    let is = |name: &str| match name {
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    };
    if !types.is_empty() && !types.into_iter().any(is) {
        return complain("wrong type");
    }
    let number = |key: &str| schema.get(key).and_then(Value::as_f64);
    if let Some(found) = value.as_f64() {
        if number("minimum").is_some_and(|least| found < least) || number("maximum").is_some_and(|most| found > most) {
            return complain("out of range");
        }
        if number("multipleOf").is_some_and(|step| found % step != 0.0) {
            return complain("not a multiple");
        }
    }
    let outside = |size: usize, least: &str, most: &str| {
        number(least).is_some_and(|least| (size as f64) < least) || number(most).is_some_and(|most| size as f64 > most)
    };
    if let Some(text) = value.as_str() {
        if outside(text.chars().count(), "minLength", "maxLength") {
            return complain("wrong length");
        }
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && !regex::Regex::new(pattern).unwrap().is_match(text)
        {
            return complain("does not match the pattern");
        }
    }
    if let Some(items) = value.as_array() {
        if outside(items.len(), "minItems", "maxItems") {
            return complain("wrong number of items");
        }
        if let Some(schema) = schema.get("items") {
            items.iter().try_for_each(|item| fits(item, schema, root))?;
        }
    }
    if let Some(members) = value.as_object() {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        if required.into_iter().any(|name| !members.contains_key(name.as_str().unwrap())) {
            return complain("a required member is missing");
        }
        for (name, member) in members {
            match (schema.get("properties").and_then(|map| map.get(name)), schema.get("additionalProperties")) {
                (Some(schema), _) => fits(member, schema, root)?,
                (None, Some(Value::Bool(false))) => return complain("a member too many"),
                (None, Some(schema @ Value::Object(_))) => fits(member, schema, root)?,
                (None, _) => {}
            }
        }
    }
    Ok(())
}
