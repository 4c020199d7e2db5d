//! Cost of each turn of a session, for the experiment and the user's statistics.

use crate::metrics;
use model::Gpu;
use serde_json::{Map, Value, json};
use session::machine::StoreOp;
use session::{Compaction, CompactionStage, Event, ResponseStatus, TurnReport, Usage};
use settings::Preset;
use std::collections::VecDeque;
use std::sync::Arc;
use store::Measurement;
use tracing::Span;

pub struct TurnLog {
    preset: Arc<Preset>,
    arm: Option<(String, String)>,
    gpu: Option<Arc<Gpu>>,
    turns: u64,
    /// Responses of the conversation without a report, and the limit of their number.
    responses: VecDeque<OpenTurn>,
    most_responses: usize,
    spans: VecDeque<(String, Span)>,
    fill_tokens: u64,
    /// Tokens that warm-ups read since the last measured turn.
    warmed_tokens: u64,
    answered: Option<Option<String>>,
    /// Swaps since the last measured turn, with a summary or without one.
    compactions: u64,
    drops: u64,
}

#[derive(Default)]
struct OpenTurn {
    response_id: String,
    items: Vec<String>,
    regenerated: bool,
    barged_in: bool,
    usage: Option<Usage>,
}

impl TurnLog {
    pub fn new(
        preset: Arc<Preset>,
        arm: Option<(String, String)>,
        gpu: Option<Arc<Gpu>>,
        turns: u64,
        most_responses: usize,
    ) -> TurnLog {
        let (responses, spans, answered) = (VecDeque::new(), VecDeque::new(), None);
        let (fill_tokens, warmed_tokens, compactions, drops) = (0, 0, 0, 0);
        TurnLog {
            preset,
            arm,
            gpu,
            turns,
            responses,
            most_responses,
            spans,
            fill_tokens,
            warmed_tokens,
            answered,
            compactions,
            drops,
        }
    }

    /// Notes that a response was asked for. Its report may come long after its last word.
    pub fn asked(&mut self, response_id: String, span: Span) {
        self.spans.push_back((response_id, span));
        while self.spans.len() > self.most_responses {
            self.spans.pop_front();
        }
    }

    pub fn see(&mut self, event: &Event) {
        match event {
            Event::Compaction(Compaction { stage: CompactionStage::Completed { .. }, .. }) => self.compactions += 1,
            Event::Compaction(Compaction { stage: CompactionStage::Dropped { .. }, .. }) => self.drops += 1,
            _ => {}
        }
    }

    /// Notes that a warm-up read this many tokens of the next prompt.
    pub fn warmed(&mut self, tokens: u64) {
        self.warmed_tokens += tokens;
    }

    pub fn is_turn(&self, response_id: &str) -> bool {
        self.responses.iter().any(|turn| turn.response_id == response_id)
    }

    /// Takes an operation. Returns the cost of a turn if it reports one. `is_heard`: a client listens.
    pub fn kept(&mut self, op: &StoreOp, is_heard: bool, at_ms: i64) -> Option<Measurement> {
        match op {
            StoreOp::ResponseStarted { response_id, in_conversation: true, .. } => {
                let response_id = response_id.clone();
                self.responses.push_back(OpenTurn { response_id, ..OpenTurn::default() });
                // A model that failed reports nothing.
                while self.responses.len() > self.most_responses {
                    self.responses.pop_front();
                }
            }
            StoreOp::ReplyBegun { response_id, item, after } => {
                if let Some(turn) = self.responses.iter_mut().find(|turn| turn.response_id == *response_id) {
                    if turn.items.is_empty() {
                        turn.regenerated = self.answered.replace(after.clone()).as_ref() == Some(after);
                    }
                    turn.items.push(item.id.clone());
                }
            }
            StoreOp::ReplyResumed { response_id, item } => {
                if let Some(turn) = self.responses.iter_mut().find(|turn| turn.response_id == *response_id) {
                    turn.items.push(item.id.clone());
                }
            }
            StoreOp::ItemTruncated { item, .. } => {
                let unmeasured = self.responses.iter_mut().filter(|turn| turn.items.contains(&item.id));
                unmeasured.for_each(|turn| turn.barged_in = true);
            }
            StoreOp::ResponseFinished { response_id, status, usage, .. } => {
                if let Some(turn) = self.responses.iter_mut().find(|turn| turn.response_id == *response_id) {
                    turn.barged_in |= *status == ResponseStatus::Cancelled && is_heard;
                    turn.usage = Some(*usage);
                }
            }
            StoreOp::ResponseReported { response_id, report } => return self.measure(response_id, report, at_ms),
            _ => {}
        }
        None
    }

    fn measure(&mut self, response_id: &str, report: &TurnReport, at_ms: i64) -> Option<Measurement> {
        let asked = self.spans.iter().position(|(id, _)| id == response_id).and_then(|at| self.spans.remove(at));
        let span = asked.map(|(_, span)| span).filter(|span| span.id() != Span::current().id());
        let entered = span.as_ref().map(Span::enter);
        tracing::info!(
            reused_tokens = report.reused_tokens,
            computed_tokens = report.computed_tokens,
            reason = report.reason.unwrap_or("-"),
            queue_ms = report.queue_ms,
            prefill_ms = report.prefill_ms,
            first_token_ms = report.first_token_ms.unwrap_or(f64::NAN),
            total_ms = report.total_ms,
            "a reply is done"
        );
        drop(entered);
        let index = self.responses.iter().position(|turn| turn.response_id == response_id)?;
        let OpenTurn { regenerated, barged_in, usage, .. } = self.responses.remove(index)?;
        let usage = usage?;
        let mut memory: Map<String, Value> =
            report.memory_bytes.iter().map(|(kind, bytes)| ((*kind).to_owned(), json!(bytes))).collect();
        if let Some(gpu) = &self.gpu {
            memory.extend(gpu.memory_bytes().into_iter().map(|(kind, bytes)| (kind.to_owned(), json!(bytes))));
        }
        let turn = self.turns;
        self.turns += 1;
        // A reply that went on stands behind a prompt that it did not read.
        let prompt_tokens = usage.input_tokens.max(report.reused_tokens + report.computed_tokens);
        if prompt_tokens > 0 {
            self.fill_tokens = prompt_tokens + usage.output_tokens;
        }
        let (experiment, arm) = self.arm.clone().unzip();
        let measurement = Measurement {
            turn,
            response: Some(response_id.to_owned()),
            experiment,
            arm,
            preset: self.preset.name.clone(),
            ctx_size: u64::from(self.preset.ctx_size),
            tokens_in: usage.input_tokens,
            tokens_out: usage.output_tokens,
            fill_tokens: self.fill_tokens,
            reused_tokens: report.reused_tokens,
            warm_tokens: std::mem::take(&mut self.warmed_tokens).min(report.reused_tokens),
            computed_tokens: report.computed_tokens,
            computed_reason: report.reason.map(str::to_owned),
            queue_ms: report.queue_ms,
            prefill_ms: report.prefill_ms,
            first_token_ms: report.first_token_ms,
            first_sentence_ms: report.first_sentence_ms,
            total_ms: report.total_ms,
            decode_ms: report.decode_ms,
            compactions: std::mem::take(&mut self.compactions),
            drops: std::mem::take(&mut self.drops),
            barged_in,
            regenerated,
            feedback: None,
            memory: Value::Object(memory),
            created_at_ms: at_ms,
        };
        metrics::measured(&measurement);
        Some(measurement)
    }
}
