//! The service in numbers, for `/metrics`. Every name ends in its unit, or in `_total` for what is counted.
//!
//! `purpose` is `reply`, `early_reply`, `warm_partial` or `warm_history`; `priority` is `talk`, `speculate` or `background`; `outcome` is
//! how it finished (`stop`, `tool_calls`, `length`, `cancelled`, `held`, `warm`) or the code of its failure; `reason` is
//! `cold`, `new_text`, `edited`, `evicted` or `resumed`, of a rejection as the `compaction` crate names it; a compaction is
//! `completed`, `trimmed`, `dropped`, `failed` or `cancelled`. No label holds what people say, or a user's name.

use MetricKind::{Counter, Gauge, Histogram};
use Unit::{Bytes, Count, CountPerSecond, Seconds};
use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use model::ModelStatus;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Collector of the numbers. Empty until `collect`, and in commands that serve no clients.
static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Interval at which samples of histograms are merged.
const UPKEEP: Duration = Duration::from_secs(5);
const SECONDS: [f64; 15] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 15.0, 60.0];
const TOKENS_PER_SECOND: [f64; 12] = [1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0];

#[derive(Clone, Copy)]
enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// Kind, name, labels, unit, meaning.
const TABLE: &[(MetricKind, &str, &str, Unit, &str)] = &[
    (Counter, "reprise_answers_total", "purpose, priority, outcome", Count, "answers that ended"),
    (Counter, "reprise_prompt_tokens_total", "kind", Count, "tokens of prompts, reused or computed"),
    (Counter, "reprise_prompts_total", "reason", Count, "replies by why a part of their prompt had to be computed"),
    (Counter, "reprise_replies_begun_early_total", "", Count, "replies that were begun before they were asked for"),
    (Counter, "reprise_generated_tokens_total", "", Count, "tokens of replies"),
    (Counter, "reprise_drafted_tokens_total", "came", Count, "tokens of replies that were computed in case they come"),
    (Histogram, "reprise_queue_seconds", "priority", Seconds, "from the request to the begin of the work"),
    (Histogram, "reprise_prefill_seconds", "priority", Seconds, "from the begin of the work to the first token"),
    (Histogram, "reprise_first_token_seconds", "priority", Seconds, "from the request to the first token: the wait"),
    (Histogram, "reprise_answer_seconds", "priority", Seconds, "from the request to the end of the reply"),
    (Histogram, "reprise_decode_tokens_per_second", "", CountPerSecond, "speed of replies behind their first token"),
    (Counter, "reprise_compactions_total", "outcome", Count, "how attempts to keep a conversation in its window ended"),
    (Histogram, "reprise_compaction_seconds", "", Seconds, "from the look at a conversation to the swap"),
    (Counter, "reprise_compaction_tokens_total", "when", Count, "tokens of compacted prompts, before and after"),
    (Counter, "reprise_compaction_rejections_total", "reason", Count, "summaries of the model that did not count"),
    (Counter, "reprise_compaction_fallbacks_total", "", Count, "summaries put together without the model"),
    (Counter, "reprise_unsure_corrections_total", "", Count, "corrections that may mean two facts: both are kept"),
    (Counter, "reprise_unsure_wishes_total", "", Count, "wishes to forget that may mean two facts: both are kept"),
    (Counter, "reprise_recalls_total", "found", Count, "searches of the past that the model made"),
    (Counter, "reprise_store_failures_total", "", Count, "what was said or was to be said, and could not be kept"),
    (Counter, "reprise_telemetry_posts_total", "taken", Count, "posts to the collector of telemetry.otlp"),
    (Counter, "reprise_http_requests_total", "method, route, status", Count, "requests, websockets when they begin"),
    (Histogram, "reprise_http_request_seconds", "method, route", Seconds, "to the head of the response"),
    (Counter, "reprise_wyoming_events_total", "event", Count, "events of Wyoming clients"),
    (Counter, "reprise_wyoming_turns_total", "outcome", Count, "what became of what Wyoming clients said"),
    (Counter, "reprise_arm_turns_total", "experiment, arm", Count, "turns of sessions that are in an experiment"),
    (
        Histogram,
        "reprise_arm_first_token_seconds",
        "experiment, arm",
        Seconds,
        "from response.create to the first word",
    ),
    (Gauge, "reprise_arm_fill_tokens", "experiment, arm", Count, "tokens in the window after the newest turn"),
    (Gauge, "reprise_connections", "", Count, "connections now"),
    (Gauge, "reprise_sessions_in_memory", "", Count, "live sessions now"),
    (Gauge, "reprise_engine_ready", "", Count, "1: the model can answer"),
    (Counter, "reprise_engine_restarts_total", "", Count, "how often the engine had to be started again"),
    (Gauge, "reprise_engine_requests", "priority", Count, "requests that are not done"),
    (Gauge, "reprise_engine_memory_bytes", "kind", Bytes, "what the engine holds of conversations"),
    (Gauge, "reprise_engine_states", "tier", Count, "pasts that a turn can go on from, in memory and on disk"),
    (Gauge, "reprise_engine_state_bytes", "tier", Bytes, "what they take"),
];

/// Collects from now on, once for the process. Within a tokio runtime.
pub fn collect() {
    HANDLE.get_or_init(|| {
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("tokens_per_second".into()), &TOKENS_PER_SECOND);
        let builder =
            builder.and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS));
        // Only an empty list of buckets is refused.
        let recorder = builder.unwrap_or_default().build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("other code in this process collects the metrics already");
        }
        describe();
        // A first failure is a rise only from a number that was there before, and alerts look for rises.
        counter!("reprise_store_failures_total").increment(0);
        counter!("reprise_compactions_total", "outcome" => "failed").increment(0);
        let upkeep = handle.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                upkeep.run_upkeep();
            }
        });
        handle
    });
}

pub struct Now {
    pub status: ModelStatus,
    pub connections: usize,
    pub sessions_in_memory: usize,
}

pub fn render(now: &Now) -> String {
    let Some(handle) = HANDLE.get() else { return String::new() };
    gauge!("reprise_connections").set(now.connections as f64);
    gauge!("reprise_sessions_in_memory").set(now.sessions_in_memory as f64);
    gauge!("reprise_engine_ready").set(if now.status.ready { 1.0 } else { 0.0 });
    counter!("reprise_engine_restarts_total").absolute(now.status.restarts);
    let load = &now.status.load;
    for (priority, count) in [("talk", load.talk), ("speculate", load.speculate), ("background", load.background)] {
        gauge!("reprise_engine_requests", "priority" => priority).set(count as f64);
    }
    for (kind, bytes) in &now.status.memory_bytes {
        gauge!("reprise_engine_memory_bytes", "kind" => *kind).set(*bytes as f64);
    }
    for (tier, kept) in [("memory", now.status.in_memory), ("disk", now.status.on_disk)] {
        gauge!("reprise_engine_states", "tier" => tier).set(kept.states as f64);
        gauge!("reprise_engine_state_bytes", "tier" => tier).set(kept.bytes as f64);
    }
    handle.render()
}

/// Around every route: what a client asked for, and how long the head of the answer took.
pub async fn watch(request: Request, next: Next) -> Response {
    // A client may invent methods, and each would be a series.
    let method = match *request.method() {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    };
    // The pattern, not the path: ids would make a series each.
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = matched.unwrap_or_else(|| "none".to_owned());
    let begin = Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16().to_string();
    let labels = [("method", method.to_owned()), ("route", route.clone()), ("status", status)];
    counter!("reprise_http_requests_total", &labels).increment(1);
    let labels = [("method", method.to_owned()), ("route", route)];
    histogram!("reprise_http_request_seconds", &labels).record(begin.elapsed().as_secs_f64());
    response
}

fn describe() {
    for &(kind, name, _, unit, meaning) in TABLE {
        match kind {
            Counter => describe_counter!(name, unit, meaning),
            Gauge => describe_gauge!(name, unit, meaning),
            Histogram => describe_histogram!(name, unit, meaning),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ModelLoad;
    use model::metrics::answered;
    use runtime::metrics::{
        RejectionReason, compacted, measured, recalled, store_failed, summary_made, unsure_correction, unsure_wish,
    };
    use serde_json::json;
    use session::GenerationPurpose;
    use session::{Delta, Failure, FailureCode, Finish, Priority, TurnReport, Usage};
    use std::collections::BTreeSet;

    fn rendered() -> String {
        let load = ModelLoad { talk: 2, ..ModelLoad::default() };
        let status = ModelStatus { ready: true, memory_bytes: vec![("pages", 4096)], load, ..ModelStatus::default() };
        render(&Now { status, connections: 3, sessions_in_memory: 1 })
    }

    fn record() {
        collect();
        telemetry::posted(true);
        let usage = Usage { input_tokens: 100, cached_tokens: 80, output_tokens: 11, reasoning_tokens: 0 };
        let report = TurnReport {
            reused_tokens: 80,
            computed_tokens: 20,
            reason: Some("evicted"),
            queue_ms: 1.0,
            prefill_ms: 200.0,
            first_token_ms: Some(201.0),
            decode_ms: 1000.0,
            total_ms: 1201.0,
            ..TurnReport::default()
        };
        let early = TurnReport { begun_early: Some(4), ..report.clone() };
        for report in [report, early] {
            let last = Delta::Done { finish: Finish::Length, usage: Some(usage), report: Some(report) };
            answered(GenerationPurpose::Reply, Priority::Talk, &last);
        }
        let turn = json!({
            "turn": 1, "response": "resp_1", "experiment": "windows", "arm": "large", "preset": "large", "ctx_size": 1000,
            "tokens_in": 1, "tokens_out": 1, "fill_tokens": 7, "reused_tokens": 0, "computed_tokens": 1,
            "computed_reason": null, "queue_ms": 0.0, "prefill_ms": 0.0, "first_token_ms": 201.0,
            "first_sentence_ms": null, "total_ms": 0.0, "decode_ms": 0.0, "compactions": 0, "drops": 0,
            "barged_in": false, "regenerated": false, "feedback": null, "memory": {}, "created_at_ms": 0,
        });
        measured(&serde_json::from_value(turn).unwrap());
        let failure = Failure::new(FailureCode::Busy, "x");
        answered(GenerationPurpose::WarmPartial, Priority::Speculate, &Delta::Failed(failure));
        compacted("completed", Duration::from_millis(300), 900, 400);
        summary_made(&[RejectionReason::Empty], true);
        recalled(true);
        unsure_correction();
        unsure_wish();
        store_failed();
    }

    #[tokio::test]
    async fn an_answer_is_counted_and_its_times_fall_into_buckets() {
        record();
        let text = rendered();
        let expected = [
            r#"reprise_answers_total{purpose="warm_partial",priority="speculate",outcome="busy"}"#,
            r#"reprise_prompts_total{reason="evicted"}"#,
            r#"reprise_first_token_seconds_bucket{priority="talk",le="0.2"}"#,
            r#"reprise_decode_tokens_per_second_bucket{le="12"}"#,
            r#"reprise_engine_memory_bytes{kind="pages"} 4096"#,
            r#"reprise_engine_requests{priority="talk"} 2"#,
            r#"reprise_arm_turns_total{experiment="windows",arm="large"}"#,
            r#"reprise_arm_fill_tokens{experiment="windows",arm="large"} 7"#,
            // What alerts look at is there before it happens.
            r#"reprise_compactions_total{outcome="failed"} 0"#,
            "reprise_store_failures_total",
            "reprise_connections 3",
            "reprise_engine_ready 1",
        ];
        for line in expected {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    /// The table above, what is described, and what is told are the same names.
    #[tokio::test]
    async fn every_name_is_in_the_table_and_says_its_unit() {
        record();
        let table: BTreeSet<&str> = TABLE.iter().map(|row| row.1).collect();
        let text = rendered();
        let told: BTreeSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let described: BTreeSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()).collect();
        let missing: Vec<_> = told.difference(&table).chain(told.difference(&described)).collect();
        assert!(missing.is_empty(), "{missing:?} are told, but not in the table or not described");
        // What only a server counts is told in its own tests.
        let is_a_servers = |name: &str| name.contains("_http_") || name.contains("_wyoming_");
        let untold: Vec<_> = table.difference(&told).filter(|name| !is_a_servers(name)).collect();
        assert!(untold.is_empty(), "{untold:?} are in the table, and /metrics has none of them");
        let units = ["_total", "_seconds", "_bytes", "_tokens", "_per_second"];
        let now = [
            "reprise_connections",
            "reprise_sessions_in_memory",
            "reprise_engine_ready",
            "reprise_engine_requests",
            "reprise_engine_states",
        ];
        for name in &table {
            assert!(units.iter().any(|unit| name.ends_with(unit)) || now.contains(name), "{name} has no unit");
        }
    }
}
