//! The forms of one tool parameter's value, from its schema.
//!
//! Inside a call, a string has no quotes and may have several lines. Objects, arrays and numbers are JSON. Booleans and
//! null may be JSON or Python (`True`, `None`), because the template writes them as Python does. No string can contain
//! the tags by which a parser finds the end of a value and of a call.

use std::cell::Cell;

use serde_json::Value;

use super::circles::CIRCLE;
use super::schema::with_definitions;

/// End of a value that is not free text.
pub const VALUE_END: &str = "\n</parameter>";
/// Tags that no text can contain. Text ends at the first of these even without a new line before it: a parser of calls
/// does not ask for one.
pub const NEVER_IN_TEXT: [&str; 2] = ["</parameter>", "</tool_call>"];

/// Bound within which a reader that knows only floats tells integers apart.
const LARGEST_INTEGER: i64 = (1 << 53) - 1;

/// Limit on the references from one value; its schema is then called circular.
const MOST_REFERENCES: usize = 16;

/// Limit on the forms of one value. Choices between constants are one form.
const MOST_FORMS: usize = 100;

/// Limit on the schema parts of one request's tools, each counted as often as a form or a reference repeats it: twenty
/// kilobytes of references can stand for more parts than there is memory.
const MOST_PARTS: usize = 200_000;

#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    Text,
    /// Text that also matches these regular expressions, from beginning to end.
    Matching(Vec<String>),
    OneOf(Vec<String>),
    Json(Value),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Unsupported {
    pub part: String,
    pub why: String,
}

pub struct PartsBudget(Cell<usize>);

impl Default for PartsBudget {
    fn default() -> PartsBudget {
        PartsBudget(Cell::new(MOST_PARTS))
    }
}

impl PartsBudget {
    pub fn take(&self, copied: &Value) -> Result<(), Unsupported> {
        self.spend(1)?;
        match copied {
            Value::Object(map) => map.values().try_for_each(|part| self.take(part)),
            Value::Array(list) => list.iter().try_for_each(|part| self.take(part)),
            _ => Ok(()),
        }
    }

    fn spend(&self, parts: usize) -> Result<(), Unsupported> {
        let left = self.0.get().checked_sub(parts);
        let why =
            "with all references followed, the tools' schemas have more than 200000 parts; send fewer or simpler ones";
        self.0.set(left.ok_or_else(|| unsupported("", why))?);
        Ok(())
    }
}

/// Lists the forms of a value. `root` is the target of references. A demand that a grammar cannot keep is an error with
/// `strict`, and dropped without.
pub fn forms_of(schema: &Value, root: &Value, strict: bool, budget: &PartsBudget) -> Result<Vec<Form>, Unsupported> {
    let mut forms = Forms::default();
    add_forms(schema, &SchemaContext { root, strict, budget }, MOST_REFERENCES, &mut forms)?;
    if forms.found.contains(&Form::Text) {
        return Ok(vec![Form::Text]);
    }
    if forms.found.is_empty() {
        return Err(unsupported("", "no value fits it"));
    }
    for form in &mut forms.found {
        if let Form::Json(schema) = form
            && has_reference(schema)
        {
            [root.get("$defs"), root.get("definitions")].into_iter().flatten().try_for_each(|all| budget.take(all))?;
            *schema = with_definitions(schema, root);
        }
    }
    Ok(forms.found)
}

struct SchemaContext<'a> {
    root: &'a Value,
    strict: bool,
    budget: &'a PartsBudget,
}

#[derive(Default)]
struct Forms<'a> {
    found: Vec<Form>,
    /// References that were followed, and whether each has ended: a second visit gives nothing new.
    followed: Vec<(&'a Value, bool)>,
}

impl Forms<'_> {
    fn add(&mut self, form: Form) -> Result<(), Unsupported> {
        if let Form::OneOf(more) = form {
            let of_texts = self.found.iter_mut().find_map(|form| match form {
                Form::OneOf(texts) => Some(texts),
                _ => None,
            });
            match of_texts {
                Some(texts) => texts.extend(more),
                None => self.found.push(Form::OneOf(more)),
            }
        } else if !self.found.contains(&form) {
            if self.found.len() == MOST_FORMS {
                return Err(unsupported("", &format!("it has more than {MOST_FORMS} forms; offer fewer choices")));
            }
            self.found.push(form);
        }
        Ok(())
    }
}

fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key("$ref") || map.values().any(has_reference),
        Value::Array(list) => list.iter().any(has_reference),
        _ => false,
    }
}

fn add_forms<'a>(
    schema: &'a Value,
    context: &SchemaContext<'a>,
    steps: usize,
    forms: &mut Forms<'a>,
) -> Result<(), Unsupported> {
    context.budget.spend(1)?;
    let schema = match schema {
        Value::Object(schema) => schema,
        Value::Bool(true) => return forms.add(Form::Text),
        other => return Err(unsupported("", &format!("{other} is not a schema; use an object"))),
    };
    let Some(steps) = steps.checked_sub(1) else { return Err(unsupported("/$ref", CIRCLE)) };
    let within = |part: &str| {
        let part = part.to_string();
        move |found: Unsupported| Unsupported { part: format!("/{part}{}", found.part), why: found.why }
    };
    if let Some(reference) = schema.get("$ref") {
        let target = reference.as_str().and_then(|reference| context.root.pointer(reference.strip_prefix('#')?));
        let Some(target) = target else {
            return Err(unsupported(
                "/$ref",
                &format!("there is no schema at {reference}; only references such as '#/$defs/NAME' are supported"),
            ));
        };
        let at = forms.followed.len();
        match forms.followed.iter().find(|(followed, _)| std::ptr::eq(*followed, target)) {
            Some((_, true)) => return Ok(()),
            Some((_, false)) => return Err(unsupported("/$ref", CIRCLE)),
            None => forms.followed.push((target, false)),
        }
        add_forms(target, context, steps, forms).map_err(within("$ref"))?;
        forms.followed[at].1 = true;
        return Ok(());
    }
    if let Some(value) = schema.get("const") {
        return forms.add(Form::OneOf(vec![literal(value, "const")?]));
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        context.budget.spend(values.len())?;
        let texts = values.iter().map(|value| literal(value, "enum")).collect::<Result<Vec<String>, _>>()?;
        return if texts.is_empty() { Ok(()) } else { forms.add(Form::OneOf(texts)) };
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
            "string" => forms.add(text_form(schema, context.strict)?)?,
            "any" => forms.add(Form::Text)?,
            "null" => forms.add(one_of(&["null", "None"]))?,
            "boolean" => forms.add(one_of(&["true", "false", "True", "False"]))?,
            "integer" | "number" | "array" | "object" => {
                let mut schema = schema.clone();
                schema.insert("type".into(), name.into());
                if name == "integer" {
                    bound(&mut schema, ["minimum", "exclusiveMinimum"], -LARGEST_INTEGER);
                    bound(&mut schema, ["maximum", "exclusiveMaximum"], LARGEST_INTEGER);
                }
                let schema = Value::Object(schema);
                context.budget.take(&schema)?;
                forms.add(Form::Json(schema))?;
            }
            other => return Err(unsupported("/type", &format!("there is no type {other:?}"))),
        }
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        forms.add(one_of(&["null", "None"]))?;
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

/// Adds the forms of several schemas at once: JSON if none of them is about text, which is then quoted.
fn add_intersection<'a>(
    schema: &serde_json::Map<String, Value>,
    parts: &'a [Value],
    context: &SchemaContext<'a>,
    steps: usize,
    forms: &mut Forms<'a>,
) -> Result<(), Unsupported> {
    let mut of_parts = Forms::default();
    for part in parts {
        add_forms(part, context, steps, &mut of_parts)?;
    }
    if of_parts.found.iter().all(|form| matches!(form, Form::Json(_))) {
        let schema = Value::Object(schema.clone());
        context.budget.take(&schema)?;
        forms.add(Form::Json(schema))
    } else if context.strict {
        Err(unsupported("/allOf", "several schemas of one string cannot be kept at once; use one"))
    } else {
        forms.add(Form::Text)
    }
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

/// Rewrites a pattern, which may match anywhere in a text, to match the whole text. `None` if that has no simple form:
/// anchors inside, word borders, look-around, references to groups.
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
