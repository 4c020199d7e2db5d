//! The upstream's words: chat completions, sent and received. Knows no socket.

use crate::engine_options::sampling;
use crate::request::ModelRequest;
use serde_json::{Map, Value, json};
use session::{
    Delta, Failure, FailureCode, Finish, JsonText, Message, MessageRole, NO_RESULT, ResponseFormat, TemplateOptions,
    TokenLogprob, Tool, ToolChoice, Usage,
};
use settings::Thinking;
use text::ToolSchema;
use text::template::{message_json, options_json, tool_json};

pub fn body(request: &ModelRequest, model: &str, slot: Option<u32>) -> Value {
    let (prompt, thinking) = (&request.prompt, request.effective_thinking());
    let sampling = sampling(&request.preset, thinking != Thinking::Off, &request.options.sampling);
    let mut body = json!({
        "model": model,
        "messages": messages(&prompt.messages),
        "stream": true,
        "stream_options": { "include_usage": true },
        "max_tokens": request.max_tokens.unwrap_or(request.preset.reply_reserve_tokens),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "chat_template_kwargs": template_options(&prompt.options, thinking),
    });
    // Some servers refuse these, so the body has them only if they have an effect.
    let mut set = |name: &str, is_set: bool, value: Value| {
        if is_set {
            body[name] = value;
        }
    };
    set("id_slot", slot.is_some(), json!(slot));
    set("top_k", sampling.top_k > 0, json!(sampling.top_k));
    set("min_p", sampling.min_p > 0.0, json!(sampling.min_p));
    set("repetition_penalty", sampling.repetition_penalty != 1.0, json!(sampling.repetition_penalty));
    set("seed", request.options.seed.is_some(), json!(request.options.seed));
    set("stop", !request.options.stop.is_empty(), json!(request.options.stop));
    set("ignore_eos", request.options.ignore_eos, json!(true));
    set("logprobs", request.options.logprobs.is_some(), json!(true));
    set("top_logprobs", request.options.logprobs.is_some(), json!(request.options.logprobs));
    let bias: Map<String, Value> = sampling
        .logit_bias
        .iter()
        .map(|(token, bias)| (token.to_string(), json!(if bias.is_finite() { *bias } else { -100.0 })))
        .collect();
    set("logit_bias", !bias.is_empty(), Value::Object(bias));
    set(
        "response_format",
        request.options.response_format != ResponseFormat::Text,
        response_format(&request.options.response_format),
    );
    if !prompt.tools.is_empty() {
        body["tools"] = prompt.tools.iter().map(tool_json).collect();
        body["tool_choice"] = tool_choice(&request.tool_choice);
        body["parallel_tool_calls"] = json!(request.parallel_tool_calls);
    }
    body
}

/// Renders the messages. Templates take a call's arguments as an object, the protocol as text. Servers refuse a call
/// without a result right behind it, as a barge-in leaves one: it gets a result that says so. They also refuse a tool's
/// message without its call, such as a summary or a late result: it becomes a message of the user, between the marks
/// that templates use.
pub fn messages(messages: &[Message]) -> Vec<Value> {
    let mut rendered = Vec::with_capacity(messages.len());
    let (mut open, mut alone) = (Vec::new(), Vec::new());
    for message in messages {
        let mut json = message_json(message);
        if message.role == MessageRole::Tool {
            match take_call(&mut open, message.call_id.as_deref()) {
                Some(id) => json["tool_call_id"] = json!(id),
                None => {
                    let content = format!("<tool_response>\n{}\n</tool_response>", message.text());
                    alone.push(json!({ "role": "user", "content": content }));
                    continue;
                }
            }
        } else {
            end_results(&mut open, &mut alone, &mut rendered);
        }
        for call in json.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            let arguments = &mut call["function"]["arguments"];
            *arguments = Value::String(arguments.to_string());
        }
        rendered.push(json);
        open.extend(message.calls.iter().map(|call| call.id.as_deref()));
    }
    end_results(&mut open, &mut alone, &mut rendered);
    rendered
}

// Takes the call that a result answers: the one with its id, or the first if it names none.
fn take_call<'a>(open: &mut Vec<Option<&'a str>>, id: Option<&str>) -> Option<Option<&'a str>> {
    let id = id.filter(|id| !id.is_empty());
    let at = if id.is_none() { Some(0) } else { open.iter().position(|call| *call == id) };
    at.filter(|at| *at < open.len()).map(|at| open.remove(at))
}

fn end_results(open: &mut Vec<Option<&str>>, alone: &mut Vec<Value>, rendered: &mut Vec<Value>) {
    let unanswered = open.drain(..).flatten();
    rendered.extend(unanswered.map(|id| json!({ "role": "tool", "tool_call_id": id, "content": NO_RESULT })));
    rendered.append(alone);
}

pub fn template_options(options: &TemplateOptions, thinking: Thinking) -> Map<String, Value> {
    let mut options = options_json(options);
    options.shift_remove("add_generation_prompt");
    options.insert("enable_thinking".to_owned(), Value::Bool(thinking != Thinking::Off));
    options
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Function(name) => json!({ "type": "function", "function": { "name": name } }),
    }
}

fn response_format(format: &ResponseFormat) -> Value {
    match format {
        ResponseFormat::Text => json!({ "type": "text" }),
        ResponseFormat::JsonObject => json!({ "type": "json_object" }),
        ResponseFormat::JsonSchema { name, schema } => {
            json!({ "type": "json_schema", "json_schema": { "name": name, "strict": true, "schema": schema_of(schema) } })
        }
    }
}

fn schema_of(schema: &JsonText) -> Value {
    serde_json::from_str(&schema.0).unwrap_or_default()
}

pub struct Incoming {
    /// Parser, for servers that leave thought and calls in the content.
    parser: text::ReplyParser,
    calls: Vec<Call>,
    current: usize,
    told_calls: usize,
    finish: Option<Finish>,
    usage: Usage,
    counted: bool,
    pub begun: bool,
    limit_bytes: usize,
}

const MOST_CALLS: usize = 1024;

#[derive(Default)]
struct Call {
    id: Option<String>,
    name: String,
    arguments: String,
    /// Bytes of the arguments that were sent. `None` before the call itself.
    told: Option<usize>,
}

impl Incoming {
    pub fn new(tools: &[Tool], limit_bytes: usize) -> Incoming {
        Incoming {
            parser: text::ReplyParser::new(false, &ToolSchema::of_all(tools)),
            calls: Vec::new(),
            current: 0,
            told_calls: 0,
            finish: None,
            usage: Usage::default(),
            counted: false,
            begun: false,
            limit_bytes,
        }
    }

    /// Takes the data of one event, or a whole answer if the server does not stream.
    pub fn chunk(&mut self, chunk: &Value, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(failure_of(None, error));
        }
        self.usage_of(chunk);
        let Some(choice) = chunk["choices"].as_array().and_then(|choices| choices.first()) else { return Ok(()) };
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let reasoning = [&delta["reasoning_content"], &delta["reasoning"]].into_iter().find_map(Value::as_str);
        if let Some(text) = reasoning.filter(|text| !text.is_empty()) {
            self.begun = true;
            self.count(true);
            deltas.push(Delta::Reasoning { text: text.to_owned(), tokens: 1 });
        }
        if let Some(text) = delta["content"].as_str().filter(|text| !text.is_empty()) {
            self.begun = true;
            self.count(false);
            let mut parsed = Vec::new();
            self.parser.push(text, &mut parsed);
            self.tell(parsed, logprobs_of(&choice["logprobs"]), deltas);
        }
        for (at, call) in delta["tool_calls"].as_array().into_iter().flatten().enumerate() {
            self.begun = true;
            self.count(false);
            self.call(at, call)?;
        }
        self.tell_calls(false, deltas);
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish = Some(match reason {
                "length" => Finish::Length,
                "tool_calls" | "function_call" => Finish::ToolCalls,
                _ => Finish::Stop,
            });
        }
        Ok(())
    }

    pub fn finish(&mut self, deltas: &mut Vec<Delta>) -> Option<Finish> {
        let finish = self.finish?;
        let mut parsed = Vec::new();
        self.parser.finish(&mut parsed);
        self.tell(parsed, Vec::new(), deltas);
        if finish != Finish::Length {
            self.tell_calls(true, deltas);
        }
        Some(if finish == Finish::Stop && self.told_calls > 0 { Finish::ToolCalls } else { finish })
    }

    pub fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    pub fn usage(&self) -> Usage {
        self.usage
    }

    fn tell(&mut self, parsed: Vec<text::ReplyPart>, mut logprobs: Vec<TokenLogprob>, deltas: &mut Vec<Delta>) {
        for piece in parsed {
            deltas.push(match piece {
                text::ReplyPart::Reasoning(text) => Delta::Reasoning { text, tokens: 1 },
                text::ReplyPart::Content(text) => {
                    let logprobs = std::mem::take(&mut logprobs);
                    Delta::Text { text, tokens: 1, sentences: Vec::new(), logprobs }
                }
                text::ReplyPart::Call { name, .. } => {
                    self.told_calls += 1;
                    Delta::CallStarted { name, call_id: None }
                }
                text::ReplyPart::Arguments { json, .. } => Delta::CallArguments { json, tokens: 0 },
            });
        }
    }

    fn call(&mut self, at: usize, part: &Value) -> Result<(), Failure> {
        let index = part["index"].as_u64().map_or(at, |index| index as usize);
        if index > self.calls.len() {
            return Err(refused(format!("the upstream begins call {index} before call {}", self.calls.len())));
        }
        if index == self.calls.len() {
            self.calls.push(Call::default());
        }
        let call = &mut self.calls[index];
        if let Some(id) = part["id"].as_str().filter(|id| !id.is_empty()) {
            call.id.get_or_insert_with(|| id.to_owned());
        }
        if let Some(name) = part["function"]["name"].as_str().filter(|_| call.told.is_none()) {
            call.name.push_str(name);
        }
        match &part["function"]["arguments"] {
            Value::String(text) => call.arguments.push_str(text),
            Value::Null => {}
            // Some servers give the object itself, at once.
            object if call.told.is_none_or(|told| told == 0) => call.arguments = object.to_string(),
            _ => return Err(refused("the upstream gives the arguments of a call twice".to_owned())),
        }
        let bytes = [&call.name, &call.arguments].map(String::len).iter().sum::<usize>();
        if bytes > self.limit_bytes || self.calls.len() > MOST_CALLS {
            return Err(refused(format!("the upstream's calls have more than {} bytes", self.limit_bytes)));
        }
        Ok(())
    }

    /// Sends calls one after the other, in whatever order their parts come.
    fn tell_calls(&mut self, all: bool, deltas: &mut Vec<Delta>) {
        let count = self.calls.len();
        while let Some(call) = self.calls.get_mut(self.current) {
            // The name may come in parts; it is complete when the arguments begin.
            if call.told.is_none() && (all || !call.arguments.is_empty()) && !call.name.is_empty() {
                deltas.push(Delta::CallStarted { name: call.name.clone(), call_id: call.id.clone() });
                call.told = Some(0);
                self.told_calls += 1;
            }
            if let Some(told) = call.told.as_mut().filter(|told| **told < call.arguments.len()) {
                deltas.push(Delta::CallArguments { json: call.arguments[*told..].to_owned(), tokens: 1 });
                *told = call.arguments.len();
            }
            // The parts of a long call are not all parsed again.
            let is_complete = || serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
            let is_last = self.current + 1 == count;
            if !(all || !is_last && is_complete()) {
                return;
            }
            self.current += 1;
        }
    }

    fn usage_of(&mut self, chunk: &Value) {
        // No prompt and no reply has as many; sums stay numbers.
        let count = |value: &Value| value.as_u64().map(|count| count.min(u64::from(u32::MAX)));
        let usage = &chunk["usage"];
        if let Some(input) = count(&usage["prompt_tokens"]) {
            self.counted = true;
            self.usage.input_tokens = input;
            self.usage.output_tokens = count(&usage["completion_tokens"]).unwrap_or(0);
            let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
            self.usage.cached_tokens = cached.unwrap_or(self.usage.cached_tokens);
            let reasoning = count(&usage["completion_tokens_details"]["reasoning_tokens"]);
            self.usage.reasoning_tokens = reasoning.unwrap_or(self.usage.reasoning_tokens);
        }
        // llama-server has it here.
        if let Some(cached) = count(&chunk["timings"]["cache_n"]) {
            self.usage.cached_tokens = cached;
        }
    }

    /// Counts a chunk as about a token, until the server counts.
    fn count(&mut self, is_reasoning: bool) {
        if !self.counted {
            self.usage.output_tokens += 1;
            self.usage.reasoning_tokens += u64::from(is_reasoning);
        }
    }
}

fn refused(why: String) -> Failure {
    Failure::new(FailureCode::UpstreamFailed, why)
}

fn logprobs_of(logprobs: &Value) -> Vec<TokenLogprob> {
    let bytes = |entry: &Value| match entry["bytes"].as_array() {
        Some(bytes) => bytes.iter().filter_map(|byte| u8::try_from(byte.as_u64()?).ok()).collect(),
        None => entry["token"].as_str().unwrap_or_default().as_bytes().to_vec(),
    };
    let logprob = |entry: &Value| entry["logprob"].as_f64().unwrap_or(0.0) as f32;
    let entries = logprobs["content"].as_array().into_iter().flatten();
    entries
        .map(|entry| TokenLogprob {
            bytes: bytes(entry),
            logprob: logprob(entry),
            top: entry["top_logprobs"].as_array().into_iter().flatten().map(|top| (bytes(top), logprob(top))).collect(),
        })
        .collect()
}

/// Limit on an upstream's words about a failure: they go into the log and to clients.
const MOST_SAID_CHARS: usize = 2000;

pub fn failure_of(status: Option<u16>, error: &Value) -> Failure {
    let said = error["message"].as_str().or_else(|| error.as_str()).map_or_else(|| error.to_string(), str::to_owned);
    let said: String = said.chars().take(MOST_SAID_CHARS).collect();
    let lower = said.to_lowercase();
    let is_about_length = error["code"] == "context_length_exceeded"
        || error["type"] == "exceed_context_size_error"
        || ["context length", "context size", "context window", "maximum context"].iter().any(|w| lower.contains(w));
    let code = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    match status.or(code) {
        _ if is_about_length => {
            Failure::new(FailureCode::PromptTooLong, format!("the upstream refuses the prompt as too long: {said}"))
        }
        Some(401 | 403) => Failure::new(
            FailureCode::UpstreamFailed,
            format!("the upstream refuses our key; set upstream.key_env to the variable that holds it: {said}"),
        ),
        Some(404) => Failure::new(
            FailureCode::UpstreamFailed,
            format!("the upstream does not know what it was asked for; check upstream.url and upstream.model: {said}"),
        ),
        Some(429 | 503) => Failure::new(FailureCode::Busy, format!("the upstream is busy: {said}")),
        Some(400 | 422) => {
            Failure::new(FailureCode::InvalidRequest, format!("the upstream refuses the request: {said}"))
        }
        _ => Failure::new(FailureCode::UpstreamFailed, format!("the upstream failed: {said}")),
    }
}
