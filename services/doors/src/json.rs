//! JSON that several doors read and write alike.

use crate::ApiError;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use fields::{FieldError, Read};
use futures_util::{Stream, StreamExt};
use runtime::heavy;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use session::{JsonText, PromptNotes, TokenLogprob};
use std::convert::Infallible;

/// Reads a text as JSON. A text that is none stays a text.
pub fn json_of(text: &JsonText) -> Value {
    serde_json::from_str(&text.0).unwrap_or_else(|_| json!(&*text.0))
}

pub fn read_body(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad("invalid_json", format!("the body is no JSON: {error}")))
}

/// Reads a body of a client's size into its fields.
pub async fn read_fields<T: DeserializeOwned + Send>(body: &[u8]) -> Result<T, ApiError> {
    heavy::run(body.len(), || Ok(fields::read(&read_body(body)?)?)).await
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
        false => Err(FieldError::too_large(field, most, "entries (limits.request_items)")),
    }
}

/// Refuses too long a name among those of a request in OpenAI's form: the model's, and the three by which a client names
/// itself. Rules and digests look at them.
pub fn check_request_names(model: &Option<String>, client: [&Option<String>; 3], most: usize) -> Read<()> {
    let [user, safety_identifier, prompt_cache_key] = client;
    let names = [
        ("model", model),
        ("user", user),
        ("safety_identifier", safety_identifier),
        ("prompt_cache_key", prompt_cache_key),
    ];
    names.iter().try_for_each(|(field, name)| check_name(field, name.as_deref().unwrap_or_default(), most))
}

/// Refuses too long a name or id: errors repeat it, and the store looks for it.
pub fn check_name(field: &str, name: &str, most: usize) -> Read<()> {
    match name.chars().nth(most) {
        Some(_) => Err(FieldError::too_large(field, most, "characters (limits.id_chars)")),
        None => Ok(()),
    }
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

/// Log probability of a token, in the form of chat completions.
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
