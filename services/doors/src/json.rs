//! What several doors write and read alike.

use crate::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use session::{JsonText, PromptNotes, TokenLogprob, ToolChoice};

/// The JSON that a text is. A text that is none stays a text.
pub fn json_of(text: &JsonText) -> Value {
    serde_json::from_str(&text.0).unwrap_or_else(|_| json!(&*text.0))
}

/// A request's body.
pub fn read_body(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad("invalid_json", format!("the body is no JSON: {error}")))
}

pub fn json_text(value: &Value) -> JsonText {
    value.to_string().into()
}

/// What the service put before a question: an extra that other servers do not have.
pub fn notes_view(notes: &PromptNotes) -> Value {
    let PromptNotes { recall, changed_head, changed_lines, notes_would_save_tokens } = notes;
    let mut fields = Map::new();
    fields.extend(recall.as_ref().map(|text| ("recall".to_owned(), json!(text))));
    fields.extend(changed_head.as_ref().map(|text| ("changed_head".to_owned(), json!(text))));
    fields.extend((*changed_lines > 0).then(|| ("changed_lines".to_owned(), json!(changed_lines))));
    fields.extend(notes_would_save_tokens.map(|tokens| ("would_save_tokens".to_owned(), json!(tokens))));
    Value::Object(fields)
}

/// How sure the model was of a token, as chat completions have it.
#[derive(Serialize, JsonSchema)]
pub struct LogprobView<'a> {
    #[serde(flatten)]
    pub chosen: LikelyToken<'a>,
    pub top_logprobs: Vec<LikelyToken<'a>>,
}

#[derive(Serialize, JsonSchema)]
pub struct LikelyToken<'a> {
    pub token: String,
    pub logprob: f32,
    pub bytes: &'a [u8],
}

pub fn logprob_view(token: &TokenLogprob) -> LogprobView<'_> {
    LogprobView {
        chosen: likely_token(&token.bytes, token.logprob),
        top_logprobs: token.top.iter().map(|(bytes, logprob)| likely_token(bytes, *logprob)).collect(),
    }
}

fn likely_token(bytes: &[u8], logprob: f32) -> LikelyToken<'_> {
    LikelyToken { token: String::from_utf8_lossy(bytes).into_owned(), logprob, bytes }
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
