//! What the value of one tool parameter may look like, by its schema.
//!
//! In a call, a string stands without quotes and may have several lines. Objects, arrays and numbers are JSON. Booleans
//! and null may be JSON or Python (`True`, `None`), because the template writes them as Python does. No string can
//! contain the tags by which a parser finds the end of a value and of a call.

use serde_json::Value;

use super::schema::with_definitions;

/// What stands behind a value that is not free text.
pub const VALUE_END: &str = "\n</parameter>";
/// What no text can contain. Text ends at the first of these even without a new line before it: a parser of calls
/// does not ask for one.
pub const NEVER_IN_TEXT: [&str; 2] = ["</parameter>", "</tool_call>"];

/// A reader that knows only floats cannot tell integers beyond these apart.
const LARGEST_INTEGER: i64 = (1 << 53) - 1;

/// How many references are followed from one value before its schema is called circular.
const MOST_REFERENCES: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// Any text.
    Text,
    /// Text that also matches these regular expressions, from beginning to end.
    Matching(Vec<String>),
    /// One of these texts.
    OneOf(Vec<String>),
    /// JSON that fits the schema.
    Json(Value),
}

/// A part of the schema, as a path from the value, and what is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Unsupported {
    pub part: String,
    pub why: String,
}

/// The forms that a value may have. `root` is the schema that references point into. A demand that a grammar cannot
/// keep is an error with `strict`, and dropped without.
pub fn forms_of(schema: &Value, root: &Value, strict: bool) -> Result<Vec<Form>, Unsupported> {
    let mut forms = Vec::new();
    add_forms(schema, &SchemaContext { root, strict }, MOST_REFERENCES, &mut forms)?;
    if forms.contains(&Form::Text) {
        return Ok(vec![Form::Text]);
    }
    if forms.is_empty() {
        return Err(unsupported("", "no value fits it"));
    }
    Ok(forms)
}

struct SchemaContext<'a> {
    root: &'a Value,
    strict: bool,
}

fn add_forms(schema: &Value, context: &SchemaContext, steps: usize, forms: &mut Vec<Form>) -> Result<(), Unsupported> {
    let schema = match schema {
        Value::Object(schema) => schema,
        Value::Bool(true) => {
            forms.push(Form::Text);
            return Ok(());
        }
        other => return Err(unsupported("", &format!("{other} is not a schema; use an object"))),
    };
    let Some(steps) = steps.checked_sub(1) else {
        return Err(unsupported("/$ref", "its references go round in a circle or too far"));
    };
    let within = |part: &str| {
        let part = part.to_string();
        move |found: Unsupported| Unsupported { part: format!("/{part}{}", found.part), why: found.why }
    };
    if let Some(reference) = schema.get("$ref") {
        let target = reference.as_str().and_then(|reference| context.root.pointer(reference.strip_prefix('#')?));
        let Some(target) = target else {
            return Err(unsupported("/$ref", &format!("nothing stands at {reference}; only '#/…' is followed")));
        };
        return add_forms(target, context, steps, forms).map_err(within("$ref"));
    }
    if let Some(value) = schema.get("const") {
        forms.push(Form::OneOf(vec![literal(value, "const")?]));
        return Ok(());
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let texts = values.iter().map(|value| literal(value, "enum")).collect::<Result<Vec<String>, _>>()?;
        if !texts.is_empty() {
            forms.push(Form::OneOf(texts));
        }
        return Ok(());
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(choices) = schema.get(key).and_then(Value::as_array) {
            for (index, choice) in choices.iter().enumerate() {
                add_forms(choice, context, steps, forms).map_err(within(&format!("{key}/{index}")))?;
            }
            return Ok(());
        }
    }
    if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
        return match parts.as_slice() {
            [only] => add_forms(only, context, steps, forms).map_err(within("allOf/0")),
            _ => add_intersection(schema, parts, context, steps, forms),
        };
    }
    for name in types_of(schema) {
        match name {
            "string" => forms.push(text_form(schema, context.strict)?),
            "any" => forms.push(Form::Text),
            "null" => forms.push(one_of(&["null", "None"])),
            "boolean" => forms.push(one_of(&["true", "false", "True", "False"])),
            "integer" | "number" | "array" | "object" => {
                let mut schema = schema.clone();
                schema.insert("type".into(), name.into());
                if name == "integer" {
                    bound(&mut schema, ["minimum", "exclusiveMinimum"], -LARGEST_INTEGER);
                    bound(&mut schema, ["maximum", "exclusiveMaximum"], LARGEST_INTEGER);
                }
                forms.push(Form::Json(with_definitions(&Value::Object(schema), context.root)));
            }
            other => return Err(unsupported("/type", &format!("there is no type {other:?}"))),
        }
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        forms.push(one_of(&["null", "None"]));
    }
    Ok(())
}

fn one_of(texts: &[&str]) -> Form {
    Form::OneOf(texts.iter().map(|text| text.to_string()).collect())
}

fn bound(schema: &mut serde_json::Map<String, Value>, keys: [&str; 2], value: i64) {
    if keys.iter().all(|key| !schema.contains_key(*key)) {
        schema.insert(keys[0].into(), value.into());
    }
}

/// Several schemas at once: JSON where none of them is about text, which then stands quoted.
fn add_intersection(
    schema: &serde_json::Map<String, Value>,
    parts: &[Value],
    context: &SchemaContext,
    steps: usize,
    forms: &mut Vec<Form>,
) -> Result<(), Unsupported> {
    let mut of_parts = Vec::new();
    for part in parts {
        add_forms(part, context, steps, &mut of_parts)?;
    }
    if of_parts.iter().all(|form| matches!(form, Form::Json(_))) {
        forms.push(Form::Json(with_definitions(&Value::Object(schema.clone()), context.root)));
    } else if context.strict {
        return Err(unsupported("/allOf", "several schemas of one string cannot be kept at once; use one"));
    } else {
        forms.push(Form::Text);
    }
    Ok(())
}

fn types_of(schema: &serde_json::Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ if schema.contains_key("properties") => vec!["object"],
        _ if schema.contains_key("items") => vec!["array"],
        _ => vec!["any"],
    }
}

fn text_form(schema: &serde_json::Map<String, Value>, strict: bool) -> Result<Form, Unsupported> {
    let mut patterns = Vec::new();
    let length = |key: &str| schema.get(key).and_then(Value::as_u64);
    match (length("minLength").unwrap_or(0), length("maxLength")) {
        (0, None) => {}
        (least, None) => patterns.push(format!("(?s:.{{{least},}})")),
        (least, Some(most)) if least > most => return Err(unsupported("/minLength", "it is more than maxLength")),
        (least, Some(most)) => patterns.push(format!("(?s:.{{{least},{most}}})")),
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        match whole_match(pattern) {
            Some(whole) => patterns.push(whole),
            None if strict => return Err(unsupported("/pattern", "anchors are only supported at its ends")),
            None => {}
        }
    }
    match schema.get("format").and_then(Value::as_str) {
        Some("date") => patterns.push(DATE.into()),
        Some("time") => patterns.push(format!("{TIME}{ZONE}?")),
        Some("date-time") => patterns.push(format!("{DATE}[T ]{TIME}{ZONE}?")),
        _ => {} // by the standard a format is a remark
    }
    Ok(if patterns.is_empty() { Form::Text } else { Form::Matching(patterns) })
}

// More generous than RFC 3339: seconds and zone may be missing, as they do when people speak of time.
const DATE: &str = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])";
const TIME: &str = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\\.[0-9]{1,9})?)?";
const ZONE: &str = "(Z|[+\\-]([01][0-9]|2[0-3]):[0-5][0-9])";

/// A schema's pattern may match anywhere in the text; here the whole text must match. None where that cannot be said
/// simply: anchors inside, word borders, look-around, references to groups.
fn whole_match(pattern: &str) -> Option<String> {
    let (mut anchored, mut has_choice) = ((false, false), false);
    let (mut in_class, mut depth) = (false, 0usize);
    let mut chars = pattern.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next()?.1 {
                'b' | 'B' | 'k' | '1'..='9' if !in_class => return None,
                _ => {}
            },
            ']' => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '(' => {
                depth += 1;
                let rest = &pattern[at..];
                if rest.starts_with("(?") && !rest.starts_with("(?:") {
                    return None;
                }
            }
            ')' => depth = depth.checked_sub(1)?,
            '|' => has_choice |= depth == 0,
            '^' if at == 0 => anchored.0 = true,
            '$' if at + 1 == pattern.len() => anchored.1 = true,
            '^' | '$' => return None,
            _ => {}
        }
    }
    if has_choice && (anchored.0 || anchored.1) {
        return None; // an anchor then belongs to one of the choices only
    }
    let inner = &pattern[usize::from(anchored.0)..pattern.len() - usize::from(anchored.1)];
    let any = |anchored: bool| if anchored { "" } else { "(?s:.*)" };
    let inner = llguidance::regex_to_lark(inner, "dw");
    Some(format!("{}({inner}){}", any(anchored.0), any(anchored.1)))
}

/// How a value of an enumeration stands in a call.
fn literal(value: &Value, key: &str) -> Result<String, Unsupported> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if let Some(end) = NEVER_IN_TEXT.iter().find(|end| text.contains(**end)) {
        return Err(unsupported(&format!("/{key}"), &format!("{text:?} contains {end}, which ends a value or a call")));
    }
    Ok(text)
}

fn unsupported(part: &str, why: &str) -> Unsupported {
    Unsupported { part: part.into(), why: why.into() }
}
