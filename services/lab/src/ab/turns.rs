//! Converts the store's measurements to turns of a comparison.

use experiment::Metric;
use std::collections::BTreeMap;
use store::Measurement;

pub fn values(turn: &Measurement) -> BTreeMap<Metric, f64> {
    let yes = |is: bool| Some(f64::from(u8::from(is)));
    let decoded = turn.tokens_out.saturating_sub(1);
    let speed = (decoded > 0 && turn.decode_ms > 0.0).then(|| decoded as f64 * 1e3 / turn.decode_ms);
    let bytes = |kinds: &[&str]| {
        let found: Vec<f64> = kinds.iter().filter_map(|kind| turn.memory.get(*kind)?.as_f64()).collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>())
    };
    let values = [
        (Metric::FirstTokenMs, turn.first_token_ms),
        (Metric::FirstTokenP95Ms, turn.first_token_ms),
        (Metric::FirstSentenceMs, turn.first_sentence_ms),
        (Metric::TotalMs, Some(turn.total_ms)),
        (Metric::DecodeTokensPerSecond, speed),
        (Metric::TokensIn, Some(turn.tokens_in as f64)),
        (Metric::TokensOut, Some(turn.tokens_out as f64)),
        (Metric::FillShare, (turn.ctx_size > 0).then(|| turn.fill_tokens as f64 / turn.ctx_size as f64)),
        (Metric::ReusedTokens, Some(turn.reused_tokens as f64)),
        (Metric::ComputedTokens, Some(turn.computed_tokens as f64)),
        (Metric::Compactions, Some(turn.compactions as f64)),
        (Metric::Drops, Some(turn.drops as f64)),
        (Metric::BargeIns, yes(turn.barged_in)),
        (Metric::Regenerations, yes(turn.regenerated)),
        (Metric::ThumbsUp, turn.feedback.filter(|thumb| *thumb != 0).and_then(|thumb| yes(thumb > 0))),
        (Metric::SessionBytes, bytes(&["pages", "snapshots", "recurrence_logs", "trails", "live"])),
        (Metric::GpuBytes, bytes(&["gpu_process"]).or_else(|| bytes(&["gpu_used"]))),
    ];
    values.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    pub fn measurement(turn: u64) -> Measurement {
        serde_json::from_value(json!({
            "turn": turn, "response": format!("resp_{turn}"), "experiment": "windows", "arm": "small", "preset": "small",
            "ctx_size": 1000, "tokens_in": 400, "tokens_out": 21, "fill_tokens": 421, "reused_tokens": 390,
            "computed_tokens": 10, "computed_reason": "new_text", "queue_ms": 1.0, "prefill_ms": 30.0,
            "first_token_ms": 32.0, "first_sentence_ms": 90.0, "total_ms": 432.0, "decode_ms": 400.0, "compactions": 1,
            "drops": 0, "barged_in": true, "regenerated": false, "feedback": null,
            "memory": {"pages": 3000, "snapshots": 500, "recurrence_logs": 20, "live": 100, "gpu_used": 7}, "created_at_ms": 1,
        }))
        .unwrap()
    }

    #[test]
    fn every_value_is_what_the_store_has() {
        let found = values(&measurement(0));
        for (metric, value) in [
            (Metric::FirstTokenMs, 32.0),
            (Metric::DecodeTokensPerSecond, 50.0),
            (Metric::FillShare, 0.421),
            (Metric::BargeIns, 1.0),
            (Metric::Regenerations, 0.0),
            (Metric::SessionBytes, 3620.0),
            (Metric::GpuBytes, 7.0),
        ] {
            assert_eq!(found.get(&metric), Some(&value), "{metric:?}");
        }
        assert!(!found.contains_key(&Metric::ThumbsUp));
        let silent = Measurement {
            first_token_ms: None,
            tokens_out: 0,
            decode_ms: 0.0,
            feedback: Some(-1),
            memory: json!({}),
            ..measurement(1)
        };
        let found = values(&silent);
        assert_eq!(found.get(&Metric::ThumbsUp), Some(&0.0));
        for metric in [Metric::FirstTokenMs, Metric::DecodeTokensPerSecond, Metric::SessionBytes, Metric::GpuBytes] {
            assert!(!found.contains_key(&metric), "{metric:?}");
        }
    }
}
