//! JSON schemas as far as the schema of the websocket's events needs. An unknown keyword is an error, so that nothing in the
//! schema goes unchecked.

use serde_json::Value;

pub fn check(root: &Value, definition: &str, value: &Value) -> Result<(), String> {
    let schema = root["$defs"].get(definition).ok_or_else(|| format!("no definition {definition}"))?;
    validate(root, schema, value, "$")
}

fn validate(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if *schema == Value::Bool(true) {
        return Ok(());
    }
    let schema = schema.as_object().ok_or("a schema is an object")?;
    for (keyword, rule) in schema {
        match keyword.as_str() {
            "$ref" => {
                let name = rule.as_str().and_then(|r| r.strip_prefix("#/$defs/")).ok_or("a reference is local")?;
                let target = root["$defs"].get(name).ok_or_else(|| format!("no definition {name}"))?;
                validate(root, target, value, at)?;
            }
            "oneOf" | "anyOf" => {
                let results: Vec<_> = rule.as_array().unwrap().iter().map(|s| validate(root, s, value, at)).collect();
                let fits = results.iter().filter(|result| result.is_ok()).count();
                if fits == 0 || (keyword == "oneOf" && fits > 1) {
                    let why: Vec<String> = results.into_iter().filter_map(Result::err).collect();
                    return Err(format!("{at}: {fits} alternatives fit: {}", why.join(" | ")));
                }
            }
            "type" => {
                let is = |kind: &Value| match kind.as_str() {
                    Some("object") => Ok(value.is_object()),
                    Some("array") => Ok(value.is_array()),
                    Some("string") => Ok(value.is_string()),
                    Some("boolean") => Ok(value.is_boolean()),
                    Some("number") => Ok(value.is_number()),
                    Some("integer") => Ok(value.as_f64().is_some_and(|number| number.fract() == 0.0)),
                    Some("null") => Ok(value.is_null()),
                    _ => Err(format!("unknown type {kind}")),
                };
                let kinds = rule.as_array().map_or(std::slice::from_ref(rule), Vec::as_slice);
                let fits = kinds.iter().map(is).collect::<Result<Vec<_>, _>>()?.contains(&true);
                if !fits {
                    return Err(format!("{at}: {value} is not of type {rule}"));
                }
            }
            "const" if value != rule => return Err(format!("{at}: {value} is not {rule}")),
            "enum" if !rule.as_array().unwrap().contains(value) => {
                return Err(format!("{at}: {value} is not in {rule}"));
            }
            "minimum" if value.as_f64().is_some_and(|number| Some(number) < rule.as_f64()) => {
                return Err(format!("{at}: {value} is below {rule}"));
            }
            "maximum" if value.as_f64().is_some_and(|number| Some(number) > rule.as_f64()) => {
                return Err(format!("{at}: {value} is above {rule}"));
            }
            "required" => {
                for name in rule.as_array().unwrap() {
                    if value.get(name.as_str().unwrap()).is_none() {
                        return Err(format!("{at}: {name} is missing"));
                    }
                }
            }
            "properties" => {
                for (name, property) in rule.as_object().unwrap() {
                    if let Some(field) = value.get(name) {
                        validate(root, property, field, &format!("{at}.{name}"))?;
                    }
                }
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (name, field) in value.as_object().into_iter().flatten() {
                    if known.is_some_and(|known| known.contains_key(name)) {
                        continue;
                    }
                    match rule {
                        Value::Bool(false) => return Err(format!("{at}: {name} is not in the schema")),
                        rule => validate(root, rule, field, &format!("{at}.{name}"))?,
                    }
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    validate(root, rule, item, &format!("{at}[{index}]"))?;
                }
            }
            "minItems" | "maxItems" => {
                let (items, bound) = (value.as_array().map_or(0, Vec::len) as u64, rule.as_u64().unwrap());
                if if keyword == "minItems" { items < bound } else { items > bound } {
                    return Err(format!("{at}: {items} entries, and {keyword} is {bound}"));
                }
            }
            "const" | "enum" | "minimum" | "maximum" | "description" | "format" | "default" | "x-extension" => {}
            other => return Err(format!("the validator does not know {other}")),
        }
    }
    Ok(())
}
