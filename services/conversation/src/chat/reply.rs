//! A reply in the words of chat completions, as chunks of a stream and as a whole.

use crate::backend::{Finish, Piece, Report, Usage};
use crate::manner::TokenLogprob;
use serde_json::{Value, json};

/// One choice on its way. Every chunk has the same id.
pub struct Reply {
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
    /// Of a durable session, so that a client learns the id of a new one.
    session_id: Option<String>,
    begun: bool,
    content: String,
    reasoning: String,
    calls: Vec<Call>,
    logprobs: Option<Vec<Value>>,
    usage: Usage,
    finish: Option<Finish>,
    report: Report,
}

struct Call {
    id: String,
    name: String,
    arguments: String,
}

/// The last word of a stream.
const DONE: &str = "[DONE]";

impl Reply {
    pub fn new(id: String, created: u64, model: String, include_usage: bool, session_id: Option<String>) -> Reply {
        Reply {
            id,
            created,
            model,
            include_usage,
            session_id,
            begun: false,
            content: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            logprobs: None,
            usage: Usage::default(),
            finish: None,
            report: Report::default(),
        }
    }

    pub fn content(&self) -> &str {
        &self.content
    }

    /// Takes a piece and returns the data of the events that it becomes in a stream.
    pub fn add(&mut self, piece: &Piece) -> Vec<String> {
        let mut chunks = Vec::new();
        if !self.begun && !matches!(piece, Piece::Failed(_)) {
            self.begun = true;
            chunks.push(self.chunk(json!({ "role": "assistant", "content": "" }), None, None));
        }
        match piece {
            Piece::Prompt { .. } => {}
            Piece::Reasoning { text, .. } => {
                self.reasoning.push_str(text);
                chunks.push(self.chunk(json!({ "reasoning_content": text }), None, None));
            }
            Piece::Content { text, logprobs, .. } => {
                self.content.push_str(text);
                let logprobs = self.add_logprobs(logprobs);
                chunks.push(self.chunk(json!({ "content": text }), logprobs, None));
            }
            Piece::CallStarted { name, call_id } => {
                let index = self.calls.len();
                let id = call_id
                    .clone()
                    .unwrap_or_else(|| format!("call_{}_{index}", self.id.trim_start_matches("chatcmpl-")));
                let call = json!({
                    "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "" },
                });
                self.calls.push(Call { id, name: name.clone(), arguments: String::new() });
                chunks.push(self.chunk(json!({ "tool_calls": [call] }), None, None));
            }
            Piece::CallArguments { json: text, .. } => {
                let Some(call) = self.calls.last_mut() else { return Vec::new() };
                call.arguments.push_str(text);
                let call = json!({ "index": self.calls.len() - 1, "function": { "arguments": text } });
                chunks.push(self.chunk(json!({ "tool_calls": [call] }), None, None));
            }
            Piece::Done { finish, usage, report } => {
                (self.finish, self.usage, self.report) = (Some(*finish), *usage, report.clone());
                chunks.push(self.chunk(json!({}), None, Some(*finish)));
                if self.include_usage {
                    let mut last = self.frame("chat.completion.chunk", json!([]));
                    last["usage"] = self.usage_value();
                    chunks.push(last);
                }
                let mut data: Vec<String> = chunks.iter().map(Value::to_string).collect();
                data.push(DONE.to_owned());
                return data;
            }
            // The status is sent long ago: clients look for this in the stream.
            Piece::Failed(failure) => {
                let error = json!({ "message": failure.message, "type": failure.code.kind(), "param": null, "code": failure.code.word() });
                chunks.push(json!({ "error": error }));
            }
        }
        chunks.iter().map(Value::to_string).collect()
    }

    pub fn whole(&self) -> Value {
        let calls: Vec<Value> = self.calls.iter().map(Call::value).collect();
        // Content is null only where there are calls instead.
        let content = if self.content.is_empty() && !calls.is_empty() { Value::Null } else { json!(self.content) };
        let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let logprobs = self.logprobs.as_ref().map(|tokens| json!({ "content": tokens, "refusal": null }));
        let finish_reason = self.finish.map(finish_reason);
        let choice = json!({ "index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish_reason });
        let mut whole = self.frame("chat.completion", json!([choice]));
        whole["usage"] = self.usage_value();
        whole["reprise"] = self.report_value();
        whole
    }

    fn chunk(&self, delta: Value, logprobs: Option<Value>, finish: Option<Finish>) -> Value {
        let choice = json!({
            "index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish.map(finish_reason),
        });
        let mut chunk = self.frame("chat.completion.chunk", json!([choice]));
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        if finish.is_some() {
            chunk["reprise"] = self.report_value();
        }
        chunk
    }

    fn frame(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "system_fingerprint": concat!("reprise-", env!("CARGO_PKG_VERSION")), "choices": choices,
        })
    }

    fn add_logprobs(&mut self, logprobs: &[TokenLogprob]) -> Option<Value> {
        if logprobs.is_empty() {
            return None;
        }
        let entries: Vec<Value> = logprobs.iter().map(|token| json!(token)).collect();
        self.logprobs.get_or_insert_default().extend(entries.iter().cloned());
        Some(json!({ "content": entries, "refusal": null }))
    }

    fn usage_value(&self) -> Value {
        let Usage { input_tokens, cached_tokens, output_tokens, reasoning_tokens } = self.usage;
        json!({
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
            "prompt_tokens_details": { "cached_tokens": cached_tokens, "audio_tokens": 0 },
            "completion_tokens_details": { "reasoning_tokens": reasoning_tokens, "audio_tokens": 0 },
        })
    }

    /// What the reply cost: an extra that other servers do not have.
    fn report_value(&self) -> Value {
        let report = &self.report;
        let mut value = json!({
            "reused_tokens": report.reused_tokens,
            "computed_tokens": report.computed_tokens,
            "reason": report.reason,
            "ms": {
                "queue": rounded(report.queue_ms), "prefill": rounded(report.prefill_ms),
                "first_token": report.first_token_ms.map(rounded), "total": rounded(report.total_ms),
            },
        });
        if let Some(session_id) = &self.session_id {
            value["session_id"] = json!(session_id);
        }
        value
    }
}

impl Call {
    fn value(&self) -> Value {
        let Call { id, name, arguments } = self;
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }
}

fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::Stop | Finish::Cancelled | Finish::Warm => "stop",
    }
}

/// To microseconds: what is behind them is noise.
fn rounded(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}
