//! The body of a response. What is unknown is told of in the log, what cannot be done is refused by name.

use super::input::{InputMessages, input};
use super::mistakes::{unsupported, wrong};
use super::tools::{tool_views, tools};
use crate::ApiError;
use crate::json::{json_text, tool_choice_of};
use crate::reader::{Read, Wrong, read};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::{GenerationOptions, Message, Priority, ResponseFormat, SamplingOverrides, Tool, ToolChoice};
use settings::Settings;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// As OpenAI has it.
#[derive(Deserialize, JsonSchema)]
pub struct ResponsesBody {
    model: Option<String>,
    /// Text, or a list of items: messages, function calls and their results, reasoning.
    input: Option<Value>,
    /// For this response alone.
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
    /// Texts by names, kept with the response.
    metadata: Option<Map<String, Value>>,
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
    /// Of a frame of the websocket. False: only prepare for what comes next.
    generate: Option<bool>,
    /// Refused: one response at a time on a connection.
    stream_id: Option<String>,
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
    /// Whether the reply tells what the model thought.
    summary: Option<String>,
    /// The older name of it.
    generate_summary: Option<String>,
}

/// Fields that are read, and those that mean nothing to a server at home: all others are told of in the log.
const KNOWN: [&str; 38] = [
    "background",
    "conversation",
    "generate",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "reasoning",
    "service_tier",
    "store",
    "stream",
    "stream_id",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "type",
    // What follows means nothing here.
    "client_metadata",
    "context_management",
    "event_id",
    "max_tool_calls",
    "moderation",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "stream_options",
    "timeout",
    "user",
    "verbosity",
];

/// What a client asks for.
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
    /// The reply tells what the model thought.
    pub tells_reasoning: bool,
    pub max_output_tokens: Option<u32>,
    pub options: GenerationOptions,
    pub priority: Priority,
    pub metadata: Map<String, Value>,
    pub goes_on_from: Option<GoesOnFrom>,
    /// False: only prepare for what comes next.
    pub generate: bool,
    /// Fields of the response that repeat the request.
    pub echo: Map<String, Value>,
    /// Fields that are not done.
    pub unused: Vec<String>,
}

/// What was said before the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoesOnFrom {
    Response(String),
    Conversation(String),
}

/// As many likeliest tokens as the protocol allows.
const TOP_LOGPROBS: u64 = 20;
/// As OpenAI has them: pairs, characters of a name and of a text.
const METADATA: (usize, usize, usize) = (16, 64, 512);
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

pub fn parse(body: &[u8], settings: &Settings) -> Result<ResponsesRequest, ApiError> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad("invalid_json", format!("the body is no JSON: {error}")))?;
    Ok(request(&body, settings)?)
}

/// The fields of a body, or of a frame of the websocket.
pub fn request(body: &Value, settings: &Settings) -> Read<ResponsesRequest> {
    let mut fields: ResponsesBody = read(body)?;
    refuse(&fields)?;
    let tools = tools(fields.tools.as_deref().unwrap_or_default(), &settings.limits)?;
    let tool_choice = fields.tool_choice.as_ref().map_or(Ok(ToolChoice::Auto), |choice| {
        let message = "tool_choice must be auto, none, required, or {type: function, name} (as here) of a function";
        tool_choice_of(choice).ok_or_else(|| unsupported("tool_choice", message))
    })?;
    let InputMessages { messages, unused } = input(fields.input.as_ref(), &settings.limits)?;
    let metadata = metadata(fields.metadata.take().unwrap_or_default())?;
    let max_output_tokens = within("max_output_tokens", fields.max_output_tokens, 1..=u64::from(u32::MAX))?;
    let effort = fields.reasoning.as_ref().and_then(|reasoning| reasoning.effort.clone());
    if effort.as_ref().is_some_and(|effort| !EFFORTS.contains(&effort.as_str())) {
        return Err(wrong("reasoning.effort", format!("reasoning.effort must be one of {}", EFFORTS.join(", "))));
    }
    let goes_on_from = goes_on_from(&fields)?;
    let options = options(&fields)?;
    let echo = echo(&fields, body, metadata.clone());
    let store = fields.store.unwrap_or(true);
    let names = body.as_object().into_iter().flat_map(Map::keys).filter(|name| !KNOWN.contains(&name.as_str()));
    let truncates = fields.truncation.as_deref() == Some("auto") && !store;
    let unused = unused.into_iter().chain(names.cloned()).chain(truncates.then(|| "truncation".to_owned())).collect();
    let summary = fields.reasoning.and_then(|reasoning| reasoning.summary.or(reasoning.generate_summary));
    Ok(ResponsesRequest {
        stream: fields.stream.unwrap_or(false),
        store,
        model: fields.model.unwrap_or_default(),
        instructions: fields.instructions,
        input: messages,
        tools,
        tool_choice,
        parallel_tool_calls: fields.parallel_tool_calls.unwrap_or(true),
        reasoning_effort: effort,
        tells_reasoning: summary.is_some(),
        max_output_tokens: max_output_tokens.map(|tokens| tokens as u32),
        options,
        priority: if fields.service_tier.as_deref() == Some("flex") { Priority::Background } else { Priority::Talk },
        metadata,
        goes_on_from,
        generate: fields.generate.unwrap_or(true),
        echo,
        unused,
    })
}

/// What this server cannot do, and what would be another answer without it.
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
    Ok(())
}

fn goes_on_from(fields: &ResponsesBody) -> Read<Option<GoesOnFrom>> {
    let conversation = match &fields.conversation {
        None => None,
        Some(Value::String(id)) => Some(id.clone()),
        Some(value) => match value["id"].as_str() {
            Some(id) => Some(id.to_owned()),
            None => return Err(wrong("conversation", "conversation must be an id, or an object with an id")),
        },
    };
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
    let number = |name, value, range| Ok::<_, Wrong>(within(name, value, range)?.map(|number: f64| number as f32));
    let top_logprobs = within("top_logprobs", fields.top_logprobs, 0..=TOP_LOGPROBS)?;
    let wants = fields.include.iter().flatten().any(|name| name == "message.output_text.logprobs");
    let response_format = match fields.text.as_ref().and_then(|text| text.format.as_ref()) {
        None | Some(TextFormat::Text) => ResponseFormat::Text,
        Some(TextFormat::JsonObject) => ResponseFormat::JsonObject,
        Some(TextFormat::JsonSchema { name, schema }) => {
            let name = name.clone().unwrap_or_else(|| "reply".to_owned());
            ResponseFormat::JsonSchema { name, schema: json_text(schema) }
        }
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

/// What the response says of the request, in each event that has it.
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

fn within<T: PartialOrd + Display>(name: &str, value: Option<T>, range: RangeInclusive<T>) -> Read<Option<T>> {
    match value {
        Some(value) if !range.contains(&value) => {
            Err(wrong(name, format!("{name} must be from {} to {}", range.start(), range.end())))
        }
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::{MessageRole, Part};
    use settings::Sources;

    fn read_body(body: Value) -> Result<ResponsesRequest, ApiError> {
        let settings = Settings::load(&Sources::default()).unwrap().settings;
        parse(body.to_string().as_bytes(), &settings)
    }

    #[test]
    fn text_is_a_users_and_a_response_is_stored() {
        let asked = read_body(json!({ "model": "m", "input": "Hi." })).unwrap();
        assert_eq!((asked.input[0].role, asked.input[0].text().as_str()), (MessageRole::User, "Hi."));
        assert!(asked.store && asked.generate && !asked.stream && asked.unused.is_empty());
        assert_eq!((&asked.echo["tool_choice"], &asked.echo["tools"]), (&json!("auto"), &json!([])));
    }

    #[test]
    fn what_clients_send_is_understood() {
        let asked = read_body(json!({
            "model": "m", "stream": true, "store": false, "instructions": "Be short.", "include": [], "user": null,
            "input": [
                { "role": "developer", "content": "The house has two rooms." },
                { "role": "user", "content": [{ "type": "input_text", "text": "Lamp on." }] },
                { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" },
                { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                  "content": [{ "type": "output_text", "text": "One moment.", "annotations": [] }] },
                { "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "lamp", "arguments": "{}" },
                { "type": "function_call_output", "call_id": "call_1", "output": "on" },
            ],
            "tools": [{ "type": "function", "name": "lamp", "parameters": { "type": "object" }, "strict": true }],
            "tool_choice": { "type": "function", "name": "lamp" }, "reasoning": { "effort": "low", "summary": "auto" },
            "text": { "format": { "type": "json_schema", "name": "on", "schema": { "type": "object" }, "strict": true },
                      "verbosity": "low" },
            "max_output_tokens": 3000, "temperature": 1, "top_p": 0.5, "metadata": { "room": "kitchen" },
            "safety_identifier": "a", "prompt_cache_key": "b", "prompt_cache_retention": "24h",
        }));
        let asked = asked.unwrap();
        let roles: Vec<MessageRole> = asked.input.iter().map(|message| message.role).collect();
        use MessageRole::{Assistant, System, Tool, User};
        assert_eq!(roles, [System, User, Assistant, Tool]);
        assert_eq!(asked.input[2].calls[0].name, "lamp");
        assert_eq!(asked.input[3].call_id.as_deref(), Some("call_1"));
        assert!(asked.stream && !asked.store && asked.tells_reasoning);
        assert_eq!(asked.tool_choice, ToolChoice::Function("lamp".into()));
        assert!(matches!(&asked.options.response_format, ResponseFormat::JsonSchema { name, .. } if name == "on"));
        assert_eq!((asked.max_output_tokens, asked.options.sampling.top_p), (Some(3000), Some(0.5)));
        assert_eq!(asked.tools[0].verbatim, None);
        assert_eq!(asked.unused, Vec::<String>::new());
    }

    #[test]
    fn an_image_travels_as_chat_completions_have_it() {
        let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low" });
        let asked = read_body(json!({ "input": [{ "role": "user", "content": [image] }] })).unwrap();
        let Part::Image(image) = &asked.input[0].parts[0] else { panic!("{asked:?}") };
        assert!(image.0.contains("\"image_url\":{\"url\":\"data:image/png"), "{image:?}");
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        let text = |kind: &str| json!([{ "role": "user", "content": [{ "type": kind }] }]);
        for (body, param) in [
            (json!({ "input": "Hi.", "background": true }), "background"),
            (json!({ "input": "Hi.", "prompt": { "id": "pmpt_1" } }), "prompt"),
            (json!({ "input": "Hi.", "tools": [{ "type": "web_search" }] }), "tools[0].type"),
            (json!({ "input": "Hi.", "tool_choice": { "type": "mcp" } }), "tool_choice"),
            (json!({ "input": text("input_file") }), "input[0].content[0].type"),
            (json!({ "input": text("input_image") }), "input[0].content[0].image_url"),
            (json!({ "input": [{ "type": "web_search_call" }] }), "input[0].type"),
            (json!({ "input": "Hi.", "stream_id": "a" }), "stream_id"),
        ] {
            let error = read_body(body.clone()).unwrap_err();
            assert_eq!((error.code, error.param.as_deref()), ("unsupported_parameter", Some(param)), "{body}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (body, param) in [
            (json!({ "input": 3 }), "input"),
            (json!({ "input": [{ "role": "king", "content": "Hi." }] }), "input[0].role"),
            (json!({ "input": [{ "role": "user" }] }), "input[0].content"),
            (json!({ "input": [{ "type": "function_call", "name": "a" }] }), "input[0].call_id"),
            (json!({ "input": "Hi.", "temperature": 3 }), "temperature"),
            (json!({ "input": "Hi.", "max_output_tokens": 0 }), "max_output_tokens"),
            (json!({ "input": "Hi.", "reasoning": { "effort": "huge" } }), "reasoning.effort"),
            (json!({ "input": "Hi.", "metadata": { "a": 1 } }), "metadata"),
            (json!({ "input": "Hi.", "text": { "format": { "type": "xml" } } }), "text.format.type"),
            (json!({ "input": "Hi.", "tools": [{ "type": "function" }] }), "tools[0].name"),
            (json!({ "input": "Hi.", "conversation": 3 }), "conversation"),
            (
                json!({ "input": "Hi.", "conversation": "sess_1", "previous_response_id": "resp_1" }),
                "previous_response_id",
            ),
        ] {
            let error = read_body(body.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}: {}", error.message);
        }
    }

    #[test]
    fn what_is_not_done_is_told_of() {
        let asked = read_body(json!({ "input": "Hi.", "seed": 3, "truncation": "auto", "store": false })).unwrap();
        assert_eq!(asked.unused, ["seed", "truncation"]);
    }
}
