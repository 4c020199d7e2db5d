//! JSON that several doors read and write alike.

use crate::ApiError;
use crate::reader::{Read, Wrong};
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use session::{JsonText, PromptNotes, TokenLogprob, Tool, ToolChoice};
use std::convert::Infallible;

/// Reads a text as JSON. A text that is none stays a text.
pub fn json_of(text: &JsonText) -> Value {
    serde_json::from_str(&text.0).unwrap_or_else(|_| json!(&*text.0))
}

pub fn read_body(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad("invalid_json", format!("the body is no JSON: {error}")))
}

/// Refuses a list with more entries than one request may have. Parts and calls of an entry count, too.
pub fn check_entries(field: &str, list: &[Value], most: usize) -> Read<()> {
    let lists = |entry: &Value| -> usize {
        let fields = entry.as_object().into_iter().flat_map(Map::values);
        fields.filter_map(Value::as_array).map(Vec::len).sum()
    };
    let within: usize = list.iter().map(lists).sum();
    match list.len() + within <= most {
        true => Ok(()),
        false => Err(Wrong::too_large(field, most, "entries (limits.request_items)")),
    }
}

/// Refuses a name that is longer than any that a client chooses: rules and digests look at it.
pub fn check_names(names: &[(&str, Option<&String>)], most: usize) -> Read<()> {
    let is_long = |(_, name): &&(&str, Option<&String>)| name.is_some_and(|name| name.chars().nth(most).is_some());
    match names.iter().find(is_long) {
        Some((field, _)) => Err(Wrong::too_large(field, most, "characters (limits.id_chars)")),
        None => Ok(()),
    }
}

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

pub fn json_text(value: &Value) -> JsonText {
    value.to_string().into()
}

/// Streams pieces as a body.
pub fn stream_body(kind: &'static str, pieces: impl Stream<Item = String> + Send + 'static) -> Response {
    ([(CONTENT_TYPE, kind)], Body::from_stream(pieces.map(Ok::<_, Infallible>))).into_response()
}

/// Writes the notes before a question: an extra that other servers do not have.
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
