//! Turns a chat-completions body into a template's input: clients write the same thing in several ways, templates know
//! one.

use crate::Error;
use crate::template::{LocalTime, TemplateInput};
use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatPrompt {
    pub messages: Vec<Value>,
    pub tools: Vec<Value>,
    /// Template variables: `add_generation_prompt`, `enable_thinking` if the body sets it, all of
    /// `chat_template_kwargs`.
    pub options: Map<String, Value>,
    /// Number of parts that are no text. The template marks their positions in the prompt.
    pub images: usize,
}

impl ChatPrompt {
    pub fn prompt(&self, now: Option<LocalTime>) -> TemplateInput<'_> {
        TemplateInput { messages: &self.messages, tools: &self.tools, options: &self.options, now }
    }
}

pub fn normalise(body: &Value) -> Result<ChatPrompt, Error> {
    let body = body.as_object().ok_or_else(|| wrong("the body", body, "an object"))?;
    let messages = match body.get("messages") {
        Some(Value::Array(messages)) => messages,
        Some(other) => return Err(wrong("messages", other, "an array")),
        None => return Err(Error::Request("messages is missing".to_string())),
    };
    let mut images = 0;
    let messages = messages.iter().enumerate().map(|(at, message)| normalise_message(at, message, &mut images));
    Ok(ChatPrompt {
        messages: messages.collect::<Result<_, _>>()?,
        tools: normalise_tools(body)?,
        options: normalise_options(body)?,
        images,
    })
}

fn normalise_message(at: usize, message: &Value, images: &mut usize) -> Result<Value, Error> {
    let place = format!("messages[{at}]");
    let Value::Object(message) = message else { return Err(wrong(&place, message, "an object")) };
    let mut message = message.clone();
    let role = match message.get("role") {
        Some(Value::String(role)) => role.as_str(),
        Some(other) => return Err(wrong(&format!("{place}.role"), other, "a string")),
        None => return Err(Error::Request(format!("{place}.role is missing"))),
    };
    let role = match role {
        // Templates take one system message, the first. A later message of a developer keeps its position as a user's.
        "developer" if at == 0 => "system",
        "developer" => "user",
        "function" => "tool",
        other => other,
    };
    message["role"] = Value::from(role);
    if let Some(content) = message.get_mut("content") {
        normalise_content(&format!("{place}.content"), content, images)?;
    }
    for name in ["name", "tool_call_id", "reasoning"] {
        must_be_text(&place, &message, name)?;
    }
    if let Some(call) = message.shift_remove("function_call").filter(Value::is_object) {
        message.entry("tool_calls").or_insert_with(|| json!([{"type": "function", "function": call}]));
    }
    if let Some(calls) = message.get_mut("tool_calls") {
        normalise_calls(&format!("{place}.tool_calls"), calls)?;
    }
    if let Some(reasoning) = message.get("reasoning").filter(|reasoning| reasoning.is_string()).cloned() {
        message.entry("reasoning_content").or_insert(reasoning);
    }
    Ok(Value::Object(message))
}

fn normalise_content(place: &str, content: &mut Value, images: &mut usize) -> Result<(), Error> {
    let parts = match content {
        Value::Null | Value::String(_) => return Ok(()),
        Value::Array(parts) => parts,
        other => return Err(wrong(place, other, "a string or an array of parts")),
    };
    for (at, part) in parts.iter_mut().enumerate() {
        match part {
            Value::String(text) => *part = json!({"type": "text", "text": text}),
            Value::Object(fields) => {
                must_be_text(&format!("{place}[{at}]"), fields, "type")?;
                if let Some(Value::String(refusal)) = fields.get("refusal") {
                    *part = json!({"type": "text", "text": refusal});
                } else if fields.get("text").is_some_and(|text| !text.is_string()) {
                    return Err(wrong(&format!("{place}[{at}].text"), &fields["text"], "a string"));
                } else if !fields.contains_key("text") {
                    *images += 1;
                }
            }
            other => return Err(wrong(&format!("{place}[{at}]"), other, "a part")),
        }
    }
    Ok(())
}

fn normalise_calls(place: &str, calls: &mut Value) -> Result<(), Error> {
    let calls = match calls {
        Value::Null => return Ok(()),
        Value::Array(calls) => calls,
        other => return Err(wrong(place, other, "an array")),
    };
    for (at, call) in calls.iter_mut().enumerate() {
        let place = format!("{place}[{at}]");
        let Value::Object(fields) = call else { return Err(wrong(&place, call, "an object")) };
        must_be_text(&place, fields, "id")?;
        must_be_text(&place, fields, "type")?;
        let function = match fields.contains_key("function") {
            true => match &mut fields["function"] {
                Value::Object(function) => function,
                other => return Err(wrong(&format!("{place}.function"), other, "an object")),
            },
            false => fields,
        };
        if !function.get("name").is_some_and(Value::is_string) {
            return Err(Error::Request(format!("{place} has no function name")));
        }
        if let Some(arguments) = function.get_mut("arguments") {
            *arguments = parse_arguments(&place, arguments)?;
        }
    }
    Ok(())
}

/// Parses the text of a JSON object: clients send arguments as text, templates want the object.
fn parse_arguments(place: &str, arguments: &Value) -> Result<Value, Error> {
    let parsed = match arguments {
        Value::String(text) if text.trim().is_empty() => Value::Null,
        Value::String(text) => serde_json::from_str(text)
            .map_err(|error| Error::Request(format!("the arguments of {place} are not JSON: {error}")))?,
        other => other.clone(),
    };
    match parsed {
        Value::Null => Ok(Value::Object(Map::new())),
        Value::Object(_) => Ok(parsed),
        other => Err(wrong(&format!("{place}.arguments"), &other, "an object")),
    }
}

fn normalise_tools(body: &Map<String, Value>) -> Result<Vec<Value>, Error> {
    let as_array = |name: &str| match body.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => match items.iter().position(|item| !item.is_object()) {
            Some(at) => Err(wrong(&format!("{name}[{at}]"), &items[at], "an object")),
            None => Ok(items.clone()),
        },
        Some(other) => Err(wrong(name, other, "an array")),
    };
    let mut tools = as_array("tools")?;
    // The older name, without the wrapping.
    tools.extend(as_array("functions")?.into_iter().map(|function| json!({"type": "function", "function": function})));
    for (at, tool) in tools.iter().enumerate() {
        check_tool(&format!("tools[{at}]"), tool)?;
    }
    Ok(tools)
}

/// Checks that the fields of a tool have the types that templates and grammars take.
pub fn check_tool(place: &str, tool: &Value) -> Result<(), Error> {
    let Value::Object(fields) = tool else { return Err(wrong(place, tool, "an object")) };
    must_be_text(place, fields, "type")?;
    let (place, function) = match fields.get("function") {
        None => (place.to_owned(), fields),
        Some(Value::Object(function)) => (format!("{place}.function"), function),
        Some(other) => return Err(wrong(&format!("{place}.function"), other, "an object")),
    };
    must_be_text(&place, function, "name")?;
    must_be_text(&place, function, "description")?;
    if let Some(strict) = function.get("strict").filter(|strict| !strict.is_boolean() && !strict.is_null()) {
        return Err(wrong(&format!("{place}.strict"), strict, "true or false"));
    }
    let place = format!("{place}.parameters");
    match function.get("parameters") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(schema)) => check_parameters(&place, schema),
        Some(other) => Err(wrong(&place, other, "a JSON schema")),
    }
}

/// Checks those parts of an argument schema that every reader of it relies on.
pub fn check_parameters(place: &str, schema: &Map<String, Value>) -> Result<(), Error> {
    let is_type = |kind: &Value| kind.is_string() || kind.is_null();
    match schema.get("type") {
        Some(Value::Array(kinds)) if kinds.iter().all(is_type) => {}
        Some(kind) if !is_type(kind) => {
            return Err(wrong(&format!("{place}.type"), kind, "the name of a type, or a list of them"));
        }
        _ => {}
    }
    match schema.get("properties") {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(other) => Err(wrong(&format!("{place}.properties"), other, "an object")),
    }
}

fn must_be_text(place: &str, fields: &Map<String, Value>, name: &str) -> Result<(), Error> {
    match fields.get(name) {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(other) => Err(wrong(&format!("{place}.{name}"), other, "a string")),
    }
}

fn normalise_options(body: &Map<String, Value>) -> Result<Map<String, Value>, Error> {
    let mut options = Map::new();
    options.insert("add_generation_prompt".to_string(), Value::Bool(true));
    match body.get("reasoning_effort") {
        None | Some(Value::Null) => {}
        Some(Value::String(effort)) => {
            let thinks = match effort.as_str() {
                "none" | "minimal" => false,
                "low" | "medium" | "high" | "xhigh" | "max" => true,
                other => {
                    let allowed = "none, minimal, low, medium, high, xhigh, max";
                    return Err(Error::Request(format!("reasoning_effort is {other:?}, allowed are {allowed}")));
                }
            };
            options.insert("enable_thinking".to_string(), Value::Bool(thinks));
            options.insert("reasoning_effort".to_string(), Value::from(effort.as_str()));
        }
        Some(other) => return Err(wrong("reasoning_effort", other, "a string")),
    }
    for name in ["add_generation_prompt", "enable_thinking"] {
        match body.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Bool(value)) => {
                options.insert(name.to_string(), Value::Bool(*value));
            }
            Some(other) => return Err(wrong(name, other, "true or false")),
        }
    }
    match body.get("chat_template_kwargs") {
        None | Some(Value::Null) => {}
        Some(Value::Object(more)) => options.extend(more.clone()),
        Some(other) => return Err(wrong("chat_template_kwargs", other, "an object")),
    }
    Ok(options)
}

fn wrong(place: &str, found: &Value, expected: &str) -> Error {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    Error::Request(format!("{place} is {kind}, but must be {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_bodies_are_told_where_they_are_wrong() {
        let user = json!({"role": "user", "content": "x"});
        let call = |arguments: Value| json!({"messages": [user, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]});
        let cases = [
            (json!([]), "the body is an array, but must be an object"),
            (json!({}), "messages is missing"),
            (json!({"messages": {}}), "messages is an object, but must be an array"),
            (json!({"messages": ["x"]}), "messages[0] is a string, but must be an object"),
            (json!({"messages": [{"content": "x"}]}), "messages[0].role is missing"),
            (json!({"messages": [{"role": 5}]}), "messages[0].role is a number, but must be a string"),
            (
                json!({"messages": [user, {"role": "user", "content": 5}]}),
                "messages[1].content is a number, but must be a string or an array of parts",
            ),
            (
                json!({"messages": [{"role": "user", "content": [5]}]}),
                "messages[0].content[0] is a number, but must be a part",
            ),
            (
                json!({"messages": [{"role": "user", "content": [{"text": null}]}]}),
                "messages[0].content[0].text is null, but must be a string",
            ),
            (
                json!({"messages": [{"role": "assistant", "tool_calls": {}}]}),
                "messages[0].tool_calls is an object, but must be an array",
            ),
            (
                json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}),
                "messages[0].tool_calls[0] has no function name",
            ),
            (
                call(json!("{\"a\": ")),
                "the arguments of messages[1].tool_calls[0] are not JSON: EOF while parsing a value at line 1 column 6",
            ),
            (call(json!("[1]")), "messages[1].tool_calls[0].arguments is an array, but must be an object"),
            (json!({"messages": [], "tools": [1]}), "tools[0] is a number, but must be an object"),
            (
                json!({"messages": [], "tools": [{"function": {"name": "f", "parameters": []}}]}),
                "tools[0].function.parameters is an array, but must be a JSON schema",
            ),
            (
                json!({"messages": [{"role": "tool", "tool_call_id": 1}]}),
                "messages[0].tool_call_id is a number, but must be a string",
            ),
            (
                json!({"messages": [], "reasoning_effort": "huge"}),
                "reasoning_effort is \"huge\", allowed are none, minimal, low, medium, high, xhigh, max",
            ),
            (
                json!({"messages": [], "enable_thinking": "no"}),
                "enable_thinking is a string, but must be true or false",
            ),
            (
                json!({"messages": [], "chat_template_kwargs": 1}),
                "chat_template_kwargs is a number, but must be an object",
            ),
        ];
        for (body, expected) in cases {
            let message = normalise(&body).unwrap_err().to_string();
            assert_eq!(message, format!("the request is not valid: {expected}"), "{body}");
        }
    }

    #[test]
    fn options_are_passed_through_and_images_counted() {
        let body = json!({
            "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}, {"type": "text", "text": "x"}, "y"]}],
            "chat_template_kwargs": {"preserve_thinking": true, "enable_thinking": false},
            "reasoning_effort": "low", "unknown": {"a": 1}});
        let prompt = normalise(&body).unwrap();
        assert_eq!(prompt.images, 1);
        assert_eq!(
            Value::from(prompt.options),
            json!({"add_generation_prompt": true, "enable_thinking": false, "reasoning_effort": "low", "preserve_thinking": true})
        );
    }
}
