//! A response that stands in no conversation and is kept nowhere: deltas of the model become the same events.

use crate::vocabulary::{
    Delta, Event, Finish, Item, ItemBody, ItemStatus, MaxTokens, Response, ResponseStatus, Role, StatusDetails,
};

pub struct OneShot {
    response: Response,
    begun: bool,
    /// The item that is being said.
    open: Option<Item>,
}

impl OneShot {
    pub fn new(response_id: String, max_output_tokens: MaxTokens) -> OneShot {
        let response = Response {
            id: response_id,
            status: ResponseStatus::InProgress,
            details: None,
            output: Vec::new(),
            conversation_id: None,
            max_output_tokens,
            usage: None,
            metadata: None,
        };
        OneShot { response, begun: false, open: None }
    }

    /// Appends the events that follow from a delta.
    pub fn delta(&mut self, delta: Delta, out: &mut Vec<Event>) {
        if !self.begun && !matches!(delta, Delta::Failed(_)) {
            self.begun = true;
            out.push(Event::ResponseStarted { response: Box::new(self.response.clone()) });
        }
        let response_id = self.response.id.clone();
        match delta {
            Delta::Prompt { .. } => {}
            Delta::Reasoning { text, .. } => out.push(Event::ReasoningDelta { response_id, text }),
            Delta::Text { text, sentences, logprobs, .. } => {
                if text.is_empty() && sentences.is_empty() {
                    return;
                }
                let item_id = self.message(out);
                let output_index = self.response.output.len();
                if let Some(Item { body: ItemBody::Message { parts, .. }, .. }) = &mut self.open {
                    parts[0].push_str(&text);
                }
                if !text.is_empty() {
                    let (response_id, item_id) = (response_id.clone(), item_id.clone());
                    out.push(Event::TextDelta { response_id, item_id, output_index, text, logprobs });
                }
                for sentence in sentences {
                    let (response_id, item_id) = (response_id.clone(), item_id.clone());
                    out.push(Event::SentenceDone { response_id, item_id, sentence });
                }
            }
            Delta::CallStarted { name, call_id } => {
                self.close(ItemStatus::Completed, out);
                let number = self.response.output.len();
                let call_id = call_id.unwrap_or_else(|| format!("call_{response_id}_{number}"));
                self.begin(ItemBody::FunctionCall { call_id, name, arguments: String::new() }, out);
            }
            Delta::CallArguments { json, .. } => {
                let Some(Item { id, body: ItemBody::FunctionCall { call_id, arguments, .. }, .. }) = &mut self.open
                else {
                    return;
                };
                arguments.push_str(&json);
                let (item_id, call_id, output_index) = (id.clone(), call_id.clone(), self.response.output.len());
                out.push(Event::ArgumentsDelta { response_id, item_id, output_index, call_id, json });
            }
            Delta::Done { finish, usage, report } => {
                let (status, details) = match finish {
                    Finish::Stop | Finish::ToolCalls | Finish::Warm => (ResponseStatus::Completed, None),
                    Finish::Length => (ResponseStatus::Incomplete, Some(StatusDetails::MaxOutputTokens)),
                    Finish::Cancelled => (ResponseStatus::Cancelled, Some(StatusDetails::Cancelled)),
                };
                self.response.usage = usage;
                self.end(status, details, out);
                let report = report.unwrap_or_default();
                out.push(Event::Reported { response_id, report });
            }
            Delta::Failed(failure) => self.end(ResponseStatus::Failed, Some(StatusDetails::Failed(failure)), out),
        }
    }

    /// The id of the open message, which begins if there is none.
    fn message(&mut self, out: &mut Vec<Event>) -> String {
        if !matches!(&self.open, Some(Item { body: ItemBody::Message { .. }, .. })) {
            self.close(ItemStatus::Completed, out);
            self.begin(ItemBody::message(Role::Assistant, ""), out);
        }
        self.open.as_ref().map_or_else(String::new, |item| item.id.clone())
    }

    fn begin(&mut self, body: ItemBody, out: &mut Vec<Event>) {
        let output_index = self.response.output.len();
        let item = Item::new(format!("item_{}_{output_index}", self.response.id), body, ItemStatus::InProgress);
        let response_id = self.response.id.clone();
        out.push(Event::ReplyStarted { response_id, output_index, item: item.clone(), place: None });
        self.open = Some(item);
    }

    fn close(&mut self, status: ItemStatus, out: &mut Vec<Event>) {
        let Some(mut item) = self.open.take() else { return };
        item.status = status;
        let (response_id, output_index) = (self.response.id.clone(), self.response.output.len());
        if let ItemBody::Message { parts, .. } = &item.body {
            let (response_id, item_id, text) = (response_id.clone(), item.id.clone(), parts.concat());
            out.push(Event::TextDone { response_id, item_id, output_index, text });
        }
        out.push(Event::ReplyDone { response_id, output_index, item: item.clone(), place: None });
        self.response.output.push(item);
    }

    fn end(&mut self, status: ResponseStatus, details: Option<StatusDetails>, out: &mut Vec<Event>) {
        let is_whole = status == ResponseStatus::Completed;
        // Half a call must not be made: clients act on a call that is done.
        if !is_whole && matches!(&self.open, Some(Item { body: ItemBody::FunctionCall { .. }, .. })) {
            self.open = None;
        }
        self.close(if is_whole { ItemStatus::Completed } else { ItemStatus::Incomplete }, out);
        (self.response.status, self.response.details) = (status, details);
        out.push(Event::ResponseDone { response: Box::new(self.response.clone()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::{Failure, FailureCode};

    fn events(deltas: impl IntoIterator<Item = Delta>) -> Vec<Event> {
        let (mut one_shot, mut out) = (OneShot::new("r".into(), MaxTokens::Unlimited), Vec::new());
        deltas.into_iter().for_each(|delta| one_shot.delta(delta, &mut out));
        out
    }

    fn done(finish: Finish) -> Delta {
        Delta::Done { finish, usage: None, report: None }
    }

    fn response(events: &[Event]) -> &Response {
        let done = events.iter().find_map(|event| match event {
            Event::ResponseDone { response } => Some(response),
            _ => None,
        });
        done.expect("a response ends")
    }

    #[test]
    fn text_and_calls_become_items() {
        let call = Delta::CallStarted { name: "light".into(), call_id: None };
        let arguments = Delta::CallArguments { json: "{}".into(), tokens: 1 };
        let events = events([Delta::text("On", 1), Delta::text(" it.", 1), call, arguments, done(Finish::ToolCalls)]);
        let output = &response(&events).output;
        assert_eq!(output[0].text(), "On it.");
        let ItemBody::FunctionCall { name, arguments, .. } = &output[1].body else { panic!("{output:?}") };
        assert_eq!((name.as_str(), arguments.as_str()), ("light", "{}"));
        assert!(matches!(events.last(), Some(Event::Reported { .. })));
    }

    #[test]
    fn half_a_call_is_none() {
        let call = Delta::CallStarted { name: "light".into(), call_id: None };
        let events = events([call, done(Finish::Length)]);
        assert!(response(&events).output.is_empty());
        assert!(!events.iter().any(|event| matches!(event, Event::ReplyDone { .. })));
    }

    #[test]
    fn a_failure_before_the_first_word_begins_nothing() {
        let events = events([Delta::Failed(Failure::new(FailureCode::Busy, "busy"))]);
        assert_eq!(events.len(), 1);
        assert_eq!(response(&events).status, ResponseStatus::Failed);
    }
}
