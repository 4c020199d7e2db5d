//! Numbers about answers: histograms whose names are OpenTelemetry's.

use crate::answer::AnswerFacts;
use crate::names;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};
use session::{TurnReport, Usage};

pub struct Numbers {
    answer_seconds: Histogram<f64>,
    first_token_seconds: Histogram<f64>,
    token_seconds: Histogram<f64>,
    tokens: Histogram<u64>,
}

// As OpenTelemetry recommends.
const ANSWER_BOUNDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const FIRST_TOKEN_BOUNDS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const TOKEN_BOUNDS: [f64; 12] = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0];
// Powers of four.
const TOKENS_BOUNDS: i32 = 14;

impl Numbers {
    pub fn new(meter: &Meter) -> Numbers {
        let seconds =
            |name, bounds: &[f64]| meter.f64_histogram(name).with_unit("s").with_boundaries(bounds.to_vec()).build();
        let tokens = meter.u64_histogram(names::TOKENS).with_unit("{token}");
        let powers = (0..TOKENS_BOUNDS).map(|power| 4_f64.powi(power));
        Numbers {
            answer_seconds: seconds(names::ANSWER_SECONDS, &ANSWER_BOUNDS),
            first_token_seconds: seconds(names::FIRST_TOKEN_SECONDS, &FIRST_TOKEN_BOUNDS),
            token_seconds: seconds(names::TOKEN_SECONDS, &TOKEN_BOUNDS),
            tokens: tokens.with_boundaries(powers.collect()).build(),
        }
    }

    pub fn answered(
        &self,
        facts: &AnswerFacts,
        seconds: f64,
        done: Option<(&Usage, &TurnReport)>,
        error: Option<&str>,
    ) {
        let mut of = facts.attributes();
        if let Some(error) = error {
            of.push(KeyValue::new(names::ERROR, error.to_owned()));
        }
        self.answer_seconds.record(seconds, &of);
        let Some((usage, report)) = done else { return };
        let Some(first_token_ms) = report.first_token_ms else { return };
        self.first_token_seconds.record(first_token_ms / 1e3, &of);
        if usage.output_tokens > 1 && report.decode_ms > 0.0 && report.begun_early.is_none() {
            self.token_seconds.record(report.decode_ms / 1e3 / (usage.output_tokens - 1) as f64, &of);
        }
        for (kind, tokens) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
            let mut of = of.clone();
            of.push(KeyValue::new(names::TOKEN_TYPE, kind));
            self.tokens.record(tokens, &of);
        }
    }
}
