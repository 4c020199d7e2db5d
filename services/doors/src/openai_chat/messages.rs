//! Messages, tools and template options of a body. Clients write the same thing in several ways.

use crate::ApiError;
use crate::json::json_text;
use crate::tools::{check_tool, misshaped, must_be_text, not_valid, tool_of};
use fields::{FieldError, Read, shown, wrong};
use serde_json::{Map, Value, json};
use session::{Message, MessageRole, Part, Prompt, TemplateOptions, Tool, ToolCall};

/// Reads the prompt of a body. A later message of a developer is the user's, as templates take one system message.
pub fn prompt_of(body: &Value) -> Result<Prompt, ApiError> {
    let read = || {
        let body = body.as_object().ok_or_else(|| misshaped("the body", body, "an object"))?;
        Ok(Prompt { messages: messages(body)?, tools: tools(body)?, options: options(body)? })
    };
    read().map_err(|wrong: FieldError| match wrong.path.is_empty() {
        true => ApiError::bad(wrong.code, wrong.message()),
        false => wrong.into(),
    })
}

fn messages(body: &Map<String, Value>) -> Read<Vec<Message>> {
    match body.get("messages") {
        Some(Value::Array(messages)) => messages.iter().enumerate().map(message).collect(),
        None | Some(Value::Null) => Err(FieldError::missing("messages")),
        Some(other) => Err(misshaped("messages", other, "an array")),
    }
}

fn message((at, message): (usize, &Value)) -> Read<Message> {
    let place = format!("messages[{at}]");
    let Value::Object(fields) = message else { return Err(misshaped(&place, message, "an object")) };
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let role = match fields.get("role") {
        Some(Value::String(role)) => role.as_str(),
        Some(other) => return Err(misshaped(&format!("{place}.role"), other, "a string")),
        None => return Err(not_valid(format!("{place}.role is missing"))),
    };
    let parts = parts(&format!("{place}.content"), fields.get("content"))?;
    for name in ["name", "tool_call_id", "reasoning"] {
        must_be_text(&place, fields, name)?;
    }
    let calls = match (fields.get("tool_calls"), fields.get("function_call")) {
        (None, Some(call @ Value::Object(_))) => vec![tool_call(&format!("{place}.tool_calls[0]"), call, None)?],
        (calls, _) => tool_calls(&format!("{place}.tool_calls"), calls)?,
    };
    let role = match role {
        "system" => MessageRole::System,
        "developer" if at == 0 => MessageRole::System,
        "user" | "developer" => MessageRole::User,
        "assistant" => MessageRole::Assistant,
        "tool" | "function" => MessageRole::Tool,
        other => {
            let other = shown(other);
            let message = format!("a message has the role '{other}': use system, user, assistant or tool");
            return Err(wrong("messages", message));
        }
    };
    let reasoning = match fields.get("reasoning_content") {
        None => text("reasoning"),
        Some(Value::Null) => None,
        Some(Value::String(reasoning)) => Some(reasoning.clone()),
        Some(_) => return Err(FieldError::new("invalid_type", "messages", "reasoning_content must be text")),
    };
    Ok(Message { role, parts, reasoning, calls, call_id: text("tool_call_id"), name: text("name") })
}

fn parts(place: &str, content: Option<&Value>) -> Read<Vec<Part>> {
    let part = |(at, part): (usize, &Value)| match part {
        Value::String(text) => Ok(Part::Text(text.clone())),
        Value::Object(fields) => {
            let place = format!("{place}[{at}]");
            must_be_text(&place, fields, "type")?;
            match (fields.get("refusal"), fields.get("text")) {
                (Some(Value::String(text)), _) | (_, Some(Value::String(text))) => Ok(Part::Text(text.clone())),
                (_, Some(other)) => Err(misshaped(&format!("{place}.text"), other, "a string")),
                (_, None) => Ok(Part::Image(json_text(part))),
            }
        }
        other => Err(misshaped(&format!("{place}[{at}]"), other, "a part")),
    };
    match content {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![Part::Text(text.clone())]),
        Some(Value::Array(parts)) => parts.iter().enumerate().map(part).collect(),
        Some(other) => Err(misshaped(place, other, "a string or an array of parts")),
    }
}

fn tool_calls(place: &str, calls: Option<&Value>) -> Read<Vec<ToolCall>> {
    let call = |(at, call): (usize, &Value)| {
        let place = format!("{place}[{at}]");
        let Value::Object(fields) = call else { return Err(misshaped(&place, call, "an object")) };
        must_be_text(&place, fields, "id")?;
        must_be_text(&place, fields, "type")?;
        match fields.get("function") {
            None => tool_call(&place, call, fields.get("id")),
            Some(function @ Value::Object(_)) => tool_call(&place, function, fields.get("id")),
            Some(other) => Err(misshaped(&format!("{place}.function"), other, "an object")),
        }
    };
    match calls {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(calls)) => calls.iter().enumerate().map(call).collect(),
        Some(other) => Err(misshaped(place, other, "an array")),
    }
}

fn tool_call(place: &str, function: &Value, id: Option<&Value>) -> Read<ToolCall> {
    let Some(name) = function["name"].as_str() else { return Err(not_valid(format!("{place} has no function name"))) };
    let arguments = arguments(place, &function["arguments"])?;
    Ok(ToolCall { id: id.and_then(Value::as_str).map(str::to_owned), name: name.to_owned(), arguments })
}

/// Reads arguments, which clients send as the text of a JSON object or as the object.
fn arguments(place: &str, given: &Value) -> Read<String> {
    let parsed = match given {
        Value::String(text) if text.trim().is_empty() => Value::Null,
        Value::String(text) => serde_json::from_str(text)
            .map_err(|error| not_valid(format!("the arguments of {place} are not JSON: {error}")))?,
        other => other.clone(),
    };
    match parsed {
        Value::Null => Ok("{}".to_owned()),
        Value::Object(_) => Ok(parsed.to_string()),
        other => Err(misshaped(&format!("{place}.arguments"), &other, "an object")),
    }
}

fn tools(body: &Map<String, Value>) -> Read<Vec<Tool>> {
    let list = |name: &str| match body.get(name) {
        None | Some(Value::Null) => Ok(&[][..]),
        Some(Value::Array(items)) => match items.iter().position(|item| !item.is_object()) {
            Some(at) => Err(misshaped(&format!("{name}[{at}]"), &items[at], "an object")),
            None => Ok(&items[..]),
        },
        Some(other) => Err(misshaped(name, other, "an array")),
    };
    let mut tools = list("tools")?.to_vec();
    // The older name, without the wrapping.
    tools.extend(list("functions")?.iter().map(|function| json!({ "type": "function", "function": function })));
    for (at, tool) in tools.iter().enumerate() {
        check_tool(&format!("tools[{at}]"), tool)?;
    }
    Ok(tools.iter().map(tool_of).collect())
}

/// Reads the options. The template's own names go before the protocol's.
fn options(body: &Map<String, Value>) -> Read<TemplateOptions> {
    let mut options = Map::new();
    match body.get("reasoning_effort") {
        None | Some(Value::Null) => {}
        Some(Value::String(effort)) => {
            let thinks = match effort.as_str() {
                "none" | "minimal" => false,
                "low" | "medium" | "high" | "xhigh" | "max" => true,
                other => {
                    let allowed = "none, minimal, low, medium, high, xhigh, max";
                    return Err(not_valid(format!("reasoning_effort is {other:?}, allowed are {allowed}")));
                }
            };
            options.insert("enable_thinking".to_owned(), Value::Bool(thinks));
            options.insert("reasoning_effort".to_owned(), json!(effort));
        }
        Some(other) => return Err(misshaped("reasoning_effort", other, "a string")),
    }
    for name in ["add_generation_prompt", "enable_thinking"] {
        match body.get(name) {
            None | Some(Value::Null) => {}
            Some(value @ Value::Bool(_)) => options.extend([(name.to_owned(), value.clone())]),
            Some(other) => return Err(misshaped(name, other, "true or false")),
        }
    }
    match body.get("chat_template_kwargs") {
        None | Some(Value::Null) => {}
        Some(Value::Object(more)) => options.extend(more.clone()),
        Some(other) => return Err(misshaped("chat_template_kwargs", other, "an object")),
    }
    // Every prompt of a reply has this one.
    if options.get("add_generation_prompt") == Some(&Value::Bool(true)) {
        options.shift_remove("add_generation_prompt");
    }
    let mut take = |name: &str, is_read: fn(&Value) -> bool| {
        options.get(name).is_some_and(is_read).then(|| options.shift_remove(name)).flatten()
    };
    let enable_thinking = take("enable_thinking", Value::is_boolean).and_then(|thinks| thinks.as_bool());
    let reasoning_effort =
        take("reasoning_effort", Value::is_string).and_then(|effort| Some(effort.as_str()?.to_owned()));
    let more = (!options.is_empty()).then(|| json_text(&Value::Object(options)));
    Ok(TemplateOptions { enable_thinking, reasoning_effort, more })
}

#[cfg(test)]
mod tests;
