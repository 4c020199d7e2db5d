//! Bodies of `/api/chat` and `/api/generate` to a completion.

use crate::ApiError;
use crate::json::{check_entries, check_name, json_text, read_body};
use crate::options::{check_stops, check_tool_count, json_schema};
use crate::tools::{check_tool, tool_of};
use fields::{Read, shown, wrong};
use replies::{CompletionRequest, Scope};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::{
    GenerationOptions, Message, MessageRole, Part, Priority, Prompt, ResponseFormat, SamplingOverrides,
    TemplateOptions, ToolCall, ToolChoice,
};
use settings::{LimitSettings, Settings};
use std::collections::VecDeque;

#[derive(Deserialize, JsonSchema)]
pub struct OllamaBody {
    model: String,
    #[serde(default)]
    messages: Option<Vec<OllamaMessage>>,
    /// Text for `/api/generate`. `system` and `images` belong to that route too.
    prompt: Option<String>,
    system: Option<String>,
    images: Option<Vec<String>>,
    tools: Option<Vec<Value>>,
    stream: Option<bool>,
    think: Option<Value>,
    format: Option<Value>,
    #[serde(default)]
    options: Option<OllamaOptions>,
    keep_alive: Option<Value>,
    /// Field that the service refuses, like `raw`, `template` and `context`.
    suffix: Option<Value>,
    raw: Option<Value>,
    template: Option<Value>,
    context: Option<Value>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Deserialize, JsonSchema)]
struct OllamaMessage {
    role: String,
    content: Option<String>,
    thinking: Option<String>,
    images: Option<Vec<String>>,
    tool_calls: Option<Vec<OllamaCall>>,
    tool_name: Option<String>,
    tool_call_id: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct OllamaCall {
    id: Option<String>,
    function: OllamaFunction,
}

#[derive(Deserialize, JsonSchema)]
struct OllamaFunction {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct OllamaOptions {
    num_ctx: Option<i64>,
    num_predict: Option<i64>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<Stop>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected text or a list of texts")]
enum Stop {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug)]
pub struct OllamaRequest {
    pub name: String,
    pub stream: bool,
    pub task: OllamaTask,
    /// Window that the client wants.
    pub num_ctx: Option<u64>,
    pub unused: Vec<String>,
}

#[derive(Debug)]
pub enum OllamaTask {
    Reply(Box<CompletionRequest>),
    /// Request without words: the client wants the model in memory, or out of it.
    Load {
        unload: bool,
    },
}

pub fn chat(body: &[u8], settings: &Settings) -> Result<OllamaRequest, ApiError> {
    let mut body = read(body, settings)?;
    let messages = messages(body.messages.take().unwrap_or_default())?;
    Ok(request(body, messages, settings)?)
}

pub fn generate(body: &[u8], settings: &Settings) -> Result<OllamaRequest, ApiError> {
    let mut body = read(body, settings)?;
    let is_said =
        |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && value != "" && value != &json!([]);
    let refused =
        [("suffix", &body.suffix), ("raw", &body.raw), ("template", &body.template), ("context", &body.context)];
    if let Some((name, _)) = refused.into_iter().find(|(_, value)| value.as_ref().is_some_and(is_said)) {
        return Err(wrong(name, format!("{name} is not supported: send what the model shall read to /api/chat")).into());
    }
    let message = |role: &str, content, images| OllamaMessage {
        role: role.to_owned(),
        content,
        images,
        thinking: None,
        tool_calls: None,
        tool_name: None,
        tool_call_id: None,
    };
    let system = body.system.take().filter(|text| !text.is_empty());
    let prompt = body.prompt.take().filter(|text| !text.is_empty());
    let images = body.images.take();
    let mut given = Vec::new();
    if let Some(prompt) = prompt {
        given.extend(system.map(|system| message("system", Some(system), None)));
        given.push(message("user", Some(prompt), images));
    }
    let messages = messages(given)?;
    Ok(request(body, messages, settings)?)
}

fn read(body: &[u8], settings: &Settings) -> Result<OllamaBody, ApiError> {
    let body = read_body(body)?;
    for field in ["messages", "images"] {
        let given = body[field].as_array().map(Vec::as_slice).unwrap_or_default();
        check_entries(field, given, settings.limits.request_items)?;
    }
    Ok(fields::read(&body)?)
}

fn request(body: OllamaBody, messages: Vec<Message>, settings: &Settings) -> Read<OllamaRequest> {
    let OllamaBody { model, tools, stream, think, format, options, keep_alive, more, .. } = body;
    let (tools, stream) = (tools.unwrap_or_default(), stream.unwrap_or(true));
    check_name("model", &model, settings.limits.id_chars)?;
    check_tool_count(tools.len(), &settings.limits)?;
    for (at, tool) in tools.iter().enumerate() {
        check_tool(&format!("tools[{at}]"), tool).map_err(|error| error.under("tools"))?;
    }
    let is_a_time = |text: &str| text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
    match &keep_alive {
        None | Some(Value::Null | Value::Number(_)) => {}
        Some(Value::String(text)) if is_a_time(text) => {}
        Some(_) => return Err(wrong("keep_alive", "keep_alive must be seconds, or a time such as 5m")),
    }
    let options = options.unwrap_or_default();
    let unused = more.keys().cloned().chain(options.more.keys().map(|name| format!("options.{name}"))).collect();
    let num_ctx = options.num_ctx.and_then(|tokens| u64::try_from(tokens).ok());
    if messages.is_empty() {
        let unload = keep_alive
            .is_some_and(|keep| keep.as_f64() == Some(0.0) || matches!(keep.as_str(), Some("0" | "0s" | "0m")));
        return Ok(OllamaRequest { name: model, stream, task: OllamaTask::Load { unload }, num_ctx, unused });
    }
    let stop = stop(options.stop, &settings.limits)?;
    let completion = CompletionRequest {
        prompt: Prompt { messages, tools: tools.iter().map(tool_of).collect(), options: thinking(think)? },
        choices: 1,
        model: super::untagged(&model).to_owned(),
        max_tokens: options.num_predict.and_then(|tokens| u32::try_from(tokens).ok()).filter(|tokens| *tokens > 0),
        options: GenerationOptions {
            sampling: SamplingOverrides {
                temperature: in_range("temperature", options.temperature, 0.0, 5.0)?,
                top_p: in_range("top_p", options.top_p, 0.0, 1.0)?,
                top_k: options.top_k.map(|top_k| u32::try_from(top_k).unwrap_or(0)),
                min_p: in_range("min_p", options.min_p, 0.0, 1.0)?,
                presence_penalty: in_range("presence_penalty", options.presence_penalty, -2.0, 2.0)?,
                frequency_penalty: in_range("frequency_penalty", options.frequency_penalty, -2.0, 2.0)?,
                repetition_penalty: in_range("repeat_penalty", options.repeat_penalty, 0.1, 10.0)?,
                logit_bias: Vec::new(),
            },
            // A negative one means any.
            seed: options.seed.and_then(|seed| u64::try_from(seed).ok()),
            stop,
            response_format: response_format(format)?,
            logprobs: None,
            ignore_eos: false,
        },
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: true,
        priority: Priority::Talk,
        session_id: None,
        attempt: None,
        scope: Scope::default(),
    };
    Ok(OllamaRequest { name: model, stream, task: OllamaTask::Reply(Box::new(completion)), num_ctx, unused })
}

fn stop(stop: Option<Stop>, limits: &LimitSettings) -> Read<Vec<String>> {
    let texts = match stop {
        None => Vec::new(),
        Some(Stop::One(text)) => vec![text],
        Some(Stop::Many(texts)) => texts,
    };
    let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    check_stops("options.stop", &texts, limits)?;
    Ok(texts)
}

fn in_range(name: &str, number: Option<f32>, least: f32, most: f32) -> Read<Option<f32>> {
    match number {
        Some(number) if !(least..=most).contains(&number) => {
            Err(wrong(&format!("options.{name}"), format!("options.{name} must be a number from {least} to {most}")))
        }
        number => Ok(number),
    }
}

fn thinking(think: Option<Value>) -> Read<TemplateOptions> {
    let (enable_thinking, reasoning_effort) = match think {
        None | Some(Value::Null) => (None, None),
        Some(Value::Bool(think)) => (Some(think), None),
        Some(Value::String(effort)) if ["low", "medium", "high"].contains(&&*effort) => (Some(true), Some(effort)),
        Some(_) => return Err(wrong("think", "think must be true, false, low, medium or high")),
    };
    Ok(TemplateOptions { enable_thinking, reasoning_effort, more: None })
}

fn response_format(format: Option<Value>) -> Read<ResponseFormat> {
    match format {
        None | Some(Value::Null) => Ok(ResponseFormat::Text),
        Some(Value::String(word)) if word.is_empty() => Ok(ResponseFormat::Text),
        Some(Value::String(word)) if word == "json" => Ok(ResponseFormat::JsonObject),
        Some(schema @ Value::Object(_)) => Ok(json_schema(None, &schema)),
        Some(_) => Err(wrong("format", "format must be json or a JSON schema")),
    }
}

/// Clients number neither calls nor results, so a result belongs to the oldest call that has none. A client that cuts its
/// history at the front may leave results whose call is cut: these go, because no template can place them.
fn messages(given: Vec<OllamaMessage>) -> Read<Vec<Message>> {
    let mut messages: Vec<Message> = Vec::new();
    let mut open_calls: VecDeque<String> = VecDeque::new();
    let mut calls = 0;
    let mut said = false;
    for (at, given) in given.into_iter().enumerate() {
        let role = match given.role.as_str() {
            "system" | "developer" => MessageRole::System,
            "user" => MessageRole::User,
            "assistant" => MessageRole::Assistant,
            "tool" => MessageRole::Tool,
            other => {
                let (other, allowed) = (shown(other), "use system, user, assistant or tool");
                return Err(wrong("messages", format!("messages[{at}] has the role '{other}': {allowed}")));
            }
        };
        if role == MessageRole::Tool && !said {
            continue;
        }
        said |= matches!(role, MessageRole::User | MessageRole::Assistant);
        let mut message = Message::new(role, given.content.unwrap_or_default());
        message.parts.extend(given.images.into_iter().flatten().map(image));
        message.reasoning = given.thinking.filter(|text| !text.is_empty());
        match role {
            MessageRole::Assistant => {
                open_calls.clear();
                for OllamaCall { id, function } in given.tool_calls.into_iter().flatten() {
                    let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("call_{calls}"));
                    calls += 1;
                    open_calls.push_back(id.clone());
                    let arguments = Value::Object(function.arguments).to_string();
                    message.calls.push(ToolCall { id: Some(id), name: function.name, arguments });
                }
            }
            MessageRole::Tool => {
                let named = given.tool_call_id.filter(|id| !id.is_empty());
                if let Some(id) = &named {
                    open_calls.retain(|open| open != id);
                }
                message.call_id = named.or_else(|| open_calls.pop_front());
                message.name = given.tool_name;
            }
            MessageRole::System | MessageRole::User => {}
        }
        messages.push(message);
    }
    Ok(messages)
}

/// Writes an image as chat completions have it: inside the service it travels so.
fn image(base64: String) -> Part {
    let kind = if base64.starts_with("/9j/") { "jpeg" } else { "png" };
    let url = format!("data:image/{kind};base64,{base64}");
    Part::Image(json_text(&json!({ "type": "image_url", "image_url": { "url": url } })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Sources;

    fn read_chat(body: Value) -> Result<OllamaRequest, ApiError> {
        let settings = Settings::load(&Sources::default()).unwrap().settings;
        chat(body.to_string().as_bytes(), &settings)
    }

    fn reply(body: Value) -> CompletionRequest {
        match read_chat(body).unwrap().task {
            OllamaTask::Reply(request) => *request,
            task => panic!("{task:?}"),
        }
    }

    fn call(name: &str) -> Value {
        json!({ "function": { "name": name, "arguments": {} } })
    }

    #[test]
    fn results_belong_to_calls_in_their_order() {
        let asked = reply(json!({ "model": "m", "messages": [
            { "role": "user", "content": "Both lamps." },
            { "role": "assistant", "tool_calls": [call("left"), call("right")] },
            { "role": "tool", "content": "left is on" },
            { "role": "tool", "content": "right is on" },
        ] }));
        let ids: Vec<_> = asked.prompt.messages.iter().filter_map(|message| message.call_id.as_deref()).collect();
        assert_eq!(ids, ["call_0", "call_1"]);
        assert_eq!(asked.prompt.messages[1].calls[1].arguments, "{}");
    }

    #[test]
    fn a_result_whose_call_was_cut_goes() {
        let asked = reply(json!({ "model": "m", "messages": [
            { "role": "system", "content": "Be short." },
            { "role": "tool", "content": "it is on" },
            { "role": "assistant", "content": "Done." },
            { "role": "user", "content": "Thanks." },
        ] }));
        assert!(asked.prompt.messages.iter().all(|message| message.role != MessageRole::Tool));
    }

    #[test]
    fn what_home_assistant_sends_is_understood() {
        let asked = read_chat(json!({
            "model": "qwen3:latest", "stream": true, "options": { "num_ctx": 8192 }, "keep_alive": -1.0, "think": false,
            "messages": [{ "role": "user", "content": "Hi." }], "tools": [],
        }));
        let asked = asked.unwrap();
        assert_eq!((asked.name.as_str(), asked.stream, asked.num_ctx), ("qwen3:latest", true, Some(8192)));
        assert!(asked.unused.is_empty());
        let OllamaTask::Reply(asked) = asked.task else { panic!() };
        assert_eq!((asked.model.as_str(), asked.priority), ("qwen3", Priority::Talk));
        assert_eq!(asked.prompt.options.enable_thinking, Some(false));
    }

    #[test]
    fn keep_alive_is_a_number_or_a_time() {
        let of = |keep_alive: Value| {
            read_chat(
                json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi." }], "keep_alive": keep_alive }),
            )
        };
        for right in [json!(-1.0), json!(0), json!("300s"), json!("-1"), json!("5m"), Value::Null] {
            assert!(of(right.clone()).is_ok(), "{right}");
        }
        for wrong in [json!("long"), json!(""), json!(true), json!([])] {
            assert!(of(wrong.clone()).unwrap_err().message.contains("keep_alive"), "{wrong}");
        }
    }

    #[test]
    fn images_come_with_their_message() {
        let asked = reply(json!({ "model": "m", "messages": [
            { "role": "user", "content": "What is it?", "images": ["/9j/4AAQ", "iVBORw0KGgo="] },
        ] }));
        let images: Vec<String> = asked.prompt.messages[0].parts[1..].iter().map(|part| format!("{part:?}")).collect();
        assert!(images[0].contains("data:image/jpeg;base64,/9j/4AAQ"), "{images:?}");
        assert!(images[1].contains("data:image/png;base64,iVBORw0KGgo="), "{images:?}");
    }

    #[test]
    fn nothing_said_loads_the_model() {
        let of = |keep_alive: Value| read_chat(json!({ "model": "m", "keep_alive": keep_alive })).unwrap().task;
        assert!(matches!(of(json!("5m")), OllamaTask::Load { unload: false }));
        assert!(matches!(of(json!(0)), OllamaTask::Load { unload: true }));
    }

    #[test]
    fn mistakes_are_named() {
        for (body, word) in [
            (json!({ "messages": [] }), "model"),
            (json!({ "model": "m", "messages": [{ "role": "king", "content": "Hi." }] }), "king"),
            (json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi." }], "format": 3 }), "format"),
            (
                json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi." }], "options": { "top_p": 7 } }),
                "top_p",
            ),
            (json!({ "model": "m", "messages": "Hi." }), "messages"),
        ] {
            let error = read_chat(body.clone()).unwrap_err();
            assert!(error.message.contains(word) || error.message.contains("expected"), "{body}: {}", error.message);
        }
    }

    #[test]
    fn a_prompt_alone_is_a_users() {
        let settings = Settings::load(&Sources::default()).unwrap().settings;
        let body = json!({ "model": "m", "system": "Be short.", "prompt": "Hi.", "stream": false });
        let asked = generate(body.to_string().as_bytes(), &settings).unwrap();
        let OllamaTask::Reply(asked) = asked.task else { panic!() };
        assert_eq!(asked.prompt.messages.len(), 2);
        let body = json!({ "model": "m", "prompt": "Hi.", "raw": true });
        assert!(generate(body.to_string().as_bytes(), &settings).unwrap_err().message.contains("raw"));
    }
}
