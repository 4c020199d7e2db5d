//! A session's events in the words of chat completions, as chunks of a stream and as a whole.

use crate::api_error::failure_frame;
use crate::json::{logprob_view, notes_view};
use parking_lot::Mutex;
use replies::Render;
use serde_json::{Value, json};
use session::{
    Event, Failure, Item, ItemBody, Response, ResponseStatus, StatusDetails, TokenLogprob, TurnReport, Usage,
};
use std::sync::Arc;

/// One choice on its way. Every chunk has the same id.
pub struct ChatReply {
    /// Index among the choices of the request.
    index: usize,
    /// Cost of all choices so far.
    all: Arc<Mutex<ChoicesUsage>>,
    id: String,
    created: i64,
    model: String,
    include_usage: bool,
    /// Id of a durable session, which may be new.
    session_id: Option<String>,
    begun: bool,
    content: String,
    reasoning: String,
    calls: Vec<Call>,
    logprobs: Option<Vec<Value>>,
    finish_reason: Option<&'static str>,
    report: TurnReport,
    is_over: bool,
}

/// The prompt counts once, the replies together. The last one that is over ends the stream.
struct ChoicesUsage {
    usage: Usage,
    left: usize,
}

struct Call {
    id: String,
    name: String,
    arguments: String,
}

const DONE: &str = "[DONE]";

impl ChatReply {
    pub fn new(id: String, created: i64, model: String, include_usage: bool, session_id: Option<String>) -> ChatReply {
        let all = Arc::new(Mutex::new(ChoicesUsage { usage: Usage::default(), left: 1 }));
        ChatReply {
            index: 0,
            all,
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
            finish_reason: None,
            report: TurnReport::default(),
            is_over: false,
        }
    }

    pub fn choices(self, count: usize) -> Vec<ChatReply> {
        self.all.lock().left = count;
        let ChatReply { all, id, created, model, include_usage, session_id, .. } = self;
        let reply = |index| {
            let (id, model, session_id) = (id.clone(), model.clone(), session_id.clone());
            ChatReply { index, all: all.clone(), ..ChatReply::new(id, created, model, include_usage, session_id) }
        };
        (0..count).map(reply).collect()
    }

    /// Joins the answers of all choices.
    pub fn whole_of(choices: &[ChatReply]) -> Value {
        let mut wholes = choices.iter().map(ChatReply::whole);
        let mut whole = wholes.next().unwrap_or_default();
        for mut other in wholes {
            if let (Value::Array(choices), Value::Array(more)) = (&mut whole["choices"], other["choices"].take()) {
                choices.extend(more);
            }
        }
        whole
    }

    fn begin(&mut self, out: &mut Vec<String>) {
        if !std::mem::replace(&mut self.begun, true) {
            out.push(self.chunk(json!({ "role": "assistant", "content": "" }), None));
        }
    }

    /// The report of what it cost comes behind it, but for a response that was cancelled.
    fn response_done(&mut self, response: &Response, out: &mut Vec<String>) -> Result<(), Failure> {
        if let Some(StatusDetails::Failed(failure)) = &response.details {
            return Err(failure.clone());
        }
        self.count(response.usage.unwrap_or_default());
        self.finish_reason = Some(match response.status {
            ResponseStatus::Incomplete => "length",
            ResponseStatus::Completed if !self.calls.is_empty() => "tool_calls",
            _ => "stop",
        });
        if response.status == ResponseStatus::Cancelled {
            self.finish(out);
        }
        Ok(())
    }

    fn count(&self, usage: Usage) {
        let sum = &mut self.all.lock().usage;
        if self.index == 0 {
            (sum.input_tokens, sum.cached_tokens) = (usage.input_tokens, usage.cached_tokens);
        }
        sum.output_tokens += usage.output_tokens;
        sum.reasoning_tokens += usage.reasoning_tokens;
    }

    fn whole(&self) -> Value {
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
        let finish_reason = self.finish_reason;
        let choice =
            json!({ "index": self.index, "message": message, "logprobs": logprobs, "finish_reason": finish_reason });
        let mut whole = self.frame("chat.completion", json!([choice]));
        whole["usage"] = self.usage_value();
        whole["reprise"] = self.report_value();
        whole
    }

    fn chunk(&self, delta: Value, logprobs: Option<Value>) -> String {
        self.chunk_value(delta, logprobs, None).to_string()
    }

    fn chunk_value(&self, delta: Value, logprobs: Option<Value>, finish_reason: Option<&str>) -> Value {
        let choice =
            json!({ "index": self.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason });
        let mut chunk = self.frame("chat.completion.chunk", json!([choice]));
        if self.include_usage {
            chunk["usage"] = Value::Null;
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
        let entries: Vec<Value> = logprobs.iter().map(|token| json!(logprob_view(token))).collect();
        self.logprobs.get_or_insert_default().extend(entries.iter().cloned());
        Some(json!({ "content": entries, "refusal": null }))
    }

    fn usage_value(&self) -> Value {
        let Usage { input_tokens, cached_tokens, output_tokens, reasoning_tokens } = self.all.lock().usage;
        json!({
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
            "prompt_tokens_details": { "cached_tokens": cached_tokens, "audio_tokens": 0 },
            "completion_tokens_details": { "reasoning_tokens": reasoning_tokens, "audio_tokens": 0 },
        })
    }

    /// Writes the report: an extra that other servers do not have.
    fn report_value(&self) -> Value {
        let report = &self.report;
        let mut value = json!({
            "reused_tokens": report.reused_tokens,
            "computed_tokens": report.computed_tokens,
            "reason": report.reason,
            "expects_answer": report.expects_answer,
            "ms": {
                "queue": rounded(report.queue_ms), "prefill": rounded(report.prefill_ms),
                "first_token": report.first_token_ms.map(rounded), "total": rounded(report.total_ms),
            },
        });
        if let Some(tokens) = report.begun_early {
            value["begun_early"] = json!(tokens);
        }
        if let Some(notes) = &report.notes {
            value["notes"] = notes_view(notes);
        }
        if let Some(session_id) = &self.session_id {
            value["session_id"] = json!(session_id);
        }
        value
    }
}

impl Render for ChatReply {
    fn add(&mut self, event: &Event, out: &mut Vec<String>) -> Result<(), Failure> {
        match event {
            Event::ResponseStarted { .. } => self.begin(out),
            Event::ReasoningDelta { text, .. } => {
                self.reasoning.push_str(text);
                out.push(self.chunk(json!({ "reasoning_content": text }), None));
            }
            Event::TextDelta { text, logprobs, .. } => {
                self.content.push_str(text);
                let logprobs = self.add_logprobs(logprobs);
                out.push(self.chunk(json!({ "content": text }), logprobs));
            }
            // In one piece: some clients do not join pieces, and others act on the first.
            Event::ReplyDone {
                item: Item { body: ItemBody::FunctionCall { call_id, name, arguments }, .. }, ..
            } => {
                let call = Call { id: call_id.clone(), name: name.clone(), arguments: arguments.clone() };
                let mut piece = call.value();
                piece["index"] = json!(self.calls.len());
                self.calls.push(call);
                out.push(self.chunk(json!({ "tool_calls": [piece] }), None));
            }
            Event::ResponseDone { response } => return self.response_done(response, out),
            Event::Reported { report, .. } if self.finish_reason.is_some() => {
                self.report = report.clone();
                self.finish(out);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<String>) {
        if self.finish_reason.is_none() || std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.begin(out);
        let mut last = self.chunk_value(json!({}), None, self.finish_reason);
        last["reprise"] = self.report_value();
        out.push(last.to_string());
        let is_last = {
            let mut all = self.all.lock();
            all.left = all.left.saturating_sub(1);
            all.left == 0
        };
        if !is_last {
            return;
        }
        if self.include_usage {
            let mut last = self.frame("chat.completion.chunk", json!([]));
            last["usage"] = self.usage_value();
            out.push(last.to_string());
        }
        out.push(DONE.to_owned());
    }

    fn failed(&mut self, failure: &Failure, out: &mut Vec<String>) {
        self.is_over = true;
        out.push(failure_frame(failure));
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

impl Call {
    fn value(&self) -> Value {
        let Call { id, name, arguments } = self;
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }
}

fn rounded(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}
