//! Metrics of models. The door that shows all metrics has their table.

use metrics::{counter, histogram};
use session::{Delta, GenerationPurpose, Priority};

pub fn answered(purpose: GenerationPurpose, priority: Priority, last: &Delta) {
    let priority = priority.into_str();
    let purpose_name = purpose.into_str();
    let outcome = match last {
        Delta::Done { finish, .. } => finish.into_str(),
        Delta::Failed(failure) => failure.code.word(),
        _ => return,
    };
    counter!("reprise_answers_total", "purpose" => purpose_name, "priority" => priority, "outcome" => outcome)
        .increment(1);
    let Delta::Done { usage: Some(usage), report: Some(report), .. } = last else {
        tracing::debug!(purpose = purpose_name, priority, outcome, "an answer failed");
        return;
    };
    tracing::debug!(
        purpose = purpose_name,
        priority,
        outcome,
        reused_tokens = report.reused_tokens,
        computed_tokens = report.computed_tokens,
        reason = report.reason,
        output_tokens = usage.output_tokens,
        drafted_tokens = report.drafted_tokens,
        accepted_tokens = report.accepted_tokens,
        queue_ms = report.queue_ms,
        first_token_ms = report.first_token_ms,
        total_ms = report.total_ms,
        "an answer ended"
    );
    counter!("reprise_prompt_tokens_total", "kind" => "reused").increment(report.reused_tokens);
    counter!("reprise_prompt_tokens_total", "kind" => "computed").increment(report.computed_tokens);
    if purpose != GenerationPurpose::Reply {
        return;
    }
    counter!("reprise_generated_tokens_total").increment(usage.output_tokens);
    let given_up = report.drafted_tokens.saturating_sub(report.accepted_tokens);
    counter!("reprise_drafted_tokens_total", "came" => "yes").increment(report.accepted_tokens);
    counter!("reprise_drafted_tokens_total", "came" => "no").increment(given_up);
    if report.begun_early.is_some() {
        counter!("reprise_replies_begun_early_total").increment(1);
    }
    if let Some(reason) = report.reason {
        counter!("reprise_prompts_total", "reason" => reason).increment(1);
    }
    // A reply without a token has no wait for its first.
    let Some(first_token_ms) = report.first_token_ms else { return };
    let seconds = [
        ("reprise_queue_seconds", report.queue_ms),
        ("reprise_prefill_seconds", report.prefill_ms),
        ("reprise_first_token_seconds", first_token_ms),
        ("reprise_answer_seconds", report.total_ms),
    ];
    for (name, ms) in seconds {
        histogram!(name, "priority" => priority).record(ms / 1e3);
    }
    // Some tokens of an early reply took no time.
    if usage.output_tokens > 1 && report.decode_ms > 0.0 && report.begun_early.is_none() {
        let tokens_per_second = (usage.output_tokens - 1) as f64 * 1e3 / report.decode_ms;
        histogram!("reprise_decode_tokens_per_second").record(tokens_per_second);
    }
}
