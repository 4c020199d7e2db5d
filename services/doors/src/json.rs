//! What several doors write and read alike.

use serde_json::{Value, json};
use session::{JsonText, TokenLogprob, ToolChoice};

/// The JSON that a text is. A text that is none stays a text.
pub fn json_of(text: &JsonText) -> Value {
    serde_json::from_str(&text.0).unwrap_or_else(|_| json!(&*text.0))
}

pub fn json_text(value: &Value) -> JsonText {
    value.to_string().into()
}

/// As chat completions have it.
pub fn logprob_value(token: &TokenLogprob) -> Value {
    let of = |bytes: &[u8], logprob: f32| json!({ "token": String::from_utf8_lossy(bytes), "logprob": logprob, "bytes": bytes });
    let mut value = of(&token.bytes, token.logprob);
    value["top_logprobs"] = token.top.iter().map(|(bytes, logprob)| of(bytes, *logprob)).collect();
    value
}

pub fn tool_choice_value(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Function(name) => json!({ "type": "function", "name": name }),
    }
}

/// Both shapes of a named function: the Realtime one and that of chat completions.
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
