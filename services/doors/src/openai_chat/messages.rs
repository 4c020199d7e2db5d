//! A body's messages, tools and options, as `text` has put them in order, to the service's own words.

use crate::ApiError;
use crate::json::{json_text, tool_of};
use serde_json::{Map, Value};
use session::{Message, MessageRole, Part, Prompt, TemplateOptions, ToolCall};
use text::chat::ChatPrompt;

pub fn prompt_of(chat: ChatPrompt) -> Result<Prompt, ApiError> {
    let messages = chat.messages.iter().map(message).collect::<Result<_, _>>()?;
    Ok(Prompt { messages, tools: chat.tools.iter().map(tool_of).collect(), options: options(chat.options) })
}

/// Of a word that is repeated.
const SHOWN_CHARS: usize = 64;

fn message(message: &Value) -> Result<Message, ApiError> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let role = match message["role"].as_str() {
        Some("system") => MessageRole::System,
        Some("user") => MessageRole::User,
        Some("assistant") => MessageRole::Assistant,
        Some("tool") => MessageRole::Tool,
        other => {
            let other: String = other.unwrap_or_default().chars().take(SHOWN_CHARS).collect();
            let message = format!("a message has the role '{other}': use system, user, assistant or tool");
            return Err(ApiError::bad("invalid_value", message).param("messages"));
        }
    };
    let reasoning = &message["reasoning_content"];
    if !reasoning.is_null() && !reasoning.is_string() {
        return Err(ApiError::bad("invalid_type", "reasoning_content must be text").param("messages"));
    }
    let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
        let function = call.get("function").unwrap_or(call);
        let arguments = function.get("arguments").map_or_else(|| "{}".to_owned(), Value::to_string);
        ToolCall { id: text(&call["id"]), name: text(&function["name"]).unwrap_or_default(), arguments }
    });
    Ok(Message {
        role,
        parts: parts(&message["content"]),
        reasoning: text(&message["reasoning_content"]),
        calls: calls.collect(),
        call_id: text(&message["tool_call_id"]),
        name: text(&message["name"]),
    })
}

fn parts(content: &Value) -> Vec<Part> {
    match content {
        Value::String(text) => vec![Part::Text(text.clone())],
        Value::Array(parts) => {
            let part = |part: &Value| match part["text"].as_str() {
                Some(text) => Part::Text(text.to_owned()),
                None => Part::Image(json_text(part)),
            };
            parts.iter().map(part).collect()
        }
        _ => Vec::new(),
    }
}

fn options(mut options: Map<String, Value>) -> TemplateOptions {
    // As every prompt of a reply has it.
    if options.get("add_generation_prompt") == Some(&Value::Bool(true)) {
        options.shift_remove("add_generation_prompt");
    }
    let enable_thinking = options.get("enable_thinking").and_then(Value::as_bool);
    if enable_thinking.is_some() {
        options.shift_remove("enable_thinking");
    }
    let reasoning_effort = options.get("reasoning_effort").and_then(Value::as_str).map(str::to_owned);
    if reasoning_effort.is_some() {
        options.shift_remove("reasoning_effort");
    }
    let more = (!options.is_empty()).then(|| json_text(&Value::Object(options)));
    TemplateOptions { enable_thinking, reasoning_effort, more }
}
