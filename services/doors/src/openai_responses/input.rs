//! Items of an input to the messages of a prompt.

use crate::json::{check_entries, json_text};
use fields::{FieldError, Read, unsupported, wrong};
use serde_json::{Value, json};
use session::{Message, MessageRole, Part, ToolCall};
use settings::LimitSettings;

/// Reads an input. A text is a user's.
pub fn input(given: Option<&Value>, limits: &LimitSettings) -> Read<Vec<Message>> {
    match given {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => {
            let text = bounded(text, limits).map_err(|wrong| wrong.under("input"))?;
            Ok(vec![Message::new(MessageRole::User, text)])
        }
        Some(Value::Array(items)) => of_items(items, "input", limits),
        Some(_) => Err(wrong("input", "input must be text or a list of items")),
    }
}

/// Reads a list of items. `field`: the name of the list.
pub fn of_items(items: &[Value], field: &str, limits: &LimitSettings) -> Read<Vec<Message>> {
    check_entries(field, items, limits.request_items)?;
    let mut messages = Vec::new();
    for (at, given) in items.iter().enumerate() {
        item(given, &mut messages, limits).map_err(|wrong| wrong.under(&format!("{field}[{at}]")))?;
    }
    Ok(messages)
}

fn item(item: &Value, messages: &mut Vec<Message>, limits: &LimitSettings) -> Read<()> {
    let kind = match &item["type"] {
        Value::Null if item.get("role").is_some() => "message",
        Value::String(kind) => kind,
        _ => return Err(FieldError::missing("type")),
    };
    if !item["id"].is_null() && !item["id"].is_string() {
        return Err(wrong("id", "id must be text"));
    }
    match kind {
        "message" => messages.push(message(item, limits)?),
        "function_call" => {
            let arguments = match &item["arguments"] {
                Value::Null => "{}".to_owned(),
                Value::String(text) => bounded(text, limits)?,
                _ => return Err(wrong("arguments", "arguments must be text: a JSON object that is written out")),
            };
            let (id, name) = (call_id(item, limits)?, required(item, "name")?);
            let call = ToolCall { id: Some(id), name: name.to_owned(), arguments };
            // A call belongs to what the assistant said right before it.
            match messages.last_mut() {
                Some(last) if last.role == MessageRole::Assistant => last.calls.push(call),
                _ => {
                    messages.push(Message { calls: vec![call], ..Message::new(MessageRole::Assistant, "") });
                }
            }
        }
        "function_call_output" => {
            let output = match &item["output"] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                Value::Array(_) => Message { parts: parts(&item["output"], "output", limits)?, ..blank() }.text(),
                other => other.to_string(),
            };
            messages.push(Message::result(&call_id(item, limits)?, &bounded(&output, limits)?));
        }
        // A model reads again what it said, and not what it thought.
        "reasoning" if item["summary"].is_null() || item["summary"].is_array() => {}
        "reasoning" => return Err(wrong("summary", "summary must be a list of parts")),
        other => {
            let other: String = other.chars().take(limits.id_chars).collect();
            let message = format!(
                "items of type '{other}' are not supported: send message, function_call, function_call_output or reasoning"
            );
            return Err(unsupported("type", message));
        }
    }
    Ok(())
}

fn message(item: &Value, limits: &LimitSettings) -> Read<Message> {
    let role = match required(item, "role")? {
        "system" | "developer" => MessageRole::System,
        "user" => MessageRole::User,
        "assistant" => MessageRole::Assistant,
        _ => return Err(wrong("role", "role must be system, developer, user or assistant")),
    };
    let parts = match &item["content"] {
        Value::String(text) => vec![Part::Text(bounded(text, limits).map_err(|wrong| wrong.under("content"))?)],
        content @ Value::Array(_) => parts(content, "content", limits)?,
        Value::Null => return Err(FieldError::missing("content")),
        _ => return Err(wrong("content", "content must be text or a list of parts")),
    };
    Ok(Message { role, parts, ..blank() })
}

fn parts(content: &Value, field: &str, limits: &LimitSettings) -> Read<Vec<Part>> {
    let part = |(at, part): (usize, &Value)| {
        let read = match part["type"].as_str() {
            Some("input_text" | "output_text" | "text" | "summary_text") => {
                required(part, "text").and_then(|text| bounded(text, limits)).map(Part::Text)
            }
            Some("refusal") => required(part, "refusal").and_then(|text| bounded(text, limits)).map(Part::Text),
            Some("input_image") => image(part),
            Some(other) => {
                let other: String = other.chars().take(limits.id_chars).collect();
                Err(unsupported("type", format!("parts of type '{other}' are not supported: send text")))
            }
            None => Err(FieldError::missing("type")),
        };
        read.map_err(|wrong| wrong.under(&format!("{field}[{at}]")))
    };
    content.as_array().into_iter().flatten().enumerate().map(part).collect()
}

/// Writes an image as chat completions have it: inside the service it travels so. A model without eyes refuses it.
fn image(part: &Value) -> Read<Part> {
    let Some(url) = part["image_url"].as_str() else {
        return Err(unsupported("image_url", "an image must be an image_url: this server keeps no files"));
    };
    let mut image = json!({ "url": url });
    if let Some(detail) = part["detail"].as_str() {
        image["detail"] = json!(detail);
    }
    Ok(Part::Image(json_text(&json!({ "type": "image_url", "image_url": image }))))
}

/// A result belongs to a call that was made before it.
pub fn check_results(messages: &[Message]) -> Read<()> {
    let mut calls: Vec<&str> = Vec::new();
    for message in messages {
        calls.extend(message.calls.iter().filter_map(|call| call.id.as_deref()));
        if let (MessageRole::Tool, Some(id)) = (message.role, &message.call_id)
            && !calls.contains(&id.as_str())
        {
            return Err(wrong("input", format!("no tool call found for function call output with call_id {id}")));
        }
    }
    Ok(())
}

fn blank() -> Message {
    Message { parts: Vec::new(), ..Message::new(MessageRole::User, "") }
}

fn call_id(item: &Value, limits: &LimitSettings) -> Read<String> {
    let id = required(item, "call_id")?;
    if id.chars().count() > limits.id_chars {
        return Err(FieldError::too_large("call_id", limits.id_chars, "characters"));
    }
    Ok(id.to_owned())
}

fn required<'a>(value: &'a Value, name: &str) -> Read<&'a str> {
    let text = value[name].as_str().filter(|text| !text.is_empty() || name == "text");
    text.ok_or_else(|| FieldError::missing(name))
}

fn bounded(text: &str, limits: &LimitSettings) -> Read<String> {
    check_length(text, limits).map(|()| text.to_owned())
}

pub fn check_length(text: &str, limits: &LimitSettings) -> Read<()> {
    match text.len() > limits.item_bytes {
        true => Err(FieldError::too_large("", limits.item_bytes, "bytes (limits.item_bytes)")),
        false => Ok(()),
    }
}
