//! A response's events in the order that strict readers need, as frames of a stream and as a whole.

use super::view::{ResponseState, item_view, usage_view};
use crate::api_error::error_kind;
use crate::completion::Render;
use crate::json::logprob_view;
use serde_json::{Map, Value, json};
use session::{Event, Failure, Item, ItemBody, Response, ResponseStatus, StatusDetails, TokenLogprob, Usage};

/// How frames leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameShape {
    /// Server-sent events.
    Sse,
    /// Messages of a websocket.
    Message,
    /// None leaves: the client waits for the whole.
    Whole,
}

/// A response on its way.
pub struct ResponsesReply {
    /// What every response object of it has.
    base: Map<String, Value>,
    pub id: String,
    shape: FrameShape,
    tells_reasoning: bool,
    sequence: u64,
    begun: bool,
    /// Items that are done, as they were told.
    output: Vec<Value>,
    /// Items that were begun.
    outputs: usize,
    thought: Option<Thought>,
    /// Bytes of the open call's arguments that were told.
    arguments: usize,
    /// Of the open message.
    logprobs: Vec<Value>,
    /// The response as it ended.
    ended: Option<Value>,
    is_over: bool,
}

/// What the model thinks, while it does.
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

    /// The item that is being told.
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
mod tests {
    use super::*;
    use session::machine::OneShot;
    use session::{Delta, FailureCode, Finish, MaxTokens};

    fn reply(shape: FrameShape, tells_reasoning: bool) -> ResponsesReply {
        let base = json!({ "model": "m", "created_at": 1, "tools": [] }).as_object().cloned().unwrap();
        ResponsesReply::new("resp_1".into(), base, tells_reasoning, shape)
    }

    fn frames(mut reply: ResponsesReply, deltas: Vec<Delta>) -> (Vec<Value>, ResponsesReply) {
        let mut one_shot = OneShot::new("resp_1".into(), MaxTokens::Unlimited, 1);
        let (mut events, mut frames) = (Vec::new(), Vec::new());
        deltas.into_iter().for_each(|delta| one_shot.delta(delta, &mut events));
        events.iter().for_each(|event| reply.add(event, &mut frames).unwrap());
        (frames.iter().map(|frame| serde_json::from_str(frame).unwrap()).collect(), reply)
    }

    fn done(finish: Finish) -> Delta {
        Delta::Done { finish, usage: None, report: None }
    }

    fn thought(text: &str) -> Delta {
        Delta::Reasoning { text: text.into(), tokens: 1 }
    }

    fn kinds(frames: &[Value]) -> Vec<&str> {
        frames.iter().map(|frame| frame["type"].as_str().unwrap().trim_start_matches("response.")).collect()
    }

    #[test]
    fn text_comes_in_the_order_that_strict_readers_need() {
        let deltas = vec![thought("Hm."), Delta::text("Hi", 1), Delta::text(" there.", 1), done(Finish::Stop)];
        let (frames, reply) = frames(reply(FrameShape::Message, false), deltas);
        let expected = [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ];
        assert_eq!(kinds(&frames), expected);
        for (at, frame) in frames.iter().enumerate() {
            assert_eq!(frame["sequence_number"], at);
        }
        let id = &frames[2]["item"]["id"];
        assert_eq!(frames[2]["item"]["content"], json!([]));
        for frame in &frames[3..8] {
            assert_eq!(
                (&frame["item_id"], &frame["output_index"], &frame["content_index"]),
                (id, &json!(0), &json!(0))
            );
        }
        assert_eq!((&frames[5]["delta"], &frames[5]["logprobs"]), (&json!(" there."), &json!([])));
        assert_eq!(frames[6]["text"], "Hi there.");
        let response = &frames[9]["response"];
        assert_eq!(response["output"], json!([frames[8]["item"]]));
        assert_eq!(response["output"][0]["content"][0]["text"], "Hi there.");
        assert_eq!((&response["status"], &response["id"]), (&json!("completed"), &json!("resp_1")));
        assert_eq!(response["usage"]["input_tokens_details"], json!({ "cached_tokens": 0, "cache_write_tokens": 0 }));
        assert_eq!(response["usage"]["output_tokens_details"]["reasoning_tokens"], 1);
        assert!(reply.is_over());
        assert_eq!(reply.whole(), *response);
    }

    #[test]
    fn arguments_come_as_deltas_and_never_with_the_begin() {
        let call = |name: &str| Delta::CallStarted { name: name.into(), call_id: None };
        let arguments = |json: &str| Delta::CallArguments { json: json.into(), tokens: 1 };
        let deltas =
            vec![call("light"), arguments("{\"on\":"), arguments("true}"), call("time"), done(Finish::ToolCalls)];
        let (frames, _) = frames(reply(FrameShape::Message, false), deltas);
        let added: Vec<&Value> = frames.iter().filter(|frame| frame["type"] == "response.output_item.added").collect();
        assert_eq!((&added[0]["item"]["name"], &added[0]["item"]["arguments"]), (&json!("light"), &json!("")));
        assert_eq!((&added[1]["output_index"], &added[1]["item"]["arguments"]), (&json!(1), &json!("")));
        for (index, expected) in ["{\"on\":true}", "{}"].into_iter().enumerate() {
            let of = |kind: &str| -> Vec<&Value> {
                let is_it = |frame: &&Value| frame["type"] == kind && frame["output_index"] == index;
                frames.iter().filter(is_it).collect()
            };
            let deltas = of("response.function_call_arguments.delta");
            let all: String = deltas.iter().map(|frame| frame["delta"].as_str().unwrap()).collect();
            assert_eq!(all, expected);
            assert_eq!(of("response.function_call_arguments.done")[0]["arguments"], expected);
            assert_eq!(of("response.output_item.done")[0]["item"]["arguments"], expected);
        }
    }

    #[test]
    fn a_client_that_wants_it_is_told_what_the_model_thought() {
        let deltas = vec![thought("Hm"), thought("."), Delta::text("Hi", 1), done(Finish::Stop)];
        let (frames, _) = frames(reply(FrameShape::Message, true), deltas);
        let expected = [
            "created",
            "in_progress",
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
        ];
        assert_eq!(kinds(&frames)[..10], expected);
        assert_eq!(frames[8]["item"]["summary"], json!([{ "type": "summary_text", "text": "Hm." }]));
        assert_eq!((&frames[8]["output_index"], &frames[9]["output_index"]), (&json!(0), &json!(1)));
        let output = frames.last().unwrap()["response"]["output"].as_array().unwrap().clone();
        assert_eq!((&output[0]["type"], &output[1]["type"]), (&json!("reasoning"), &json!("message")));
    }

    #[test]
    fn a_response_always_ends_with_an_event_that_clients_know() {
        for (finish, kind, status, details) in [
            (Finish::Length, "response.incomplete", "incomplete", json!({ "reason": "max_output_tokens" })),
            (Finish::Cancelled, "response.incomplete", "cancelled", Value::Null),
        ] {
            let (frames, _) = frames(reply(FrameShape::Message, false), vec![Delta::text("Hi", 1), done(finish)]);
            let last = frames.last().unwrap();
            assert_eq!((&last["type"], &last["response"]["status"]), (&json!(kind), &json!(status)));
            assert_eq!(last["response"]["incomplete_details"], details);
            assert_eq!(last["response"]["output"][0]["status"], "incomplete");
        }
        let failure = Failure::new(FailureCode::EngineFailed, "the engine failed");
        let (frames, _) = frames(reply(FrameShape::Message, false), vec![Delta::text("Hi", 1), Delta::Failed(failure)]);
        let last = frames.last().unwrap();
        assert_eq!(last["type"], "response.failed");
        assert_eq!(last["response"]["error"], json!({ "code": "server_error", "message": "the engine failed" }));
    }

    #[test]
    fn errors_are_flat_in_a_stream_and_an_object_on_a_websocket() {
        let failure = Failure::new(FailureCode::Unavailable, "the service stops");
        let mut out = Vec::new();
        reply(FrameShape::Sse, false).failed(&failure, &mut out);
        let data = out[0].strip_prefix("event: error\ndata: ").expect(&out[0]).trim_end();
        let flat: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&flat["code"], &flat["message"]), (&json!("model_unavailable"), &json!("the service stops")));
        assert!(flat.get("error").is_none() && flat["sequence_number"] == 0, "{flat}");
        reply(FrameShape::Message, false).failed(&failure, &mut out);
        let frame: Value = serde_json::from_str(&out[1]).unwrap();
        assert_eq!((&frame["status"], &frame["error"]["message"]), (&json!(500), &json!("the service stops")));
    }
}
