//! Responses and items as this protocol writes them.

use serde_json::{Map, Value, json};
use session::{FailureCode, Item, ItemBody, ResponseStatus, Role, StatusDetails, Usage};

pub struct ResponseState {
    pub status: ResponseStatus,
    pub details: Option<StatusDetails>,
    /// Usage of a response that is over.
    pub usage: Option<Value>,
}

impl ResponseState {
    pub fn in_progress() -> ResponseState {
        ResponseState { status: ResponseStatus::InProgress, details: None, usage: None }
    }

    /// `base` has the fields that stay the same.
    pub fn view(&self, id: &str, base: &Map<String, Value>, output: Vec<Value>) -> Value {
        let status = self.status.word();
        let (mut error, mut incomplete) = (Value::Null, Value::Null);
        match &self.details {
            Some(StatusDetails::MaxOutputTokens) => incomplete = json!({ "reason": "max_output_tokens" }),
            Some(StatusDetails::Failed(failure)) => {
                error = json!({ "code": error_code(failure.code), "message": failure.message });
            }
            Some(StatusDetails::Cancelled) | None => {}
        }
        let mut response = json!({
            "id": id, "object": "response", "status": status, "error": error, "incomplete_details": incomplete,
            "output": output, "usage": self.usage,
        });
        if let Value::Object(response) = &mut response {
            response.extend(base.clone());
        }
        response
    }
}

/// Strict readers know only some words here.
fn error_code(code: FailureCode) -> &'static str {
    match code {
        FailureCode::PromptTooLong | FailureCode::InvalidRequest | FailureCode::Conflict => "invalid_prompt",
        FailureCode::Busy => "rate_limit_exceeded",
        _ => "server_error",
    }
}

pub fn usage_view(usage: &Usage) -> Value {
    let Usage { input_tokens, cached_tokens, output_tokens, reasoning_tokens } = *usage;
    json!({
        "input_tokens": input_tokens,
        "input_tokens_details": { "cached_tokens": cached_tokens, "cache_write_tokens": 0 },
        "output_tokens": output_tokens,
        "output_tokens_details": { "reasoning_tokens": reasoning_tokens },
        "total_tokens": input_tokens + output_tokens,
    })
}

/// An item that was said, or is about to be: then its arguments are empty.
pub fn item_view(item: &Item) -> Value {
    let status = item.status.word();
    match &item.body {
        ItemBody::Message { role: Role::Assistant, parts, .. } => {
            let part =
                |text: &String| json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
            let content: Vec<Value> = parts.iter().map(part).collect();
            json!({ "id": item.id, "type": "message", "role": "assistant", "status": status, "content": content })
        }
        ItemBody::Message { role, parts, .. } => {
            let content: Vec<Value> = parts.iter().map(|text| json!({ "type": "input_text", "text": text })).collect();
            json!({ "id": item.id, "type": "message", "role": role.word(), "status": status, "content": content })
        }
        ItemBody::FunctionCall { call_id, name, arguments } => json!({
            "id": item.id, "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments,
            "status": status,
        }),
        ItemBody::FunctionCallOutput { call_id, output } => json!({
            "id": item.id, "type": "function_call_output", "call_id": call_id, "output": output, "status": status,
        }),
    }
}
