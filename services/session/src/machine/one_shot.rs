//! A response without a conversation or a store: deltas become the same events.

use super::conversation::Conversation;
use super::input::{ConnId, GenerationId};
use super::ledger::Ledger;
use super::outbox::Outbox;
use super::output::Output;
use super::reply::Reply;
use crate::ids::Ids;
use crate::vocabulary::{Delta, Event, MaxTokens, Response, ResponseStatus, TurnReport};

pub struct OneShot {
    reply: Reply,
    ledger: Ledger,
    begun: bool,
}

impl OneShot {
    pub fn new(response_id: String, max_output_tokens: MaxTokens, id_seed: u64) -> OneShot {
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
        let conversation = Conversation::default();
        let mut ledger = Ledger { ids: Ids::new(id_seed), conversation, outbox: Outbox::default(), added_bytes: 0 };
        ledger.outbox.attach(ConnId(0));
        OneShot { reply: Reply::new(GenerationId(0), response, None, 0), ledger, begun: false }
    }

    pub fn delta(&mut self, delta: Delta, out: &mut Vec<Event>) {
        let OneShot { reply, ledger, begun } = self;
        // A failure before the first word sends no `ResponseStarted`.
        if !*begun && !matches!(delta, Delta::Failed(_)) {
            *begun = true;
            reply.start(ledger, 0);
        }
        match delta {
            Delta::Done { finish, usage, report } => {
                reply.usage = usage.unwrap_or(reply.usage);
                let TurnReport { expects_answer, .. } = reply.conclude(finish.ending(), ledger, 0);
                let response_id = reply.response.id.clone();
                let report = TurnReport { expects_answer, ..report.unwrap_or_default() };
                ledger.outbox.send(Event::Reported { response_id, report });
            }
            Delta::Failed(failure) => drop(reply.conclude(failure.ending(), ledger, 0)),
            delta => reply.delta(delta, ledger, 0),
        }
        // There is no store to wait for.
        ledger.outbox.operations.clear();
        let mut outputs = Vec::new();
        ledger.outbox.flush(&mut outputs);
        out.extend(outputs.into_iter().filter_map(|output| match output {
            Output::Send { event, .. } => Some(event),
            _ => None,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::{Failure, FailureCode, Finish, ItemBody};

    fn events(deltas: impl IntoIterator<Item = Delta>) -> Vec<Event> {
        let (mut one_shot, mut out) = (OneShot::new("r".into(), MaxTokens::Unlimited, 7), Vec::new());
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
