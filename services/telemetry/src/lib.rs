//! Traces and numbers of turns for an OpenTelemetry collector, off unless `[telemetry] otlp` names one. No words are sent: only
//! names, counts and times.
//!
//! A turn has a span, in the client's trace where the client sent a `traceparent`. Within it lie the spans of the model's
//! answer, of the tools that were called, and of the store. Ended spans wait in a queue with a limit; a thread of its own sends
//! them, and what finds the queue full is given up.

mod answer;
mod names;
mod numbers;
mod sending;
mod trace_parent;
mod turn;

pub use answer::{AnswerFacts, AnswerTrace};
pub use sending::posted;
pub use trace_parent::TraceParent;
pub use turn::{ToolTrace, TurnTrace};

use numbers::Numbers;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider};
use sending::CollectorClient;
use settings::TelemetrySettings;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::runtime::Handle;

// A request's header, and a field of websocket events.
pub const TRACEPARENT: &str = "traceparent";

struct Collector {
    tracer: SdkTracer,
    numbers: Numbers,
}

static COLLECTOR: OnceLock<Collector> = OnceLock::new();

fn collector() -> Option<&'static Collector> {
    COLLECTOR.get()
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no client for telemetry.otlp could be made: {0}")]
    Client(#[from] reqwest::Error),
    #[error("telemetry.otlp cannot be used: {0}")]
    Exporter(#[from] ExporterBuildError),
}

pub struct Sending {
    traces: SdkTracerProvider,
    numbers: SdkMeterProvider,
}

/// Begins to send to the collector that the configuration names. `None`: it names none. Called within the async runtime, once.
pub fn start(settings: &TelemetrySettings, version: &str) -> Result<Option<Sending>, Error> {
    let Some(address) = &settings.otlp else { return Ok(None) };
    let timeout = Duration::from_millis(settings.timeout_ms);
    // Once for the process; an error says that it was done before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(timeout).redirect(reqwest::redirect::Policy::none()).build()?;
    let client = CollectorClient::new(client, Handle::current());
    let resource = Resource::builder()
        .with_attributes([
            KeyValue::new("service.name", settings.service_name.clone()),
            KeyValue::new("service.version", version.to_owned()),
        ])
        .build();

    let spans = SpanExporter::builder().with_http().with_http_client(client.clone());
    let spans = spans.with_endpoint(format!("{address}/v1/traces")).with_timeout(timeout).build()?;
    let waiting = BatchConfigBuilder::default()
        .with_max_queue_size(settings.queue_spans)
        .with_max_export_batch_size(settings.queue_spans.min(BATCH_SPANS))
        .with_scheduled_delay(Duration::from_millis(settings.send_every_ms))
        .build();
    let traces = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.share))))
        .with_resource(resource.clone())
        .with_span_processor(BatchSpanProcessor::builder(spans).with_batch_config(waiting).build())
        .build();

    let numbers = MetricExporter::builder().with_http().with_http_client(client);
    let numbers = numbers.with_endpoint(format!("{address}/v1/metrics")).with_timeout(timeout).build()?;
    let every = Duration::from_secs(settings.numbers_every_s);
    let reader = PeriodicReader::builder(numbers).with_interval(every).build();
    let numbers = SdkMeterProvider::builder().with_resource(resource).with_reader(reader).build();

    let meter = numbers.meter(names::REPRISE);
    let collector = Collector { tracer: traces.tracer(names::REPRISE), numbers: Numbers::new(&meter) };
    let _ = COLLECTOR.set(collector);
    tracing::info!(collector = %address, "traces and numbers of turns are sent to a collector");
    Ok(Some(Sending { traces, numbers }))
}

const BATCH_SPANS: usize = 512;

impl Sending {
    /// Sends what waits, and ends the threads. It gives up after `longest`.
    pub async fn stop(self, longest: Duration) {
        let sent = tokio::task::spawn_blocking(move || {
            let traces = self.traces.shutdown_with_timeout(longest);
            (traces, self.numbers.shutdown_with_timeout(longest))
        });
        match tokio::time::timeout(longest, sent).await {
            Ok(Ok((Ok(()), Ok(())))) => {}
            _ => tracing::warn!("the collector did not take the last traces and numbers in time"),
        }
    }
}
