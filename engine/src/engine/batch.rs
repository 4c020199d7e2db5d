//! One step: the chosen tokens of the chosen requests go through the model together.

use std::sync::Arc;

use super::Engine;
use crate::active_request::ActiveRequest;
use crate::network::{StepLane, WantedLogits};
use crate::request::{EngineEvent, StopReason};
use crate::snapshot::Snapshot;
use crate::state::PAGE_TOKENS;

impl Engine {
    /// Computes pending tokens of these requests, given as the index of each and a number of tokens, and chooses the next token
    /// of each that has computed all of them.
    pub(super) fn run(&mut self, chosen: &[(usize, usize)], events: &mut Vec<EngineEvent>) {
        let mut snapshots_of = self.allocate_snapshots(chosen);
        let mut lanes = Vec::with_capacity(chosen.len());
        let mut rest = &mut self.requests[..];
        let mut passed = 0;
        for ((at, count), snapshots) in chosen.iter().zip(&mut snapshots_of) {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(at - passed + 1);
            (rest, passed) = (tail, at + 1);
            let Some(ActiveRequest { tokens, sequence: Some(sequence), max_new_tokens, prompt_tokens, .. }) =
                head.last_mut()
            else {
                continue;
            };
            sequence.recurrence_log.expect(*prompt_tokens);
            let position = sequence.state.position;
            let wanted = position + count == tokens.len() && *max_new_tokens > 0;
            lanes.push(StepLane {
                state: &mut sequence.state,
                tokens: &tokens[position..][..*count],
                wanted: if wanted { WantedLogits::Last } else { WantedLogits::Nothing },
                recurrence_log: Some(&mut sequence.recurrence_log),
                snapshots,
            });
        }
        let Some(logits) = self.executor.forward(&self.network, &mut lanes) else { return };
        if self.network.cut_file().is_some() {
            return;
        }
        let mut rows = logits.chunks_exact_mut(self.network.model.shape.vocab);
        let mut ended = Vec::new();
        for ((at, _), snapshots) in chosen.iter().zip(snapshots_of) {
            let request = &mut self.requests[*at];
            if let Some(sequence) = &mut request.sequence {
                sequence.snapshots.extend(snapshots.into_iter().map(Arc::new));
            }
            if !request.pending().is_empty() {
                continue;
            }
            if request.max_new_tokens == 0 {
                events.push(request.done(StopReason::Warm));
                ended.push(request.id);
            } else if let Some(logits) = rows.next()
                && !request.write_token(logits, &self.network.model.stop_tokens, &self.tokenizer, events)
            {
                ended.push(request.id);
            }
        }
        for id in ended {
            if let Some(at) = self.requests.iter().position(|request| request.id == id) {
                let request = self.requests.remove(at);
                self.keep(request);
            }
        }
    }

    /// Room for the snapshots that the step takes of each request. If memory is short, the last ones come first.
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

    /// The most bytes that computing these tokens allocates: pages and recurrence logs.
    pub(super) fn bytes_of(&self, chosen: &[(usize, usize)]) -> usize {
        let shape = &self.network.state_shape;
        let sequences = chosen.iter().filter_map(|(at, count)| Some((self.requests[*at].sequence.as_ref()?, *count)));
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
