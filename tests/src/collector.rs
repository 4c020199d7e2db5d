//! A stand-in for an OpenTelemetry collector that speaks OTLP over HTTP.

use crate::client::PATIENCE;
use crate::http::Head;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub struct StandInCollector {
    /// Value for `telemetry.otlp`.
    pub url: String,
    taken: Arc<(Mutex<Taken>, Condvar)>,
}

#[derive(Clone, Debug, Default)]
pub struct Taken {
    pub spans: Vec<TakenSpan>,
    pub numbers: Vec<TakenNumber>,
    /// All bodies, as they came.
    pub bytes: Vec<u8>,
    pub keys: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct TakenSpan {
    pub name: String,
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub from_ns: u64,
    pub to_ns: u64,
    pub attributes: BTreeMap<String, String>,
    pub is_error: bool,
}

#[derive(Clone, Debug)]
pub struct TakenNumber {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    pub count: u64,
    pub sum: f64,
}

impl StandInCollector {
    pub fn start() -> StandInCollector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let taken = Arc::<(Mutex<Taken>, Condvar)>::default();
        let into = taken.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                take(stream, &into).expect("a post of OTLP");
            }
        });
        StandInCollector { url, taken }
    }

    /// Waits until this holds of all that came.
    pub fn until(&self, holds: impl Fn(&Taken) -> bool) -> Taken {
        let by = Instant::now() + PATIENCE;
        let mut taken = lock(&self.taken.0);
        while !holds(&taken) {
            let left = by.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it did not come: {:#?}", taken.spans);
            taken = self.taken.1.wait_timeout(taken, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.clone()
    }
}

impl Taken {
    pub fn named(&self, name: &str) -> Vec<&TakenSpan> {
        self.spans.iter().filter(|span| span.name == name).collect()
    }

    pub fn number(&self, name: &str, with: &[(&str, &str)]) -> Option<&TakenNumber> {
        let has = |number: &&TakenNumber| {
            with.iter().all(|(key, value)| number.attributes.get(*key).is_some_and(|other| other == value))
        };
        // Each post tells all up to then.
        self.numbers.iter().filter(|number| number.name == name).rfind(has)
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(stream: TcpStream, into: &(Mutex<Taken>, Condvar)) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut line) = (Head::default(), String::new());
    while reader.read_line(&mut line)? > 0 && head.take(&line) {
        line.clear();
    }
    let length = head.header("content-length").map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    assert_eq!(head.header("content-type"), Some("application/x-protobuf"));
    let mut taken = lock(&into.0);
    match head.path.as_str() {
        "/v1/traces" => taken.spans.extend(spans(&body)),
        "/v1/metrics" => taken.numbers.extend(numbers(&body)),
        path => panic!("a collector has no {path}"),
    }
    taken.keys.extend(head.header("x-key").map(str::to_owned));
    taken.bytes.extend(body);
    drop(taken);
    into.1.notify_all();
    reader.into_inner().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

fn spans(body: &[u8]) -> Vec<TakenSpan> {
    let post = ExportTraceServiceRequest::decode(body).expect("spans in protobuf");
    let scopes = post.resource_spans.into_iter().flat_map(|of| of.scope_spans);
    let span = |span: opentelemetry_proto::tonic::trace::v1::Span| TakenSpan {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        from_ns: span.start_time_unix_nano,
        to_ns: span.end_time_unix_nano,
        attributes: attributes(span.attributes),
        is_error: span.status.is_some_and(|status| status.code == 2),
        name: span.name,
    };
    scopes.flat_map(|scope| scope.spans).map(span).collect()
}

fn numbers(body: &[u8]) -> Vec<TakenNumber> {
    let post = ExportMetricsServiceRequest::decode(body).expect("numbers in protobuf");
    let scopes = post.resource_metrics.into_iter().flat_map(|of| of.scope_metrics);
    let mut numbers = Vec::new();
    for metric in scopes.flat_map(|scope| scope.metrics) {
        let Some(Data::Histogram(histogram)) = metric.data else { continue };
        numbers.extend(histogram.data_points.into_iter().map(|point| TakenNumber {
            name: metric.name.clone(),
            attributes: attributes(point.attributes),
            count: point.count,
            sum: point.sum.unwrap_or_default(),
        }));
    }
    numbers
}

fn attributes(list: Vec<KeyValue>) -> BTreeMap<String, String> {
    list.into_iter().map(|KeyValue { key, value, .. }| (key, value.map(text).unwrap_or_default())).collect()
}

fn text(value: AnyValue) -> String {
    match value.value {
        Some(Any::StringValue(text)) => text,
        Some(Any::IntValue(number)) => number.to_string(),
        Some(Any::ArrayValue(list)) => list.values.into_iter().map(text).collect::<Vec<_>>().join(","),
        other => panic!("no attribute is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
