//! A conversation's turn in a trace: from the request to the moment in which all of it is stored.

use crate::{TraceParent, collector, names};
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::Span;
use session::ResponseStatus;
use std::time::SystemTime;

pub struct TurnTrace {
    span: Span,
}

impl TurnTrace {
    // `None`: there is no collector.
    pub fn begin(parent: Option<TraceParent>, session: &str, response: &str, model: &str) -> Option<TurnTrace> {
        let collector = collector()?;
        let span = SpanBuilder::from_name(format!("{} {}", names::TURN, names::REPRISE))
            .with_kind(SpanKind::Server)
            .with_attributes([
                KeyValue::new(names::OPERATION, names::TURN),
                KeyValue::new(names::PROVIDER, names::REPRISE),
                KeyValue::new(names::AGENT, names::REPRISE),
                KeyValue::new(names::CONVERSATION, session.to_owned()),
                KeyValue::new(names::RESPONSE, response.to_owned()),
                KeyValue::new(names::MODEL, model.to_owned()),
            ]);
        let parent = parent.map_or_else(Context::new, TraceParent::context);
        Some(TurnTrace { span: collector.tracer.build_with_context(span, &parent) })
    }

    pub fn place(&self) -> TraceParent {
        TraceParent::of(self.span.span_context())
    }

    /// `given`: when the store was given the turn's end. `error`: why it did not take it.
    pub fn stored(mut self, status: ResponseStatus, given: SystemTime, error: Option<&'static str>) {
        let Some(collector) = collector() else { return };
        let now = SystemTime::now();
        let store = SpanBuilder::from_name(names::STORE).with_kind(SpanKind::Internal).with_start_time(given);
        let mut store = collector.tracer.build_with_context(store, &self.place().context());
        for span in [&mut store, &mut self.span] {
            if let Some(error) = error {
                span.set_attribute(KeyValue::new(names::ERROR, error));
                span.set_status(Status::error(error));
            }
        }
        store.end_with_timestamp(now);
        self.span.set_attribute(KeyValue::new(names::STATUS, status.into_str()));
        self.span.end_with_timestamp(now);
    }
}

#[derive(Clone, Debug)]
pub struct ToolTrace {
    pub turn: TraceParent,
    pub name: String,
    pub call_id: Option<String>,
    pub began: SystemTime,
}

impl ToolTrace {
    pub fn end(self) {
        let Some(collector) = collector() else { return };
        let kind = if self.call_id.is_some() { "function" } else { "datastore" };
        let mut attributes = vec![
            KeyValue::new(names::OPERATION, names::CALL),
            KeyValue::new(names::TOOL, self.name.clone()),
            KeyValue::new(names::TOOL_TYPE, kind),
        ];
        attributes.extend(self.call_id.map(|id| KeyValue::new(names::TOOL_CALL, id)));
        let span = SpanBuilder::from_name(format!("{} {}", names::CALL, self.name))
            .with_kind(SpanKind::Internal)
            .with_start_time(self.began)
            .with_attributes(attributes);
        collector.tracer.build_with_context(span, &self.turn.context()).end();
    }
}
