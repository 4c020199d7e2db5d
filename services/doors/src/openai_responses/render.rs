//! A response's events in the order that strict readers need, as frames of a stream and as a whole.

use super::view::{ResponseState, item_view, usage_view};
use crate::api_error::error_kind;
use crate::json::logprob_view;
use replies::Render;
use serde_json::{Map, Value, json};
use session::{Event, Failure, Item, ItemBody, Response, ResponseStatus, StatusDetails, TokenLogprob, Usage};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameShape {
    /// Server-sent events.
    Sse,
    /// Messages of a websocket.
    Message,
    /// One object: the client waits for the whole.
    Whole,
}

pub struct ResponsesReply {
    /// Fields that every response object has.
    base: Map<String, Value>,
    pub id: String,
    shape: FrameShape,
    tells_reasoning: bool,
    sequence: u64,
    begun: bool,
    /// Items that are done.
    output: Vec<Value>,
    /// Number of items that were begun.
    outputs: usize,
    thought: Option<Thought>,
    /// Bytes of the open call's arguments that were told.
    arguments: usize,
    /// Log probabilities of the open message.
    logprobs: Vec<Value>,
    ended: Option<Value>,
    is_over: bool,
}

/// Thought of the model that is being told.
struct Thought {
    id: String,
    text: String,
}

/// The only content of a message, and the only summary of a thought.
const FIRST: usize = 0;

impl ResponsesReply {
    /// `base` is what the response repeats of the request, with its model and time.
    pub fn new(id: String, base: Map<String, Value>, tells_reasoning: bool, shape: FrameShape) -> ResponsesReply {
        ResponsesReply {
            base,
            id,
            shape,
            tells_reasoning,
            sequence: 0,
            begun: false,
            output: Vec::new(),
            outputs: 0,
            thought: None,
            arguments: 0,
            logprobs: Vec::new(),
            ended: None,
            is_over: false,
        }
    }

    /// The whole response, once it is over.
    pub fn whole(&self) -> Value {
        self.ended.clone().unwrap_or_else(|| self.response(&ResponseState::in_progress()))
    }

    fn response(&self, state: &ResponseState) -> Value {
        state.view(&self.id, &self.base, self.output.clone())
    }

    fn push(&mut self, frames: &mut Vec<String>, kind: &str, fields: Value) {
        let mut frame = json!({ "type": kind, "sequence_number": self.sequence });
        if let (Value::Object(frame), Value::Object(fields)) = (&mut frame, fields) {
            frame.extend(fields);
        }
        self.sequence += 1;
        match self.shape {
            FrameShape::Sse => frames.push(format!("event: {kind}\ndata: {frame}\n\n")),
            FrameShape::Message => frames.push(frame.to_string()),
            FrameShape::Whole => {}
        }
    }

    fn begin(&mut self, frames: &mut Vec<String>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let response = self.response(&ResponseState::in_progress());
        self.push(frames, "response.created", json!({ "response": response }));
        self.push(frames, "response.in_progress", json!({ "response": response }));
    }

    /// The frames of a response in which nothing is said.
    pub fn nothing(&mut self, frames: &mut Vec<String>) {
        self.begin(frames);
        self.end(ResponseStatus::Completed, None, Usage::default(), frames);
    }

    fn index(&self) -> usize {
        self.outputs.saturating_sub(1)
    }

    fn think(&mut self, text: &str, frames: &mut Vec<String>) {
        if !self.tells_reasoning || text.is_empty() {
            return;
        }
        if self.thought.is_none() {
            let id = format!("rs_{}_{}", self.id.trim_start_matches("resp_"), self.outputs);
            self.outputs += 1;
            let item = json!({ "id": id, "type": "reasoning", "summary": [], "status": "in_progress" });
            self.push(frames, "response.output_item.added", json!({ "output_index": self.index(), "item": item }));
            let part = json!({ "type": "summary_text", "text": "" });
            let fields = self.of_summary(&id, json!({ "part": part }));
            self.push(frames, "response.reasoning_summary_part.added", fields);
            self.thought = Some(Thought { id, text: String::new() });
        }
        let Some(thought) = &mut self.thought else { return };
        thought.text.push_str(text);
        let id = thought.id.clone();
        let fields = self.of_summary(&id, json!({ "delta": text }));
        self.push(frames, "response.reasoning_summary_text.delta", fields);
    }

    fn end_thought(&mut self, frames: &mut Vec<String>) {
        let Some(Thought { id, text }) = self.thought.take() else { return };
        let fields = self.of_summary(&id, json!({ "text": text }));
        self.push(frames, "response.reasoning_summary_text.done", fields);
        let part = json!({ "type": "summary_text", "text": text });
        let fields = self.of_summary(&id, json!({ "part": part }));
        self.push(frames, "response.reasoning_summary_part.done", fields);
        let item = json!({ "id": id, "type": "reasoning", "summary": [part], "status": "completed" });
        self.end_item(item, frames);
    }

    fn of_summary(&self, id: &str, more: Value) -> Value {
        with(json!({ "item_id": id, "output_index": self.index(), "summary_index": FIRST }), more)
    }

    fn of_content(&self, id: &str, more: Value) -> Value {
        with(json!({ "item_id": id, "output_index": self.index(), "content_index": FIRST }), more)
    }

    fn of_item(&self, id: &str, more: Value) -> Value {
        with(json!({ "item_id": id, "output_index": self.index() }), more)
    }

    fn begin_item(&mut self, item: &Item, frames: &mut Vec<String>) {
        self.end_thought(frames);
        self.outputs += 1;
        (self.arguments, self.logprobs) = (0, Vec::new());
        let mut view = item_view(item);
        view["status"] = json!("in_progress");
        let is_message = matches!(item.body, ItemBody::Message { .. });
        if is_message {
            view["content"] = json!([]);
        }
        self.push(frames, "response.output_item.added", json!({ "output_index": self.index(), "item": view }));
        if is_message {
            let part = json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] });
            let fields = self.of_content(&item.id, json!({ "part": part }));
            self.push(frames, "response.content_part.added", fields);
        }
    }

    fn say(&mut self, item_id: &str, text: &str, logprobs: &[TokenLogprob], frames: &mut Vec<String>) {
        let logprobs: Vec<Value> = logprobs.iter().map(|token| json!(logprob_view(token))).collect();
        self.logprobs.extend(logprobs.iter().cloned());
        let fields = self.of_content(item_id, json!({ "delta": text, "logprobs": logprobs }));
        self.push(frames, "response.output_text.delta", fields);
    }

    fn end_text(&mut self, item_id: &str, text: &str, frames: &mut Vec<String>) {
        let logprobs = std::mem::take(&mut self.logprobs);
        let fields = self.of_content(item_id, json!({ "text": text, "logprobs": logprobs }));
        self.push(frames, "response.output_text.done", fields);
        let part = json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs });
        let fields = self.of_content(item_id, json!({ "part": part }));
        self.push(frames, "response.content_part.done", fields);
    }

    fn call_on(&mut self, item_id: &str, json: &str, frames: &mut Vec<String>) {
        self.arguments += json.len();
        let fields = self.of_item(item_id, json!({ "delta": json }));
        self.push(frames, "response.function_call_arguments.delta", fields);
    }

    fn reply_done(&mut self, item: &Item, frames: &mut Vec<String>) {
        if let ItemBody::FunctionCall { name, arguments, .. } = &item.body {
            // Some clients add the deltas alone.
            if self.arguments == 0 {
                self.call_on(&item.id, arguments, frames);
            }
            let fields = self.of_item(&item.id, json!({ "name": name, "arguments": arguments }));
            self.push(frames, "response.function_call_arguments.done", fields);
        }
        self.end_item(item_view(item), frames);
    }

    fn end_item(&mut self, item: Value, frames: &mut Vec<String>) {
        self.output.push(item.clone());
        self.push(frames, "response.output_item.done", json!({ "output_index": self.index(), "item": item }));
    }

    /// A failure before the first frame is an answer of its own.
    fn response_done(&mut self, response: &Response, frames: &mut Vec<String>) -> Result<(), Failure> {
        if let Some(StatusDetails::Failed(failure)) = &response.details
            && (!self.begun || self.shape == FrameShape::Whole)
        {
            return Err(failure.clone());
        }
        self.begin(frames);
        self.end_thought(frames);
        self.end(response.status, response.details.clone(), response.usage.unwrap_or_default(), frames);
        Ok(())
    }

    fn end(&mut self, status: ResponseStatus, details: Option<StatusDetails>, usage: Usage, frames: &mut Vec<String>) {
        let kind = match status {
            ResponseStatus::Completed | ResponseStatus::InProgress => "response.completed",
            ResponseStatus::Failed => "response.failed",
            // The protocol has no event for what was cancelled.
            ResponseStatus::Incomplete | ResponseStatus::Cancelled => "response.incomplete",
        };
        let ended = self.response(&ResponseState { status, details, usage: Some(usage_view(&usage)) });
        self.push(frames, kind, json!({ "response": ended }));
        (self.ended, self.is_over) = (Some(ended), true);
    }
}

impl Render for ResponsesReply {
    fn add(&mut self, event: &Event, frames: &mut Vec<String>) -> Result<(), Failure> {
        match event {
            Event::ResponseStarted { response } => {
                self.id.clone_from(&response.id);
                self.begin(frames);
            }
            Event::ReasoningDelta { text, .. } => self.think(text, frames),
            Event::ReplyStarted { item, .. } => self.begin_item(item, frames),
            Event::TextDelta { item_id, text, logprobs, .. } => self.say(item_id, text, logprobs, frames),
            Event::TextDone { item_id, text, .. } => self.end_text(item_id, text, frames),
            Event::ArgumentsDelta { item_id, json, .. } => self.call_on(item_id, json, frames),
            Event::ReplyDone { item, .. } => self.reply_done(item, frames),
            Event::ResponseDone { response } => return self.response_done(response, frames),
            _ => {}
        }
        Ok(())
    }

    /// The end of a response needs no report.
    fn finish(&mut self, _: &mut Vec<String>) {}

    fn failed(&mut self, failure: &Failure, frames: &mut Vec<String>) {
        self.is_over = true;
        let Failure { code, message } = failure;
        let error = match self.shape {
            FrameShape::Message => {
                let (kind, code) = (error_kind(*code), code.word());
                json!({ "status": 500, "error": { "type": kind, "code": code, "message": message, "param": null } })
            }
            _ => json!({ "code": code.word(), "message": message, "param": null }),
        };
        self.push(frames, "error", error);
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

fn with(mut fields: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    fields
}

#[cfg(test)]
mod tests;
