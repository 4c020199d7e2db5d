//! A response's events as lines of Ollama, and as one object.

use crate::json::notes_view;
use replies::Render;
use serde::Serialize;
use serde_json::{Map, Value, json};
use session::{Event, Failure, Item, ItemBody, Response, ResponseStatus, StatusDetails, TurnReport, Usage};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineShape {
    /// Words in `message`.
    Chat,
    /// Words in `response`.
    Generate,
}

#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    created_at: String,
    /// Every line of a chat has one, the last one too.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Words>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
    done: bool,
    #[serde(flatten)]
    end: Option<End>,
}

#[derive(Serialize)]
struct Words {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
}

#[derive(Clone, Serialize)]
struct Call {
    id: String,
    function: Function,
}

#[derive(Clone, Serialize)]
struct Function {
    index: usize,
    name: String,
    arguments: Map<String, Value>,
}

/// Times are nanoseconds.
#[derive(Serialize)]
struct End {
    done_reason: &'static str,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: u64,
    prompt_eval_duration: u64,
    eval_count: u64,
    eval_duration: u64,
    /// Extra that Ollama does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    reprise: Option<Value>,
}

pub struct OllamaReply {
    model: String,
    shape: LineShape,
    content: String,
    thinking: String,
    calls: Vec<Call>,
    usage: Usage,
    report: TurnReport,
    done_reason: Option<&'static str>,
    is_over: bool,
}

impl OllamaReply {
    pub fn new(model: String, shape: LineShape) -> OllamaReply {
        OllamaReply {
            model,
            shape,
            content: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            usage: Usage::default(),
            report: TurnReport::default(),
            done_reason: None,
            is_over: false,
        }
    }

    /// Returns a line for a client that waits: the reply is still coming.
    pub fn empty_line(&self) -> String {
        self.line(String::new(), String::new(), Vec::new())
    }

    fn response_done(&mut self, response: &Response, lines: &mut Vec<String>) -> Result<(), Failure> {
        if let Some(StatusDetails::Failed(failure)) = &response.details {
            return Err(failure.clone());
        }
        self.usage = response.usage.unwrap_or_default();
        self.done_reason = Some(if response.status == ResponseStatus::Incomplete { "length" } else { "stop" });
        if response.status == ResponseStatus::Cancelled {
            self.finish(lines);
        }
        Ok(())
    }

    pub fn whole(&self) -> String {
        let done_reason = self.done_reason.unwrap_or("stop");
        self.last(done_reason, self.content.clone(), self.thinking.clone(), self.calls.clone())
    }

    /// Returns the answer to a request without words.
    pub fn loaded(model: String, shape: LineShape, unload: bool) -> String {
        let done_reason = if unload { "unload" } else { "load" };
        OllamaReply::new(model, shape).last(done_reason, String::new(), String::new(), Vec::new())
    }

    fn line(&self, content: String, thinking: String, calls: Vec<Call>) -> String {
        line_json(&self.line_of(content, thinking, calls, None))
    }

    fn last(&self, done_reason: &'static str, content: String, thinking: String, calls: Vec<Call>) -> String {
        let TurnReport { queue_ms, prefill_ms, decode_ms, total_ms, .. } = self.report;
        let ns = |ms: f64| (ms * 1e6) as u64;
        let end = End {
            done_reason,
            total_duration: ns(total_ms),
            load_duration: ns(queue_ms),
            prompt_eval_count: self.usage.input_tokens,
            prompt_eval_duration: ns(prefill_ms),
            eval_count: self.usage.output_tokens,
            eval_duration: ns(decode_ms),
            reprise: self.extra(),
        };
        line_json(&self.line_of(content, thinking, calls, Some(end)))
    }

    fn extra(&self) -> Option<Value> {
        let TurnReport { reused_tokens, computed_tokens, reason, notes, .. } = &self.report;
        let notes = notes_view(notes.as_ref()?);
        Some(
            json!({ "reused_tokens": reused_tokens, "computed_tokens": computed_tokens, "reason": reason, "notes": notes }),
        )
    }

    fn line_of(&self, content: String, thinking: String, tool_calls: Vec<Call>, end: Option<End>) -> Line<'_> {
        let created_at = timestamp(runtime::wall_ms() / 1000);
        let (message, response, thinking) = match self.shape {
            LineShape::Chat => (Some(Words { role: "assistant", content, thinking, tool_calls }), None, String::new()),
            LineShape::Generate => (None, Some(content), thinking),
        };
        Line { model: &self.model, created_at, message, response, thinking, done: end.is_some(), end }
    }
}

impl Render for OllamaReply {
    fn add(&mut self, event: &Event, lines: &mut Vec<String>) -> Result<(), Failure> {
        match event {
            Event::ReasoningDelta { text, .. } => {
                self.thinking.push_str(text);
                lines.push(self.line(String::new(), text.clone(), Vec::new()));
            }
            Event::TextDelta { text, .. } => {
                self.content.push_str(text);
                lines.push(self.line(text.clone(), String::new(), Vec::new()));
            }
            // Clients take a call in one piece.
            Event::ReplyDone {
                item: Item { body: ItemBody::FunctionCall { call_id, name, arguments }, .. }, ..
            } => {
                let arguments = serde_json::from_str(arguments).unwrap_or_default();
                let function = Function { index: self.calls.len(), name: name.clone(), arguments };
                let call = Call { id: call_id.clone(), function };
                self.calls.push(call.clone());
                lines.push(self.line(String::new(), String::new(), vec![call]));
            }
            Event::ResponseDone { response } => return self.response_done(response, lines),
            Event::Reported { report, .. } if self.done_reason.is_some() => {
                self.report = report.clone();
                self.finish(lines);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, lines: &mut Vec<String>) {
        if let Some(done_reason) = self.done_reason.filter(|_| !self.is_over) {
            self.is_over = true;
            lines.push(self.last(done_reason, String::new(), String::new(), Vec::new()));
        }
    }

    fn failed(&mut self, failure: &Failure, lines: &mut Vec<String>) {
        self.is_over = true;
        lines.push(json!({ "error": failure.message }).to_string());
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

pub fn timestamp(unix_seconds: i64) -> String {
    jiff::Timestamp::from_second(unix_seconds).map(|time| time.to_string()).unwrap_or_default()
}

fn line_json(line: &Line) -> String {
    serde_json::to_string(line).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::machine::OneShot;
    use session::{Delta, Finish, MaxTokens};

    fn lines(shape: LineShape, deltas: Vec<Delta>) -> (Vec<Value>, OllamaReply) {
        let (mut one_shot, mut reply) =
            (OneShot::new("r".into(), MaxTokens::Unlimited, 1), OllamaReply::new("m".into(), shape));
        let (mut events, mut lines) = (Vec::new(), Vec::new());
        deltas.into_iter().for_each(|delta| one_shot.delta(delta, &mut events));
        events.iter().for_each(|event| reply.add(event, &mut lines).unwrap());
        (lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect(), reply)
    }

    fn done(finish: Finish) -> Delta {
        Delta::Done { finish, usage: None, report: None }
    }

    #[test]
    fn every_line_of_a_chat_has_a_message() {
        let call = Delta::CallStarted { name: "light".into(), call_id: None };
        let arguments = Delta::CallArguments { json: "{\"on\":true}".into(), tokens: 1 };
        let (lines, reply) =
            lines(LineShape::Chat, vec![Delta::text("Hi", 1), call, arguments, done(Finish::ToolCalls)]);
        assert!(lines.iter().all(|line| line["message"]["role"] == "assistant" && line["model"] == "m"), "{lines:?}");
        assert_eq!(lines[0]["message"]["content"], "Hi");
        assert_eq!(lines[1]["message"]["tool_calls"][0]["function"]["arguments"], json!({ "on": true }));
        assert_eq!((&lines[2]["done"], &lines[2]["done_reason"]), (&json!(true), &json!("stop")));
        assert!(reply.is_over());
        let whole: Value = serde_json::from_str(&reply.whole()).unwrap();
        assert_eq!(whole["message"]["content"], "Hi");
        assert_eq!(whole["message"]["tool_calls"][0]["function"]["name"], "light");
    }

    #[test]
    fn generate_has_its_words_outside_of_a_message() {
        let thought = Delta::Reasoning { text: "Hm.".into(), tokens: 1 };
        let (lines, _) = lines(LineShape::Generate, vec![thought, Delta::text("Hi", 1), done(Finish::Length)]);
        assert_eq!((&lines[0]["thinking"], &lines[0]["response"]), (&json!("Hm."), &json!("")));
        assert_eq!(lines[1]["response"], "Hi");
        assert_eq!(lines[2]["done_reason"], "length");
        assert!(lines.iter().all(|line| line.get("message").is_none()));
    }

    #[test]
    fn time_is_written_as_the_standard_has_it() {
        assert_eq!(timestamp(1_795_345_353), "2026-11-22T11:02:33Z");
    }
}
