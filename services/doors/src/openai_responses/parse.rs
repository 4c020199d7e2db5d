//! The body of a response. What is unknown is told of in the log, what cannot be done is refused by name.

use super::input::{check_length, input};
use super::tools::{tool_views, tools};
use crate::ApiError;
use crate::json::{check_name, check_request_names, read_body};
use crate::options::{TOP_LOGPROBS, is_private, json_schema, number, priority, tokens, within};
use crate::tools::tool_choice_of;
use fields::{KnownFields, Read, read, unsupported, wrong};
use replies::GoesOnFrom;
use replies::identity::{BodyClues, Scope};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::{GenerationOptions, Message, Priority, ResponseFormat, SamplingOverrides, Tool, ToolChoice};
use settings::Settings;
use std::sync::LazyLock;

/// Body of a request for a response, with OpenAI's fields.
#[derive(Deserialize, JsonSchema)]
pub struct ResponsesBody {
    model: Option<String>,
    /// Text, or a list of items: messages, function calls and their results, reasoning.
    input: Option<Value>,
    /// Instructions for this response alone.
    instructions: Option<String>,
    /// Functions. A tool of another type is refused.
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    text: Option<TextFields>,
    reasoning: Option<ReasoningFields>,
    max_output_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_logprobs: Option<u64>,
    /// `message.output_text.logprobs`, for log probabilities; the others mean nothing here.
    include: Option<Vec<String>>,
    /// Texts by names, kept with the response. `private`: nothing of it is remembered.
    metadata: Option<Map<String, Value>>,
    /// Name of a person, if a rule reads it. The same holds for `safety_identifier` and `prompt_cache_key`.
    user: Option<String>,
    safety_identifier: Option<String>,
    prompt_cache_key: Option<String>,
    /// `flex`: in the background.
    service_tier: Option<String>,
    stream: Option<bool>,
    /// False: the response stands in no durable session. True where it is left out.
    store: Option<bool>,
    /// The response that this one goes on from.
    previous_response_id: Option<String>,
    /// A durable session, as text or as `{"id"}`. Not together with `previous_response_id`.
    conversation: Option<Value>,
    /// `auto` is what a durable session does anyway; without one a prompt that is too long is refused.
    truncation: Option<String>,
    /// Refused where it is true.
    background: Option<bool>,
    /// Refused: there are no stored prompts.
    prompt: Option<Value>,
    /// Switch in a frame of the websocket. False: the service only prepares for the next request.
    generate: Option<bool>,
    /// Refused: one response at a time on a connection.
    stream_id: Option<String>,
    /// Number of choices, as in chat completions. The service refuses more than 1: a response has one output.
    n: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct TextFields {
    format: Option<TextFormat>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(tag = "type")]
enum TextFormat {
    Text,
    JsonObject,
    JsonSchema { name: Option<String>, schema: Value },
}

#[derive(Deserialize, JsonSchema)]
struct ReasoningFields {
    effort: Option<String>,
    /// Form of the reasoning's summary. With any value, the reply tells what the model thought.
    summary: Option<String>,
    /// The older name of it.
    generate_summary: Option<String>,
}

static FIELDS: LazyLock<KnownFields> = LazyLock::new(KnownFields::of::<ResponsesBody>);

#[derive(Debug)]
pub struct ResponsesRequest {
    pub stream: bool,
    pub store: bool,
    pub model: String,
    pub instructions: Option<String>,
    pub input: Vec<Message>,
    pub tools: Vec<Tool>,
    pub tool_choice: ToolChoice,
    pub parallel_tool_calls: bool,
    pub reasoning_effort: Option<String>,
    /// True if the reply tells the model's thoughts.
    pub tells_reasoning: bool,
    pub max_output_tokens: Option<u32>,
    pub options: GenerationOptions,
    pub priority: Priority,
    pub metadata: Map<String, Value>,
    pub clues: BodyClues,
    pub scope: Scope,
    pub goes_on_from: Option<GoesOnFrom>,
    /// False only prepares the next response.
    pub generate: bool,
    pub echo: Map<String, Value>,
    pub unread: Vec<String>,
}

/// Limits as OpenAI has them: pairs, characters of a name and of a text.
const METADATA: (usize, usize, usize) = (16, 64, 512);
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

pub fn parse(body: &[u8], settings: &Settings) -> Result<ResponsesRequest, ApiError> {
    let body = read_body(body)?;
    Ok(request(&body, settings)?)
}

/// The fields of a body, or of a frame of the websocket.
pub fn request(body: &Value, settings: &Settings) -> Read<ResponsesRequest> {
    let mut fields: ResponsesBody = read(body)?;
    refuse(&fields)?;
    let client = [&fields.user, &fields.safety_identifier, &fields.prompt_cache_key];
    check_request_names(&fields.model, client, settings.limits.id_chars)?;
    let summary = fields.reasoning.as_ref().and_then(|reasoning| reasoning.summary.as_deref());
    check_name("reasoning.summary", summary.unwrap_or_default(), settings.limits.id_chars)?;
    let tools = tools(fields.tools.as_deref().unwrap_or_default(), &settings.limits)?;
    let tool_choice = fields.tool_choice.as_ref().map_or(Ok(ToolChoice::Auto), |choice| {
        let message = "tool_choice must be auto, none, required, or {type: function, name} (as here) of a function";
        tool_choice_of(choice).ok_or_else(|| unsupported("tool_choice", message))
    })?;
    let messages = input(fields.input.as_ref(), &settings.limits)?;
    let instructions = fields.instructions.as_deref().unwrap_or_default();
    check_length(instructions, &settings.limits).map_err(|wrong| wrong.under("instructions"))?;
    let metadata = metadata(fields.metadata.take().unwrap_or_default())?;
    let max_output_tokens = tokens("max_output_tokens", fields.max_output_tokens)?;
    let effort = fields.reasoning.as_ref().and_then(|reasoning| reasoning.effort.clone());
    if effort.as_ref().is_some_and(|effort| !EFFORTS.contains(&effort.as_str())) {
        return Err(wrong("reasoning.effort", format!("reasoning.effort must be one of {}", EFFORTS.join(", "))));
    }
    let goes_on_from = goes_on_from(&fields, settings.limits.id_chars)?;
    let options = options(&fields)?;
    let echo = echo(&fields, body, metadata.clone());
    let store = fields.store.unwrap_or(true);
    // A frame's own name.
    let mut unread: Vec<String> = FIELDS.unread(body).into_iter().filter(|name| name != "type").collect();
    if fields.truncation.as_deref() == Some("auto") && !store {
        unread.push("truncation".to_owned());
    }
    let private = metadata.get("private").and_then(Value::as_str);
    let model = fields.model.unwrap_or_default();
    let clues = BodyClues {
        user: fields.user,
        safety_identifier: fields.safety_identifier,
        prompt_cache_key: fields.prompt_cache_key,
        is_private: is_private(private)?,
        ..BodyClues::of(&model, &messages)
    };
    let instructions = fields.instructions.clone().filter(|text| !text.is_empty());
    let clues = BodyClues { instructions: instructions.or(clues.instructions), ..clues };
    let summary = fields.reasoning.and_then(|reasoning| reasoning.summary.or(reasoning.generate_summary));
    Ok(ResponsesRequest {
        stream: fields.stream.unwrap_or(false),
        store,
        model,
        clues,
        scope: Scope::default(),
        instructions: fields.instructions,
        input: messages,
        tools,
        tool_choice,
        parallel_tool_calls: fields.parallel_tool_calls.unwrap_or(true),
        reasoning_effort: effort,
        tells_reasoning: summary.is_some(),
        max_output_tokens,
        options,
        priority: priority(fields.service_tier.as_deref()),
        metadata,
        goes_on_from,
        generate: fields.generate.unwrap_or(true),
        echo,
        unread,
    })
}

/// Refuses fields that this server cannot honour and that change the answer.
fn refuse(fields: &ResponsesBody) -> Read<()> {
    if fields.background == Some(true) {
        return Err(unsupported("background", "background is not supported: wait for the reply, or stream it"));
    }
    if fields.prompt.is_some() {
        let message = "prompt is not supported, there are no stored prompts: send instructions and input";
        return Err(unsupported("prompt", message));
    }
    if fields.stream_id.is_some() {
        let message = "stream_id is not supported: a connection has one response at a time, so open one for each";
        return Err(unsupported("stream_id", message));
    }
    if fields.n.is_some_and(|n| n != 1) {
        let message = "n is not supported: a response has one output, so ask as often as you want outputs, or ask \
                       /v1/chat/completions, which has n";
        return Err(unsupported("n", message));
    }
    Ok(())
}

fn goes_on_from(fields: &ResponsesBody, most_chars: usize) -> Read<Option<GoesOnFrom>> {
    let conversation = match &fields.conversation {
        None => None,
        Some(Value::String(id)) => Some(id.clone()),
        Some(value) => match value["id"].as_str() {
            Some(id) => Some(id.to_owned()),
            None => return Err(wrong("conversation", "conversation must be an id, or an object with an id")),
        },
    };
    check_name("conversation", conversation.as_deref().unwrap_or_default(), most_chars)?;
    check_name("previous_response_id", fields.previous_response_id.as_deref().unwrap_or_default(), most_chars)?;
    match (&fields.previous_response_id, conversation) {
        (Some(_), Some(_)) => {
            let message = "previous_response_id and conversation exclude each other: send one of them";
            Err(wrong("previous_response_id", message))
        }
        (Some(id), None) => Ok(Some(GoesOnFrom::Response(id.clone()))),
        (None, conversation) => Ok(conversation.map(GoesOnFrom::Conversation)),
    }
}

fn options(fields: &ResponsesBody) -> Read<GenerationOptions> {
    let top_logprobs = within("top_logprobs", fields.top_logprobs, 0..=TOP_LOGPROBS)?;
    let wants = fields.include.iter().flatten().any(|name| name == "message.output_text.logprobs");
    let response_format = match fields.text.as_ref().and_then(|text| text.format.as_ref()) {
        None | Some(TextFormat::Text) => ResponseFormat::Text,
        Some(TextFormat::JsonObject) => ResponseFormat::JsonObject,
        Some(TextFormat::JsonSchema { name, schema }) => json_schema(name.clone(), schema),
    };
    Ok(GenerationOptions {
        sampling: SamplingOverrides {
            temperature: number("temperature", fields.temperature, 0.0..=2.0)?,
            top_p: number("top_p", fields.top_p, 0.0..=1.0)?,
            ..SamplingOverrides::default()
        },
        logprobs: wants.then(|| top_logprobs.unwrap_or(0) as usize),
        response_format,
        ..GenerationOptions::default()
    })
}

pub fn metadata(given: Map<String, Value>) -> Read<Map<String, Value>> {
    let (most, name_chars, text_chars) = METADATA;
    let fits = |(name, text): (&String, &Value)| {
        let text = text.as_str().map(|text| text.chars().count());
        name.chars().count() <= name_chars && text.is_some_and(|chars| chars <= text_chars)
    };
    if given.len() <= most && given.iter().all(fits) {
        return Ok(given);
    }
    let allowed = format!("{most} names of {name_chars} characters with texts of {text_chars}");
    Err(wrong("metadata", format!("metadata may have {allowed}")))
}

/// Returns the fields of the response that repeat the request.
fn echo(fields: &ResponsesBody, body: &Value, metadata: Map<String, Value>) -> Map<String, Value> {
    let given = |name: &str| body.get(name).cloned().unwrap_or_default();
    let text = match &body["text"]["format"] {
        Value::Null => json!({ "type": "text" }),
        format => format.clone(),
    };
    let reasoning = &body["reasoning"];
    let echo = json!({
        "background": false,
        "instructions": fields.instructions,
        "max_output_tokens": given("max_output_tokens"),
        "metadata": metadata,
        "parallel_tool_calls": fields.parallel_tool_calls.unwrap_or(true),
        "previous_response_id": fields.previous_response_id,
        "reasoning": { "effort": reasoning["effort"], "summary": reasoning["summary"] },
        "store": fields.store.unwrap_or(true),
        "temperature": fields.temperature,
        "text": { "format": text },
        "tool_choice": fields.tool_choice.clone().unwrap_or_else(|| "auto".into()),
        "tools": tool_views(fields.tools.as_deref().unwrap_or_default()),
        "top_p": fields.top_p,
        "truncation": "disabled",
    });
    match echo {
        Value::Object(echo) => echo,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
