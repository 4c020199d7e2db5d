//! Tools and their choice, as several doors read and write them.

use crate::json::json_text;
use fields::{FieldError, Read};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use session::{Tool, ToolChoice};

/// Reads a tool in the shape of chat completions, or of its inner object alone.
pub fn tool_of(given: &Value) -> Tool {
    let function = given.get("function").unwrap_or(given);
    let text = |name: &str| function.get(name).and_then(Value::as_str).map(str::to_owned);
    let name = text("name").unwrap_or_default();
    let description = text("description");
    let parameters = function.get("parameters").filter(|parameters| parameters.is_object());
    let mut plain = Map::from_iter([("name".to_owned(), json!(name))]);
    plain.extend(description.as_ref().map(|description| ("description".to_owned(), json!(description))));
    plain.extend(parameters.map(|parameters| ("parameters".to_owned(), parameters.clone())));
    let plain = json_text(&json!({ "type": "function", "function": plain }));
    let given = json_text(given);
    let verbatim = (given != plain).then_some(given);
    Tool { name, description, parameters: parameters.map(json_text), verbatim }
}

/// Checks that the fields of a tool have the types that templates and grammars take. The error's path is empty.
pub fn check_tool(place: &str, tool: &Value) -> Read<()> {
    let Value::Object(fields) = tool else { return Err(misshaped(place, tool, "an object")) };
    must_be_text(place, fields, "type")?;
    let (place, function) = match fields.get("function") {
        None => (place.to_owned(), fields),
        Some(Value::Object(function)) => (format!("{place}.function"), function),
        Some(other) => return Err(misshaped(&format!("{place}.function"), other, "an object")),
    };
    must_be_text(&place, function, "name")?;
    must_be_text(&place, function, "description")?;
    if let Some(strict) = function.get("strict").filter(|strict| !strict.is_boolean() && !strict.is_null()) {
        return Err(misshaped(&format!("{place}.strict"), strict, "true or false"));
    }
    let place = format!("{place}.parameters");
    match function.get("parameters") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(schema)) => check_parameters(&place, schema),
        Some(other) => Err(misshaped(&place, other, "a JSON schema")),
    }
}

/// Checks those parts of an argument schema that every reader of it relies on. The error's path is empty.
pub fn check_parameters(place: &str, schema: &Map<String, Value>) -> Read<()> {
    let is_type = |kind: &Value| kind.is_string() || kind.is_null();
    match schema.get("type") {
        Some(Value::Array(kinds)) if kinds.iter().all(is_type) => {}
        Some(kind) if !is_type(kind) => {
            return Err(misshaped(&format!("{place}.type"), kind, "the name of a type, or a list of them"));
        }
        _ => {}
    }
    match schema.get("properties") {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(other) => Err(misshaped(&format!("{place}.properties"), other, "an object")),
    }
}

pub fn must_be_text(place: &str, fields: &Map<String, Value>, name: &str) -> Read<()> {
    match fields.get(name) {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(other) => Err(misshaped(&format!("{place}.{name}"), other, "a string")),
    }
}

/// Returns the error of a value of another type. Its words name the place.
pub fn misshaped(place: &str, found: &Value, expected: &str) -> FieldError {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    not_valid(format!("{place} is {kind}, but must be {expected}"))
}

pub fn not_valid(why: String) -> FieldError {
    FieldError::new("invalid_value", "", format!("the request is not valid: {why}"))
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ToolChoiceView<'a> {
    Word(ToolChoiceWord),
    Tool(ToolName<'a>),
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoiceWord {
    Auto,
    None,
    Required,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolName<'a> {
    Function { name: &'a str },
}

pub fn tool_choice_view(choice: &ToolChoice) -> ToolChoiceView<'_> {
    match choice {
        ToolChoice::Auto => ToolChoiceView::Word(ToolChoiceWord::Auto),
        ToolChoice::None => ToolChoiceView::Word(ToolChoiceWord::None),
        ToolChoice::Required => ToolChoiceView::Word(ToolChoiceWord::Required),
        ToolChoice::Function(name) => ToolChoiceView::Tool(ToolName::Function { name }),
    }
}

/// Reads a choice of tools; a named function in the shape of Realtime or of chat completions.
pub fn tool_choice_of(value: &Value) -> Option<ToolChoice> {
    match value.as_str() {
        Some("auto") => Some(ToolChoice::Auto),
        Some("none") => Some(ToolChoice::None),
        Some("required") => Some(ToolChoice::Required),
        Some(_) => None,
        None => {
            let name = value.get("name").or_else(|| value.get("function").and_then(|f| f.get("name")))?;
            let is_function = value.get("type").and_then(Value::as_str) == Some("function");
            is_function.then(|| name.as_str().map(|name| ToolChoice::Function(name.to_owned())))?
        }
    }
}
