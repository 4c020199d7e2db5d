//! The body of a chat completion, read forgivingly: what is unknown is let go, what is wrong is named.

use super::messages::prompt_of;
use crate::ApiError;
use crate::json::{check_entries, check_request_names, read_body};
use crate::options::{
    Stop, StreamOptions, TOP_LOGPROBS, check_tool_count, is_private, json_schema, logit_bias, number, priority, seed,
    stop, tokens, within,
};
use crate::tools::{ToolChoiceView, tool_choice_of};
use fields::{KnownFields, Read, read, wrong};
use replies::CompletionRequest;
use replies::identity::{BodyClues, Scope};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use session::{GenerationOptions, MessageRole, ResponseFormat, SamplingOverrides, ToolChoice};
use settings::Settings;
use std::sync::LazyLock;

/// Body of a chat completion, with OpenAI's fields and some of other servers.
#[derive(Deserialize, JsonSchema)]
pub struct ChatBody {
    model: Option<String>,
    #[expect(dead_code, reason = "read with the tools and the options of the template, in many shapes")]
    #[schemars(with = "Vec<Map<String, Value>>")]
    messages: IgnoredAny,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u64>,
    min_p: Option<f64>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    repetition_penalty: Option<f64>,
    /// Token ids and what is added to their logits, from -100 (never) to 100.
    logit_bias: Option<Map<String, Value>>,
    /// Any whole number, also a negative one.
    #[schemars(with = "Option<i64>")]
    seed: Option<Value>,
    stop: Option<Stop>,
    response_format: Option<ResponseFormatFields>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
    #[schemars(with = "Option<ToolChoiceView<'static>>")]
    tool_choice: Option<Value>,
    /// The older way to choose a tool.
    function_call: Option<Value>,
    parallel_tool_calls: Option<bool>,
    ignore_eos: Option<bool>,
    /// `priority`: a user waits. `flex`: in the background.
    service_tier: Option<String>,
    metadata: Option<Metadata>,
    /// Name of a person, if a rule reads it. The same holds for `safety_identifier` and `prompt_cache_key`.
    user: Option<String>,
    safety_identifier: Option<String>,
    prompt_cache_key: Option<String>,
    #[expect(dead_code, reason = "read with the messages")]
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    tools: Option<IgnoredAny>,
    /// The older name, without the wrapping.
    #[expect(dead_code, reason = "read with the messages")]
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    functions: Option<IgnoredAny>,
    /// `none` and `minimal` do not think.
    #[expect(dead_code, reason = "read with the messages")]
    #[schemars(with = "Option<String>")]
    reasoning_effort: Option<IgnoredAny>,
    #[expect(dead_code, reason = "read with the messages")]
    #[schemars(with = "Option<bool>")]
    enable_thinking: Option<IgnoredAny>,
    #[expect(dead_code, reason = "read with the messages")]
    #[schemars(with = "Option<bool>")]
    add_generation_prompt: Option<IgnoredAny>,
    /// Options for the model's chat template.
    #[expect(dead_code, reason = "read with the messages")]
    #[schemars(with = "Option<Map<String, Value>>")]
    chat_template_kwargs: Option<IgnoredAny>,
    /// Text only.
    modalities: Option<Vec<String>>,
    /// Refused: there is no search of the web here.
    web_search_options: Option<Value>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(tag = "type")]
enum ResponseFormatFields {
    Text,
    JsonObject,
    JsonSchema { json_schema: NamedSchema },
}

#[derive(Deserialize, JsonSchema)]
struct NamedSchema {
    name: Option<String>,
    schema: Value,
}

#[derive(Deserialize, JsonSchema)]
struct Metadata {
    /// A durable session to which the messages are added; `new` begins one.
    session_id: Option<String>,
    /// `true`: nothing of it is remembered.
    private: Option<String>,
}

#[derive(Debug)]
pub struct ChatRequest {
    pub stream: bool,
    /// A last chunk with the usage, of a stream.
    pub include_usage: bool,
    pub completion: CompletionRequest,
    pub clues: BodyClues,
    /// Fields that are not read.
    pub unread: Vec<String>,
}

pub fn parse(body: &[u8], settings: &Settings) -> Result<ChatRequest, ApiError> {
    let body = read_body(body)?;
    let given = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    check_entries("messages", given, settings.limits.request_items)?;
    let mut prompt = prompt_of(&body)?;
    let fields: ChatBody = read(&body)?;
    let client = [&fields.user, &fields.safety_identifier, &fields.prompt_cache_key];
    check_request_names(&fields.model, client, settings.limits.id_chars)?;
    let choices = within("n", fields.n, 1..=settings.limits.choices as u64)?.unwrap_or(1) as usize;
    if fields.modalities.iter().flatten().any(|modality| modality != "text") {
        return Err(wrong("modalities", "this server answers in text: leave modalities out").into());
    }
    if fields.web_search_options.is_some() {
        return Err(wrong("web_search_options", "there is no search of the web here: give the model a tool").into());
    }
    check_tool_count(prompt.tools.len(), &settings.limits)?;
    if prompt.messages.is_empty() {
        return Err(wrong("messages", "messages is empty: say something").into());
    }
    content_is_there(given)?;
    only_text_and_images(given)?;
    only_functions(&body)?;
    let unread = FIELDS.unread(&body);
    let session_id = fields.metadata.as_ref().and_then(|metadata| metadata.session_id.clone());
    if session_id.is_some() && choices > 1 {
        return Err(wrong("n", "a durable session keeps one reply: leave n out, or metadata.session_id").into());
    }
    // Templates read a later message of a developer as the user's. It is nothing that the user said.
    for (message, given) in prompt.messages.iter_mut().zip(given) {
        if given["role"] == "developer" {
            message.role = MessageRole::System;
        }
    }
    if session_id.is_none() {
        results_have_calls(given)?;
    }
    let model = fields.model.clone().unwrap_or_default();
    let private = fields.metadata.as_ref().and_then(|metadata| metadata.private.as_deref());
    let clues = BodyClues {
        user: fields.user.clone(),
        safety_identifier: fields.safety_identifier.clone(),
        prompt_cache_key: fields.prompt_cache_key.clone(),
        is_private: is_private(private)?,
        ..BodyClues::of(&model, &prompt.messages)
    };
    let stream = fields.stream.unwrap_or(false);
    let max_completion_tokens = tokens("max_completion_tokens", fields.max_completion_tokens)?;
    let max_tokens = max_completion_tokens.or(tokens("max_tokens", fields.max_tokens)?);
    let include_usage = fields.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or(false);
    let completion = CompletionRequest {
        prompt,
        max_tokens,
        options: GenerationOptions {
            sampling: sampling(&fields)?,
            seed: fields.seed.as_ref().map(seed).transpose()?,
            logprobs: logprobs(&fields)?,
            ignore_eos: fields.ignore_eos.unwrap_or(false),
            stop: stop(fields.stop, &settings.limits)?,
            response_format: fields.response_format.map_or(ResponseFormat::Text, response_format),
        },
        tool_choice: tool_choice(fields.tool_choice.as_ref(), fields.function_call.as_ref())?,
        parallel_tool_calls: fields.parallel_tool_calls.unwrap_or(true),
        priority: priority(fields.service_tier.as_deref()),
        model,
        session_id,
        choices,
        attempt: None,
        scope: Scope::default(),
    };
    Ok(ChatRequest { stream, include_usage, completion, clues, unread })
}

/// A message without words says nothing; an assistant's may have calls instead.
fn content_is_there(messages: &[Value]) -> Read<()> {
    let is_wordless = |message: &Value| message["content"].is_null() && message["role"] != "assistant";
    match messages.iter().position(is_wordless) {
        Some(at) => {
            let message = "Invalid value for 'content': expected a string, got null.";
            Err(wrong(&format!("messages[{at}].content"), message))
        }
        None => Ok(()),
    }
}

/// Refuses content that is neither text nor an image. The model decides whether it accepts images.
fn only_text_and_images(messages: &[Value]) -> Read<()> {
    for (at, message) in messages.iter().enumerate() {
        for (part_at, part) in message["content"].as_array().into_iter().flatten().enumerate() {
            if let Some(kind) = part["type"].as_str().filter(|kind| !READ_PARTS.contains(kind)) {
                let place = format!("messages[{at}].content[{part_at}].type");
                return Err(wrong(&place, format!("content of type '{kind}' is not supported: send text")));
            }
        }
    }
    Ok(())
}

const READ_PARTS: [&str; 6] = ["text", "image_url", "image", "refusal", "input_text", "output_text"];

fn only_functions(body: &Value) -> Read<()> {
    let other = |tool: &Value| tool["type"].as_str().is_some_and(|kind| kind != "function");
    match body["tools"].as_array().and_then(|tools| tools.iter().position(other)) {
        Some(at) => Err(wrong(&format!("tools[{at}].type"), "only tools of type 'function' can be had here")),
        None => Ok(()),
    }
}

static FIELDS: LazyLock<KnownFields> = LazyLock::new(KnownFields::of::<ChatBody>);

/// A result answers a call of the assistant's message before it.
fn results_have_calls(messages: &[Value]) -> Read<()> {
    let mut calls: Option<Vec<&Value>> = None;
    for (at, message) in messages.iter().enumerate() {
        match message["role"].as_str() {
            Some("assistant") => {
                let made = message["tool_calls"].as_array();
                calls = made.map(|made| made.iter().map(|call| &call["id"]).collect());
            }
            Some("tool") => {
                let (id, place) = (&message["tool_call_id"], format!("messages[{at}]"));
                let Some(calls) = &calls else {
                    let message = "Invalid parameter: messages with role 'tool' must be a response to a preceding message \
                                   with 'tool_calls'.";
                    return Err(wrong(&format!("{place}.role"), message));
                };
                if !calls.contains(&id) {
                    let message = format!(
                        "Invalid parameter: 'tool_call_id' of {id} not found in 'tool_calls' of previous message."
                    );
                    return Err(wrong(&format!("{place}.tool_call_id"), message));
                }
            }
            _ => calls = None,
        }
    }
    Ok(())
}

fn sampling(fields: &ChatBody) -> Read<SamplingOverrides> {
    Ok(SamplingOverrides {
        temperature: number("temperature", fields.temperature, 0.0..=2.0)?,
        top_p: number("top_p", fields.top_p, 0.0..=1.0)?,
        top_k: within("top_k", fields.top_k, 0..=1_000_000)?.map(|top_k| top_k as u32),
        min_p: number("min_p", fields.min_p, 0.0..=1.0)?,
        presence_penalty: number("presence_penalty", fields.presence_penalty, -2.0..=2.0)?,
        frequency_penalty: number("frequency_penalty", fields.frequency_penalty, -2.0..=2.0)?,
        repetition_penalty: number("repetition_penalty", fields.repetition_penalty, 0.1..=10.0)?,
        logit_bias: logit_bias(fields.logit_bias.as_ref())?,
    })
}

fn tool_choice(tool_choice: Option<&Value>, function_call: Option<&Value>) -> Read<ToolChoice> {
    if let Some(choice) = tool_choice {
        let message = "tool_choice must be auto, none, required, or an object that names a function";
        return tool_choice_of(choice).ok_or_else(|| wrong("tool_choice", message));
    }
    // The older way.
    match function_call {
        None => Ok(ToolChoice::Auto),
        Some(Value::String(word)) if word == "none" => Ok(ToolChoice::None),
        Some(Value::String(word)) if word == "auto" => Ok(ToolChoice::Auto),
        Some(call) => match call.get("name").and_then(Value::as_str) {
            Some(name) => Ok(ToolChoice::Function(name.to_owned())),
            None => Err(wrong("function_call", "function_call must be auto, none, or an object with a name")),
        },
    }
}

fn response_format(format: ResponseFormatFields) -> ResponseFormat {
    match format {
        ResponseFormatFields::Text => ResponseFormat::Text,
        ResponseFormatFields::JsonObject => ResponseFormat::JsonObject,
        ResponseFormatFields::JsonSchema { json_schema: NamedSchema { name, schema } } => json_schema(name, &schema),
    }
}

fn logprobs(fields: &ChatBody) -> Read<Option<usize>> {
    let top = within("top_logprobs", fields.top_logprobs, 0..=TOP_LOGPROBS)?.unwrap_or(0);
    if fields.logprobs.unwrap_or(false) {
        Ok(Some(top as usize))
    } else if top > 0 {
        Err(wrong("top_logprobs", "top_logprobs are given only with logprobs: true"))
    } else {
        Ok(None)
    }
}
