//! The body of a chat completion, read forgivingly: what is unknown is let go, what is wrong is named.

use super::messages::prompt_of;
use crate::ApiError;
use crate::completion::CompletionRequest;
use crate::json::{json_text, tool_choice_of};
use serde_json::{Map, Value};
use session::prompt::{Wording, settle};
use session::{GenerationOptions, Priority, ResponseFormat, SamplingOverrides, ToolChoice};
use settings::Settings;
use std::ops::RangeInclusive;

#[derive(Debug)]
pub struct ChatRequest {
    pub stream: bool,
    /// A last chunk with the usage, of a stream.
    pub include_usage: bool,
    pub completion: CompletionRequest,
}

/// As many likeliest tokens as the protocol allows.
const TOP_LOGPROBS: u64 = 20;

pub fn parse(body: &[u8], settings: &Settings, wording: &Wording) -> Result<ChatRequest, ApiError> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad("invalid_json", format!("the body is no JSON: {error}")))?;
    let chat = text::chat::normalise(&body).map_err(|error| ApiError::bad("invalid_value", error.to_string()))?;
    let fields = Fields(body.as_object().ok_or_else(|| ApiError::bad("invalid_type", "the body must be an object"))?);
    if fields.integer("n", 1..=u64::MAX)?.unwrap_or(1) > 1 {
        return Err(wrong("n", "only one choice at a time can be had: leave n out, or ask again for each"));
    }
    if chat.tools.len() > settings.limits.tools {
        let most = settings.limits.tools;
        return Err(wrong("tools", format!("{} tools are more than {most} (limits.tools)", chat.tools.len())));
    }
    if chat.messages.is_empty() {
        return Err(wrong("messages", "messages is empty: say something"));
    }
    let session_id = fields.object("metadata")?.and_then(|metadata| metadata.get("session_id"));
    let session_id = match session_id {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id.clone()),
        Some(_) => return Err(wrong("metadata.session_id", "metadata.session_id must be text")),
    };
    let mut prompt = prompt_of(chat)?;
    if session_id.is_none() {
        settle(&mut prompt.messages, wording);
    }
    let stream = fields.boolean("stream")?.unwrap_or(false);
    let stream_options = fields.object("stream_options")?;
    let include_usage = stream_options.and_then(|options| options.get("include_usage")).and_then(Value::as_bool);
    let tokens = |name| Ok::<_, ApiError>(fields.integer(name, 1..=u64::from(u32::MAX))?.map(|tokens| tokens as u32));
    let completion = CompletionRequest {
        prompt,
        model: fields.text("model")?.unwrap_or_default().to_owned(),
        max_tokens: tokens("max_completion_tokens")?.or(tokens("max_tokens")?),
        options: GenerationOptions {
            sampling: sampling(&fields)?,
            seed: fields.seed()?,
            stop: stop(&fields, settings.limits.stop_strings)?,
            response_format: response_format(&fields)?,
            logprobs: logprobs(&fields)?,
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
        },
        tool_choice: tool_choice(&fields)?,
        parallel_tool_calls: fields.boolean("parallel_tool_calls")?.unwrap_or(true),
        priority: priority(&fields, stream)?,
        session_id,
    };
    Ok(ChatRequest { stream, include_usage: include_usage.unwrap_or(false), completion })
}

/// Who listens while a reply is written must not wait for one who does not. So a request that is not streamed (a client's
/// own summary of the conversation, a task of the house) is answered in the gaps, unless it says that it is urgent.
fn priority(fields: &Fields, stream: bool) -> Result<Priority, ApiError> {
    Ok(match fields.text("service_tier")? {
        Some("flex") => Priority::Background,
        Some("priority") => Priority::Talk,
        _ if stream => Priority::Talk,
        _ => Priority::Background,
    })
}

fn sampling(fields: &Fields) -> Result<SamplingOverrides, ApiError> {
    let number = |name, range| Ok::<_, ApiError>(fields.number(name, range)?.map(|number| number as f32));
    let mut logit_bias = Vec::new();
    for (token, bias) in fields.object("logit_bias")?.into_iter().flatten() {
        let pair = token.parse().ok().zip(bias.as_f64().filter(|bias| bias.abs() <= 100.0));
        let Some((token, bias)) = pair else {
            return Err(wrong("logit_bias", "logit_bias must give token ids numbers from -100 to 100"));
        };
        // The least means never.
        logit_bias.push((token, if bias <= -100.0 { f32::NEG_INFINITY } else { bias as f32 }));
    }
    Ok(SamplingOverrides {
        temperature: number("temperature", 0.0..=5.0)?,
        top_p: number("top_p", 0.0..=1.0)?,
        top_k: fields.integer("top_k", 0..=1_000_000)?.map(|top_k| top_k as u32),
        min_p: number("min_p", 0.0..=1.0)?,
        presence_penalty: number("presence_penalty", -2.0..=2.0)?,
        frequency_penalty: number("frequency_penalty", -2.0..=2.0)?,
        repetition_penalty: number("repetition_penalty", 0.1..=10.0)?,
        logit_bias,
    })
}

fn stop(fields: &Fields, most: usize) -> Result<Vec<String>, ApiError> {
    let message = "stop must be text or a list of texts, none of them empty";
    let texts = match fields.get("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(texts)) => {
            let texts: Option<Vec<String>> = texts.iter().map(|text| text.as_str().map(str::to_owned)).collect();
            texts.ok_or_else(|| wrong("stop", message))?
        }
        Some(_) => return Err(wrong("stop", message)),
    };
    if texts.iter().any(String::is_empty) {
        return Err(wrong("stop", message));
    }
    if texts.len() > most {
        return Err(wrong("stop", format!("{} stop strings are more than {most} (limits.stop_strings)", texts.len())));
    }
    Ok(texts)
}

fn tool_choice(fields: &Fields) -> Result<ToolChoice, ApiError> {
    if let Some(choice) = fields.get("tool_choice") {
        let message = "tool_choice must be auto, none, required, or an object that names a function";
        return tool_choice_of(choice).ok_or_else(|| wrong("tool_choice", message));
    }
    // The older way.
    match fields.get("function_call") {
        None => Ok(ToolChoice::Auto),
        Some(Value::String(word)) if word == "none" => Ok(ToolChoice::None),
        Some(Value::String(word)) if word == "auto" => Ok(ToolChoice::Auto),
        Some(call) => match call.get("name").and_then(Value::as_str) {
            Some(name) => Ok(ToolChoice::Function(name.to_owned())),
            None => Err(wrong("function_call", "function_call must be auto, none, or an object with a name")),
        },
    }
}

fn response_format(fields: &Fields) -> Result<ResponseFormat, ApiError> {
    let Some(format) = fields.object("response_format")? else { return Ok(ResponseFormat::Text) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(ResponseFormat::Text),
        Some("json_object") => Ok(ResponseFormat::JsonObject),
        Some("json_schema") => {
            let described = format.get("json_schema");
            let Some(schema) = described.and_then(|described| described.get("schema")) else {
                return Err(wrong("response_format.json_schema.schema", "the schema is missing"));
            };
            let name = described.and_then(|described| described.get("name")).and_then(Value::as_str);
            Ok(ResponseFormat::JsonSchema { name: name.unwrap_or("reply").to_owned(), schema: json_text(schema) })
        }
        _ => Err(wrong("response_format.type", "response_format.type must be text, json_object or json_schema")),
    }
}

fn logprobs(fields: &Fields) -> Result<Option<usize>, ApiError> {
    let top = fields.integer("top_logprobs", 0..=TOP_LOGPROBS)?;
    if fields.boolean("logprobs")?.unwrap_or(false) {
        Ok(Some(top.unwrap_or(0) as usize))
    } else if top.unwrap_or(0) > 0 {
        Err(wrong("top_logprobs", "top_logprobs are given only with logprobs: true"))
    } else {
        Ok(None)
    }
}

/// Null is as good as nothing.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let read = |value: &Value| value.as_bool().ok_or_else(|| wrong(name, format!("{name} must be true or false")));
        self.get(name).map(read).transpose()
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        let read = |value: &'a Value| value.as_str().ok_or_else(|| wrong(name, format!("{name} must be text")));
        self.get(name).map(read).transpose()
    }

    fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        let read = |value: &'a Value| value.as_object().ok_or_else(|| wrong(name, format!("{name} must be an object")));
        self.get(name).map(read).transpose()
    }

    fn integer(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ApiError> {
        let allowed = match *range.end() {
            u64::MAX => format!("of at least {}", range.start()),
            end => format!("from {} to {end}", range.start()),
        };
        let read = |value: &Value| {
            let found = value.as_u64().filter(|number| range.contains(number));
            found.ok_or_else(|| wrong(name, format!("{name} must be a whole number {allowed}")))
        };
        self.get(name).map(read).transpose()
    }

    fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let read = |value: &Value| {
            let found = value.as_f64().filter(|number| range.contains(number));
            let message = || format!("{name} must be a number from {} to {}", range.start(), range.end());
            found.ok_or_else(|| wrong(name, message()))
        };
        self.get(name).map(read).transpose()
    }

    /// Any whole number, also a negative one.
    fn seed(&self) -> Result<Option<u64>, ApiError> {
        let read = |value: &Value| {
            let found = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
            found.ok_or_else(|| wrong("seed", "seed must be a whole number"))
        };
        self.get("seed").map(read).transpose()
    }
}

fn wrong(param: &str, message: impl Into<String>) -> ApiError {
    ApiError::bad("invalid_value", message).param(param)
}
