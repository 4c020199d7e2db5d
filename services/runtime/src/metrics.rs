//! Counters of sessions. The door that shows them has the table of all metrics.

pub use compaction::RejectionReason;
use metrics::{counter, gauge, histogram};
use std::time::Duration;
use store::Measurement;

/// Counts a smaller view in use: `completed` with a summary, `trimmed` without results of tools, `dropped` without
/// oldest turns.
pub fn compacted(outcome: &'static str, took: Duration, tokens_before: u64, tokens_after: u64) {
    compaction_ended(outcome);
    histogram!("reprise_compaction_seconds").record(took.as_secs_f64());
    counter!("reprise_compaction_tokens_total", "when" => "before").increment(tokens_before);
    counter!("reprise_compaction_tokens_total", "when" => "after").increment(tokens_after);
}

/// Counts the end of an attempt: also `failed`, or `cancelled` because the conversation changed.
pub fn compaction_ended(outcome: &'static str) {
    counter!("reprise_compactions_total", "outcome" => outcome).increment(1);
}

pub fn summary_made(rejected: &[RejectionReason], fell_back: bool) {
    for reason in rejected {
        counter!("reprise_compaction_rejections_total", "reason" => reason.into_str()).increment(1);
    }
    if fell_back {
        counter!("reprise_compaction_fallbacks_total").increment(1);
    }
}

pub fn measured(turn: &Measurement) {
    let (Some(experiment), Some(arm)) = (&turn.experiment, &turn.arm) else { return };
    let labels = [("experiment", experiment.clone()), ("arm", arm.clone())];
    counter!("reprise_arm_turns_total", &labels).increment(1);
    gauge!("reprise_arm_fill_tokens", &labels).set(turn.fill_tokens as f64);
    if let Some(ms) = turn.first_token_ms {
        histogram!("reprise_arm_first_token_seconds", &labels).record(ms / 1e3);
    }
}

pub fn change_not_stored(error: &store::Error) {
    tracing::error!(%error, "a change of the session could not be stored");
    store_failed();
}

pub fn store_failed() {
    counter!("reprise_store_failures_total").increment(1);
}

pub fn unsure_correction() {
    counter!("reprise_unsure_corrections_total").increment(1);
}

pub fn unsure_wish() {
    counter!("reprise_unsure_wishes_total").increment(1);
}

pub fn recalled(found: bool) {
    counter!("reprise_recalls_total", "found" => if found { "yes" } else { "no" }).increment(1);
}
