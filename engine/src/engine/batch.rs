//! One step: the chosen tokens of the chosen requests go through the model together, and drafts of the tokens behind
//! them.

use std::sync::Arc;

use super::Engine;
use crate::active_request::{ActiveRequest, RequestStart};
use crate::cached_sequence::CachedSequence;
use crate::network::{PredictionLane, StepLane, WantedLogits};
use crate::request::{EngineEvent, PrefillReason, RequestId, StopReason};
use crate::snapshot::Snapshot;
use crate::state::PAGE_TOKENS;

impl Engine {
    /// Computes pending tokens of these requests, given as (index, number of tokens), and chooses the next token of
    /// each that has computed all of them; after that the accepted drafts.
    pub(super) fn run(&mut self, chosen: &[(usize, usize)], events: &mut Vec<EngineEvent>) {
        let of_prompts = chosen.iter().filter(|(at, _)| !self.requests[*at].is_decoding());
        self.pace.begin(of_prompts.map(|(_, count)| count).sum());
        let mut snapshots_of = self.allocate_snapshots(chosen);
        let drafts_of: Vec<usize> = chosen.iter().map(|(at, _)| self.requests[*at].draft.tokens.len()).collect();
        self.drafting.begin(chosen, chosen.iter().map(|(at, _)| &self.requests[*at].draft));
        let wanted_of: Vec<WantedLogits> =
            chosen.iter().map(|(at, count)| self.requests[*at].wanted_logits(*count)).collect();
        let mut lanes = Vec::with_capacity(chosen.len());
        let mut rest = &mut self.requests[..];
        let mut passed = 0;
        let parts = chosen.iter().zip(&mut snapshots_of).zip(&drafts_of).zip(&wanted_of);
        for ((((at, count), snapshots), drafts), wanted) in parts {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(at - passed + 1);
            (rest, passed) = (tail, at + 1);
            let Some(ActiveRequest { tokens, sequence: Some(sequence), prompt_tokens, draft, .. }) = head.last_mut()
            else {
                continue;
            };
            sequence.recurrence_log.expect(*prompt_tokens);
            let position = sequence.state.position;
            tokens.extend(&draft.tokens);
            lanes.push(StepLane {
                state: &mut sequence.state,
                tokens: &tokens[position..][..count + drafts],
                wanted: *wanted,
                recurrence_log: Some(&mut sequence.recurrence_log),
                snapshots,
                drafts: *drafts,
            });
        }
        let Some(logits) = self.executor.forward(&self.network, &mut lanes) else { return };
        if self.network.cut_file().is_some() {
            return;
        }
        let mut rows = logits.chunks_exact_mut(self.network.model.shape.vocab);
        let (mut ended, mut accepted_of, mut first_of_choices) = (Vec::new(), Vec::new(), Vec::new());
        let waits_for = |first: RequestId, others: &[ActiveRequest]| {
            others.iter().any(|other| other.choice_of == Some(first) && !other.is_running())
        };
        let parts = chosen.iter().zip(snapshots_of).zip(drafts_of).zip(wanted_of);
        for ((((at, count), snapshots), drafts), wanted) in parts {
            let request = &mut self.requests[*at];
            request.tokens.truncate(request.tokens.len() - drafts);
            if let Some(sequence) = &mut request.sequence {
                sequence.snapshots.extend(snapshots.into_iter().map(Arc::new));
            }
            let is_scored = wanted == WantedLogits::All;
            let wanted = wanted.of(0..count + drafts, drafts).len();
            let mut rows: Vec<&mut [f32]> = rows.by_ref().take(wanted).collect();
            if is_scored {
                request.score(&rows, events);
            }
            if !request.pending().is_empty() {
                continue;
            }
            if request.max_new_tokens == 0 {
                events.push(request.done(StopReason::Warm));
                ended.push(request.id);
                continue;
            }
            let (id, begins) = (request.id, request.tokens.len() == request.prompt_tokens);
            let rows = &mut rows[wanted.saturating_sub(1 + drafts)..];
            if begins && waits_for(id, &self.requests) {
                // The sampler of the first changes them.
                first_of_choices.extend(rows.first().map(|logits| (id, logits.to_vec())));
            }
            let request = &mut self.requests[*at];
            let stop_tokens = &self.network.model.stop_tokens;
            let (accepted, goes_on) = request.write_drafted(rows, stop_tokens, &self.tokenizer, events);
            if !goes_on {
                ended.push(request.id);
            }
            if drafts > 0 {
                accepted_of.push((*at, accepted));
            }
        }
        for (at, accepted) in accepted_of {
            self.pass_drafts(at, accepted);
        }
        for (first, logits) in first_of_choices {
            self.begin_choices(first, &logits, &mut ended, events);
        }
        for id in ended {
            if let Some(at) = self.requests.iter().position(|request| request.id == id) {
                let request = self.requests.remove(at);
                self.keep(request);
            }
        }
    }

    /// Starts the choices of a request whose prompt was just computed from its state, each with a first token of its own.
    /// A choice without room begins later, as any other request.
    fn begin_choices(
        &mut self,
        first: RequestId,
        logits: &[f32],
        ended: &mut Vec<RequestId>,
        events: &mut Vec<EngineEvent>,
    ) {
        let Some(from) = self.requests.iter().position(|request| request.id == first) else { return };
        let bytes = self.network.state_shape.fixed_bytes();
        let choices = self.requests.iter().filter(|request| request.choice_of == Some(first)).count();
        self.most_choices = self.most_choices.max(1 + choices);
        for at in 0..self.requests.len() {
            let (request, first) = (&self.requests[at], &self.requests[from]);
            let goes_on = request.choice_of == Some(first.id)
                && request.start.is_none()
                && request.max_new_tokens > 0
                && request.prompt_logprobs.is_none()
                && (request.kv, request.scope) == (first.kv, first.scope)
                && first.tokens.starts_with(&request.tokens)
                && request.tokens.len() == first.position();
            let running = self.requests.iter().filter(|request| request.is_running()).count();
            if !goes_on || running >= self.limits.max_sequences || !self.make_room(bytes, request.rights()) {
                continue;
            }
            let Some(sequence) = &self.requests[from].sequence else { return };
            let mut sequence = sequence.branch(&self.network, &mut self.executor, sequence.state.position);
            let (request, reason) = (&mut self.requests[at], PrefillReason::NewText);
            let reused_tokens = request.tokens.len();
            request.take_over(&mut sequence);
            (request.sequence, request.computed_at) = (Some(sequence), self.steps);
            request.start = Some(RequestStart { reused_tokens, reason });
            events.push(EngineEvent::Started { id: request.id, reused_tokens, reason });
            let stop_tokens = &self.network.model.stop_tokens;
            if !request.write_token(&mut logits.to_vec(), stop_tokens, &self.tokenizer, events) {
                ended.push(request.id);
            }
        }
    }

    fn pass_drafts(&mut self, at: usize, accepted: usize) {
        let request = &mut self.requests[at];
        self.drafting.learn(&request.draft, accepted);
        if let Some(CachedSequence { state, recurrence_log, .. }) = &mut request.sequence {
            let position = state.position + accepted;
            if accepted > 0 {
                let outputs = std::mem::take(&mut state.outputs);
                self.executor.replay(&self.network, state, recurrence_log, position);
                state.outputs = outputs;
            }
            state.keep_output(accepted, self.network.shape().hidden);
            recurrence_log.truncate(position);
        }
    }

    pub(super) fn draft(&mut self, chosen: &[(usize, usize)]) {
        let rows: usize = chosen.iter().map(|(_, count)| count).sum();
        let most_drafts = self.executor.most_drafts();
        let can_go_back = self.limits.recurrence_log_tokens > most_drafts;
        let writes = |(at, count): &(usize, usize)| {
            let request = &self.requests[*at];
            request.is_decoding() && *count == request.pending().len()
        };
        let mut left =
            if can_go_back && chosen.iter().all(writes) { (most_drafts + 1).saturating_sub(rows) } else { 0 };
        let (hidden, mtp) = (self.network.shape().hidden, self.drafting.limits.mtp);
        let mut predicted = Vec::new();
        for (at, _) in chosen {
            let request = &mut self.requests[*at];
            let end = (request.prompt_tokens + request.max_new_tokens).min(request.ctx_size);
            let most = left.min(end.saturating_sub(request.tokens.len() + 1));
            // It writes keys and values behind the end, and takes no memory for that: at a page's end it waits for the
            // next step.
            let can_predict = mtp > 0
                && request.pending().len() == 1
                && request
                    .sequence
                    .as_ref()
                    .is_some_and(|CachedSequence { state, .. }| state.outputs.len() == hidden && state.has_room(mtp));
            let count = self.drafting.draft(&request.tokens, most, can_predict, &mut request.draft);
            left -= count + request.draft.tokens.len();
            if count > 0 {
                predicted.push((*at, count));
            }
        }
        self.predict(&predicted);
    }

    fn predict(&mut self, wanted: &[(usize, usize)]) {
        let mut wanted = wanted.iter().peekable();
        let mut lanes = Vec::new();
        for (at, request) in self.requests.iter_mut().enumerate() {
            let Some((_, count)) = wanted.next_if(|(wanted, _)| *wanted == at) else { continue };
            let ActiveRequest { tokens, sequence: Some(sequence), draft, .. } = request else { continue };
            let Some(token) = tokens.last().copied() else { continue };
            lanes.push(PredictionLane { state: &mut sequence.state, token, count: *count, drafts: &mut draft.tokens });
        }
        if !lanes.is_empty() {
            self.executor.predict(&self.network, &mut lanes, self.drafting.limits.mtp_vocab);
        }
    }

    /// Allocates the snapshots that the step takes of each request. If memory is short, the last ones come first.
    fn allocate_snapshots(&mut self, chosen: &[(usize, usize)]) -> Vec<Vec<Snapshot>> {
        let (shape, format) = (self.network.state_shape, self.limits.snapshots);
        let needed = self.bytes_of(chosen) + shape.snapshot_bytes(format);
        let mut snapshots_of = Vec::with_capacity(chosen.len());
        for (at, count) in chosen {
            let (stops, rights) = (self.requests[*at].stops(*count, &self.limits), self.requests[*at].rights());
            if let Some(sequence) = self.requests[*at].sequence.as_mut().filter(|_| !stops.is_empty()) {
                sequence.thin(&self.limits);
            }
            let mut snapshots = Vec::with_capacity(stops.len());
            for position in stops.into_iter().rev() {
                if !self.make_room(needed, rights) {
                    break;
                }
                snapshots.push(Snapshot::unwritten(position, &shape, format, &self.meter));
            }
            snapshots.reverse();
            snapshots_of.push(snapshots);
        }
        snapshots_of
    }

    pub(super) fn bytes_of(&self, chosen: &[(usize, usize)]) -> usize {
        let shape = &self.network.state_shape;
        let sequences = chosen.iter().filter_map(|(at, count)| {
            let request = &self.requests[*at];
            Some((request.sequence.as_ref()?, count + request.draft.tokens.len()))
        });
        sequences
            .map(|(sequence, count)| {
                let (position, pages) = (sequence.state.position, sequence.state.pages.len());
                let needed = (position + count).div_ceil(PAGE_TOKENS) - position / PAGE_TOKENS;
                let shared = pages - position / PAGE_TOKENS;
                (needed.max(shared)) * shape.page_bytes(&sequence.state.layout)
                    + sequence.recurrence_log.bytes_of(count)
            })
            .sum()
    }
}
