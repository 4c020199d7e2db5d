//! A model's answer in a trace: its span, and within it what it waited for.

use crate::{TraceParent, collector, names};
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::Span;
use session::{Delta, Priority, TurnReport};
use std::time::{Duration, SystemTime};

#[derive(Clone, Debug)]
pub struct AnswerFacts {
    pub model: String,
    pub priority: Priority,
    pub most_tokens: Option<u32>,
}

impl AnswerFacts {
    pub(crate) fn attributes(&self) -> Vec<KeyValue> {
        vec![
            KeyValue::new(names::OPERATION, names::CHAT),
            KeyValue::new(names::PROVIDER, names::REPRISE),
            KeyValue::new(names::MODEL, self.model.clone()),
            KeyValue::new(names::PRIORITY, self.priority.into_str()),
        ]
    }
}

pub struct AnswerTrace {
    facts: AnswerFacts,
    began: SystemTime,
    span: Span,
}

impl AnswerTrace {
    // `None`: there is no collector.
    pub fn begin(parent: Option<TraceParent>, facts: AnswerFacts) -> Option<AnswerTrace> {
        let collector = collector()?;
        let began = SystemTime::now();
        let mut attributes = facts.attributes();
        attributes.extend(facts.most_tokens.map(|most| KeyValue::new(names::MOST_TOKENS, i64::from(most))));
        let span = SpanBuilder::from_name(format!("{} {}", names::CHAT, facts.model))
            .with_kind(SpanKind::Server)
            .with_start_time(began)
            .with_attributes(attributes);
        let parent = parent.map_or_else(Context::new, TraceParent::context);
        Some(AnswerTrace { facts, began, span: collector.tracer.build_with_context(span, &parent) })
    }

    pub fn place(&self) -> TraceParent {
        TraceParent::of(self.span.span_context())
    }

    pub fn end(mut self, last: &Delta) {
        let Some(collector) = collector() else { return };
        let ended = SystemTime::now();
        let took = ended.duration_since(self.began).unwrap_or_default().as_secs_f64();
        match last {
            Delta::Done { finish, usage, report } => {
                let reason = Value::Array(Array::String(vec![StringValue::from(finish.into_str())]));
                self.span.set_attribute(KeyValue::new(names::FINISH, reason));
                let done = usage.as_ref().zip(report.as_ref());
                if let Some((usage, report)) = done {
                    self.span.set_attributes([
                        KeyValue::new(names::INPUT_TOKENS, count(usage.input_tokens)),
                        KeyValue::new(names::OUTPUT_TOKENS, count(usage.output_tokens)),
                        KeyValue::new(names::REUSED_TOKENS, count(report.reused_tokens)),
                    ]);
                    self.span.set_attributes(report.reason.map(|why| KeyValue::new(names::COMPUTED_REASON, why)));
                    self.parts(report);
                }
                collector.numbers.answered(&self.facts, took, done, None);
            }
            Delta::Failed(failure) => {
                let code = failure.code.word();
                self.span.set_attribute(KeyValue::new(names::ERROR, code));
                // The message of a failure may quote what was said.
                self.span.set_status(Status::error(code));
                collector.numbers.answered(&self.facts, took, None, Some(code));
            }
            _ => return,
        }
        self.span.end_with_timestamp(ended);
    }

    fn parts(&self, report: &TurnReport) {
        let Some(collector) = collector() else { return };
        let within = Context::new().with_remote_span_context(self.span.span_context().clone());
        for (name, between) in parts_ms(report) {
            let Some((from, to)) = between else { continue };
            let [from, to] = [from, to].map(|ms| self.began + after(ms));
            let span = SpanBuilder::from_name(name).with_kind(SpanKind::Internal).with_start_time(from);
            collector.tracer.build_with_context(span, &within).end_with_timestamp(to);
        }
    }
}

// Where each part begins and ends, counted from the request.
fn parts_ms(report: &TurnReport) -> [(&'static str, Option<(f64, f64)>); 4] {
    let read_ms = report.queue_ms + report.prefill_ms;
    let first_ms = report.first_token_ms;
    [
        (names::QUEUE, Some((0.0, report.queue_ms))),
        (names::PREFILL, Some((report.queue_ms, read_ms))),
        // Each time is rounded by itself, so the sum can lie behind a first token that came at once.
        (names::FIRST_TOKEN, first_ms.map(|first_ms| (read_ms.min(first_ms), first_ms))),
        (names::DECODE, first_ms.map(|first_ms| (first_ms, first_ms + report.decode_ms))),
    ]
}

pub(crate) fn count(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

fn after(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_token_that_rounding_puts_before_the_prefills_end_has_its_part() {
        let report = TurnReport {
            queue_ms: 8.1,
            prefill_ms: 1.3,
            first_token_ms: Some(9.3),
            decode_ms: 18.0,
            ..TurnReport::default()
        };
        let of = |name| parts_ms(&report).into_iter().find(|(part, _)| *part == name).unwrap().1.unwrap();
        assert_eq!(of(names::FIRST_TOKEN), (9.3, 9.3));
        assert_eq!(of(names::DECODE).0, 9.3);
    }
}
